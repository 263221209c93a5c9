"""The local cluster itself: it comes up, it goes without a trace, and it never touches what is not its own."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from slurm_ft.errors import SlurmCommandError, SlurmFtError
from slurm_ft.lab import NO_HOOKS, Lab, LabError, LabSpec, cluster, command, processes, record
from slurm_ft.lab.ports import free_ports, is_free
from slurm_ft.slurm import fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.timeout(120)

ACCOUNTS = {account.pw_name for account in pwd.getpwall()}
CHECKOUT = Path(cluster.__file__).parents[2]


def plain(**kwargs: object) -> LabSpec:
    return LabSpec(**{"hooks": NO_HOOKS, **kwargs})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def small() -> Iterator[Lab]:
    with Lab(plain()) as running:
        yield running


def members(lab: Lab) -> list[processes.Started]:
    return processes.members(lab.base, lab.slurm_conf, pwd.getpwnam(lab.spec.user).pw_uid)


def ports(lab: Lab) -> tuple[int, ...]:
    return (lab.layout.ctld_port, *lab.layout.node_ports)


def eventually(condition: Callable[[], object], timeout_s: float = 30) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.parametrize("node", ["n1", "n2", "n3"])
def test_an_ordinary_user_runs_a_job_on_each_node(small: Lab, node: str) -> None:
    job = small.sbatch("#!/bin/sh\necho $(id -un) on $SLURMD_NODENAME\n", f"--nodelist={node}", "--gres=gpu:2")
    ended = small.wait_job(job, "COMPLETED", "FAILED")
    assert (ended["state"], ended["nodelist"]) == ("COMPLETED", node)
    assert fields.exit_status(ended["exit_code"]) == (0, 0)
    assert (small.shared / f"slurm-{job}.out").read_text() == f"nobody on {node}\n"


def test_two_jobs_share_a_node(small: Lab) -> None:
    jobs = [small.sbatch("#!/bin/sh\nsleep 60\n", "--nodelist=n1", "--gres=gpu:1") for _ in range(2)]
    for job in jobs:
        small.wait_job(job, "RUNNING")
    small.run("scancel", *map(str, jobs))
    for job in jobs:
        small.wait_job(job, "CANCELLED")


def test_a_job_shows_its_comments_byte_for_byte(small: Lab) -> None:
    comment = "other-tool: {'a': \"b c\"} | 100% ü  "
    job = small.sbatch("#!/bin/sh\n", "--hold", f"--comment={comment}", "--exclude=n2,n3")
    small.run("scontrol", "update", f"JobId={job}", "AdminComment=" + "x" * 3000)
    seen = small.job(job)
    assert (seen["comment"], seen["admin_comment"], seen["exc_nodes"]) == (comment, "x" * 3000, "n[2-3]")
    assert (seen["state"], seen["restarts"], seen["requeue"]) == ("PENDING", "0", "1")
    small.run("scancel", str(job))


def test_a_script_file_needs_not_be_readable_for_the_user(small: Lab, tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text("#!/bin/sh\ntrue\n")
    script.chmod(0o600)
    small.wait_job(small.sbatch(script), "COMPLETED")


def test_a_drained_node_stays_drained_and_keeps_its_reason(small: Lab) -> None:
    small.run("scontrol", "update", "NodeName=n3", "State=DRAIN", "Reason=fan broken", "Comment=ticket 7: 'x'")
    assert small.wait_node("n3", "drained") == ("drained", "fan broken", "ticket 7: 'x'")
    small.run("scontrol", "update", "NodeName=n3", "State=RESUME", "Comment=")
    kept = "fan broken" if fields.RESUME_KEEPS_REASON.on(small.slurm.version) else ""
    assert small.wait_node("n3", "idle") == ("idle", kept, "")


def test_a_killed_node_comes_back_when_its_slurmd_does(small: Lab) -> None:
    job = small.sbatch("#!/bin/sh\nsleep 600\n", "--nodelist=n2")
    small.wait_job(job, "RUNNING")
    small.kill_node("n2")
    small.run("scontrol", "update", "NodeName=n2", "State=DOWN", "Reason=power cut")
    small.wait_job(job, "PENDING")
    small.run("scancel", str(job))
    small.start_node("n2")
    small.run("scontrol", "update", "NodeName=n2", "State=RESUME")
    small.wait_node("n2", "idle")


def test_a_failing_command_says_which_and_why(small: Lab) -> None:
    with pytest.raises(SlurmCommandError, match=r"scontrol requeue 999.*Invalid job id"):
        small.run("scontrol", "requeue", "999")
    with pytest.raises(SlurmFtError, match="999"):
        small.job(999)


def test_an_injected_xid_is_in_the_kernel_log_with_the_labs_address(small: Lab) -> None:
    small.inject_xid("n2", 1, 79, "GPU has fallen off the bus.")
    address = small.pci("n2", 1).removesuffix(".0")
    expected = f"NVRM: Xid (PCI:{address}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    assert expected in subprocess.run(["/usr/bin/dmesg"], capture_output=True, text=True, check=True).stdout


def test_hooks_learn_which_lab_they_belong_to(tmp_path: Path) -> None:
    hook = tmp_path / "hook"
    hook.write_text('#!/bin/sh\n/usr/bin/env >"$SLURM_FT_RUN_DIR/$SLURM_JOB_ID"\n')
    hook.chmod(0o755)
    with Lab(plain(nodes=1, hooks={**NO_HOOKS, "epilog": hook})) as lab:
        job = lab.sbatch("#!/bin/sh\n")
        seen = lab.base / "run" / "slurm_ft" / str(job)
        assert eventually(seen.exists)
        assert eventually(lambda: f"SLURM_FT_CONFIG={lab.layout.config}" in seen.read_text().splitlines())
        assert f"SLURM_CONF={lab.slurm_conf}" in seen.read_text().splitlines()


def test_hooks_that_hang_do_not_outlive_the_lab(tmp_path: Path) -> None:
    hook = tmp_path / "hook"
    hook.write_text("#!/bin/sh\ntrap '' TERM\n/bin/sleep 4000\n")
    hook.chmod(0o755)
    with Lab(plain(nodes=1, hooks={**NO_HOOKS, "epilog": hook, "epilog_slurmctld": hook})) as lab:
        lab.wait_job(lab.sbatch("#!/bin/sh\n"), "COMPLETING")
        assert eventually(lambda: sum(p.name == "sleep" for p in members(lab)) == 2), members(lab)
        running = members(lab)
    assert [p for p in running if p.alive] == []
    assert members(lab) == []


def test_stopping_leaves_no_process_and_no_port(tmp_path: Path) -> None:
    script = """#!/bin/sh
        (trap '' TERM; sleep 4001) &
        (env -i setsid sh -c 'exec sleep 4002' &)
        srun sleep 4003 &
        sleep 4004
        """
    with Lab(plain(nodes=2, gpus_per_node=0)) as lab:
        job = lab.sbatch(script, "--nodes=2")
        lab.wait_job(job, "RUNNING")
        assert eventually(lambda: sum(p.name == "sleep" for p in members(lab)) >= 4), members(lab)
        running = members(lab)
        assert sum(p.name.startswith("slurmstepd") for p in running) >= 2
    assert [p for p in running if p.alive] == []
    assert members(lab) == []
    assert all(map(is_free, ports(lab)))
    assert not lab.base.exists()
    assert lab.base not in record.known_bases()


def test_an_admins_own_process_in_the_directory_survives() -> None:
    with Lab(plain(nodes=1)) as lab:
        env = {"SLURM_CONF": str(lab.slurm_conf)}
        bystander = subprocess.Popen(["/bin/sleep", "4005"], cwd=lab.shared, env=env, start_new_session=True)
    try:
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_recycled_pid_is_never_hit() -> None:
    bystander = subprocess.Popen(["/bin/sleep", "4006"])
    try:
        processes.end([processes.Started("slurmd", bystander.pid, ticks=1)], 0)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


STARTER = """
import sys, time
from slurm_ft.lab import Lab, LabSpec, NO_HOOKS
with Lab(LabSpec(nodes=1, hooks=NO_HOOKS)) as lab:
    lab.sbatch("#!/bin/sh\\nsleep 4007\\n")
    print(lab.base, flush=True)
    time.sleep(600)
