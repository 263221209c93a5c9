from __future__ import annotations

from pathlib import Path

import pytest

from slurm_ft import config
from slurm_ft.classify import classify
from slurm_ft.errors import ConfigError
from slurm_ft.model import Evidence, ExitStatus, Verdict
from slurm_ft.override_file import load_overrides, parse_overrides
from slurm_ft.sensors.kernel_lines import parse_line

DISK = "blk_update_request: I/O error, dev nvme0n1, sector 1"
NONE_TO_RESET = "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"


def xid(code: int, text: str = "text") -> str:
    return f"NVRM: Xid (PCI:0000:3b:00): {code}, {text}"


def judge(overrides: str, *lines: str) -> Verdict:
    events = tuple(event for number, line in enumerate(lines) if (event := parse_line(line, number)) is not None)
    return classify(
        [Evidence("kernel_log", readable=True, events=events)], ExitStatus(1, 0), parse_overrides(overrides, "o.yaml")
    )


@pytest.mark.parametrize(
    ("overrides", "lines", "expected"),
    [
        ("", [xid(109)], ("unknown", "none")),
        ("xid: {109: {class: hardware, reason: r}}", [xid(109)], ("hardware", "drain")),
        ("xid: {109: {class: hardware, node_action: none, reason: r}}", [xid(109)], ("hardware", "none")),
        ("xid: {48: {class: ambiguous, reason: r}}", [xid(48)], ("unknown", "none")),
        ("xid: {94: {node_action: drain, reason: r}}", [xid(94)], ("hardware", "drain")),
        ("xid: {48: {node_action: none, reason: r}}", [xid(48)], ("hardware", "none")),
        ("xid: {48: {node_action: none, reason: r}}", [xid(48), xid(154, NONE_TO_RESET)], ("hardware", "drain")),
        ("xid: {79: {class: info, reason: r}}", [xid(48)], ("hardware", "drain")),
        ("sxid: {48: {class: info, reason: r}}", [xid(48)], ("hardware", "drain")),
        ("host: {disk_io_error: {class: info, reason: r}}", [DISK], ("unknown", "none")),
    ],
)
def test_a_site_reads_a_code_otherwise(overrides: str, lines: list[str], expected: tuple[str, str]) -> None:
    verdict = judge(overrides, *lines)
    assert (verdict.domain.value, verdict.node_action.value) == expected


def test_the_reason_is_shown() -> None:
    assert "(this site: ticket 4711)" in judge("xid: {109: {class: hardware, reason: ticket 4711}}", xid(109)).reason


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("xid: [", "o.yaml: not YAML"),
        ("- xid", "o.yaml:1: expected `key: value` lines"),
        (
            "xid:\n  13: {class: hardware, reason: r}\nxids: {}",
            "o.yaml:3: unknown kind 'xids'. Valid: xid, sxid, off_bus",
        ),
        ("xid: {x: {class: hardware, reason: r}}", "o.yaml:1: xid: 'x' is no code. Valid: a number"),
        (
            "xid:\n  13:\n    class: hw\n    reason: r",
            "o.yaml:3: xid: 13: class: 'hw' is unknown. Valid: hardware, app",
        ),
        (
            "xid: {13: {node_action: reboot, reason: r}}",
            "o.yaml:1: xid: 13: node_action: 'reboot' is unknown. Valid: drain, none",
        ),
        ("xid: {13: {class: hardware}}", "o.yaml:1: xid: 13: a reason is missing"),
        ("xid: {13: {reason: r}}", "o.yaml:1: xid: 13: changes nothing. Valid: class, node_action"),
        ("xid: {13: {action: x}}", "o.yaml:1: xid: 13: unknown key 'action'. Valid: class, node_action, reason"),
        ("xid:\n  13: {class: info, reason: r}\n  13: {class: info, reason: r}", "o.yaml:3: xid: 13 is given twice"),
        ("host: {fire: {class: info, reason: r}}", "o.yaml:1: host: unknown name 'fire'. Valid: mce_uncorrected"),
    ],
)
def test_errors_name_file_line_key_and_what_is_valid(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_overrides(text, "o.yaml")
    assert message in str(error.value)


def test_the_file_is_named_in_the_configuration(tmp_path: Path) -> None:
    path = tmp_path / "overrides.yaml"
    path.write_text("xid: {109: {class: hardware, reason: r}}\n")
    path.chmod(0o644)
    settings = config.parse(f"verdict_overrides: {path}\n")
    assert len(load_overrides(settings.verdict_overrides)) == 1
    assert load_overrides(None) == {}
    path.chmod(0o666)
    with pytest.raises(ConfigError, match="writable"):
        load_overrides(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        load_overrides(tmp_path / "missing")
