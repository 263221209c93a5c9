"""Whether Slurm's release and settings let a failover happen. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from slurm_ft.config import Config, Gate
from slurm_ft.doctor.cluster import Cluster
from slurm_ft.doctor.finding import Finding, Stage, fail, ok, warning
from slurm_ft.install.slurm_conf import runs_at_allocation
from slurm_ft.slurm.fields import EXPEDITED, OLD, SID, TRIXIE

STAGE = Stage.SLURM
NODE_HOOK_S = 70  # seconds: the node Epilog's own bound, and some for its shell part
CONTROLLER_HOOK_S = 30  # seconds for the controller's hook beside its wait for the nodes
NO_LIMIT = 65534  # what Slurm shows for "none"


def judge_settings(cluster: Cluster, config: Config) -> tuple[Finding, ...]:
    """Every setting that matters to us, a line each."""
    return (
        _version(cluster),
        _requeue(cluster),
        _prolog_flags(cluster),
        _prolog_failures(cluster, config),
        _append(cluster),
        *_timeouts(cluster, config),
        _accounting(cluster),
        _expedited(cluster),
    )


def version(cluster: Cluster) -> tuple[int, ...]:
    """(22, 5, 8); empty if Slurm does not say it."""
    found = re.match(r"[0-9.]+", cluster.settings.get("SLURM_VERSION", ""))
    return tuple(int(part) for part in found[0].split(".") if part) if found else ()


def _version(cluster: Cluster) -> Finding:
    text, found = cluster.settings.get("SLURM_VERSION", "unknown"), version(cluster)
    if found[:2] in (OLD, TRIXIE, SID):
        return ok(STAGE, f"release {text}: tested with it")
    if found[:2] < OLD:
        fix = "Upgrade to 22.05 or newer; see docs/slurm_versions.md"
        return fail(STAGE, f"release {text}: older than any that slurm_ft was tested with", fix)
    return warning(
        STAGE, f"release {text}: not tested; those before and after it are", "Try it: slurm-ft doctor --canary NODE"
    )


def _requeue(cluster: Cluster) -> Finding:
    if cluster.settings.get("JobRequeue") == "1":
        return ok(STAGE, "JobRequeue=1")
    return warning(
        STAGE, "JobRequeue=0: only jobs submitted with --requeue fail over", "JobRequeue=1, or plugins/job_submit.lua"
    )


def _prolog_flags(cluster: Cluster) -> Finding:
    flags = cluster.settings.get("PrologFlags", "")
    if runs_at_allocation(flags):
        return ok(STAGE, f"PrologFlags={flags}: the Prolog runs when the job starts")
    what = f"PrologFlags={flags or '(none)'}: a node without a step has no mark of the job's start in its kernel log"
    return fail(STAGE, what, "PrologFlags=Alloc in slurm.conf")


def _prolog_failures(cluster: Cluster, config: Config) -> Finding:
    unheld = "nohold_on_prolog_fail" in cluster.words("SchedulerParameters")
    if unheld or config.prolog_gate is not Gate.ACT:
        return ok(
            STAGE, "nohold_on_prolog_fail is set" if unheld else "nohold_on_prolog_fail: not needed (prolog_gate)"
        )
    what = "nohold_on_prolog_fail is not set: a job that the Prolog's gate refuses is held until a hook releases it"
    return warning(STAGE, what, "SchedulerParameters=nohold_on_prolog_fail in slurm.conf")


def _append(cluster: Cluster) -> Finding:
    if cluster.settings.get("JobFileAppend") == "1":
        return ok(STAGE, "JobFileAppend=1: a log goes on across attempts")
    if "lua" in cluster.words("CliFilterPlugins"):
        return ok(STAGE, "JobFileAppend=0, but CliFilterPlugins=lua may ask for append")
    what = "JobFileAppend=0: a job without --open-mode=append loses its log when it is requeued"
    return warning(STAGE, what, "JobFileAppend=1, or plugins/cli_filter.lua")


def _timeouts(cluster: Cluster, config: Config) -> Iterator[Finding]:
    """One for all until Slurm 25.05, one for each kind of hook from then on."""
    names = ("PrologEpilogTimeout", "EpilogTimeout")
    limits = {name: _seconds(cluster.settings[name]) for name in names if name in cluster.settings}
    for name, seconds in limits.items():
        if seconds is None:
            yield ok(STAGE, f"{name}: none")
        elif seconds < NODE_HOOK_S:
            what = f"{name}={seconds}: Slurm kills a node Epilog that is still looking at its sensors"
            yield fail(STAGE, what, f"{name}={NODE_HOOK_S} or more")
        elif seconds < config.node_epilog_wait + CONTROLLER_HOOK_S:
            least = f"{config.node_epilog_wait + CONTROLLER_HOOK_S:g}"
            what = f"{name}={seconds}: the controller's hook may be killed while it waits for a node"
            yield warning(STAGE, what, f"{name}={least} or more, or a smaller node_epilog_wait")
        else:
            yield ok(STAGE, f"{name}={seconds}")


def _seconds(text: str) -> int | None:
    """None: no limit."""
    found = re.match(r"[0-9]+", text)
    return None if found is None or int(found[0]) >= NO_LIMIT else int(found[0])


def _accounting(cluster: Cluster) -> Finding:
    storage = cluster.settings.get("AccountingStorageType", "")
    if storage in ("", "accounting_storage/none"):
        return ok(STAGE, "no accounting: finished jobs are known from the journal alone")
    if "job_comment" in cluster.words("AccountingStoreFlags"):
        return ok(STAGE, "AccountingStoreFlags has job_comment: sacct shows the count of finished jobs")
    what = "AccountingStoreFlags lacks job_comment: sacct does not show the count of finished jobs"
    return warning(STAGE, what, "AccountingStoreFlags=job_comment in slurm.conf")


def _expedited(cluster: Cluster) -> Finding:
    on = "enable_expedited_requeue" in cluster.words("SlurmctldParameters")
    if on and not EXPEDITED.on(version(cluster)):
        return warning(STAGE, "enable_expedited_requeue is set, but this release does not know it", "Take it out")
    words = "on: jobs of --requeue=expedite are requeued by Slurm on our verdict" if on else "off: slurm_ft requeues"
    return ok(STAGE, f"expedited requeue is {words}")