"""


def test_after_a_crash_of_the_starter_another_lab_starts_and_down_finds_the_leftover(
    capsys: pytest.CaptureFixture[str],
) -> None:
    env = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    starter = subprocess.Popen([sys.executable, "-c", STARTER], env=env, stdout=subprocess.PIPE, text=True)
    assert starter.stdout is not None
    base = Path(starter.stdout.readline().strip())
    starter.send_signal(signal.SIGKILL)
    starter.wait()
    starter.stdout.close()

    leftover = Lab.attach(base)
    assert members(leftover)
    assert base in record.known_bases()
    with Lab(plain(nodes=1)) as other:
        other.wait_job(other.sbatch("#!/bin/sh\n"), "COMPLETED")
        assert command.main(["down", "--dir", str(base)]) == 0
        assert members(leftover) == []
        assert not base.exists()
        assert other.node("n1")[0] == "idle"
    assert "has ended" in capsys.readouterr().err


def test_down_all_also_ends_what_the_record_missed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(record, "REGISTRY", tmp_path / "labs")  # other labs of this machine are none of our business
    lab = Lab(plain(nodes=1)).start()
    record.write_record(lab.spec, lab.layout, ())  # as after a crash between a start and its record
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "lab.json").write_text("{}")
    (record.REGISTRY / "0").symlink_to(broken)
    assert command.main(["down", "--all"]) == 1
    assert f"cannot read {broken}/lab.json" in capsys.readouterr().err
    assert members(lab) == []
    assert record.known_bases() == [broken]


def test_up_stays_up_and_status_and_down_know_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(record, "REGISTRY", tmp_path / "labs")
    base = Path("/tmp") / f"sft-{os.getpid()}"
    assert command.main(["up", "--nodes", "1", "--no-hooks", "--dir", str(base)]) == 0
    said = capsys.readouterr().out
    assert f"export SLURM_CONF={base}/etc/slurm.conf\n" in said
    assert f"export SLURM_FT_CONFIG={base}/etc/slurm_ft.yaml\n" in said  # else explain looks for the site's own journal
    assert (
        f"export SLURM_FT_RUN_DIR={base}/run/slurm_ft\n" in said
    )  # else watch and the canary look for the site's notes
    assert command.main(["up", "--no-hooks", "--dir", str(base)]) == 1
    assert "not an empty directory" in capsys.readouterr().err
    assert command.main(["status"]) == 0
    assert f"{base}: up, n1 idle" in capsys.readouterr().out
    assert command.main(["down"]) == 0
    assert not base.exists()


def test_two_labs_at_the_same_time_know_nothing_of_each_other() -> None:
    with Lab(plain(nodes=1)) as one, Lab(plain(nodes=2)) as two:
        job = two.sbatch("#!/bin/sh\nsleep 600\n")
        two.wait_job(job, "RUNNING")
        assert one.run("squeue", "--noheader") == ""
        assert one.pci("n1", 0) != two.pci("n1", 0)
        one.stop()
        assert two.job(job)["state"] == "RUNNING"


def test_a_port_that_is_taken_meanwhile_is_replaced_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    with Lab(plain(nodes=1)) as first:
        taken = [(first.layout.ctld_port, *free_ports(1)), (*free_ports(1), first.layout.node_ports[0])]
        monkeypatch.setattr(cluster, "free_ports", lambda count: taken.pop(0) if taken else free_ports(count))
        with Lab(plain(nodes=1)) as second:
            assert taken == []
            assert not set(ports(first)) & set(ports(second))
            second.wait_job(second.sbatch("#!/bin/sh\n"), "COMPLETED")


def test_a_lab_that_was_never_started_stops_without_effect() -> None:
    Lab(plain()).stop()


def test_a_missing_slurm_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"slurmctld is not in .*apt-get install slurmctld slurmd slurm-client munge"):
        Lab(plain(slurm_prefix=tmp_path))


def test_a_cluster_that_cannot_start_shows_the_log_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(record, "REGISTRY", tmp_path / "labs")
    with pytest.raises(LabError, match=r"slurmctld ended right after its start[\s\S]*NoSuchParameter"):
        Lab(plain(slurm_conf=("NoSuchParameter=1",))).start()
    assert record.known_bases() == []


def test_an_unprivileged_starter_is_told_to_use_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(LabError, match="needs root"):
        Lab(plain())


@pytest.mark.skipif("slurm" not in ACCOUNTS, reason="a Slurm built from source comes without an account of its own")
def test_the_controller_may_run_as_slurms_own_account() -> None:
    with Lab(plain(nodes=1, slurm_user="slurm")) as lab:
        lab.wait_job(lab.sbatch("#!/bin/sh\n"), "COMPLETED")
        assert (lab.base / "state" / "slurm_ft").owner() == "slurm"
