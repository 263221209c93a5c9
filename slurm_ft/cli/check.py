"""`slurm-ft check SCRIPT`: what of an sbatch script would spoil a failover, before it is submitted. Asks nobody."""

from __future__ import annotations

import argparse
import json
import os
import stat
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from slurm_ft import config
from slurm_ft.checkpoints import printable
from slurm_ft.errors import SlurmFtError
from slurm_ft.submission import storage
from slurm_ft.submission.directories import directories
from slurm_ft.submission.rules import Finding, Level, Submission, check
from slurm_ft.submission.script import read, with_others

SCHEMA_VERSION = 1
MAX_SIZE = 4 << 20  # bytes: Slurm's own bound (max_script_size)
EPILOG = """\
examples:
  slurm-ft check train.sbatch
  slurm-ft check train.sbatch -- --time=2-0 --exclude=n7     as `sbatch --time=2-0 --exclude=n7 train.sbatch` would be
  slurm-ft check --json train.sbatch
The environment counts as it does for sbatch: SBATCH_REQUEUE and the like, and variables that the script uses.
Exit code: 0; 1 when there is an error, with --strict also when there is a warning."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.formatter_class, parser.epilog = argparse.RawDescriptionHelpFormatter, EPILOG
    parser.usage = "slurm-ft check [options] SCRIPT … [-- OPTIONS OF SBATCH]"
    parser.add_argument("scripts", nargs="+", type=Path, metavar="SCRIPT", help="what would be given to sbatch")
    parser.add_argument("-q", "--quiet", action="store_true", help="leave out what is well")
    parser.add_argument("--strict", action="store_true", help="a warning is an error")
    parser.add_argument("--json", action="store_true", help="one JSON object for each script")
    parser.set_defaults(command=())  # what is behind `--`


def run(arguments: argparse.Namespace) -> int:
    """Check each script. Raises SlurmFtError for one that cannot be read."""
    settings = config.load()
    bad = (Level.ERROR, Level.WARNING) if arguments.strict else (Level.ERROR,)
    code = 0
    for path in arguments.scripts:
        findings = check(_submission(path, arguments.command, settings))
        if any(finding.level in bad for finding in findings):
            code = 1
        print(as_json(path, findings) if arguments.json else as_text(path, findings, quiet=arguments.quiet))
    return code


def _submission(path: Path, given: Sequence[str], settings: config.Config) -> Submission:
    script = with_others(read(_text(path)), os.environ, given)
    chdir = script.settings.get("chdir")
    directory = str(Path.cwd() / chdir.value if chdir else Path.cwd())
    found = tuple(directories(script.body, os.environ, directory))
    return Submission(script, settings, found, storage.mounts())


def _text(path: Path) -> str:
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe or a device may never end
            raise SlurmFtError(f"{path} is no regular file", "Name an sbatch script")
        with path.open("rb") as file:
            content = file.read(MAX_SIZE + 1)
    except OSError as error:
        raise SlurmFtError(f"{path} cannot be read: {error.strerror}", "Name an sbatch script") from error
    if len(content) > MAX_SIZE:
        raise SlurmFtError(f"{path} has more than {MAX_SIZE} bytes, and Slurm takes no such script", "Is it a script?")
    return content.decode("utf-8", "surrogateescape")


def as_text(path: Path, findings: Sequence[Finding], *, quiet: bool) -> str:
    """One line for each finding, as compilers write them, and the sum."""
    lines = [_line(path, finding) for finding in findings if not (quiet and finding.level is Level.OK)]
    count = Counter(finding.level for finding in findings)
    errors, warnings = count[Level.ERROR], count[Level.WARNING]
    lines.append(f"{path}: {errors} error{'s' * (errors != 1)}, {warnings} warning{'s' * (warnings != 1)}")
    return "\n".join(printable(line) for line in lines)


def _line(path: Path, finding: Finding) -> str:
    place = finding.place
    where = f"{path}:{place.line}" if place.line else f"{path}: {place.name}" if place.name else str(path)
    return f"{where}: {finding.level.value}: {finding.what}" + (f". {finding.fix}" if finding.fix else "")


def as_json(path: Path, findings: Sequence[Finding]) -> str:
    """The same for a program. `line` is null for what no line says; `from`: a variable, or the command line."""
    count = Counter(finding.level for finding in findings)
    return json.dumps(
        {
            "v": SCHEMA_VERSION,
            "script": str(path),
            "errors": count[Level.ERROR],
            "warnings": count[Level.WARNING],
            "findings": [
                {
                    "level": finding.level.value,
                    "rule": finding.rule,
                    "line": finding.place.line,
                    "from": finding.place.name,
                    "what": finding.what,
                    "fix": finding.fix,
                }
                for finding in findings
            ],
        }
    )
