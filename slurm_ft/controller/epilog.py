"""EpilogSlurmctld: look, decide, record, act; then let the requeued job start at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from slurm_ft.config import Config
from slurm_ft.controller import carry_out, reconcile
from slurm_ft.controller.detach import detach
from slurm_ft.controller.gather import Ended, ended_attempt, wait_for_requeue, wait_out_epilogs
from slurm_ft.controller.job_lock import job_lock
from slurm_ft.controller.judge import Judged, judge, note_end, tidy_nodes
from slurm_ft.controller.settle import settle
from slurm_ft.controller.site import Site
from slurm_ft.controller.tell import tell
from slurm_ft.errors import SlurmFtError
from slurm_ft.failover import claim, progress
from slurm_ft.failover.progress import Progress
from slurm_ft.journal_entry import Entry, Stage
from slurm_ft.log import open_log
from slurm_ft.slurm import environment
from slurm_ft.slurm.protocol import JobRecord

NAME = "slurmctld_epilog"
PATIENCE = 180.0  # seconds, beyond the wait for the node epilogs, in which a slow controller is asked again
LOCK_WAIT = 30.0  # seconds; another process at work on the job asks Slurm a handful of things


def run(environ: Mapping[str, str], config: Config) -> int:
    """Handle the end of one attempt. Raises SlurmFtError; the caller fails open."""
    site = Site.of(config, NAME, environ, config.node_epilog_wait + PATIENCE)
    key = environment.job_key(environ)
    ended = ended_attempt(site.slurm, key)
    if ended is None:
        site.log.warning("job %s: Slurm has forgotten it; nothing to decide", key.address)
        return 0
    ended = replace(ended, expedited=_expedited(site, environ, ended))
    seen = note_end(site, environ, ended)
    if ended.expedited and _below_limit(site, ended.job, seen.run):
        detach(partial(_follow, site, seen, ended))
        return 0
    judged, decision = _settle(site, seen, wait_out_epilogs(site.slurm, config, ended))
    if decision and decision.open:
        detach(partial(_finish, site, decision))
    tell(site, judged)
    tidy_nodes(site, judged.gathered)
    reconcile.finish_others(site, key.raw_id)
    return 0


def _expedited(site: Site, environ: Mapping[str, str], ended: Ended) -> bool:
    failed = environment.exit_status(environ).code != 0 and not ended.requeued
    return failed and site.acting and site.slurm.expedited(ended.key.address)


def _below_limit(site: Site, job: JobRecord, run: str) -> bool:
    """Then Slurm may go ahead: it requeues the job as soon as this hook and the nodes' have ended, or holds it."""
    known = progress.history(job, site.entries(job.raw_id), run)
    return progress.spent(job, known) < claim.limit(job.comment, site.config)


def _settle(site: Site, seen: Entry, ended: Ended) -> tuple[Judged, Progress | None]:
    with job_lock(site.config.state_dir, ended.key.raw_id, LOCK_WAIT):
        judged = judge(site, seen, ended)
        return judged, judged.decision and carry_out.carry_out(site, judged.decision)


def _follow(site: Site, seen: Entry, ended: Ended) -> None:
    """Runs detached: count and record what Slurm does by itself."""
    site = replace(site, log=open_log(site.config, NAME))
    try:
        judged, decision = _settle(site, seen, wait_for_requeue(site.slurm, site.config, ended))
        if decision:
            _carry_through(site, decision)
        tell(site, judged)
        tidy_nodes(site, judged.gathered)
    except SlurmFtError as error:
        site.log.error("job %s: not recorded yet, `slurm-ft reconcile` goes on: %s", ended.key.address, error)


def _finish(site: Site, decision: Progress) -> None:
    """Runs detached, after the hook has returned; its log is opened anew, since it keeps no descriptor."""
    _carry_through(replace(site, log=open_log(site.config, NAME)), decision)


def _carry_through(site: Site, decision: Progress) -> None:
    at = carry_out.finish(site, decision)
    if at.has(Stage.RELEASED):
        settle(site, at)
