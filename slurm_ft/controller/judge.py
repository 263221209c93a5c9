"""Judge the end of one attempt: note it, gather what is known, decide, and put the decision into the journal."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from slurm_ft.alert import breaker_opened
from slurm_ft.controller.gather import Ended, Gathered, gather
from slurm_ft.controller.site import Site
from slurm_ft.errors import SlurmCommandError
from slurm_ft.failover import actions, brake, ledger, progress
from slurm_ft.failover.cascade import wrongly_drained
from slurm_ft.failover.policy import decide
from slurm_ft.failover.progress import Progress
from slurm_ft.failover.restraint import Surroundings, restraints
from slurm_ft.journal_entry import Entry, Stage
from slurm_ft.slurm import environment


def note_end(site: Site, environ: Mapping[str, str], ended: Ended) -> Entry:
    """Put the end of the attempt into the journal, so that it is judged even if this hook is killed."""
    run = progress.run_id(ended.job, site.entries(ended.job.raw_id)) or secrets.token_hex(6)
    return site.write(
        Entry(
            at=site.now(),
            stage=Stage.SEEN,
            key=ended.key,
            cluster=site.cluster,
            run=run,
            submitted=ended.job.submitted,
            mode=site.config.mode.value,
            told={name: environ[name] for name in environment.TOLD if name in environ},
        )
    )


@dataclass(frozen=True, slots=True)
class Judged:
    """The decision about an attempt, and what it was taken on; no decision when the ledger alone knows of one."""

    gathered: Gathered
    decision: Progress | None


def judge(site: Site, seen: Entry, ended: Ended) -> Judged:
    """A new decision, or the one that an earlier process took and may not have carried out. Raises SlurmFtError.

    For the holder of the job's lock.
    """
    gathered = gather(site.slurm, site.config, seen.told, ended, site.now())
    known = site.entries(gathered.job.raw_id)
    before = _decided(known, seen)
    if before or _in_ledger(gathered, seen):
        site.log.warning("job %s attempt %d is decided on already", seen.key.address, seen.key.attempt)
        return Judged(gathered, before)
    return Judged(gathered, Progress(_decide(site, seen, gathered, known)))


def tidy_nodes(site: Site, gathered: Gathered) -> None:
    """What remains to be done about the nodes, once the job is looked after."""
    if site.acting:
        _lift_drains(site, gathered)
        _latch(site, gathered)
    _erase_notes(site, gathered)


def _decided(known: Sequence[Entry], seen: Entry) -> Progress | None:
    return next((one for one in progress.decisions(known) if one.decided.matter == seen.matter), None)


def _in_ledger(gathered: Gathered, seen: Entry) -> bool:
    history = ledger.read(gathered.job.admin_comment)
    return history is not None and any(attempt.number == seen.key.attempt for attempt in history.attempts)


def _decide(site: Site, seen: Entry, gathered: Gathered, known: Sequence[Entry]) -> Entry:
    job, now = gathered.job, site.now()
    history = progress.history(job, known, seen.run)
    held = restraints(job, gathered.end.key.attempt, history, Surroundings(gathered.fleet, site.config, now))
    end = replace(gathered.end, restraints=held)
    decision = decide(end, gathered.verdicts, progress.spent(job, history))
    return site.write(
        Entry(
            at=now,
            stage=Stage.DECIDED,
            key=end.key,
            cluster=seen.cluster,
            run=seen.run,
            submitted=job.submitted,
            mode=site.config.mode.value,
            nodes=end.nodes,
            started=end.started,
            decision=decision,
        )
    )


def _lift_drains(site: Site, gathered: Gathered) -> None:
    """Nodes that saw only the far end of another node's fault go back into service."""
    key = gathered.end.key
    for name in wrongly_drained(gathered.end, gathered.verdicts):
        try:
            done = actions.lift_drain(site.slurm, name, key)
            site.log.info("job %s: %s, its fault was at the far end of a link", key.address, done)
        except SlurmCommandError as error:
            site.log.warning("%s stays drained, though its fault was at the far end of a link: %s", name, error)


def _latch(site: Site, gathered: Gathered) -> None:
    """Nodes that drained themselves in the same moment did not see each other; whoever comes next must."""
    tripped = brake.tripped(gathered.fleet, (), site.config, site.now())
    if tripped is None or brake.in_force(gathered.fleet):
        return
    try:
        actions.put_on_brake(site.slurm, site.slurm.nodes(), tripped)
    except SlurmCommandError as error:
        site.log.warning("the breaker could not be latched: %s", error)
    breaker_opened(site.log, str(tripped))


def _erase_notes(site: Site, gathered: Gathered) -> None:
    try:
        for raw_id in gathered.end.component_ids or (gathered.end.key.raw_id,):
            actions.erase_notes(site.slurm, gathered.nodes, raw_id)
    except SlurmCommandError as error:
        site.log.warning("a read verdict stays in a node's Comment: %s", error)
