"""`slurm-ft classify FILE`: what would we have said? Judges a pasted log, a case, or a file of cases offline."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm_ft import config
from slurm_ft.checkpoints.printable import printable
from slurm_ft.cli.case_file import (
    KEYS,
    CaseError,
    CaseText,
    Expected,
    documents_of,
    looks_like_case,
    read_case,
    read_cases,
)
from slurm_ft.cli.offline import Answer, answer, judge
from slurm_ft.model import Event, EventKind, Evidence, ExitStatus, NodeAction
from slurm_ft.override_file import load_overrides
from slurm_ft.sensors import kernel_log, text_log
from slurm_ft.sensors.kernel_lines import parse_line
from slurm_ft.sensors.log_time import log_time
from slurm_ft.sensors.output_signatures import output_events
from slurm_ft.sensors.pci_address import canonical_pci

if TYPE_CHECKING:
    from slurm_ft.classify.overrides import Overrides

MAX_PASTED = 1 << 20  # bytes looked at for signatures of a job's output
MAX_SHOWN = 50  # events in the text output
NOTHING_RECOGNISED = "no line of a kernel log was recognised"
_PACKED = {  # how such a file begins -> what reads it
    b"\x1f\x8b": "zcat",
    b"\xfd7zXZ\0": "xzcat",
    b"BZh": "bzcat",
    b"\x28\xb5\x2f\xfd": "zstdcat",
    b"\xff\xfe": "iconv -f utf-16",
    b"\xfe\xff": "iconv -f utf-16",
}
_KINDS = {EventKind.OUTPUT: "job", EventKind.SLURM: "job", EventKind.GPU_STATE: "host"}
_OF_THE_JOB = ("oom_kill", "oom_kill_elsewhere")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "file", nargs="?", metavar="FILE", help="dmesg, syslog, journalctl -o json, or a case; - reads standard input"
    )
    parser.add_argument("--cases", metavar="FILE", help="judge a file of cases and compare with what each expects")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--gpus", metavar="PCI,…", help="only these are the job's GPUs, such as 0000:3b:00.0 (default: all)"
    )
    parser.add_argument(
        "--overrides", metavar="FILE", help="the site's verdict overrides (default for FILE: the site's)"
    )
    parser.add_argument("--exit", default="1:0", metavar="CODE:SIGNAL", help="how the job ended (default: %(default)s)")


def run(arguments: argparse.Namespace) -> int:
    """Print the verdicts; exit code 1 when one differs from what its case expects."""
    if (arguments.file is None) == (arguments.cases is None):
        raise CaseError("classify needs either FILE or --cases FILE", "See slurm-ft classify --help")
    given = Path(arguments.overrides) if arguments.overrides else None
    if arguments.cases is not None:
        return _run_cases(arguments.cases, load_overrides(given), as_json=arguments.json)
    overrides = load_overrides(given or config.load().verdict_overrides)
    name = arguments.file
    data = _read(name)
    _refuse_packed(data, name)
    text = data.decode("utf-8", "replace") if len(data) < MAX_PASTED else ""
    case = next(read_cases(text, name), None) if looks_like_case(text) else None
    judged = answer(case, overrides) if case else _judge_log(data, arguments, overrides)
    print(json.dumps(_file_object(judged), ensure_ascii=False) if arguments.json else _file_text(judged))
    return 0


def _run_cases(name: str, overrides: Overrides, *, as_json: bool) -> int:
    differs = errors = judged_cases = 0
    for document, where in documents_of(_read(name).decode("utf-8", "replace"), name):
        try:
            case = read_case(document, where)
        except CaseError as error:  # the other cases are judged all the same
            print(f"slurm-ft: {error}", file=sys.stderr)
            errors += 1
            continue
        errors += _warn(case, where)
        judged = answer(case, overrides)
        judged_cases += 1
        differences = compare(judged, case.expected) if case.expected else []
        differs += bool(differences)
        print(json.dumps(case_object(case, judged), ensure_ascii=False) if as_json else _case_text(case, judged))
        for difference in differences:
            print(f"  {case.id}: {difference}", file=sys.stderr if as_json else sys.stdout)
    if errors:
        return CaseError.exit_code
    if not judged_cases:  # a truncated file must not pass for one that is right
        raise CaseError(f"{name}: holds no case", "See docs/adding_a_case.md for the format")
    return 1 if differs else 0


def _warn(case: CaseText, where: str) -> bool:
    """Whether there was a reason: with a slip of the pen, or nothing expected, a case tests nothing and passes."""
    for key in case.unknown_keys:
        print(f"slurm-ft: {where}: unknown key {key!r}. Valid keys: {', '.join(KEYS)}", file=sys.stderr)
    if case.expected is None:
        print(f"slurm-ft: {where}: nothing is expected of it. Add `expected: {{verdict: …}}`", file=sys.stderr)
    return bool(case.unknown_keys) or case.expected is None


def compare(judged: Answer, expected: Expected) -> list[str]:
    """Where the answer differs from the expected one, tolerated answers aside; one sentence each."""
    verdict, action = judged.verdict.domain, judged.verdict.node_action.now.value
    found = []
    if verdict is not expected.domain and verdict not in expected.also:
        found.append(f"verdict is {verdict.value}, expected {expected.domain.value}")
    # Who may answer `unknown` to a hardware case need not drain then.
    actions = {expected.node_action, *(("none",) if verdict is not expected.domain else ())}
    if "either" not in actions and action not in actions:
        found.append(f"node action is {action}, expected {expected.node_action}")
    if expected.imagepull is not None and judged.imagepull is not expected.imagepull:
        found.append(f"imagepull is {judged.imagepull}, expected {expected.imagepull}")
    if expected.no_retry and judged.retry:
        found.append("the job would be retried, and must not be")
    return [f"{text} ({expected.why})" if expected.why else text for text in found]


def case_object(case: CaseText, judged: Answer) -> dict[str, Any]:
    """One case as JSON."""
    verdict = judged.verdict
    return {
        "id": case.id,
        "verdict": verdict.domain.value,
        "node_action": verdict.node_action.now.value,
        "drain_after_repeat": verdict.node_action is NodeAction.DRAIN_AFTER_REPEAT,
        "imagepull": judged.imagepull,
        "retry": judged.retry,
        "reason": verdict.reason,
        "rule": verdict.rule,
        "evidence": _evidence_lines(judged),
    }


def _evidence_lines(judged: Answer) -> list[str]:
    """The decisive line first, then the others."""
    decisive = judged.verdict.decisive
    first = [] if decisive is None else [decisive.source]
    return first + [event.source for event in judged.events if event != decisive][: MAX_SHOWN - len(first)]


def _case_text(case: CaseText, judged: Answer) -> str:
    verdict = judged.verdict
    parts = (case.id or "-", verdict.domain.value, verdict.node_action.now.value, verdict.reason)
    return ", ".join(printable(part) for part in parts)


def _judge_log(data: bytes, arguments: argparse.Namespace, overrides: Overrides) -> Answer:
    events = text_log.events_in_text(data)
    gpus = _gpus(arguments.gpus)
    kept = tuple(one for one in events if gpus is None or one.kind in kernel_log.OF_THE_NODE or one.pci in gpus)
    why = text_log.refused(data[:4096].decode("utf-8", "replace").splitlines())
    output = _pasted_output(data)
    if not (why or events or output.events or _any_recognised(data)):
        why = NOTHING_RECOGNISED
    try:
        end = ExitStatus.parse(arguments.exit)
    except ValueError:
        raise CaseError(f"--exit: {arguments.exit!r} is not `code:signal`") from None
    return judge((Evidence(kernel_log.SENSOR, readable=not why, events=kept, detail=why), output), end, overrides)


def _any_recognised(data: bytes) -> bool:
    """Whether a line of the text looks like one of a log; an empty one has none that does not. Raises CaseError."""
    if any(map(_of_a_log, data[:MAX_PASTED].decode("utf-8", "replace").split("\n"))) or not data.strip():
        return True
    if b"\0" in data:  # within a log they are what a power failure leaves behind
        raise CaseError("the input is binary: no line of a kernel log in it", "Give what dmesg or journalctl -k prints")
    return False


def _of_a_log(line: str) -> bool:
    return line.startswith(("{", "kernel:")) or bool(log_time(line) or parse_line(line))


def _pasted_output(data: bytes) -> Evidence:
    """Lines that no log tool printed may be the job's own output, pasted below the log."""
    lines = data[:MAX_PASTED].decode("utf-8", "replace").split("\n")
    foreign = ["" if _of_a_log(line) else line for line in lines]
    return Evidence("job_output", readable=True, events=output_events(foreign))


