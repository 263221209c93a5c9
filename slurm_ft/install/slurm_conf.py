"""What slurm.conf has to say, compared with what it says; and our lines in it, between two marks. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from slurm_ft.lab.spec import HOOKS

BEGIN, END = "# slurm_ft: begin (written by slurm-ft install)", "# slurm_ft: end"
_OURS = re.compile(rf"\n?{re.escape(BEGIN)}\n(?P<lines>(?:(?!#).*\n)*){re.escape(END)}\n")
_PAIR = re.compile(r"(?:^|(?<=\s))([A-Za-z]\w*)\s*=\s*(\"[^\"]*\"|\S*)")
_NOT_SETTINGS = ("nodename", "nodeset", "partitionname", "downnodes", "frontendname", "include")
LISTS = ("PrologFlags", "JobSubmitPlugins", "CliFilterPlugins")  # settings that hold several values
# Each of these has Slurm run the Prolog when the job starts, as Alloc does (slurm.conf's manual page).
ALLOC = ("alloc", "contain", "forcerequeueonfail", "nohold", "runinjob", "x11")


@dataclass(frozen=True, slots=True)
class Setting:
    """One line that is wanted, and what slurm.conf says instead: None where it does not name the key."""

    key: str
    value: str
    found: str | None = None

    @property
    def line(self) -> str:
        """As it stands in slurm.conf."""
        return f"{self.key}={self.value}"

    @property
    def met(self) -> bool:
        """Whether slurm.conf says so already."""
        if self.key == "PrologFlags":
            return runs_at_allocation(self.found or "")
        if self.key in LISTS:
            return self.value in (self.found or "").split(",")
        return self.found == self.value

    @property
    def missing(self) -> bool:
        """Whether it can be added; a key that has another value is the admin's to change."""
        return self.found is None

    @property
    def conflict(self) -> str:
        """What the admin has to do, where slurm.conf says something else."""
        if self.key in LISTS:
            return f"add {self.value}: {self.key}={self.found},{self.value}"
        return f"it is {self.found}: call {self.value} from there, or put this line in its place"


def runs_at_allocation(prolog_flags: str) -> bool:
    """Whether these PrologFlags start the Prolog with the job, and not with its first step on a node."""
    return not set(prolog_flags.lower().split(",")).isdisjoint(ALLOC)


def wanted(prefix: Path, *, plugins: bool = False) -> dict[str, str]:
    """The settings of a slurm_ft that lives in the virtual environment `prefix`, in the order of the documentation."""
    share = prefix / "share" / "slurm_ft"
    hooks = {parameter: str(share / file) for parameter, file in HOOKS.values()}
    more = {"JobSubmitPlugins": "lua", "CliFilterPlugins": "lua"} if plugins else {}
    return {**hooks, "PrologFlags": "Alloc", **more}


def compare(text: str, settings: Mapping[str, str]) -> tuple[Setting, ...]:
    """Each wanted setting beside what the slurm.conf `text` says of it, our own lines included."""
    found = read(text)
    return tuple(Setting(key, value, found.get(key.lower())) for key, value in settings.items())


def missing(text: str, settings: Mapping[str, str]) -> tuple[str, ...]:
    """The lines that ours would be: those that the rest of the file leaves open."""
    return tuple(setting.line for setting in compare(without_ours(text), settings) if setting.missing)


def read(text: str) -> dict[str, str]:
    """Lower-case key -> value of the cluster's settings; the last one counts. What `Include` names is not read."""
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        pairs = _PAIR.findall(line)
        if pairs and pairs[0][0].lower() not in _NOT_SETTINGS:
            found.update((key.lower(), value.strip('"')) for key, value in pairs)
    return found


def includes(text: str) -> bool:
    """Whether it names further files, which may hold what seems to be missing."""
    return any(line.strip().lower().startswith("include ") for line in _logical_lines(text))


def _logical_lines(text: str) -> Iterable[str]:
    joined = re.sub(r"\\\n", " ", text)
    return (re.sub(r"(?<!\\)#.*", "", line) for line in joined.splitlines())


def without_ours(text: str) -> str:
    """The file without our lines; what the admin wrote between our marks goes with them only if it is a setting."""
    return _OURS.sub("", text)


def ours(text: str) -> str | None:
    """Our lines as they stand in the file, or None."""
    match = _OURS.search(text)
    return match["lines"] if match else None


def with_ours(text: str, lines: Iterable[str]) -> str:
    """The file with these as our lines, at its end."""
    before = without_ours(text)
    gap = "" if before.endswith("\n") or not before else "\n"
    return f"{before}{gap}\n{BEGIN}\n{block(lines)}{END}\n"


def block(lines: Iterable[str]) -> str:
    """Our lines as they are written."""
    return "".join(f"{line}\n" for line in lines)
