"""Whether what slurm_ft keeps is where the site wants it, and readable by nobody else: state, spool, log."""

from __future__ import annotations

import os
import pwd
import stat
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from slurm_ft.config import Config
from slurm_ft.doctor.finding import Finding, Stage, fail, ok, warning
from slurm_ft.install.change import Role

STAGE = Stage.RECORDS
MOST_FILES = 100_000  # that are looked at


def check_records(config: Config, roles: frozenset[Role], slurm_user: str) -> Iterator[Finding]:
    """The state directory with journal, evidence and spool, and the log."""
    yield check_state(config.state_dir, roles, slurm_user)
    if config.state_dir.is_dir():
        yield check_privacy(config.state_dir)
    if config.log_file is not None:
        yield check_log(config.log_file)


def check_state(state_dir: Path, roles: frozenset[Role], slurm_user: str) -> Finding:
    """On the controller it has to be SlurmUser's."""
    if not state_dir.is_dir():
        what = f"state_dir {state_dir} does not exist"
        if Role.CONTROLLER in roles:
            return fail(
                STAGE, f"{what}: SlurmUser's hooks cannot keep their journal", "slurm-ft install --role controller"
            )
        return warning(STAGE, f"{what}: the first hook that needs it makes it", "slurm-ft install --role node")
    owner = _name(state_dir.stat().st_uid)
    if Role.CONTROLLER in roles and owner not in (slurm_user, *(("root",) if slurm_user == "root" else ())):
        fix = f"chown -R {slurm_user}: {state_dir}"
        return fail(STAGE, f"state_dir {state_dir} belongs to {owner}, and the hooks run as {slurm_user}", fix)
    if why := unwritable(state_dir):
        return fail(STAGE, f"nothing can be written into state_dir {state_dir}: {why}", "Make room, or remount it")
    return ok(STAGE, f"state_dir {state_dir} belongs to {owner}")


def unwritable(directory: Path) -> str:
    """Why a file cannot be written there: read-only, full. "" if it can, or if only its owner may."""
    try:
        with tempfile.TemporaryFile(dir=directory) as probe:
            probe.write(b"slurm-ft doctor\n" * 256)  # a full disk still makes an empty file
            probe.flush()
            os.fsync(probe.fileno())
    except PermissionError as error:
        return str(error.strerror) if os.geteuid() == directory.stat().st_uid else ""
    except OSError as error:
        return str(error.strerror)
    return ""


def check_privacy(state_dir: Path) -> Finding:
    """It names users' jobs, and quotes their output. Raises nothing: what cannot be looked at is said."""
    status = state_dir.stat()
    if status.st_mode & stat.S_IWGRP or status.st_mode & stat.S_IRWXO:
        return fail(STAGE, f"others can look into {state_dir} or change it", f"chmod 750 {state_dir}")
    if not os.access(state_dir, os.R_OK | os.X_OK):
        return warning(STAGE, f"{state_dir} cannot be looked at by you", "Run as root or as SlurmUser")
    seen = next(world_readable(state_dir), None)
    if seen is not None:
        return warning(STAGE, f"{seen} is readable by everybody, if its directory once is", f"chmod o-rwx {seen}")
    return ok(STAGE, f"journal, evidence and spool in {state_dir} are private")


def world_readable(directory: Path) -> Iterator[Path]:
    """The files and directories below that others may read."""
    every = (Path(base, name) for base, folders, files in os.walk(directory) for name in (*folders, *files))
    for path in islice(every, MOST_FILES):
        status = path.lstat()
        if status.st_mode & stat.S_IRWXO and not stat.S_ISLNK(status.st_mode):
            yield path


def check_log(path: Path) -> Finding:
    """It may be missing: the first hook makes it, readable by its owner and group."""
    if not path.exists():
        return warning(
            STAGE, f"log_file {path} does not exist yet", "slurm-ft install makes it, for SlurmUser to write to"
        )
    if path.stat().st_mode & stat.S_IRWXO:
        return fail(STAGE, f"log_file {path} is readable by everybody", f"chmod 640 {path}")
    return ok(STAGE, f"log_file {path} is private")


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user id {uid}"
