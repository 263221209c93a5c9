"""A loop of one's own: what a resume brings back, and that a kill at any moment costs nothing but the steps since."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from small_training import Training, differences, snapshot_of

from slurm_ft.checkpoints import Policy, act_on, choose
from slurm_ft.checkpoints.counters import parse
from slurm_ft.checkpoints.finding import Level
from slurm_ft.vendor.datastates import Checkpoints
from slurm_ft.vendor.datastates._engine.errors import SettingsError
from slurm_ft.vendor.datastates._engine.paths import committed
from slurm_ft.vendor.datastates._engine.status import Outcome
from slurm_ft.vendor.datastates.loop import ResumeError

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "train_own_loop.py"
KILLS = int(os.environ.get("SLURM_FT_KILLS", "4"))  # `make soak` has 200
STEPS = 60


@pytest.fixture
def open_checkpoints(tmp_path):
    made = []

    def make(**settings: object) -> Checkpoints:
        checkpoints = Checkpoints(tmp_path / "out", **settings)
        made.append(checkpoints)
        return checkpoints

    yield make
    for checkpoints in made:
        checkpoints.close()


def objects(training: Training) -> dict[str, object]:
    return {"model": training.model, "optimizer": training.optimizer, "scheduler": training.scheduler, "seen": [1, 2]}


def test_everything_in_the_state_comes_back(training, open_checkpoints):
    first = open_checkpoints()
    training.step()
    first.save(2, objects(training), now=True)
    expected = snapshot_of(training.state())
    training.step(2)
    after = snapshot_of(training.state())
    assert first.wait(20)
    other = Training(seed=9)
    state = {**objects(other), "seen": None}
    assert open_checkpoints().load(state) == 2
    other.done = 2
    assert differences(expected, other.state()) == []
    assert state["seen"] == [1, 2]
    other.step(2)
    assert differences(after, other.state()) == []


def test_what_was_saved_is_counted_for_the_nodes_metrics(training, open_checkpoints, tmp_path, monkeypatch):
    reports = tmp_path / "reports"
    reports.mkdir()
    monkeypatch.setenv("SLURM_FT_COUNTERS", str(reports))
    checkpoints = open_checkpoints()
    for step in (2, 4):
        checkpoints.save(step, objects(training), now=True)
        assert checkpoints.wait(20)
    (report,) = reports.glob("*.json")
    counted = parse(report.read_text())
    assert (counted.committed, counted.failed, counted.skipped) == (2, 0, 0)
    assert counted.seconds > 0
    assert counted.bytes > 2 * sum(parameter.nbytes for parameter in training.model.parameters())


def test_the_generators_of_python_and_numpy_come_back(open_checkpoints):
    numpy = pytest.importorskip("numpy")
    checkpoints = open_checkpoints()
    checkpoints.save(1, {}, now=True)
    drawn = (random.random(), numpy.random.rand())
    assert checkpoints.wait(20)
    assert checkpoints.load({}) == 1
    assert (random.random(), numpy.random.rand()) == drawn


def test_a_grad_scaler_comes_back(open_checkpoints):
    scaler = torch.amp.GradScaler("cpu", init_scale=128.0)
    checkpoints = open_checkpoints()
    checkpoints.save(1, {"scaler": scaler}, now=True)
    assert checkpoints.wait(20)
    fresh = torch.amp.GradScaler("cpu")
    checkpoints.load({"scaler": fresh})
    assert fresh.state_dict()["scale"] == 128.0


def test_an_empty_directory_starts_from_scratch(open_checkpoints):
    assert open_checkpoints().load({}) == 0


def test_strict_resume_refuses_an_empty_directory(open_checkpoints):
    with pytest.raises(ResumeError, match="no valid checkpoint"):
        open_checkpoints(strict_resume=True).load({})


def test_a_damaged_checkpoint_is_passed_over(training, open_checkpoints):
    checkpoints = open_checkpoints()
    for step in (1, 2):
        checkpoints.save(step, objects(training), now=True)
        assert checkpoints.wait(20)
    with (checkpoints.engine.root / "checkpoint-2" / "model.pt").open("r+b") as file:
        file.seek(1000)
        file.write(b"\xff" * 8)
    assert checkpoints.load(objects(training)) == 1


def test_an_entry_that_the_checkpoint_lacks_is_named(open_checkpoints):
    checkpoints = open_checkpoints()
    checkpoints.save(1, {}, now=True)
    assert checkpoints.wait(20)
    with pytest.raises(ResumeError, match=r"has no model\.pt"):
        checkpoints.load({"model": torch.nn.Linear(2, 2)})


def test_loading_into_a_model_that_is_being_saved_does_not_tear_it(training, open_checkpoints, slow_workers):
    checkpoints = open_checkpoints(copy="lazy")
    training.step()
    expected = snapshot_of(training.model.state_dict())
    checkpoints.save(2, objects(training), now=True)
    training.model.load_state_dict({key: value + 1 for key, value in training.model.state_dict().items()})
    assert checkpoints.wait(20)
    assert not checkpoints.status.last_error
    saved = torch.load(checkpoints.engine.root / "checkpoint-2" / "model.pt", weights_only=True)
    assert differences(expected, saved) == []


def test_a_view_does_not_drag_its_pool_along(open_checkpoints):
    """torch.save writes the whole storage of a view: 4 KiB of a pool of 8 MiB make a file of 8 MiB."""
    checkpoints = open_checkpoints()
    checkpoints.save(1, {"view": torch.zeros(1 << 21)[:1024]}, now=True)
    assert checkpoints.wait(20)
    assert (checkpoints.engine.root / "checkpoint-1" / "view.pt").stat().st_size < 10_000


def test_views_that_use_their_storage_together_stay_together(open_checkpoints):
    flat = torch.arange(1 << 19, dtype=torch.float32)
    checkpoints = open_checkpoints()
    checkpoints.save(1, {"halves": [flat[: 1 << 18], flat[1 << 18 :]]}, now=True)
    assert checkpoints.wait(20)
    state = {"halves": None}
    checkpoints.load(state)
    first, second = state["halves"]
    assert first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()


def test_an_unknown_setting_is_named_with_the_valid_ones(tmp_path):
    with pytest.raises(SettingsError, match=r"unknown checkpoint setting 'save_step'.*save_steps"):
        Checkpoints(tmp_path, save_step=5)


@pytest.mark.parametrize(
    ("name", "value"), [("host_cache_size", -1), ("parser_threads", 0), ("copy", "later"), ("keep_last", True)]
)
def test_a_value_that_cannot_be_used_is_named(tmp_path, name, value):
    with pytest.raises(SettingsError, match=f"checkpoint setting {name} is {value!r}"):
        Checkpoints(tmp_path, **{name: value})


# --- in processes of their own ---------------------------------------------------------------------------------------


def start(directory: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "slurm_ft" / "vendor")}
    environment.pop("CKPT_LAST_STEP", None)
    command = [sys.executable, str(SCRIPT), "--output-dir", str(directory), "--steps", str(STEPS)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """The output of a run that nobody disturbs: losses by step, and the last line."""
    process = start(tmp_path_factory.mktemp("uninterrupted"))
    output = process.communicate(timeout=200)[0].splitlines()
    assert process.returncode == 0
    return set(output[1:-1]), output[-1]


def test_a_run_killed_again_and_again_ends_as_if_nothing_had_been(tmp_path, uninterrupted):
    """kill -9 at random moments: the newest valid checkpoint always resumes, and each loss is the same to the bit."""
    moments = random.Random(KILLS)
    runs, kills, finished = 0, 0, True
    while kills < KILLS or not finished:
        if finished:
            runs += 1
        directory = tmp_path / f"run{runs}"
        directory.mkdir(exist_ok=True)
        expected = newest(directory)
        process = start(directory)
        if kills < KILLS:
            time.sleep(moments.uniform(1, 6))  # starting takes 2-3 s
            process.send_signal(signal.SIGKILL)
            kills += 1
        output = process.communicate(timeout=200)[0].splitlines()
        finished = process.returncode == 0
        assert not output or output[0] == f"from step {expected}"
        assert not finished or output[-1] == uninterrupted[1]
        assert {line for line in output if re.fullmatch(r"step \d+ loss \d+\.\d{9}", line)} <= uninterrupted[0]


def newest(root: Path) -> int:
    """The newest valid checkpoint is the newest committed one: no torn one was taken for whole."""
    found = choose(root, "concurrent", Policy(level=Level.DEEP, cache=False, settle_seconds=0))
    steps = [step for step, _ in committed(root)]
    assert (found.point.step if found.point else None) == (steps[0] if steps else None)
    return steps[0] if steps else 0


@pytest.mark.parametrize("damaged", [None, "step.pt", "model.pt"])
def test_the_command_line_does_not_take_a_loops_checkpoints_for_broken_ones_of_the_trainer(
    training, open_checkpoints, damaged, caplog
):
    """Both have a `checkpoint-N/optimizer.pt`; `resume` would move what the Trainer cannot load out of the way."""
    checkpoints = open_checkpoints()
    for step in (2, 4):
        checkpoints.save(step, objects(training), now=True)
        assert checkpoints.wait(20)
    root = checkpoints.engine.root
    if damaged:
        (root / "checkpoint-4" / damaged).unlink()
    search = choose(root, policy=Policy(cache=False, settle_seconds=0))
    assert (search.layout.name, search.point and search.point.step) == ("concurrent", 2 if damaged else 4)
    assert not act_on(search).moved
    assert checkpoints.latest() == search.point.path
    assert ("passed over" in caplog.text) == bool(damaged)
    assert (root / "checkpoint-4").is_dir()


def test_sigusr1_saves_once_more_and_training_goes_on(training, open_checkpoints):
    """What `sbatch --signal=USR1@120` sends ahead of the time limit."""
    with open_checkpoints() as checkpoints:
        assert checkpoints.save(2, objects(training)) is None
        signal.raise_signal(signal.SIGUSR1)
        assert checkpoints.save(3, objects(training)) is Outcome.STARTED
        assert not checkpoints.stopping
        assert checkpoints.wait(20)
        assert checkpoints.save(4, objects(training)) is None
    assert committed(checkpoints.engine.root)[0][0] == 3


def test_a_sigterm_handler_of_the_scripts_own_is_called_once(training, open_checkpoints):
    calls = []
    before = signal.signal(signal.SIGTERM, lambda number, _frame: calls.append(number))
    try:
        with open_checkpoints() as checkpoints:
            signal.raise_signal(signal.SIGTERM)
            assert checkpoints.save(3, objects(training)) is Outcome.STARTED
            assert checkpoints.stopping
    finally:
        signal.signal(signal.SIGTERM, before)
    assert calls == [signal.SIGTERM]


def test_sigterm_saves_once_more_and_ends_the_process(tmp_path):
    lines = []
    with start(tmp_path) as process:
        for line in process.stdout:
            lines.append(line)
            if line.startswith("step 7 "):
                process.send_signal(signal.SIGTERM)
    assert process.returncode == -signal.SIGTERM
    last = [int(line.split()[1]) for line in lines if line.startswith("step ")][-1]
    assert committed(tmp_path)[0][0] == last
    assert last < STEPS
