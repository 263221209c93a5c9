"""One log per job: what a real job's log says of its restart, and `slurm-ft logs` through a failover."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from steps import ATTEMPT, ENDED, OPTED_IN, end, lose_gpu, make_healthy, running, settings, submit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slurm_ft.lab import Lab

FOLLOW_ENDS_S = 60


@pytest.fixture(autouse=True)
def healthy(lab: Lab) -> Iterator[None]:
    yield
    make_healthy(lab)


def logs(lab: Lab, *arguments: str, user: str | None = "nobody") -> subprocess.Popen[str]:
    """`slurm-ft logs`, as the job's owner unless another account is named; None: as root."""
    return subprocess.Popen(
        [str(lab.command), "logs", *arguments], env=lab.environment(user) | {"SLURM_FT_CONFIG": str(lab.layout.config)},
        cwd=lab.shared, user=user, group="nogroup" if user else None, extra_groups=[] if user else None,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def said(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=FOLLOW_ENDS_S)
    return process.returncode, out, err


def read(lab: Lab, job: int) -> str:
    return (lab.shared / f"{job}.log").read_text()


def test_the_log_itself_says_of_what_the_attempt_ended_and_why_it_starts_again(lab: Lab) -> None:
    job = submit(lab, *OPTED_IN)
    bad = lose_gpu(lab, job, 0)
    good = running(lab, job, 1)
    first, ended, again, second = read(lab, job).splitlines()
    assert (first, second) == (f"attempt 0 on {bad}", f"attempt 1 on {good}")
    opening = (
        f'slurm_ft: job {job} attempt 1/4 (restart 0) ended on {bad} with exit code 1: hardware xid79 "NVRM: Xid (PCI:'
    )
    assert ended.startswith(opening)
    assert ended.endswith(
        f'GPU has fallen off the bus."; {bad} is drained; '
        f"the job starts again without {bad}, if it may be requeued (3 failovers left)"
    )
    assert again.startswith(
        f'slurm_ft: job {job} attempt 2/4 (restart 1) starts again: attempt 1/4 ended on {bad}: xid79 "'
    )
    assert again.endswith(f'"; goes on without {bad} (failover 1 of 3)')
    file = lab.shared / f"{job}.log"
    assert file.owner() == lab.spec.user


def test_follow_goes_on_through_the_failover_and_ends_with_the_job(lab: Lab) -> None:
    job = submit(lab, *OPTED_IN)
    follower = logs(lab, "-f", str(job))
    lose_gpu(lab, job, 0)
    running(lab, job, 1)
    assert follower.poll() is None
    end(lab, job, 1, 0)
    code, out, err = said(follower)
    assert (code, out) == (0, read(lab, job))
    assert "restart 1" in err
    assert err.endswith(f"job {job} has ended: COMPLETED\n")


def test_follow_says_so_when_each_attempt_truncates_the_log(lab: Lab) -> None:
    options = [option for option in OPTED_IN if "append" not in option]
    job = submit(lab, *options, "--open-mode=truncate")
    running(lab, job, 0)
    follower = logs(lab, "-f", str(job))
    bad = lose_gpu(lab, job, 0)
    good = running(lab, job, 1)
    end(lab, job, 1, 0)
    code, out, err = said(follower)
    assert code == 0
    assert f"attempt 0 on {bad}" in out
    assert out.endswith(f"attempt 1 on {good}\n")
    assert "was truncated" in err


def test_attempts_are_shown_apart(lab: Lab) -> None:
    job = submit(lab, *OPTED_IN)
    bad = lose_gpu(lab, job, 0)
    good = running(lab, job, 1)
    code, out, _ = said(logs(lab, str(job), "--attempt", "1"))
    assert (code, out.splitlines()[0], f"attempt 1 on {good}" in out) == (0, f"attempt 0 on {bad}", False)
    _, out, _ = said(logs(lab, str(job), "--attempt", "last"))
    assert out.splitlines()[0].startswith(f"slurm_ft: job {job} attempt 2/4 (restart 1) starts again")
    assert out.splitlines()[1:] == [f"attempt 1 on {good}"]
    _, out, _ = said(logs(lab, str(job), "--list"))
    assert [line.split()[:2] for line in out.splitlines()[1:]] == [["1", "0"], ["2", "1"]]
    _, out, _ = said(logs(lab, str(job), "-n", "1"))
    assert out == f"attempt 1 on {good}\n"
    code, _, err = said(logs(lab, str(job), "--attempt", "3"))
    assert (code, err) == (1, "slurm-ft: the log holds no attempt '3'. It holds attempt 1, 2\n")


def test_a_programs_own_error_is_told_and_a_job_that_did_not_ask_is_not_written_to(lab: Lab) -> None:
    asked, other = submit(lab, *OPTED_IN), submit(lab, "--comment=mine", *OPTED_IN[1:])
    for job in (asked, other):
        running(lab, job, 0)
        end(lab, job, 0, 1)
        lab.wait_job(job, "FAILED")
    assert "with exit code 1: unknown: The job ended with 1:0 and no fault" in read(lab, asked)
    assert len(read(lab, other).splitlines()) == 1


def test_of_two_nodes_the_batch_host_alone_writes_and_the_next_start_names_the_bad_one(lab: Lab) -> None:
    job = submit(lab, *OPTED_IN, "--nodes=2")
    host = running(lab, job, 0)
    bad = next(
        node for node in ("n2", "n3") if node in lab.run("squeue", "-h", "-j", str(job), "-o", "%N") or node == "n2"
    )
    lab.inject_xid(bad, 0, 79, "GPU has fallen off the bus.")
    end(lab, job, 0, 1)
    running(lab, job, 1)
    lines = read(lab, job).splitlines()
    ended = [line for line in lines if ") ended on " in line]
    assert len(ended) == 1
    assert f"ended on {host} with exit code 1: unknown" in ended[0]
    assert "the other nodes judge for themselves" in ended[0]
    again = next(line for line in lines if "starts again" in line)
    assert f'ended on {bad}: xid79 "NVRM: Xid' in again


def test_an_array_task_and_its_log(lab: Lab) -> None:
    job = lab.sbatch(ATTEMPT.replace("exit 99", "exit 1").replace("seq 600", "seq 1"), *OPTED_IN[:-1], "--array=4,7")
    for task in (4, 7):
        assert lab.wait_job(f"{job}_{task}", *ENDED)["state"] == "FAILED"
    text = (lab.shared / f"slurm-{job}_7.out").read_text()
    assert "(restart 0) ended on n" in text
    code, out, _ = said(logs(lab, f"{job}_7"))
    assert (code, out) == (0, text)
    code, _, err = said(logs(lab, str(job)))
    assert (code, f"Name one: {job}_4, {job}_7" in err) == (1, True)


def test_a_name_with_the_host_in_it_is_found(lab: Lab) -> None:
    """The lab's nodes share one host, whose name is not theirs."""
    job = lab.sbatch("#!/bin/sh\necho here\n", "--output=%N.%j.out")
    lab.wait_job(job, "COMPLETED")
    assert said(logs(lab, str(job)))[:2] == (0, "here\n")


def test_attempts_in_files_named_by_their_nodes_are_shown_and_followed_as_one_log(lab: Lab) -> None:
    """Before 26.05 the lab's nodes write into one file, named by their host; from then on into two."""
    job = submit(lab, *OPTED_IN[:-1], "--output=%N.%j.log")
    follower = logs(lab, "-f", str(job))
    bad = lose_gpu(lab, job, 0)
    good = running(lab, job, 1)
    end(lab, job, 1, 0)
    for code, out, _ in (said(follower), said(logs(lab, str(job)))):
        lines = [line for line in out.splitlines() if line.startswith("attempt ")]
        assert (code, lines) == (0, [f"attempt 0 on {bad}", f"attempt 1 on {good}"])


def test_a_job_that_has_not_started_has_no_log_and_follow_waits_for_it(lab: Lab) -> None:
    job = submit(lab, *OPTED_IN, "--hold")
    code, _, err = said(logs(lab, str(job)))
    assert code == 1
    assert err == f"slurm-ft: job {job} has not started: JobHeldUser. `-f` waits for {lab.shared / f'{job}.log'}\n"
    follower = logs(lab, "-f", str(job))
    lab.run("scontrol", "release", str(job))
    node = running(lab, job, 0)
    end(lab, job, 0, 0)
    assert said(follower)[:2] == (0, f"attempt 0 on {node}\n")


def test_a_job_that_slurm_does_not_know_and_a_job_without_a_log_of_its_own(lab: Lab) -> None:
    code, _, err = said(logs(lab, "999999"))
    assert (code, "Slurm knows no job 999999" in err) == (1, True)
    job = lab.sbatch("#!/bin/sh\n", "--output=/dev/null")
    lab.wait_job(job, "COMPLETED")
    assert "throws its output away" in said(logs(lab, str(job)))[2]


def test_a_step_of_two_tasks_that_each_choose_prints_one_banner(lab: Lab) -> None:
    command = f"{lab.command} run --output-dir=$PWD/none -- true"
    job = lab.sbatch(f"#!/bin/sh\nsrun -N2 -n2 {command}\n", "--nodes=2", "--output=%j.log")
    lab.wait_job(job, "COMPLETED")
    assert read(lab, job).count("==== slurm_ft job") == 1
    assert "each of 2 tasks chooses for itself" in read(lab, job)


FOREIGN = "this is root's\n"


def ended_with(lab: Lab, name: str, replaces: str) -> str:
    """Run a job that asks for failover, puts something else in the place of its log, and fails; the hook's own log."""
    script = f"#!/bin/bash\nrm -f {name}\n{replaces}\nexit 1\n"
    job = lab.sbatch(script, *OPTED_IN[:-1], f"--output={name}")
    assert lab.wait_job(job, *ENDED)["state"] == "FAILED"
    log = settings(lab).log_file
    assert log is not None
    return "\n".join(line for line in log.read_text().splitlines() if f"job {job}: its log was not told" in line)


@pytest.fixture
def foreign(lab: Lab) -> Path:
    """A file that everybody may write to, and that is not the job's user's."""
    path = lab.shared / "foreign.txt"
    path.unlink(missing_ok=True)
    path.write_text(FOREIGN)
    path.chmod(0o666)
    return path


def test_a_link_to_a_foreign_file_is_not_written_through(lab: Lab, foreign: Path) -> None:
    log = ended_with(lab, "linked.log", f"ln -s {foreign} linked.log")
    assert "Too many levels of symbolic links" in log
    assert foreign.read_text() == FOREIGN


def test_a_second_name_of_a_foreign_file_is_not_written_to(lab: Lab, foreign: Path) -> None:
    """Made by root here: most kernels forbid the user to make it (fs.protected_hardlinks)."""
    lab.run("/bin/mkdir", "-p", str(lab.shared / "names"), user=lab.spec.user)
    second = lab.shared / "names" / "second"
    second.unlink(missing_ok=True)
    second.hardlink_to(foreign)
    log = ended_with(lab, "names/log", "mv -f names/second names/log")
    assert (lab.shared / "names" / "log").samefile(foreign)
    assert "not the user's own file" in log
    assert foreign.read_text() == FOREIGN


def test_a_fifo_with_a_reader_gets_nothing(lab: Lab) -> None:
    fifo, log_name = lab.shared / "some.fifo", lab.shared / "fifo.log"
    for path in (fifo, log_name):
        path.unlink(missing_ok=True)
    lab.run("/usr/bin/mkfifo", str(fifo), user=lab.spec.user)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert "not a regular file" in ended_with(lab, "fifo.log", "mv some.fifo fifo.log")
        assert stat.S_ISFIFO(log_name.stat().st_mode)
        assert os.read(reader, 100) == b""
    finally:
        os.close(reader)


def test_a_log_that_was_removed_is_not_made_anew(lab: Lab) -> None:
    assert "No such file" in ended_with(lab, "gone.log", "")
    assert not (lab.shared / "gone.log").exists()


def test_root_reads_the_log_as_its_user(lab: Lab) -> None:
    secret = lab.base / "only_root.txt"
    secret.write_text("the secret\n")
    secret.chmod(0o600)
    job = lab.sbatch(f"#!/bin/sh\nrm -f mine.log\nln -s {secret} mine.log\n", "--output=mine.log")
    lab.wait_job(job, "COMPLETED")
    code, out, err = said(logs(lab, str(job), user=None))
    assert (code, out) == (1, "")
    assert "mine.log cannot be read: Permission denied" in err
