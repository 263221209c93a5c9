"""A training that resumes from a concurrent checkpoint gives, bit for bit, what the uninterrupted one gives; and what
was written is what the framework writes.
"""

from __future__ import annotations

import json
from pathlib import Path

import launching
import pytest


def zero(stage: int, **more: object) -> dict[str, object]:
    """Return a DeepSpeed configuration that trains on a CPU."""
    return {
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "zero_allow_untested_optimizer": True,
        "zero_optimization": {"stage": stage, **more},
        "optimizer": {"type": "AdamW", "params": {"lr": "auto", "torch_adam": True}},
    }


MODES = {
    "single": (launching.python, {}),
    "lora": (launching.python, {"lora": True}),
    "ddp": (launching.torchrun, {}),
    "zero1": (launching.deepspeed, {"deepspeed": zero(1)}),
    "zero2": (launching.deepspeed, {"deepspeed": zero(2)}),
    "zero3": (launching.torchrun, {"deepspeed": zero(3)}),
    "zero3_gathered": (launching.torchrun, {"deepspeed": zero(3, stage3_gather_16bit_weights_on_model_save=True)}),
}

HOOK = {"save_steps": 2, "keep_last": 0, "back_pressure": "wait", "debug_hash": True}


@pytest.mark.parametrize("mode", launching.with_core(MODES, "single", "zero2", "zero3"))
def test_resumed_equals_uninterrupted(mode: str, tmp_path: Path) -> None:
    launcher, kind = MODES[mode]
    stock, ours = str(tmp_path / "stock"), str(tmp_path / "ours")
    pair = [f"{ours}/checkpoint-8", f"{ours}/concurrent_checkpoint/checkpoint-8"]
    readers = {"zero3": ["zero_to_fp32"], "zero2": ["zero_to_fp32", "pretrained"], "lora": []}
    checks = [[check, *pair] for check in ("differences", *readers.get(mode, ["pretrained"]))]
    resume = {"resume": True, "environment": {"CKPT_LAST_STEP": "6"}}
    runs = [
        {"name": "stock", "output_dir": stock, **kind},
        {"name": "saving", "output_dir": ours, "hook": HOOK, "checks": checks, **kind},
        # From the middle of an epoch, with an evaluation at that very step.
        {"name": "resumed", "output_dir": ours, "hook": HOOK, **resume, **kind},
    ]

    reports = launching.scenario(launcher(), tmp_path / "reports", runs)

    for rank, uninterrupted in enumerate(reports["stock"]):
        for name in ("saving", "resumed"):
            report = reports[name][rank]
            assert curve(report) == curve(uninterrupted), name
            assert report["weights"] == uninterrupted["weights"], name
        assert reports["resumed"][rank]["first_step"] == 7
    assert reports["saving"][0]["checks"] == {" ".join(check): [] for check in checks}
    saved = {path.name for path in Path(ours, "concurrent_checkpoint").glob("checkpoint-*")}
    assert saved == {f"checkpoint-{step}" for step in range(2, 13, 2)}
    for path in Path(ours, "concurrent_checkpoint").glob("checkpoint-*"):
        assert json.loads((path / "MANIFEST.json").read_text())["world_size"] == len(reports["stock"])
    assert {path.name for path in Path(ours).glob("checkpoint-*")} == {"checkpoint-4", "checkpoint-8", "checkpoint-12"}


def curve(report: dict) -> list[dict]:
    """Return every loss, gradient norm, learning rate and evaluation; without the summary of the steps trained."""
    return [entry for entry in report["history"] if "train_loss" not in entry]
