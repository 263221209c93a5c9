"""When a Trainer's step is saved, and how ranks agree on the last save; without a framework."""

from __future__ import annotations

import signal

import pytest

from slurm_ft.vendor.datastates.llm.hook import Boundary
from slurm_ft.vendor.datastates.llm.resume import LATEST, wanted_step
from slurm_ft.vendor.datastates.llm.termination import OwnBoard, Signals, StoreBoard


def test_the_end_of_an_epoch_is_saved_at_its_second_visit_only():
    """The Trainer comes twice to an epoch's last step; evaluations per epoch run before the second visit."""
    boundary = Boundary()
    visits = [(9, 0.9), (10, 1.0), (10, 1.0), (11, 1.1), (11, 1.1)]
    assert [boundary.reached(*visit) for visit in visits] == [True, False, True, True, False]


def test_a_training_without_epochs_is_saved_at_each_step():
    boundary = Boundary()
    assert [boundary.reached(step, None) for step in (1, 2, 2)] == [True, True, False]


class Store:
    """What StoreBoard uses of torch.distributed's store."""

    def __init__(self):
        self.values = {}

    def compare_set(self, key, expected, value):
        if self.values.get(key, "") == expected:
            self.values[key] = value

    def check(self, keys):
        return all(key in self.values for key in keys)

    def get(self, key):
        return self.values[key].encode()


def test_two_ranks_that_are_told_at_one_boundary_save_at_one_step():
    store = Store()
    boards = [StoreBoard(store), StoreBoard(store)]
    boards[0].announce(7 + boards[0].lead)
    boards[1].announce(9 + boards[1].lead)  # told later: the first announcement stands
    assert [board.announced() for board in boards] == [8, 8]
    for board in boards:
        board.erase()
    assert [board.announced() for board in boards] == [None, None]
    boards[1].announce(12)  # a second notice in the same training
    assert boards[0].announced() == 12


def test_a_process_alone_saves_at_the_boundary_itself():
    board = OwnBoard()
    board.announce(7 + board.lead)
    assert board.announced() == 7


def test_the_time_left_counts_from_the_first_sigterm():
    signals = Signals()
    signals.install()
    try:
        signal.raise_signal(signal.SIGUSR1)
        assert signals.notice is not None
        assert signals.notice.signal is signal.SIGUSR1
        signal.raise_signal(signal.SIGTERM)
        first = signals.notice
        signal.raise_signal(signal.SIGTERM)
        assert signals.notice is first
        assert first.signal is signal.SIGTERM
    finally:
        signals.restore()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_handler_of_the_scripts_own_is_called_and_decides_how_it_ends():
    seen = []
    before = signal.signal(signal.SIGTERM, lambda number, _: seen.append(number))
    signals = Signals()
    signals.install()
    try:
        signal.raise_signal(signal.SIGTERM)
        assert seen == [signal.SIGTERM]
        signals.obey(signals.notice)  # would end the process if the script had no handler
    finally:
        signals.restore()
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(
    ("text", "step"), [(None, LATEST), ("", LATEST), ("-1", LATEST), ("latest", LATEST), (" 20 ", 20), ("0", 0)]
)
def test_the_platforms_step(text, step):
    assert wanted_step({} if text is None else {"CKPT_LAST_STEP": text}) == step