def _gpus(text: str | None) -> frozenset[str] | None:
    if text is None:
        return None
    found = {word: canonical_pci(word.strip()) for word in text.split(",")}
    wrong = next((word for word, pci in found.items() if pci is None), None)
    if wrong is not None:
        raise CaseError(f"--gpus: {wrong!r} is no PCI address", "Write it as 0000:3b:00.0")
    return frozenset(pci for pci in found.values() if pci is not None)


def _file_object(judged: Answer) -> dict[str, Any]:
    verdict = judged.verdict
    return {
        "events": [_event_object(event) for event in sorted(judged.events, key=lambda event: event.line or 0)],
        "verdict": {
            "domain": verdict.domain.value,
            "cause": verdict.cause,
            "rule": verdict.rule,
            "scope": verdict.scope.value,
            "certainty": verdict.certainty.value,
            "imagepull": judged.imagepull,
            "retry": judged.retry,
            "line": verdict.decisive.line if verdict.decisive else None,
            "drain_after_repeat": verdict.node_action is NodeAction.DRAIN_AFTER_REPEAT,
        },
        "node_action": verdict.node_action.now.value,
        "reason": verdict.reason,
    }


def _event_object(event: Event) -> dict[str, Any]:
    kind = "job" if event.name in _OF_THE_JOB else _KINDS.get(event.kind, event.kind.value)
    found: dict[str, Any] = {"kind": kind, "code": event.code, "pci": event.pci, "line": event.line}
    return {**found, "name": event.name} if event.name else found


