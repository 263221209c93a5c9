"""EpilogSlurmctld: look, decide, record, act; then let the requeued job start at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from slurm_ft.config import Config
from slurm_ft.controller import carry_out, reconcile
from slurm_ft.controller.detach import detach
from slurm_ft.controller.gather import ended_attempt, wait_out_epilogs
from slurm_ft.controller.job_lock import job_lock
from slurm_ft.controller.judge import judge, note_end, tidy_nodes
from slurm_ft.controller.settle import settle
from slurm_ft.controller.site import Site
from slurm_ft.failover.progress import Progress
from slurm_ft.journal_entry import Stage
from slurm_ft.log import open_log
from slurm_ft.slurm import environment

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
    seen = note_end(site, environ, ended)
    ended = wait_out_epilogs(site.slurm, config, ended)
    with job_lock(config.state_dir, key.raw_id, LOCK_WAIT):
        judged = judge(site, seen, ended)
        decision = judged.decision and carry_out.carry_out(site, judged.decision)
    if decision and decision.open:
        detach(partial(_finish, site, decision))
    tidy_nodes(site, judged.gathered)
    reconcile.finish_others(site, key.raw_id)
    return 0


def _finish(site: Site, decision: Progress) -> None:
    """Runs detached, after the hook has returned; its log is opened anew, since it keeps no descriptor."""
    site = replace(site, log=open_log(site.config, NAME))
    at = carry_out.finish(site, decision)
    if at.has(Stage.RELEASED):
        settle(site, at)
