from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_ft.classify import RULES, classify
from slurm_ft.model import Certainty, Domain, Event, Evidence, ExitStatus, NodeAction, Scope, Verdict
from slurm_ft.sensors.kernel_lines import parse_line

FAILED, GOOD = ExitStatus(1, 0), ExitStatus(0, 0)
GPU, OTHER = "0000:3b:00", "0000:5e:00"
NONE_TO_REBOOT = "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"


def xid(code: int, rest: str = "pid=1, name=python, text", at: float | None = None, pci: str = GPU) -> str:
    prefix = "" if at is None else f"[{at:.6f}] "
    return f"{prefix}NVRM: Xid (PCI:{pci}): {code}, {rest}"


def sxid(code: int, rest: str, at: float = 1.0) -> str:
    return f"[{at:.6f}] nvidia-nvswitch0: SXid (PCI:0000:05:00.0): {code}, {rest}"


def log(*lines: str, readable: bool = True) -> Evidence:
    events = tuple(event for number, line in enumerate(lines, 1) if (event := parse_line(line, number)) is not None)
    return Evidence("kernel_log", readable, events)


def judge(*lines: str, exit_status: ExitStatus = FAILED) -> Verdict:
    return classify([log(*lines)], exit_status)


def short(verdict: Verdict) -> tuple[str, str, str]:
    return verdict.domain.value, verdict.cause, verdict.node_action.now.value


