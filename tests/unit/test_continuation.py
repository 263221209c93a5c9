"""Did training go on from the chosen step? What frameworks really print, and what they really save."""

from __future__ import annotations

from typing import ClassVar

import pytest

from slurm_ft.launch.continuation import Saved, from_checkpoints, from_line
from slurm_ft.launch.log_reader import LogReader


class TestFromLine:
    @pytest.mark.parametrize(
        "line",
        [
            "[INFO|trainer.py:2567] 2026-11-29 18:00:00,000 >>   Continuing training from global step 20",
            "  successfully loaded checkpoint from /ckpt [ t 1/1, p 1/1 ] at iteration 20",
            "Setting global step to 20",
            "resumed from step 20",
            # transformers 5.6 and later
            "[INFO|trainer.py:1500] >> Resuming training from checkpoint with epoch 0 and global step 20",
            "\x1b[32mResuming training from step 20\x1b[0m",
        ],
    )
    def test_the_chosen_step_is_a_confirmation(self, line: str) -> None:
        conclusion = from_line(20, line)
        assert conclusion is not None
        assert conclusion.went_on

    @pytest.mark.parametrize(
        ("line", "alert"),
        [
            ("  Continuing training from global step 0", "restarted_from_zero"),
            ("Setting global step to 10", "resumed_elsewhere"),
            ("Training from scratch", "restarted_from_zero"),
            (
                "WARNING: could not find the metadata file /ckpt/latest_checkpointed_iteration.txt",
                "restarted_from_zero",
            ),
            ("    will not load any checkpoints and will start from random", "restarted_from_zero"),
            ("[WARNING] Unable to find latest file at /out/latest, if trying to load latest", "restarted_from_zero"),
        ],
    )
    def test_another_start_is_an_alert(self, line: str, alert: str) -> None:
        conclusion = from_line(20, line)
        assert conclusion is not None
        assert (conclusion.went_on, conclusion.alert) == (False, alert)

    @pytest.mark.parametrize(
        "line",
        [
            "",
            "step 1/60 loss 2.3",
            "slurm_ft: resumed from step 0",
            "==== slurm_ft job 1 attempt 1/4 · restart 0 · resume step 0 ====",
            "Setting global step to 40",  # in units of its own
            "No Checkpoint found with step: -1",  # the concurrent library on a first start of its own
            f"resumed from step {'9' * 40}",
            "x" * 100_000,
        ],
    )
    def test_other_lines_say_nothing(self, line: str) -> None:
        assert from_line(20, line) is None


class TestFromCheckpoints:
    BEFORE: ClassVar = {"/o/ckpt_10": Saved(10, 100), "/o/ckpt_20": Saved(20, 200), "/o/ckpt_30": Saved(30, 300)}

    def test_a_later_one_confirms(self) -> None:
        conclusion = from_checkpoints(20, self.BEFORE, {**self.BEFORE, "/o/ckpt_25": Saved(25, 400)})
        assert conclusion is not None
        assert conclusion.went_on
        assert conclusion.why == "it saved ckpt_25 (step 25)"

    def test_a_broken_later_one_that_is_written_anew_confirms(self) -> None:
        conclusion = from_checkpoints(20, self.BEFORE, {**self.BEFORE, "/o/ckpt_30": Saved(30, 400)})
        assert conclusion is not None
        assert conclusion.went_on

    @pytest.mark.parametrize("new", [{"/o/ckpt_5": Saved(5, 400)}, {"/o/ckpt_10": Saved(10, 400)}])
    def test_an_earlier_one_is_an_alert(self, new: dict[str, Saved]) -> None:
        later = {"/o/ckpt_40": Saved(40, 900)}  # it has passed the chosen step meanwhile
        conclusion = from_checkpoints(20, self.BEFORE, {**self.BEFORE, **new, **later})
        assert conclusion is not None
        assert conclusion.alert == "restarted_from_zero"

    @pytest.mark.parametrize(
        "now",
        [
            BEFORE,
            {"/o/ckpt_20": BEFORE["/o/ckpt_20"]},  # rotation removed the others
            {**BEFORE, "/o/ckpt_10": Saved(10, 50)},  # a removal in progress
            {**BEFORE, "/o/ckpt_20": Saved(20, 900)},  # the chosen one, saved again at its end
        ],
    )
    def test_no_new_one_says_nothing(self, now: dict[str, Saved]) -> None:
        assert from_checkpoints(20, self.BEFORE, now) is None

    def test_hours_without_a_save_or_a_line_are_no_alert(self) -> None:
        """transformers#21934, #11284: the batches that were trained on are skipped, 28 hours in one case."""
        progress = [f"Skipping the first batches: {percent}%" for percent in range(100)]
        assert [from_line(20, line) for line in progress] == [None] * 100
        assert from_checkpoints(20, self.BEFORE, self.BEFORE) is None

    def test_one_that_was_not_looked_into_before_is_not_new(self) -> None:
        assert from_checkpoints(20, {"/o/ckpt_10": Saved(10, 0)}, {"/o/ckpt_10": Saved(10, 500)}) is None


class TestLogReader:
    def test_reads_only_what_is_new_in_whole_lines(self, tmp_path) -> None:
        log = tmp_path / "job.log"
        log.write_bytes(b"resumed from step 99\n")
        reader = LogReader(log)
        assert reader.lines() == []
        with log.open("ab") as file:
            file.write(b"one\n 50%|##\r100%|####\rhalf")
        assert reader.lines() == ["one", " 50%|##", "100%|####"]
        with log.open("ab") as file:
            file.write(b" and half\n\xff\xfe")
        assert reader.lines() == ["half and half"]
        assert reader.last_line() == "��"

    def test_a_log_that_vanishes_or_is_none_has_no_lines(self, tmp_path) -> None:
        log = tmp_path / "job.log"
        log.write_bytes(b"")
        reader = LogReader(log)
        log.unlink()
        assert reader.lines() == []
        assert LogReader(tmp_path / "none").lines() == []
        assert LogReader(tmp_path).lines() == []

    def test_a_truncated_log_is_read_from_its_start(self, tmp_path) -> None:
        log = tmp_path / "job.log"
        log.write_bytes(b"a long first line\n")
        reader = LogReader(log)
        log.write_bytes(b"new\n")
        assert reader.lines() == ["new"]

    def test_an_endless_line_takes_no_memory(self, tmp_path) -> None:
        log = tmp_path / "job.log"
        log.write_bytes(b"")
        reader = LogReader(log)
        for _ in range(3):
            with log.open("ab") as file:
                file.write(b"x" * 1_000_000)
            assert reader.lines() == []
        assert len(reader.last_line()) <= 4096
