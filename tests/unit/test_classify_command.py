from __future__ import annotations

import gzip
import io
import json
import lzma
import sys
from pathlib import Path
from typing import Any

import pytest

from slurm_ft.cli.main import main

XID = "NVRM: Xid (PCI:0000:3b:00): {}, pid=7, name=python, text"
CASE = """
id: A1
source: a test
kernel_log: ['NVRM: Xid (PCI:0000:3b:00): 79, x']
exit: '1:0'
job_gpus: [0000:3b:00.0]
expected: {verdict: VERDICT, node_action: drain, imagepull: false, why: off the bus}
"""


@pytest.fixture(autouse=True)
def no_site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "slurm_ft.yaml"
    path.write_text("mode: observe\n")
    path.chmod(0o644)
    monkeypatch.setenv("SLURM_FT_CONFIG", str(path))


def asked(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    code = main(["classify", "--json", *arguments])
    out = capsys.readouterr().out
    return code, [json.loads(line) for line in out.splitlines()]


def test_a_pasted_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "dmesg.txt"
    path.write_text(
        f"[1.0] Linux version 6\n[2.0] {XID.format(31)}\n[3.0] {XID.format(79)}\n[3.0] {XID.format(79)}\n"
        "[4.0] NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.\n"
        "[5.0] EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0 (channel:0)\n"
        "RuntimeError: CUDA error: unknown error\n"
    )
    code, (answer,) = asked(capsys, str(path))
    assert code == 0
    assert set(answer) == {"events", "verdict", "node_action", "reason"}
    found = [(event["kind"], event["code"], event["pci"], event["line"]) for event in answer["events"]]
    assert found == [
        ("xid", 31, "0000:3b:00", 2),
        ("xid", 79, "0000:3b:00", 3),
        ("off_bus", None, "0000:3b:00", 5),
        ("host", None, None, 6),
        ("job", None, None, 7),
    ]
    assert (answer["verdict"]["domain"], answer["verdict"]["line"], answer["node_action"]) == ("hardware", 3, "drain")
    assert asked(capsys, str(path), "--gpus", "0000:5e:00.0")[1][0]["verdict"]["cause"] == "edac_uncorrected"


def test_standard_input_and_plain_text(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(XID.format(13).encode() + b"\xff\x00")))
    assert main(["classify", "-"]) == 0
    assert "verdict: application (xid13)\nnode action: none\nreason: Xid 13" in capsys.readouterr().out


def test_an_evidence_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "case.yaml"
    path.write_text(CASE.replace("VERDICT", "hardware"))
    _, (answer,) = asked(capsys, str(path))
    assert answer["verdict"]["cause"] == "xid79"


