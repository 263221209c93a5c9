"""Tell people what a decision means for them. Comes after the job was looked after, and never raises."""

from __future__ import annotations

from contextlib import suppress

from slurm_ft.alert import Alert, alert
from slurm_ft.alerts import decisions, spool
from slurm_ft.alerts.decisions import Job
from slurm_ft.controller.judge import Judged
from slurm_ft.controller.site import Site
from slurm_ft.failover import resume_tag
from slurm_ft.model import JobKey
from slurm_ft.slurm.protocol import JobRecord


def tell(site: Site, judged: Judged) -> None:
    """What the decision about an ended attempt calls for, and what the job said about itself."""
    record = judged.gathered.job
    if judged.decision:
        entry = judged.decision.decided
        for one in decisions.about(entry, site.entries(record.raw_id), _job(record), site.config):
            alert(site.log, one.what, one)
    about_mark = _about_mark(site, record)
    if about_mark:
        alert(site.log, about_mark.what, about_mark)


def spool_mark(site: Site, record: JobRecord) -> None:
    """For a look at all jobs every minute: into the spool alone, whose sender tells it once."""
    fresh = record.started is not None and record.started > site.now() - site.config.alert_cool_down
    about_mark = _about_mark(site, record) if fresh and site.config.alert_channels else None
    if about_mark:
        with suppress(OSError):
            spool.put(site.config.state_dir, about_mark)


def _about_mark(site: Site, record: JobRecord) -> Alert | None:
    mark = resume_tag.read(record.comment)
    if mark is None or not mark.alert:
        return None
    key = JobKey(record.raw_id, record.address, mark.attempt)
    return decisions.about_mark(mark.alert, key, _job(record), site.now())


def _job(record: JobRecord) -> Job:
    mark = resume_tag.read(record.comment)
    step = mark.step if mark else None
    checkpoint = "" if mark is None else "none" if step is None else f"step {step}"
    return Job(record.name, record.user, record.nodes, checkpoint)
