"""What a Trainer does by itself stays: best model, rotation, state of callbacks, evaluation per epoch, failures."""

from __future__ import annotations

from pathlib import Path

import launching
import pytest
from test_resume_identical import HOOK, curve

BEST = {
    "load_best_model_at_end": True,
    "metric_for_best_model": "eval_loss",
    "save_total_limit": 2,
    "save_steps": 4,
    "eval_steps": 2,
}
PER_EPOCH = {"eval_strategy": "epoch", "max_steps": 14}  # ten steps an epoch


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("beside")


@pytest.fixture(scope="module")
def reports(directory: Path) -> dict[str, dict]:
    """One process, one training after the other."""
    (directory / "unwritable").mkdir()
    (directory / "unwritable/concurrent_checkpoint").write_text("a file where the directory belongs")
    from_ten = {"resume": True, "environment": {"CKPT_LAST_STEP": "10"}}
    newest = f"{directory}/per_epoch/concurrent_checkpoint/checkpoint-14"
    runs = [
        {"name": "best_stock", "output_dir": "best_stock", "arguments": BEST, "twins": 2},
        {"name": "best", "output_dir": "best", "arguments": BEST, "twins": 2, "hook": HOOK, "hooks": 2},
        {"name": "epoch_stock", "output_dir": "epoch_stock", "arguments": PER_EPOCH},
        {"name": "epoch_saving", "output_dir": "per_epoch", "arguments": PER_EPOCH, "hook": HOOK},
        {"name": "epoch_resumed", "output_dir": "per_epoch", "arguments": PER_EPOCH, "hook": HOOK, **from_ten},
        {
            "name": "cascaded",
            "output_dir": "per_epoch",
            "arguments": {**PER_EPOCH, "save_strategy": "no"},
            "hook": {},
            "resume": True,
            "damage": [f"{newest}/model.safetensors", f"{directory}/per_epoch/checkpoint-14/optimizer.pt"],
        },
        {"name": "failing", "output_dir": "unwritable", "hook": {"save_steps": 1}},
        {"name": "plain", "output_dir": "plain"},
    ]
    for run in runs:
        run["output_dir"] = str(directory / run["output_dir"])
    found = launching.scenario(launching.python(), directory / "reports", runs)
    return {name: ranks[0] for name, ranks in found.items()}


def test_the_best_model_is_loaded_as_without_us(reports: dict[str, dict], directory: Path) -> None:
    stock, ours = reports["best_stock"], reports["best"]
    assert curve(ours) == curve(stock)
    assert ours["weights"] == stock["weights"]
    assert Path(ours["best"]).parent == directory / "best"
    assert Path(ours["best"]).name == Path(stock["best"]).name


def test_rotation_leaves_what_it_leaves_without_us(reports: dict[str, dict], directory: Path) -> None:
    kept = [sorted(path.name for path in (directory / name).glob("checkpoint-*")) for name in ("best_stock", "best")]
    assert kept[0] == kept[1]
    assert len(list((directory / "best/concurrent_checkpoint").glob("checkpoint-*"))) == 6


def test_no_saved_state_names_a_temporary_directory(reports: dict[str, dict], directory: Path) -> None:
    states = list(directory.glob("best/**/trainer_state.json"))
    assert len(states) >= 8
    assert [path for path in states if ".tmp-" in path.read_text()] == []


def test_callbacks_of_one_class_gather_no_more_states(reports: dict[str, dict]) -> None:
    assert reports["best"]["callbacks"] == reports["best_stock"]["callbacks"]


def test_a_resume_at_the_end_of_an_epoch_is_identical_too(reports: dict[str, dict]) -> None:
    for name in ("epoch_saving", "epoch_resumed"):
        assert curve(reports[name]) == curve(reports["epoch_stock"]), name
        assert reports[name]["weights"] == reports["epoch_stock"]["weights"], name
    assert reports["epoch_resumed"]["first_step"] == 11


def test_broken_ones_are_passed_over_in_both_places(reports: dict[str, dict], directory: Path) -> None:
    assert (reports["cascaded"]["first_step"], reports["cascaded"]["steps"]) == (13, 14)
    assert reports["cascaded"]["weights"] == reports["epoch_stock"]["weights"]
    said = (directory / "reports/output.txt").read_text()
    assert f"passed over {directory}/per_epoch/concurrent_checkpoint/checkpoint-14: model.safetensors" in said
    assert f"passed over {directory}/per_epoch/checkpoint-14: optimizer.pt" in said
    assert f"resuming from {directory}/per_epoch/concurrent_checkpoint/checkpoint-12" in said


def test_saves_that_fail_are_given_up_loudly_and_training_goes_on(reports: dict[str, dict], directory: Path) -> None:
    assert curve(reports["failing"]) == curve(reports["plain"])
    assert reports["failing"]["weights"] == reports["plain"]["weights"]
    said = (directory / "reports/output.txt").read_text()
    assert "CONCURRENT CHECKPOINTS ARE DISABLED after 3 failures in a row" in said


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"host_cash_size": 50, "trainer": None}, r"'host_cash_size'.*host_cache_size"),
        ({"host_cache_size": "50", "trainer": None}, r"host_cache_size is '50'.*GiB"),
        ({"host_cache_size": 50}, "'trainer' is NoneType"),
    ],
)
def test_a_wrong_setting_is_named(config: dict, message: str) -> None:
    from datastates.llm import DecoratedCheckpointing

    with pytest.raises(ValueError, match=message):
        DecoratedCheckpointing(runtime_config=config, rank=-1)