@pytest.mark.parametrize(("verdict", "code"), [("hardware", 0), ("unknown", 1)])
def test_cases(tmp_path: Path, capsys: pytest.CaptureFixture[str], verdict: str, code: int) -> None:
    path = tmp_path / "cases.yaml"
    path.write_text(CASE.replace("VERDICT", verdict) + "---" + CASE.replace("VERDICT", "hardware"))
    found, answers = asked(capsys, "--cases", str(path))
    assert (found, len(answers)) == (code, 2)
    assert {key: answers[0][key] for key in ("id", "verdict", "node_action", "imagepull", "retry", "rule")} == {
        "id": "A1",
        "verdict": "hardware",
        "node_action": "drain",
        "imagepull": False,
        "retry": True,
        "rule": "hardware_fault",
    }
    assert answers[0]["evidence"] == ["NVRM: Xid (PCI:0000:3b:00): 79, x"]
    assert main(["classify", "--cases", str(path)]) == code
    out = capsys.readouterr().out
    assert out.startswith("A1, hardware, drain, Xid 79")
    assert ("verdict is hardware, expected unknown (off the bus)" in out) is bool(code)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id: [", "not YAML"),
        ("id: x\nexit: one", "(x): exit: 'one' is not `code:signal`"),
        ("id: x\njob_gpus: [first]", "(x): job_gpus: 'first' is no PCI address"),
        ("id: x\njob_window: [a, b]", "(x): job_window: 'a' is no time"),
        (
            "id: x\nexpected: {verdict: guilty}",
            "expected: verdict: 'guilty' is not one of hardware, application, unknown",
        ),
        ("id: x\nkernel_log: {a: b}", "(x): kernel_log: expected a list of lines"),
    ],
)
def test_errors_say_where(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str) -> None:
    path = tmp_path / "cases.yaml"
    path.write_text(text)
    assert main(["classify", "--cases", str(path)]) == 65
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [[], ["x", "--cases", "y"], ["/missing"], [__file__, "--exit", "x"], [__file__, "--gpus", "x"]]
)
def test_wrong_use(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert main(["classify", *arguments]) == 65
    assert capsys.readouterr().err.startswith("slurm-ft: ")


def test_the_sites_overrides_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    overrides = tmp_path / "overrides.yaml"
    overrides.write_text("xid: {109: {class: hardware, reason: ticket}}\n")
    overrides.chmod(0o644)
    (tmp_path / "slurm_ft.yaml").write_text(f"verdict_overrides: {overrides}\n")
    log = tmp_path / "log"
    log.write_text(XID.format(109))
    assert asked(capsys, str(log))[1][0]["node_action"] == "drain"


def test_a_bad_case_does_not_hide_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cases.yaml"
    path.write_text("id: x\nexit: one\n---" + CASE.replace("VERDICT", "hardware") + "kernel: []\n")
    assert main(["classify", "--cases", str(path)]) == 65
    printed = capsys.readouterr()
    assert printed.out.startswith("A1, hardware, drain")
    assert "unknown key 'kernel'. Valid keys: id, source" in printed.err


@pytest.mark.parametrize("arguments", [["/dev/zero"], ["--cases", "/dev/zero"]])
def test_a_device_is_no_file(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert main(["classify", *arguments]) == 65
    assert "is a device" in capsys.readouterr().err


def test_a_file_without_a_case_is_no_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty.yaml").touch()
    assert main(["classify", "--cases", str(tmp_path / "empty.yaml")]) == 65
    assert "holds no case" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (gzip.compress(b"[1.0] " + XID.format(79).encode()), "Read it so: zcat "),
        (lzma.compress(b"[1.0] " + XID.format(79).encode()), "Read it so: xzcat "),
        (f"[1.0] {XID.format(79)}".encode("utf-16"), "Read it so: iconv -f utf-16 "),
        (f"[1.0] {XID.format(79)}".encode("utf-16-le"), "the input is binary"),
        (b"\x7fELF\2\1\0\0", "the input is binary"),
    ],
)
def test_what_cannot_be_read_is_no_all_clear(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], data: bytes, said: str
) -> None:
    path = tmp_path / "dmesg"
    path.write_bytes(data)
    assert main(["classify", str(path)]) == 65
    printed = capsys.readouterr()
    assert said in printed.err
    assert printed.out == ""


@pytest.mark.parametrize(
    ("text", "recognised"),
    [
        ("", True),
        ("[1.0] Linux version 6\n", True),
        ("\0\0\0\n[1.0] Linux version 6\n", True),  # as after a power failure
        ("Mar  3 10:00:00 n1 kernel: eth0: up\n", True),
        ("Dear colleagues,\nthe node is down.\n", False),
    ],
)
def test_a_text_that_is_no_log_is_said_to_be_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, recognised: bool
) -> None:
    path = tmp_path / "dmesg"
    path.write_text(text)
    assert main(["classify", str(path)]) == 0
    assert ("no line of a kernel log was recognised" in capsys.readouterr().out) is not recognised


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (CASE.replace("VERDICT", "hardware").replace("source:", "sauce:"), "unknown key 'sauce'"),
        (CASE[: CASE.index("expected:")], "nothing is expected of it"),
    ],
)
def test_a_case_that_tests_less_than_it_says_is_no_success(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    path = tmp_path / "cases.yaml"
    path.write_text(text)
    assert main(["classify", "--cases", str(path)]) == 65
    printed = capsys.readouterr()
    assert printed.out.startswith("A1, hardware, drain")
    assert said in printed.err
