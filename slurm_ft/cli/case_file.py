"""Files of cases: what a node, a job and Slurm said, and what the verdict must be (docs/adding_a_case.md)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from slurm_ft.errors import SlurmFtError
from slurm_ft.model import Domain, ExitStatus
from slurm_ft.sensors.log_time import LogTime, log_time
from slurm_ft.sensors.pci_address import canonical_pci
from slurm_ft.sensors.text_log import TextWindow

TEXTS = ("kernel_log", "job_output_tail", "gpu_state", "nic_state", "slurmctld_log")
ACTIONS = ("drain", "none", "either")
KEYS = (
    *("id", "source", "description", *TEXTS, "exit", "slurm_state", "job_gpus", "job_window", "expected"),
    *("also_ok_verdicts", "imagepull_either", "no_retry", "lines_reconstructed", "composite", "teaching_example"),
    "confidence",
)
_BETWEEN = re.compile(r" +(?:-|--|–|to|until|\.\.) +|\.\.|/|, *")  # the ends of a window in one text
_Loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # every scalar stays text: YAML would read `1:30` as 90


class CaseError(SlurmFtError):
    """A file of cases cannot be used; names file, case, key and what is valid."""

    exit_code = 65  # EX_DATAERR of sysexits.h


@dataclass(frozen=True, slots=True)
class Expected:
    """What the verdict must be, and which other answers are tolerated."""

    domain: Domain
    also: frozenset[Domain]
    node_action: str
    imagepull: bool | None  # None: either
    no_retry: bool
    why: str


@dataclass(frozen=True, slots=True)
class CaseText:
    """One case, as written. A text that the file does not have is None: nobody looked there."""

    id: str
    texts: Mapping[str, tuple[str, ...] | None]
    exit: ExitStatus
    slurm_state: str
    gpus: frozenset[str] | None
    window: TextWindow | None
    expected: Expected | None
    source: str = ""
    marks: Mapping[str, str] = field(default_factory=dict)
    unknown_keys: tuple[str, ...] = ()  # not read; a slip of the pen, or a note

    def lines(self, name: str) -> tuple[str, ...]:
        """The lines of one text; none if the case lacks it."""
        return self.texts.get(name) or ()


def read_cases(text: str, name: str) -> Iterator[CaseText]:
    """The cases in the YAML documents of the file `name`. Raises CaseError."""
    for document, where in documents_of(text, name):
        yield read_case(document, where)


def documents_of(text: str, name: str) -> Iterator[tuple[Any, str]]:
    """Each document of the file `name`, unread, with the words that say where it stands. Raises CaseError."""
    try:
        documents = list(yaml.load_all(text, Loader=_Loader))
    except (yaml.YAMLError, RecursionError) as error:
        raise CaseError(f"{name}: not YAML: {' '.join(str(error).split())}", "Mend the syntax") from error
    for number, document in enumerate(documents, start=1):
        if isinstance(document, list):  # a file may also hold one list of cases
            for place, entry in enumerate(document, start=1):
                yield entry, f"{name}: case {place}"
        elif document:
            yield document, f"{name}: case {number}"


def looks_like_case(text: str) -> bool:
    """Whether a pasted file is a case and not a log: a mapping with a key of ours, at the start of a line."""
    return any(line.startswith(tuple(f"{key}:" for key in (*TEXTS, "exit", "job_gpus"))) for line in text.splitlines())


def read_case(document: Any, where: str) -> CaseText:
    """Read one document. Raises CaseError."""
    if not isinstance(document, dict):
        raise CaseError(f"{where}: expected `key: value` lines", f"Valid keys: {', '.join(KEYS)}")
    where = f"{where} ({document.get('id', 'without id')})"
    marks = {key: str(value) for key, value in document.items() if str(key).endswith("_assumed") or key in KEYS[-4:]}
    return CaseText(
        id=str(document.get("id", "")),
        texts={name: _lines(document[name], f"{where}: {name}") if name in document else None for name in TEXTS},
        exit=_exit(document, where),
        slurm_state=str(document.get("slurm_state", "")),
        gpus=_gpus(document, where),
        window=_window(document.get("job_window"), where),
        expected=_expected(document, where) if "expected" in document else None,
        source=str(document.get("source", "")),
        marks=marks,
        unknown_keys=tuple(str(key) for key in document if key not in KEYS and not str(key).endswith("_assumed")),
    )


def _lines(value: Any, where: str) -> tuple[str, ...]:
    """A list of lines, or one text of several."""
    if value in (None, ""):
        return ()
    entries = [value] if isinstance(value, str) else value
    if not isinstance(entries, list) or not all(isinstance(entry, str) for entry in entries):
        raise CaseError(f"{where}: expected a list of lines")
    return tuple(line for entry in entries for line in (entry.split("\n") if "\n" in entry else [entry]))


def _exit(document: Mapping[str, Any], where: str) -> ExitStatus:
    default = "0:0" if document.get("slurm_state") == "COMPLETED" else "1:0"
    text = str(document.get("exit") or default)
    try:
        return ExitStatus.parse(text)
    except ValueError:
        raise CaseError(f"{where}: exit: {text!r} is not `code:signal`") from None


def _gpus(document: Mapping[str, Any], where: str) -> frozenset[str] | None:
    if "job_gpus" not in document:
        return None
    found = set()
    for text in _lines(document["job_gpus"], f"{where}: job_gpus"):
        pci = canonical_pci(text.strip())
        if pci is None:
            raise CaseError(f"{where}: job_gpus: {text!r} is no PCI address such as 0000:3b:00.0")
        found.add(pci)
    return frozenset(found)


def _window(value: Any, where: str) -> TextWindow | None:
    if not value:
        return None
    if isinstance(value, str):
        value = _BETWEEN.split(value.strip(), maxsplit=1)
    if isinstance(value, dict):
        value = [value.get("start", ""), value.get("end", "")]
    if not isinstance(value, list) or len(value) != 2:
        raise CaseError(f"{where}: job_window: expected start and end")
    return TextWindow(*(_time(entry, where) for entry in value))


def _time(value: Any, where: str) -> LogTime | None:
    text = str(value or "").strip()
    if text in ("", "null", "~", "-"):
        return None
    time = log_time(text)
    if time is None:
        raise CaseError(f"{where}: job_window: {text!r} is no time in the log's clock")
    return time


def _expected(document: Mapping[str, Any], where: str) -> Expected:
    expected = document["expected"]
    if not isinstance(expected, dict):
        raise CaseError(f"{where}: expected: must hold verdict and node_action")

    def tolerated(key: str) -> Any:  # some files have these beside `expected`, some inside
        return expected.get(key, document.get(key))

    action = expected.get("node_action", "either")
    if action not in ACTIONS:
        raise CaseError(f"{where}: expected: node_action: {action!r} is not one of {', '.join(ACTIONS)}")
    either = _true(tolerated("imagepull_either")) or "imagepull" not in expected
    return Expected(
        domain=_domain(expected.get("verdict"), where),
        also=frozenset(_domain(word, where) for word in tolerated("also_ok_verdicts") or ()),
        node_action=action,
        imagepull=None if either else _true(expected["imagepull"]),
        no_retry=_true(tolerated("no_retry")),
        why=str(expected.get("why", "")),
    )


def _domain(value: Any, where: str) -> Domain:
    try:
        return Domain(value)
    except ValueError:
        valid = ", ".join(domain.value for domain in Domain)
        raise CaseError(f"{where}: expected: verdict: {value!r} is not one of {valid}") from None


def _true(value: Any) -> bool:
    return str(value).lower() in ("true", "yes", "on")
