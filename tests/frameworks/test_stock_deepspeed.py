"""DeepSpeed as it is, with `"datastates_ckpt"` in its configuration and nothing else of ours in the script."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import comparing
import launching
import pytest
from datastates._checkpoints import Level, Request, Verdict, judge
from datastates._checkpoints.find import find_one
from test_resume_identical import zero

STAGES = (1, 2, 3)
SCRIPT = launching.HERE / "deepspeed_loop.py"
# Reading DeepSpeed's files here imports it, and much of torch: what these warn of is no business of this test.
pytestmark = [pytest.mark.timeout(900), pytest.mark.filterwarnings("default")]


def configuration(stage: int, *, ours: bool = True, bf16: bool = False) -> dict:
    own = {"datastates_ckpt": {"host_cache_size": 1, "debug_hash": True}} if ours else {}
    half = {"bf16": {"enabled": True}} if bf16 else {}
    return {
        "train_micro_batch_size_per_gpu": 4,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
        "zero_optimization": {"stage": stage},
        "zero_allow_untested_optimizer": True,
        **half,
        **own,
    }


def train(directory: Path, runs: list[dict]) -> dict[str, list[dict]]:
    directory.mkdir(parents=True, exist_ok=True)
    specification = directory / "specification.json"
    specification.write_text(json.dumps({"report": str(directory), "runs": runs}))
    output = launching.run(launching.torchrun(), SCRIPT, str(specification), env=launching.environment())
    (directory / "output.txt").write_text(output)
    return {run["name"]: launching._reports(directory, run["name"]) for run in runs}


def assert_committed(directory: Path) -> None:
    """`latest` names a tag that is committed and whole down to the last byte."""
    tag = directory / (directory / "latest").read_text()
    assert {"MANIFEST.json", "COMMITTED"} < {path.name for path in tag.iterdir()}
    candidate = find_one(tag, "deepspeed")
    assert candidate is not None
    assert judge(candidate, Request(Level.DEEP)).finding.verdict is Verdict.VALID


@pytest.mark.parametrize("stage", launching.with_core(STAGES, 2))
def test_a_late_writer_saves_the_bytes_of_its_step_and_resumes_bit_for_bit(stage: int, tmp_path: Path) -> None:
    stock, ours = tmp_path / "stock", tmp_path / "ours"
    base = {"steps": 6, "save_every": 3}
    runs = [
        {**base, "name": "stock", "directory": str(stock), "config": configuration(stage, ours=False)},
        {**base, "name": "ours", "directory": str(ours), "config": configuration(stage), "late": 0.3},
    ]
    reports = train(tmp_path / "first", runs)
    assert [rank["weights"] for rank in reports["ours"]] == [rank["weights"] for rank in reports["stock"]]
    assert_committed(ours)
    for tag in ("global_step3", "global_step6"):
        found = comparing.differences(stock / tag, ours / tag)
        assert [what for what in found if "datastates_ckpt" not in what and "/ds_config" not in what] == []
    (ours / "latest").write_text("global_step3")
    again = {"name": "again", "steps": 6, "resume": str(ours), "config": configuration(stage)}
    resumed = train(tmp_path / "second", [again])["again"]
    for mine, whole in zip(resumed, reports["stock"], strict=True):
        assert mine["start"] == 3
        assert mine["losses"] == whole["losses"][3:]
        assert mine["weights"] == whole["weights"]


def test_without_the_fence_the_late_writer_tears_the_optimizer_state(tmp_path: Path) -> None:
    """The control: right bytes are the fence's doing."""
    stock, ours = tmp_path / "stock", tmp_path / "ours"
    quiet = configuration(2)
    quiet["datastates_ckpt"].update(debug_hash=False, copy="lazy")
    base = {"steps": 4, "save_every": 3}
    torn = {**base, "name": "torn", "directory": str(ours), "config": quiet, "late": 0.5, "unfenced": True}
    train(
        tmp_path / "reports",
        [{**base, "name": "stock", "directory": str(stock), "config": configuration(2, ours=False)}, torn],
    )
    found = comparing.differences(stock / "global_step3", ours / "global_step3")
    assert any("optim_states" in what and "/ds_config" not in what for what in found)


@pytest.mark.parametrize("stage", launching.with_core(STAGES, 3))
def test_killed_at_any_moment_latest_is_durable_and_training_goes_on_from_it(stage: int, tmp_path: Path) -> None:
    directory = tmp_path / "out"
    endless = {"name": "killed", "steps": 1 << 20, "save_every": 1, "directory": str(directory)}
    endless["config"] = configuration(stage)
    specification = tmp_path / "specification.json"
    specification.write_text(json.dumps({"report": str(tmp_path), "runs": [endless]}))
    with launching.started(launching.torchrun(), SCRIPT, str(specification), env=launching.environment()) as process:
        launching.wait_for(directory / "latest", process)
        time.sleep(random.uniform(0, 2))
        launching.kill_session(process)
    assert_committed(directory)
    newest = int((directory / "latest").read_text().removeprefix("global_step"))
    runs = [
        {"name": "whole", "steps": newest + 3, "config": configuration(stage)},
        {"name": "again", "steps": newest + 3, "resume": str(directory), "config": configuration(stage)},
    ]
    reports = train(tmp_path / "second", runs)
    for mine, whole in zip(reports["again"], reports["whole"], strict=True):
        assert mine["start"] == newest
        assert mine["losses"] == whole["losses"][newest:]
        assert mine["weights"] == whole["weights"]


def test_the_trainer_s_hook_and_the_engine_do_not_fight(tmp_path: Path) -> None:
    """With both, the hook's saves are whole, the Trainer's own are written late, and either is resumed from."""
    out = tmp_path / "out"
    config = {**zero(2), "datastates_ckpt": {"host_cache_size": 1}}
    arguments = {"max_steps": 6, "save_steps": 4, "save_total_limit": 1, "eval_strategy": "no"}
    base = {"arguments": arguments, "deepspeed": config, "hook": {"save_steps": 4, "keep_last": 0}}
    own, concurrent = out / "checkpoint-4", out / "concurrent_checkpoint" / "checkpoint-4"
    runs = [
        {**base, "name": "whole", "output_dir": str(out), "arguments": {**arguments, "save_total_limit": None}},
        {**base, "name": "own", "output_dir": str(tmp_path / "a"), "resume": str(own)},
        {**base, "name": "concurrent", "output_dir": str(tmp_path / "b"), "resume": str(concurrent)},
    ]
    reports = launching.scenario(launching.torchrun(), tmp_path / "reports", runs)
    assert_committed(own)
    assert (concurrent / "latest").read_text() == "global_step4"
    assert not (concurrent / "global_step4" / "COMMITTED").exists()
    for name in ("own", "concurrent"):
        assert [rank["weights"] for rank in reports[name]] == [rank["weights"] for rank in reports["whole"]]
