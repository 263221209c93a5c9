"""The job's own output belongs to the user: whatever lies at its path, the epilog neither hangs on it nor is led to
read what the user could not.

Each job of an ordinary user puts something else in the place of its output file and fails. CUDA's text of an
uncorrectable memory error is what would drain the node, so it shows what was read.
"""

from __future__ import annotations

import stat
import time
from typing import TYPE_CHECKING

import pytest
from steps import ENDED, make_healthy, settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slurm_ft.lab import Lab

ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
BOUND_S = 30  # far above the second or two of a healthy epilog, far below the epilog's own 60 s


@pytest.fixture(autouse=True)
def healthy(lab: Lab) -> Iterator[None]:
    yield
    make_healthy(lab)


def fail_with(lab: Lab, name: str, replaces: str) -> str:
    """Run a job that replaces its output file by a shell command; returns what the node's epilog logged."""
    script = f"#!/bin/bash\nrm -f {name}\n{replaces}\nexit 1\n"
    job = lab.sbatch(script, "--gres=gpu:1", f"--output={name}")
    began = time.monotonic()
    assert lab.wait_job(job, *ENDED, timeout_s=BOUND_S)["state"] == "FAILED"
    assert time.monotonic() - began < BOUND_S
    log = settings(lab).log_file
    assert log is not None
    return "\n".join(line for line in log.read_text().splitlines() if f"job {job} attempt 0 on " in line)


def drained(lab: Lab) -> list[str]:
    return [node for node in lab.nodes if lab.node(node)[0].startswith("drain")]


def test_the_users_own_regular_file_is_read(lab: Lab) -> None:
    """The control: the others drain nothing because of what they are, not because nothing is ever read."""
    log = fail_with(lab, "own.log", f"echo '{ECC}' > own.log")
    assert "cuda_ecc" in log
    assert len(drained(lab)) == 1


def test_a_file_of_errors_beside_it_is_read_too(lab: Lab) -> None:
    job = lab.sbatch(f"#!/bin/bash\necho '{ECC}' >&2\nexit 1\n", "--gres=gpu:1", "--output=o.log", "--error=e-%j.log")
    assert lab.wait_job(job, *ENDED, timeout_s=BOUND_S)["state"] == "FAILED"
    assert len(drained(lab)) == 1


@pytest.mark.parametrize("options", [(), ("--output=%A_%a.log",)], ids=["Slurm's default name", "a name of its own"])
def test_the_output_of_an_array_task_is_read_though_no_node_hook_is_told_its_numbers(
    lab: Lab, options: tuple[str, ...]
) -> None:
    script = "#!/bin/bash\necho 'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB'\nexit 1\n"
    job = lab.sbatch(script, "--gres=gpu:1", "--array=7", *options)
    assert lab.wait_job(f"{job}_7", *ENDED, timeout_s=BOUND_S)["state"] == "FAILED"
    log = settings(lab).log_file
    assert log is not None
    judged = [line for line in log.read_text().splitlines() if f" job {job} attempt 0 on " in line]
    assert "cuda_out_of_memory" in judged[0]


def test_a_file_that_only_root_can_read_is_not_read(lab: Lab) -> None:
    secret = lab.base / "secret"
    secret.mkdir(mode=0o700, exist_ok=True)
    (secret / "log").write_text(f"{ECC}\n")
    (secret / "log").chmod(0o644)
    lab.run("/bin/mkdir", "-p", str(lab.shared / "there"), user=lab.spec.user)
    log = fail_with(lab, "there/log", f"rmdir there && ln -s {secret} there")
    assert "could not be read: Permission denied" in log
    assert drained(lab) == []


def test_a_link_to_a_file_of_root_is_not_followed(lab: Lab) -> None:
    log = fail_with(lab, "link.log", "ln -s /etc/shadow link.log")
    assert "could not be read: Too many levels of symbolic links" in log
    assert drained(lab) == []


def test_a_file_of_another_user_is_not_read(lab: Lab) -> None:
    lab.run("/bin/mkdir", "-p", str(lab.shared / "mine"), user=lab.spec.user)
    foreign = lab.shared / "mine" / "foreign.log"
    foreign.write_text(f"{ECC}\n")
    foreign.chmod(stat.S_IRUSR)
    assert foreign.stat().st_uid == 0
    log = fail_with(lab, "mine/log", "mv -f mine/foreign.log mine/log")
    assert (lab.shared / "mine" / "log").stat().st_uid == 0
    assert "could not be read" in log
    assert drained(lab) == []


@pytest.mark.parametrize(
    "replaces", ["mkfifo odd.log", "ln -s /dev/zero odd.log", "mkdir odd.log", "ln -s odd.log odd.log"]
)
def test_what_is_no_regular_file_neither_hangs_the_epilog_nor_is_read(lab: Lab, replaces: str) -> None:
    lab.run("/bin/rm", "-rf", str(lab.shared / "odd.log"))
    log = fail_with(lab, "odd.log", replaces)
    assert "could not be read" in log
    assert drained(lab) == []


def test_of_ten_gigabytes_only_the_end_is_read(lab: Lab) -> None:
    big = f"echo '{ECC}' > big.log; truncate -s 10G big.log; printf '\\nValueError: the end\\n' >> big.log"
    log = fail_with(lab, "big.log", big)
    assert (lab.shared / "big.log").stat().st_size > 10 << 30
    assert "cuda_ecc" not in log
    assert "python_exception" in log
    assert drained(lab) == []