def _file_text(judged: Answer) -> str:
    verdict = judged.verdict
    events = sorted(judged.events, key=lambda event: event.line or 0)
    lines = [f"{event.line or '-'}: {printable(event.source)}" for event in events[:MAX_SHOWN]]
    if len(events) > MAX_SHOWN:
        lines.append(f"… and {len(events) - MAX_SHOWN} more")
    return "\n".join(
        (
            *lines,
            f"verdict: {verdict.domain.value} ({verdict.cause})",
            f"node action: {verdict.node_action.value.replace('_', ' ')}",
            f"reason: {verdict.reason}",
        )
    )


def _refuse_packed(data: bytes, name: str) -> None:
    """Raises CaseError."""
    reader = next((reader for start, reader in _PACKED.items() if data.startswith(start)), "")
    if reader:
        shown = "FILE" if name == "-" else printable(name)
        raise CaseError(f"{name}: compressed, or no UTF-8", f"Read it so: {reader} {shown} | slurm-ft classify -")


def _read(name: str) -> bytes:
    try:
        if name != "-" and Path(name).is_char_device():  # /dev/zero, /dev/kmsg: they never end
            raise CaseError(f"{name}: is a device, no file", "Give what dmesg prints: dmesg | slurm-ft classify -")
        return sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise CaseError(f"{name}: cannot be read: {error.strerror or error}") from error
