"""What a job may claim: whether it fails over at all, how often, and what it has spent of that. Pure."""

from __future__ import annotations

from slurm_ft.config import Config, OptIn
from slurm_ft.failover import comment_tag, ledger
from slurm_ft.slurm.protocol import JobRecord


def opted_in(job: JobRecord, config: Config) -> bool:
    """Whether the job asked for failover, in the way the site has chosen, and is in a partition that has it."""
    if not in_partition(job, config):
        return False
    if config.opt_in is OptIn.TAG:
        return comment_tag.read(job.comment) is not None
    return config.opt_in is OptIn.ALL or job.requeue


def in_partition(job: JobRecord, config: Config) -> bool:
    """Whether the site has failover in the job's partition. A pending job may name several."""
    return not config.partitions or not set(config.partitions).isdisjoint(job.partition.split(","))


def limit(comment: str, config: Config) -> int:
    """The job's own limit where it asks for one, never above the site's maximum."""
    tag = comment_tag.read(comment)
    asked = config.limit if tag is None or tag.limit is None else tag.limit
    return min(asked, config.limit_max)


def spent(comment: str, admin_comment: str) -> int:
    """Failovers spent: the greater of tag and ledger, so that erasing one wins nothing."""
    tag, history = comment_tag.read(comment), ledger.read(admin_comment)
    return max(tag.count if tag else 0, history.count if history else 0)
