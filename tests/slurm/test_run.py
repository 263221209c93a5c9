"""`slurm-ft run` in real jobs: what it writes into the Comment, and what it says when training does not go on."""

from __future__ import annotations

import os
import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from resuming import output_directory, save, submit
from steps import ENDED, lose_gpu, make_healthy, rows, running, status

from slurm_ft.failover import comment_tag, resume_tag
from slurm_ft.failover.resume_tag import ResumeMark

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from slurm_ft.lab import Lab


@pytest.fixture(autouse=True)
def healthy(lab: Lab) -> Iterator[None]:
    yield
    make_healthy(lab)


@pytest.fixture
def out(lab: Lab) -> Path:
    return output_directory(lab)


def mark(lab: Lab, job: int) -> ResumeMark | None:
    """Without the time of the checkpoint, which only one test looks at."""
    found = resume_tag.read(lab.job(job)["comment"])
    return replace(found, saved=None) if found else None


def log(lab: Lab, job: int) -> str:
    return (lab.shared / f"{job}.log").read_text()


def wait_mark(lab: Lab, job: int, expected: ResumeMark) -> None:
    lab.wait_for(lambda: mark(lab, job) == expected, 30, f"{expected} in the Comment of job {job}")


def test_the_step_stands_in_the_comment_beside_all_that_is_there(lab: Lab, out: Path) -> None:
    save(out, 1200)
    job = submit(lab, out, comment='{"team": "vision"} [slurm_ft limit=2] näh')
    running(lab, job, 0)
    wait_mark(lab, job, ResumeMark(1200, 0, 0))
    written = resume_tag.read(lab.job(job)["comment"])
    assert written
    assert written.saved is not None
    assert 0 <= time.time() - written.saved < 300
    tag = f"[slurm_ft.resume step=1200 attempt=0 saved={written.saved}]"
    assert lab.job(job)["comment"] == f'{{"team": "vision"}} [slurm_ft limit=2] näh {tag}'
    header, row = (line.split() for line in rows(status(lab, job)))
    at = header.index("LAST_STEP")
    assert row[at] == "1200"
    assert re.fullmatch(r"\d+[sm]", row[at + 1])


def test_attempts_without_progress_are_counted_and_alerted(lab: Lab, out: Path) -> None:
    save(out, 20)
    job = submit(lab, out)
    wait_mark(lab, job, ResumeMark(20, 0, 0))
    lose_gpu(lab, job, 0)
    running(lab, job, 1)
    wait_mark(lab, job, ResumeMark(20, 1, 0, "same_step"))
    assert "slurm_ft: ALERT: same_step: this attempt starts from step 20, as 1 before it did" in log(lab, job)
    save(out, 40)
    lose_gpu(lab, job, 1)
    running(lab, job, 2)
    wait_mark(lab, job, ResumeMark(40, 2, 2))
    tag = comment_tag.read(lab.job(job)["comment"])
    assert tag is not None
    assert tag.count == 2  # neither tag disturbs the other


def test_a_training_that_begins_anew_is_told_and_ended_where_asked_for(lab: Lab, out: Path) -> None:
    save(out, 20)
    job = submit(lab, out, "--stop-on-restart-from-zero")
    running(lab, job, 0)
    save(out, 10)
    done = lab.wait_job(job, *ENDED)
    assert (done["state"], done["restarts"]) == ("FAILED", "0")
    assert "ALERT: restarted_from_zero: training did not go on from step 20" in log(lab, job)
    assert mark(lab, job) == ResumeMark(20, 0, 0, "restarted_from_zero")


def test_a_library_that_gives_up_saving_is_noted_while_training_goes_on(lab: Lab, out: Path) -> None:
    """The lab's TaskProlog sets CHECKPOINT_VENDOR; the library's line comes into the log as from the training."""
    job = submit(lab, out)
    running(lab, job, 0)
    with (lab.shared / f"{job}.log").open("r+") as file:  # to create another user's file is forbidden in /tmp
        file.seek(0, os.SEEK_END)
        file.write(
            "CONCURRENT CHECKPOINTS ARE DISABLED after 3 failures in a row; the training goes on without them.\n"
        )
    wait_mark(lab, job, ResumeMark(None, 0, 0, "checkpointing_disabled"))
    assert "slurm_ft: ALERT: checkpointing_disabled: CONCURRENT CHECKPOINTS ARE DISABLED after 3" in log(lab, job)
    assert lab.job(job)["state"] == "RUNNING"
    (lab.shared / f"end.{job}.0").write_text("0\n")
    lab.wait_job(job, *ENDED)


@pytest.mark.parametrize(("code", "shown"), [("0", "0:0"), ("7", "7:0")])
def test_the_trainings_exit_code_is_the_jobs(lab: Lab, out: Path, code: str, shown: str) -> None:
    job = submit(lab, out)
    running(lab, job, 0)
    (lab.shared / f"end.{job}.0").write_text(f"{code}\n")
    lab.wait_job(job, *ENDED)
    view = status(lab, job)
    assert f"{view.job.exit_code}:{view.job.exit_signal}" == shown


def test_a_training_killed_by_a_signal_looks_so_to_slurm(lab: Lab, out: Path) -> None:
    job = submit(lab, out)
    running(lab, job, 0)
    lab.run("scancel", "--signal=USR1", "--batch", str(job))
    lab.wait_job(job, *ENDED)
    view = status(lab, job)
    assert (view.job.exit_code, view.job.exit_signal) == (0, 10)


def test_a_full_comment_costs_the_note_and_not_the_training(lab: Lab, out: Path) -> None:
    comment = "x" * 1005 + "[slurm_ft]"
    job = submit(lab, out, comment=comment)
    running(lab, job, 0)
    (lab.shared / f"end.{job}.0").write_text("0\n")
    done = lab.wait_job(job, *ENDED)
    assert (done["state"], done["comment"]) == ("COMPLETED", comment)
