"""Trains a tiny Llama as a specification says, on every rank that a launcher starts, and reports what happened.

    torchrun --nproc-per-node 2 scenario.py SPECIFICATION.json

The specification is {"report": DIRECTORY, "runs": [RUN, ...]}; each run is a training of its own with a new Trainer.
The report of a run is DIRECTORY/NAME-RANK.json.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import os
import signal
from pathlib import Path

import comparing
import cpu_only
import tiny_llama
import torch
import transformers
from torch.utils.data import Dataset
from transformers import LlamaForCausalLM, Trainer, TrainingArguments
from transformers.integrations.deepspeed import unset_hf_deepspeed_config

# What differs from run to run whatever the training does.
TIMES = ("runtime", "per_second", "total_flos", "timestamp")


class Tokens(Dataset):
    """Random token sequences, the same every time."""

    def __init__(self, count: int, seed: int) -> None:
        self._rows = torch.randint(3, 64, (count, 16), generator=torch.Generator().manual_seed(seed))

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self._rows[index], "labels": self._rows[index]}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("specification", type=Path)
    parser.add_argument("--local_rank", type=int, default=-1)
    options = parser.parse_args()
    specification = json.loads(options.specification.read_text())
    logging.basicConfig()
    transformers.logging.set_verbosity_error()
    cpu_only.mend_torch()
    if any("deepspeed" in run for run in specification["runs"]):
        cpu_only.mend_deepspeed()
    for run in specification["runs"]:
        report = train(run, options.local_rank)
        rank = os.environ.get("RANK", "0")
        if rank == "0":
            report["checks"] = {" ".join(check): CHECKS[check[0]](*check[1:]) for check in run.get("checks", [])}
        Path(specification["report"], f"{run['name']}-{rank}.json").write_text(json.dumps(report))


def differences(stock: str, ours: str) -> list[str]:
    """Return what a concurrent checkpoint has otherwise than the framework's own of the same step."""
    return comparing.differences(Path(stock), Path(ours))


def pretrained(stock: str, ours: str) -> list[str]:
    """Return which weights `from_pretrained` reads otherwise from the concurrent checkpoint."""
    unset_hf_deepspeed_config()  # under ZeRO-3 it would split the weights among the ranks
    left, right = (dict(LlamaForCausalLM.from_pretrained(path).named_parameters()) for path in (stock, ours))
    return [name for name in left if not torch.equal(left[name], right[name])]


def zero_to_fp32(stock: str, ours: str) -> list[str]:
    """Return which weights DeepSpeed's converter reads otherwise from the concurrent checkpoint."""
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    left, right = (get_fp32_state_dict_from_zero_checkpoint(path) for path in (stock, ours))
    return [name for name in left if not torch.equal(left[name], right[name])]


CHECKS = {"differences": differences, "pretrained": pretrained, "zero_to_fp32": zero_to_fp32}


def train(run: dict, local_rank: int) -> dict:
    """Train once; `run` has output_dir, and optionally what `run.get` names."""
    for path in run.get("damage", []):
        content = bytearray(Path(path).read_bytes())
        content[len(content) // 2] ^= 1
        Path(path).write_bytes(content)
    trainer = make_trainer(run)
    os.environ.pop("CKPT_LAST_STEP", None)
    os.environ.update(run.get("environment", {}))
    engine = None
    if "hook" in run:
        from datastates.llm import DecoratedCheckpointing

        for _ in range(run.get("hooks", 1)):  # a notebook's cell may run twice
            engine = DecoratedCheckpointing(runtime_config={**run["hook"], "trainer": trainer}, rank=local_rank)
    visits: list[int] = []
    trainer.add_callback(Visits(visits))
    if "notice" in run:
        trainer.add_callback(Notice(*run["notice"]))
    for _ in range(run.get("twins", 0)):  # of one class: each save appends to their state
        trainer.add_callback(transformers.EarlyStoppingCallback(early_stopping_patience=100))
    result = trainer.train(resume_from_checkpoint=run.get("resume", False))
    return {
        "engine": engine is not None,
        "history": [without_times(entry) for entry in trainer.state.log_history],
        "first_step": visits[0] if visits else None,
        "steps": result.global_step,
        "best": trainer.state.best_model_checkpoint,
        "weights": weights_digest(trainer),
        "callbacks": {name: len(state) for name, state in trainer.state.stateful_callbacks.items()},
    }


class Notice(transformers.TrainerCallback):
    """Sends one rank SIGUSR1 in the middle of a step, as Slurm does ahead of a time limit."""

    def __init__(self, rank: int, step: int) -> None:
        self.rank, self.step = str(rank), step

    def on_step_begin(self, args, state, control, **_):
        if os.environ.get("RANK", "0") == self.rank and state.global_step + 1 == self.step:
            signal.raise_signal(signal.SIGUSR1)


class Visits(transformers.TrainerCallback):
    """Notes the steps that were trained."""

    def __init__(self, steps: list[int]) -> None:
        self.steps = steps

    def on_step_end(self, args, state, control, **_):
        self.steps.append(state.global_step)


def make_trainer(run: dict) -> Trainer:
    arguments = {
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 2,
        "max_steps": 12,
        "learning_rate": 1e-2,
        "lr_scheduler_type": "cosine",
        "logging_steps": 1,
        "eval_strategy": "steps",
        "eval_steps": 2,
        "save_steps": 4,
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
        "seed": 3,
        **run.get("arguments", {}),
    }
    args = TrainingArguments(output_dir=run["output_dir"], deepspeed=run.get("deepspeed"), **arguments)
    model = tiny_llama.model()
    if run.get("lora"):
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(model, LoraConfig(r=4, lora_dropout=0.1, target_modules=["q_proj", "v_proj"]))
    return Trainer(model=model, args=args, train_dataset=Tokens(40, seed=1), eval_dataset=Tokens(8, seed=2))


def without_times(entry: dict) -> dict:
    return {key: value for key, value in entry.items() if not any(word in key for word in TIMES)}


def weights_digest(trainer: Trainer) -> str:
    """Return a digest of all trained weights, gathered from the ranks where ZeRO-3 splits them."""
    digest = hashlib.sha256()
    for name, parameter in sorted(trainer.accelerator.unwrap_model(trainer.model_wrapped).named_parameters()):
        digest.update(name.encode())
        digest.update(whole(parameter).detach().contiguous().view(torch.uint8).cpu().numpy().tobytes())
    return digest.hexdigest()


def whole(parameter: torch.Tensor) -> torch.Tensor:
    if not hasattr(parameter, "ds_id"):
        return parameter
    import deepspeed

    with deepspeed.zero.GatheredParameters([parameter]):
        return parameter.detach().clone()


if __name__ == "__main__":
    main()
