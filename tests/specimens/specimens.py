"""The specimens: one row for each checkpoint that a framework wrote, who writes it, and with what it is installed.

`tests/fixtures/checkpoints/<name>/output` holds the frozen result, `provenance.json` beside it where it comes from.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

WRITERS = Path(__file__).parent / "writers"
FROZEN = Path(__file__).parents[1] / "fixtures" / "checkpoints"

REAL = "real"  # the framework's own training or checkpoint code wrote it
EXACT = "exact-writer-calls"  # the calls of the framework's source, without its training loop


@dataclass(frozen=True, slots=True)
class Specimen:
    """One checkpointed training. `script` is a writer; `mode` its first argument, if it has several."""

    name: str
    framework: str  # the name for `--framework`
    environment: str  # tools/frameworks.sh makes it from requirements-<environment>.txt
    script: str
    mode: str = ""
    ranks: int = 1
    kind: str = REAL
    note: str = ""
    packages: tuple[str, ...] = ()  # whose versions the provenance names

    @property
    def directory(self) -> Path:
        """Where the frozen one lies."""
        return FROZEN / self.name


def _trainer(name: str, mode: str, ranks: int, *packages: str) -> Specimen:
    return Specimen(
        f"hf_{name}", "hf", "current", "transformers_trainer.py", mode, ranks, packages=("transformers", *packages)
    )


def _accelerate(name: str, kind: str, note: str) -> Specimen:
    return Specimen(
        f"accelerate_{name}", "accelerate", "current", "accelerate_states.py", name, 2, kind, note, ("accelerate",)
    )


_FSDP = "Accelerate refuses FSDP on a CPU: its writers were called as save_state calls them"
_DRIVER = "the training loop's lines around the writer (directory names, tracker) are called by hand"

SPECIMENS: tuple[Specimen, ...] = (
    _trainer("plain", "plain", 1),
    _trainer("ddp", "plain", 2),
    _trainer("lora", "lora", 1, "peft"),
    _trainer("zero1", "zero1", 2, "deepspeed"),
    _trainer("zero2", "zero2", 2, "deepspeed"),
    _trainer("zero3", "zero3", 2, "deepspeed"),
    *(
        Specimen(
            f"deepspeed_stage{stage}",
            "deepspeed",
            "pins",
            "deepspeed_loop.py",
            str(stage),
            2,
            packages=("deepspeed",),
        )
        for stage in (0, 1, 2, 3)
    ),
    _accelerate("ddp", REAL, ""),
    _accelerate("fsdp_sharded", EXACT, _FSDP),
    _accelerate("fsdp_full", EXACT, _FSDP),
    Specimen("pytorch_plain", "pytorch", "current", "torch_scripts.py", "plain"),
    Specimen("dcp_fsdp", "dcp", "current", "torch_scripts.py", "dcp", 2),
    Specimen("lightning", "lightning", "lightning", "lightning_trainer.py", packages=("lightning",)),
    Specimen("megatron_dist", "megatron", "megatron", "megatron_core.py", "dist", 2, REAL, _DRIVER, ("megatron-core",)),
    Specimen(
        "megatron_legacy",
        "megatron",
        "megatron",
        "megatron_core.py",
        "legacy",
        2,
        EXACT,
        "Megatron-LM is on no index; its legacy writer is torch.save of this state dict for each rank",
    ),
    Specimen("verl_ppo", "verl", "verl", "verl_fsdp.py", "ppo", 2, REAL, _DRIVER, ("verl",)),
    Specimen("verl_sft", "verl", "verl", "verl_fsdp.py", "sft", 2, REAL, _DRIVER, ("verl",)),
    Specimen(
        "llamafactory", "llamafactory", "llamafactory", "llamafactory_sft.py", packages=("llamafactory", "transformers")
    ),
    Specimen(
        "llamafactory_v1",
        "llamafactory_v1",
        "llamafactory",
        "llamafactory_v1.py",
        note="its checkpoint coordinator, with a stand-in for the trainer around it",
        packages=("llamafactory", "transformers"),
    ),
    Specimen(
        "nemo",
        "nemo",
        "nemo",
        "nemo_exp_manager.py",
        note="its experiment manager around a Lightning training; NeMo 2's directories are Megatron's torch_dist",
        packages=("nemo_toolkit", "lightning"),
    ),
    Specimen("mindspore", "mindspore", "mindspore", "mindspore_train.py", packages=("mindspore",)),
    Specimen("torchtitan", "torchtitan", "torchtitan", "torchtitan_manager.py", "", 2, packages=("torchtitan",)),
    Specimen(
        "torchtune",
        "torchtune",
        "torchtitan",
        "torchtune_checkpointer.py",
        kind=REAL,
        note="torchtune's checkpointer; the recipe around it is called by hand",
        packages=("torchtune",),
    ),
)

BY_NAME = {specimen.name: specimen for specimen in SPECIMENS}
