"""The newest checkpoint breaks, slurm-ft chooses, and the framework itself goes on from there. Its writer tells where.

`make test-specimens`; each needs the environment of its framework, which tools/frameworks.sh makes.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from freeze import target_of
from specimens import FROZEN, SPECIMENS, Specimen
from writing import python_of, run

# What each loses: one file of its newest checkpoint, cut in half. `…` is that checkpoint's directory.
BREAKS = {
    "hf_plain": "checkpoint-10/optimizer.pt",
    "hf_ddp": "checkpoint-10/model.safetensors",
    "hf_lora": "checkpoint-10/adapter_model.safetensors",
    "hf_zero1": "checkpoint-10/global_step10/zero_pp_rank_1_mp_rank_00_optim_states.pt",
    "hf_zero2": "checkpoint-10/global_step10/zero_pp_rank_1_mp_rank_00_optim_states.pt",
    "hf_zero3": "checkpoint-10/global_step10/zero_pp_rank_1_mp_rank_00_model_states.pt",
    "deepspeed_stage0": "global_step10/mp_rank_00_model_states.pt",
    "deepspeed_stage1": "global_step10/zero_pp_rank_1_mp_rank_00_optim_states.pt",
    "deepspeed_stage2": "global_step10/zero_pp_rank_1_mp_rank_00_optim_states.pt",
    "deepspeed_stage3": "global_step10/zero_pp_rank_1_mp_rank_00_optim_states.pt",
    "accelerate_ddp": "checkpoints/checkpoint_10/optimizer.bin",
    "accelerate_fsdp_sharded": "checkpoints/checkpoint_10/optimizer_0/__1_0.distcp",
    "accelerate_fsdp_full": "checkpoints/checkpoint_10/optimizer.bin",
    "pytorch_plain": "ckpt_10.pth",
    "dcp_fsdp": "step_10/__1_0.distcp",
    "lightning": "epoch=1-step=10.ckpt last.ckpt",
    "megatron_dist": "iter_0000010/__1_0.distcp",
    "megatron_legacy": "iter_0000010/mp_rank_01/distrib_optim.pt",
    "verl_ppo": "global_step_10/actor/optim_world_size_2_rank_1.pt",
    "verl_sft": "global_step_10/model_world_size_2_rank_1.pt",
    "llamafactory": "checkpoint-10/optimizer.pt",
    "llamafactory_v1": "checkpoint-10/optimizer/state_dict.pt",
    "nemo": "checkpoints/*=10.ckpt checkpoints/*=10-last.ckpt",
    "mindspore": "net_1-1_4.ckpt",
    "torchtitan": "checkpoint/step-10/__1_0.distcp",
}


def written(specimen: Specimen, place: Path) -> Path:
    """What the framework wrote: the frozen one, with the times that it had. LLaMA-Factory needs its input beside it."""
    if specimen.name == "llamafactory":
        run(specimen, ["write", target_of(specimen)], place)
        return place / "output"
    output = Path(shutil.copytree(FROZEN / specimen.name / "output", place / "output"))
    for path in [output, *output.rglob("*")]:
        newer = any("10" in part for part in path.relative_to(output).parts)
        os.utime(path, (1_700_000_000 + 60 * newer,) * 2)
    return output


def slurm_ft(specimen: Specimen, output: Path) -> dict[str, str]:
    """Return what `slurm-ft resume` exports."""
    command = [sys.executable, "-m", "slurm_ft.cli.main", "resume", "--output-dir", str(output)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    exports = [line.removeprefix("export ") for line in done.stdout.splitlines() if line.startswith("export ")]
    return dict(shlex.split(line)[0].split("=", 1) for line in exports)


@pytest.mark.parametrize("name", [specimen.name for specimen in SPECIMENS if specimen.name in BREAKS])
def test_goes_on_from_the_one_before_when_the_newest_is_broken(name, tmp_path):
    specimen = next(one for one in SPECIMENS if one.name == name)
    if not python_of(specimen).exists():
        pytest.skip(f"{specimen.environment} is not installed: make test-specimens")
    output = written(specimen, tmp_path)
    for pattern in BREAKS[name].split():
        for path in output.glob(pattern):
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    exports = slurm_ft(specimen, output)
    expected = {"mindspore": 40}.get(name, 9)
    assert int(exports["CKPT_LAST_STEP"]) == expected
    said = run(specimen, ["resume", target_of(specimen), *options(specimen, exports)], tmp_path, exports)
    assert said["first_step"] == {"mindspore": 10}.get(name, expected), json.dumps(said)  # MindSpore's counts epochs


def options(specimen: Specimen, exports: dict[str, str]) -> list[str]:
    """The framework's own flags, for the writers that stand for a program that takes them."""
    takes = ("verl", "llamafactory", "llamafactory_v1", "torchtitan", "nemo")
    return shlex.split(exports["CKPT_RESUME_ARGS"]) if specimen.framework in takes else []


def test_torchtune_goes_on_from_its_newest_epoch(tmp_path):
    """Its optimizer is overwritten with each epoch, so there is no older one to go on from."""
    specimen = next(one for one in SPECIMENS if one.name == "torchtune")
    if not python_of(specimen).exists():
        pytest.skip(f"{specimen.environment} is not installed: make test-specimens")
    exports = slurm_ft(specimen, written(specimen, tmp_path))
    said = run(specimen, ["resume", "output", *shlex.split(exports["CKPT_RESUME_ARGS"])], tmp_path, exports)
    assert said["first_step"] == 10


def test_every_specimen_is_resumed_from():
    assert {specimen.name for specimen in SPECIMENS} == {*BREAKS, "torchtune"}