# Whole cases from public reports that the kernel log and the exit status decide; addresses are replaced.
CASES = {
    "out-of-bounds read in a kernel": (
        [
            "NVRM: Xid (PCI:0000:c1:00): 31, pid=2646416, name=python, channel 0x0000001a, intr 00000000. MMU Fault:"
            " ENGINE GRAPHICS GPC10 GPCCLIENT_T1_5 faulted @ 0x725f_fb800000. Fault is of type FAULT_PDE"
        ],
        ("application", "xid31", "none"),
    ),
    "surprise down on the port above, then off the bus": (
        [
            "[74889.542031] pcieport 0000:00:02.0: AER: Uncorrected (Fatal) error received: id=0010",
            "[74889.542184] pcieport 0000:00:02.0:    [ 5] Surprise Down Error    (First)",
            "[74889.542239] nvidia 0000:02:00.0: device has no AER-aware driver",
            "[74889.644138] NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus.",
        ],
        ("hardware", "pcie_fatal", "drain"),
    ),
    "79 on one of four cards, all four ask for a reboot": (
        [
            "Mar 10 23:25:13 node01 kernel: NVRM: Xid (PCI:0000:46:00): 79, pid=14944, name=VLLM::Worker, GPU has"
            " fallen off the bus.",
            *(
                f"Mar 10 23:25:13 node01 kernel: NVRM: Xid (PCI:0000:{bus}:00): 154, {NONE_TO_REBOOT}"
                for bus in ("46", "07", "85", "c7")
            ),
        ],
        ("hardware", "xid79", "drain"),
    ),
    "six cleanup Xids and a hung monitor": (
        [
            *(
                f"[Sat Oct 12 18:35:32 2024] NVRM: Xid (PCI:0000:61:00): 45, pid=1496200, name=trainer, Ch 0000000{n}"
                for n in "abcdef"
            ),
            "[Sat Oct 12 18:38:44 2024] INFO: task cache_mgr_event:620917 blocked for more than 120 seconds.",
        ],
        ("unknown", "xid45", "none"),
    ),
    "one corrected DIMM error": (
        ["kernel: EDAC MC1: 1 CE memory scrubbing error on CPU_SrcID#1_Ha#0_Chan#0_DIMM#0 (channel:0 slot:0 page:0x0)"],
        ("unknown", "exit1:0", "none"),
    ),
    "corrected PCIe errors": (
        ["Sep 16 05:21:47 kernel: pcieport 0000:00:03.1: AER: aer_layer=Data Link Layer, aer_agent=Receiver ID"],
        ("unknown", "exit1:0", "none"),
    ),
    "soft lockup": (
        ["[Sat Apr  3 05:23:42 2021] watchdog: BUG: soft lockup - CPU#7 stuck for 23s! [pytest:25222]"],
        ("unknown", "soft_lockup", "none"),
    ),
    "library and module differ": (
        ["Jun 30 11:07:05 node01 kernel: NVRM: API mismatch: the client has the version 535.54.03, but#012NVRM: this"],
        ("unknown", "driver_mismatch", "none"),
    ),
    "uncorrectable memory error and its echoes": (
        [
            xid(
                48, "pid='<unknown>', name=<unknown>, An uncorrectable double bit error (DBE) has been detected", 1.000
            ),
            xid(63, "pid='<unknown>', name=<unknown>, Row Remapper: New row marked for remapping", 1.005),
            xid(94, "pid=7, name=python, Contained: SM (0x1). RST: No, D-RST: No", 1.020),
            xid(45, "pid=7, name=python, Ch 0000000a", 1.025),
        ],
        ("hardware", "xid48", "drain"),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_cases_from_public_reports(name: str) -> None:
    lines, expected = CASES[name]
    assert short(judge(*lines)) == expected


@pytest.mark.parametrize(
    "code", [46, 48, 54, 62, 64, 74, 79, 95, 110, 119, 120, 136, 140, 143, 156, 158, 167, 171, 172]
)
def test_hardware_codes_drain(code: int) -> None:
    verdict = judge(xid(code))
    assert short(verdict) == ("hardware", f"xid{code}", "drain")
    assert (verdict.rule, verdict.scope) == ("hardware_fault", Scope.GPU)
    assert verdict.decisive is not None
    assert verdict.decisive.code == code


@pytest.mark.parametrize("code", [94, 157])
def test_hardware_codes_that_leave_the_gpu_usable(code: int) -> None:
    assert short(judge(xid(code))) == ("hardware", f"xid{code}", "none")


@pytest.mark.parametrize("code", [11, 13, 25, 31, 43, 69, 137])
def test_application_codes(code: int) -> None:
    verdict = judge(xid(code), xid(45))
    assert short(verdict) == ("application", f"xid{code}", "none")
    assert verdict.certainty is Certainty.LIKELY


@pytest.mark.parametrize("code", [1, 8, 32, 39, 58, 61, 68, 109, 144, 145, 149, 155, 159, 174, 9999])
def test_codes_that_tell_nothing(code: int) -> None:
    verdict = judge(xid(code))
    assert short(verdict) == ("unknown", f"xid{code}", "none")
    assert verdict.rule == "ambiguous_code"


@pytest.mark.parametrize("code", [14, 37, 45, 63, 66, 92, 93, 121, 147, 148, 154, 160, 166])
def test_consequences_and_notices_are_no_cause(code: int) -> None:
    verdict = judge(xid(code))
    assert short(verdict) == ("unknown", f"xid{code}", "none")
    assert verdict.rule == "secondary_only"


def test_the_previous_xid_that_a_45_names_is_not_judged() -> None:
    assert short(judge(xid(45, "pid=1, name=python3, Ch 0000000c caused by previous Xid 79"))) == (
        "unknown",
        "xid45",
        "none",
    )


def test_the_gpu_falls_off_the_bus_after_a_wild_pointer() -> None:
    verdict = judge(xid(13, at=1), xid(31, at=2), xid(79, at=9))
    assert short(verdict) == ("hardware", "xid79", "drain")


def test_the_first_hardware_cause_is_the_root() -> None:
    assert judge(xid(95, at=2), xid(48, at=1)).cause == "xid48"
    assert judge(xid(95), xid(48)).cause == "xid95"  # no times: the log's order


def test_a_later_fault_drains_although_the_first_was_contained() -> None:
    assert short(judge(xid(94, at=1), xid(79, at=5))) == ("hardware", "xid94", "drain")


def test_the_first_of_application_and_ambiguous_decides() -> None:
    assert short(judge(xid(13, at=1), xid(109, at=6))) == ("application", "xid13", "none")
    assert short(judge(xid(109, at=1), xid(13, at=6))) == ("unknown", "xid109", "none")


def test_off_the_bus_without_an_xid() -> None:
    verdict = judge("[ 12.5] NVRM: GPU 0000:a1:00.0: GPU has fallen off the bus.")
    assert short(verdict) == ("hardware", "off_bus", "drain")
    assert "0000:a1:00" in verdict.reason


@pytest.mark.parametrize(
    ("first", "number", "label", "action"),
    [
        (79, 0, "None", "none"),
        (94, 0, "None", "none"),
        (94, 1, "GPU Reset Required", "drain"),
        (94, 1, "PF FLR", "drain"),
        (94, 2, "Node Reboot Required", "drain"),
        (94, 3, "Drain P2P", "drain"),
        (94, 4, "Drain and Reset", "drain"),
        (94, 9, "Something New", "drain"),
    ],
)
def test_the_drivers_recovery_action_wins(first: int, number: int, label: str, action: str) -> None:
    change = f"GPU recovery action changed from 0x0 (None) to {number:#x} ({label})"
    assert short(judge(xid(first, at=1), xid(154, change, at=2))) == ("hardware", f"xid{first}", action)


def test_a_recovery_action_counts_for_its_own_gpu_only() -> None:
    calm = "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
    assert judge(xid(79, at=1), xid(154, calm, at=2, pci=OTHER)).node_action is NodeAction.DRAIN


def test_a_fault_after_the_recovery_action_counts_again() -> None:
    calm = "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
    assert judge(xid(48, at=1), xid(154, calm, at=2), xid(79, at=3)).node_action is NodeAction.DRAIN


def test_a_gpu_that_needs_a_reset_drains_the_node_whoever_is_to_blame() -> None:
    change = "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
    verdict = judge(xid(109, at=1), xid(154, change, at=2))
    assert short(verdict) == ("unknown", "xid109", "drain")
    assert "GPU_RESET" in verdict.reason
    assert short(judge(xid(154, change))) == ("unknown", "xid154", "drain")


@pytest.mark.parametrize(
    "rest",
    [
        "text",
        "pid=1, name=GPU recovery ac, text",
        "GPU recovery action changed",
        "name=x, to 0x2 (Node Reboot Required)",
    ],
)
def test_an_unreadable_recovery_action_changes_nothing(rest: str) -> None:
    assert short(judge(xid(94, at=1), xid(154, rest, at=2))) == ("hardware", "xid94", "none")


@pytest.mark.parametrize(
    ("code", "rest", "expected"),
    [
        (145, "RLW_REMAP Nonfatal XC0 i0 Link 02", ("unknown", "xid145", "none")),
        (149, "NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x026001c6 0x00000000 0x00000000)", ("unknown", "xid149", "none")),
        (149, "NETIR_LINK_EVT Link Fatal XC0 i0 Link 00 (0x004001c6 0x00000000)", ("hardware", "xid149", "drain")),
        (149, "NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x00000000 0x00000000)", ("hardware", "xid149", "drain")),
        (144, "SAW_MVB Fatal XC0 i0 Link 01 (0x00000021 0x00000002)", ("hardware", "xid144", "drain")),
        (145, "RLW_REMAP Nonfatal XC1 i0 Link 10 (0x00000082 0x00000004)", ("unknown", "xid145", "none")),
        (145, "RLW_REMAP Nonfatal XC1 i0 Link 10 (0x00000082 0x00000100)", ("unknown", "xid145", "none")),
        (150, "MSE_WATCHDOG Fatal XC0 i0 Link 00 (0x00000000 0x00000000)", ("hardware", "xid150", "drain")),
        (150, "MSE_WATCHDOG Fatal XC0 i0 Link 00 (0x00000001 0x00000000)", ("unknown", "xid150", "none")),
    ],
)
def test_nvlink5_lines_are_decoded(code: int, rest: str, expected: tuple[str, str, str]) -> None:
    verdict = judge(xid(code, rest))
    assert short(verdict) == expected
    assert verdict.certainty is not Certainty.CERTAIN


def test_a_harmless_nvlink5_line_does_not_hide_the_application() -> None:
    harmless = xid(145, "RLW_REMAP Nonfatal XC1 i0 Link 10 (0x00000082 0x00000100)", 1)
    assert short(judge(harmless, xid(31, at=2))) == ("application", "xid31", "none")


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([sxid(12020, "Fatal, Link 03 egress sequence ID error")], ("hardware", "sxid12020", "drain")),
        ([sxid(12020, "Data {0x10000000, 0x10000000}")], ("hardware", "sxid12020", "drain")),
        ([sxid(12020, "Non-fatal, Link 03 egress sequence ID error")], ("unknown", "sxid12020", "none")),
        ([sxid(20034, "Fatal, Link 30 LTSSM Fault Up")], ("hardware", "sxid20034", "drain")),
        ([sxid(20034, "Severity 1 Engine instance 60 Sub-engine instance 00")], ("hardware", "sxid20034", "drain")),
        ([sxid(20034, "Data {0x10000000}")], ("unknown", "sxid20034", "none")),
        ([sxid(20034, "Data {0x1}"), sxid(20034, "Fatal, Link 30 LTSSM", 2)], ("hardware", "sxid20034", "drain")),
        ([sxid(20009, "Non-fatal, Link 04 RX Short Error Rate")], ("unknown", "sxid20009", "none")),
        ([sxid(20009, "Fatal, Link 04 RX Short Error Rate")], ("unknown", "sxid20009", "none")),
        ([sxid(99999, "Fatal, Link 04 new")], ("unknown", "sxid99999", "none")),
        (
            [sxid(20009, "Non-fatal, Link 04 x"), sxid(20009, "Data {0x1}"), xid(31, at=9)],
            ("application", "xid31", "none"),
        ),
    ],
)
def test_switch_errors(lines: list[str], expected: tuple[str, str, str]) -> None:
    verdict = judge(*lines)
    assert short(verdict) == expected
    if verdict.domain is Domain.HARDWARE:
        assert verdict.scope is Scope.FABRIC


