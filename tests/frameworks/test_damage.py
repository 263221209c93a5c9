"""A damaged newest checkpoint is passed over, whatever file the damage is in, and by all ranks together."""

from __future__ import annotations

import importlib
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import launching
import pytest
from test_resume_identical import zero

HOUR = 3600  # seconds: no candidate is so fresh that it might still be growing


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An output directory with concurrent checkpoints of steps 2 and 4, saved by two ranks under ZeRO-2."""
    directory = tmp_path_factory.mktemp("saved")
    hook = {"save_steps": 2, "keep_last": 0, "back_pressure": "wait"}
    arguments = {"max_steps": 4, "save_strategy": "no"}
    run = {"name": "saving", "output_dir": str(directory / "out"), "hook": hook, "arguments": arguments}
    launching.scenario(launching.torchrun(), directory / "reports", [{**run, "deepspeed": zero(2)}])
    return directory / "out"


@pytest.fixture
def output_dir(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "out"))


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


DAMAGE: dict[str, Callable[[Path], None]] = {"flip": flip, "zero": zeros, "truncate": truncate, "delete": Path.unlink}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_in_any_file_is_seen(damage: str, output_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    from datastates.llm.decorator import get_last_checkpoint_preprocess

    newest = output_dir / "concurrent_checkpoint/checkpoint-4"
    files = [path for path in sorted(newest.rglob("*")) if path.is_file()]
    assert len(files) >= 12
    for path in files:
        sound = path.read_bytes()
        DAMAGE[damage](path)
        grow_old(newest)
        caplog.clear()
        found = get_last_checkpoint_preprocess(output_dir)
        assert found == str(output_dir / "concurrent_checkpoint/checkpoint-2"), path
        assert f"passed over {newest}" in caplog.text
        path.write_bytes(sound)
    grow_old(newest)
    assert get_last_checkpoint_preprocess(output_dir) == str(newest)


def test_an_interrupted_save_is_no_candidate(output_dir: Path) -> None:
    from datastates.llm.decorator import get_last_checkpoint_preprocess

    root = output_dir / "concurrent_checkpoint"
    (root / ".tmp-4-attempt").mkdir()
    (root / "checkpoint-4").rename(root / ".tmp-4-attempt/checkpoint-4")
    assert get_last_checkpoint_preprocess(output_dir) == str(root / "checkpoint-2")


@pytest.mark.parametrize(
    ("wanted", "step"), [("-1", 4), ("", 4), ("latest", 4), ("4", 4), ("3", 2), ("2", 2), ("99", 4)]
)
def test_the_platforms_step_is_the_newest_to_take(wanted: str, step: int, output_dir: Path) -> None:
    from datastates.llm import resume
    from datastates.llm.decorator import get_last_checkpoint_preprocess

    found = get_last_checkpoint_preprocess(output_dir, resume.wanted_step({"CKPT_LAST_STEP": wanted}))
    assert found == str(output_dir / f"concurrent_checkpoint/checkpoint-{step}")


def test_a_step_with_thousands_of_digits_is_named_and_the_newest_taken(caplog: pytest.LogCaptureFixture) -> None:
    """Python refuses to make a number of more than 4,300 digits, with an error that names no setting."""
    from datastates.llm import resume

    assert resume.wanted_step({"CKPT_LAST_STEP": "9" * 5000}) == resume.LATEST
    assert "CKPT_LAST_STEP is a number of 5000 digits (999999999999999999…), which is no step" in caplog.text
    assert resume.wanted_step({"CKPT_LAST_STEP": "0" * 5000 + "7"}) == 7


def test_nothing_up_to_the_step_says_so_and_starts_from_scratch(
    output_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from datastates.llm.decorator import get_last_checkpoint_preprocess
    from datastates.llm.resume import ResumeError

    assert get_last_checkpoint_preprocess(output_dir, 1) is None
    assert "[Concurrent Checkpoint] No Checkpoint found with step: 1" in caplog.text
    with pytest.raises(ResumeError, match="strict_resume"):
        get_last_checkpoint_preprocess(output_dir, 1, strict=True)


def test_one_ranks_refusal_sends_all_to_the_older_one(output_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0 does not read large checkpoints whole: the damage is in a file that only rank 1 reads."""
    from datastates.llm.resume import choose_together

    monkeypatch.setattr(importlib.import_module("datastates._checkpoints.choose"), "READ_WHOLE_BYTES", 0)
    newest = output_dir / "concurrent_checkpoint/checkpoint-4"
    flip(newest / "global_step4/zero_pp_rank_1_mp_rank_00_optim_states.pt")
    grow_old(newest)
    meeting = Meeting(2)
    answers: dict[int, str] = {}

    def of_rank(rank: int) -> None:
        answers[rank] = choose_together(output_dir, -1, RankOf(rank, meeting)).path

    threads = [threading.Thread(target=of_rank, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert answers == dict.fromkeys(range(2), str(output_dir / "concurrent_checkpoint/checkpoint-2"))


def test_zero_states_of_another_number_of_ranks_are_refused_by_name(output_dir: Path, tmp_path: Path) -> None:
    """Neither an older checkpoint nor step 0: nobody would know why the training lost its progress."""
    run = {"name": "alone", "output_dir": str(output_dir), "hook": {}, "resume": True, "deepspeed": zero(2)}
    output = launching.scenario(launching.torchrun(1), tmp_path / "reports", [run], code=1)
    assert "checkpoint-4 was saved by 2 ranks and this run has 1. DeepSpeed's ZeRO states load with the same" in output


class Meeting:
    """Where threads that stand for ranks exchange values."""

    def __init__(self, count: int) -> None:
        self.count, self.values, self.barrier = count, {}, threading.Barrier(count, timeout=60)

    def exchange(self, rank: int, value: object) -> dict[int, object]:
        self.values[rank] = value
        self.barrier.wait()
        seen = dict(self.values)
        self.barrier.wait()
        return seen


class RankOf:
    def __init__(self, rank: int, meeting: Meeting) -> None:
        self.rank, self.world_size, self._meeting = rank, meeting.count, meeting

    def minimum(self, value: int) -> int:
        return min(self._meeting.exchange(self.rank, value).values())

    def broadcast(self, text: str) -> str:
        return self._meeting.exchange(self.rank, text)[0]


def grow_old(directory: Path) -> None:
    long_ago = time.time() - HOUR
    for path in [directory, *directory.rglob("*")]:
        os.utime(path, (long_ago, long_ago))