def test_an_unreadable_log_is_not_clean() -> None:
    blind = Evidence("kernel_log", readable=False, detail="/dev/kmsg: Operation not permitted")
    for exit_status in (FAILED, GOOD):
        verdict = classify([blind], exit_status)
        assert short(verdict) == ("unknown", "kernel_log_unreadable", "none")
        assert "Operation not permitted" in verdict.reason


def test_what_half_a_log_can_tell() -> None:
    # A hardware fault stands whatever the rest says; behind an application code a worse one may have been missed.
    assert short(classify([log(xid(79), readable=False)], FAILED)) == ("hardware", "xid79", "drain")
    assert short(classify([log(xid(31), readable=False)], FAILED)) == ("unknown", "kernel_log_unreadable", "none")


def test_another_blind_sensor_does_not_undo_an_application_code() -> None:
    assert classify([log(xid(31)), Evidence("nvml", readable=False)], FAILED).domain is Domain.APPLICATION
    assert classify([log(), Evidence("nvml", readable=False)], FAILED).cause == "nvml_unreadable"


def test_no_sensor_at_all() -> None:
    assert short(classify([], FAILED)) == ("unknown", "no_evidence", "none")


@pytest.mark.parametrize("text", ["1:0", "0:9", "134:0", "0:125"])
def test_a_failure_without_a_signal(text: str) -> None:
    verdict = judge(exit_status=ExitStatus.parse(text))
    assert (short(verdict), verdict.rule) == (("unknown", f"exit{text}", "none"), "no_hardware_signal")


def test_lost_lines_are_told() -> None:
    evidence = Evidence("kernel_log", readable=True, detail="earlier lines were lost")
    assert "earlier lines were lost" in classify([evidence], FAILED).reason


def test_a_good_end() -> None:
    verdict = judge(exit_status=GOOD)
    assert (short(verdict), verdict.rule) == (("unknown", "clean", "none"), "clean_exit")


def test_a_good_end_on_broken_hardware_is_still_hardware() -> None:
    assert short(judge(xid(79), exit_status=GOOD)) == ("hardware", "xid79", "drain")


def test_reasons_are_one_sentence_that_names_what_matters() -> None:
    verdict = judge(xid(79), xid(154, NONE_TO_REBOOT))
    assert verdict.reason == (
        "Xid 79 (ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS; NVIDIA's action: RESTART_BM) on GPU 0000:3b:00 is a"
        " hardware fault; the node needs a drain, its driver asks for NODE_REBOOT."
    )


def test_every_rule_has_its_own_name() -> None:
    assert len({rule.__name__ for rule in RULES}) == len(RULES)


codes = st.integers(0, 180)
lines = st.builds(
    xid,
    codes,
    st.sampled_from(["text", NONE_TO_REBOOT, "SAW_MVB Fatal XC0 i0 Link 01 (0x00000021 0x00000002)"])
    | st.text(max_size=40),
    st.none() | st.floats(0, 1e6),
    st.sampled_from([GPU, OTHER]),
) | st.builds(
    sxid, st.sampled_from([12020, 20034, 20009, 5]), st.sampled_from(["Fatal, Link 1", "Non-fatal, Link", "Data"])
)
events = st.lists(lines, max_size=8).map(lambda texts: log(*texts).events)
evidences = st.lists(
    st.builds(Evidence, st.sampled_from(["kernel_log", "nvml", "dcgm"]), st.booleans(), events, st.text(max_size=5)),
    max_size=4,
)
exits = st.builds(ExitStatus, st.integers(0, 255), st.integers(0, 64))
cascades = st.builds(
    xid,
    st.sampled_from([45, 63, 92, 147, 148, 154]),
    st.sampled_from(["Ch 0000000a caused by previous Xid 79", NONE_TO_REBOOT, "text"]),
    st.none() | st.floats(0, 1e6),
    st.sampled_from([GPU, OTHER]),
).map(lambda text: parse_line(text, 99))


@given(evidences, exits, st.randoms())
def test_the_order_of_the_evidence_does_not_matter(evidence: list[Evidence], end: ExitStatus, random: object) -> None:
    verdict = classify(evidence, end)
    assert verdict.reason
    assert verdict.domain is not Domain.HARDWARE or verdict.decisive is not None
    shuffled = [Evidence(one.sensor, one.readable, one.events[::-1], one.detail) for one in evidence]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert classify(shuffled, end) == verdict


@given(evidences, exits, cascades)
def test_a_cascade_never_changes_the_domain(evidence: list[Evidence], end: ExitStatus, event: Event | None) -> None:
    assert event is not None
    more = [*evidence, Evidence("kernel_log", readable=True, events=(event,))]
    assert classify(more, end).domain is classify(evidence, end).domain
