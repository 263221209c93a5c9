"""Which resume options reach a command line: a word that a program does not know ends it."""

from __future__ import annotations

import pytest

from slurm_ft.launch.arguments import configuration, with_resume

HF = ("--resume_from_checkpoint", "/o/checkpoint-20")
FACTORY = ("resume_from_checkpoint=/o/checkpoint-20",)
VERL = ("trainer.resume_mode=resume_path", "trainer.resume_from_path=/o/global_step_20")
TITAN = ("--checkpoint.load_step", "20")


@pytest.mark.parametrize(
    ("command", "arguments", "layout", "named", "expected"),
    [
        # A script of the user's own: it may not know the option, so CKPT_LAST_STEP has to do.
        (["srun", "torchrun", "train.py"], HF, "hf", True, ["srun", "torchrun", "train.py"]),
        # It has the option already: it gets our value, however it is written.
        (["t.py", "--resume_from_checkpoint", "/x"], HF, "hf", False, ["t.py", *HF]),
        (["t.py", "--resume_from_checkpoint=/x", "-v"], HF, "hf", False, ["t.py", f"{HF[0]}={HF[1]}", "-v"]),
        # The program shows itself.
        (
            ["llamafactory-cli", "train", "c.yaml"],
            FACTORY,
            "llamafactory",
            False,
            ["llamafactory-cli", "train", "c.yaml", *FACTORY],
        ),
        (
            ["lmf", "train", "c.yaml", "resume_from_checkpoint=null"],
            FACTORY,
            "llamafactory",
            False,
            ["lmf", "train", "c.yaml", *FACTORY],
        ),
        (
            ["python", "-m", "verl.trainer.main_ppo", "trainer.resume_mode=auto", "x=1"],
            VERL,
            "verl",
            False,
            ["python", "-m", "verl.trainer.main_ppo", VERL[0], "x=1", VERL[1]],
        ),
        (
            ["verl.trainer.main_ppo", "+trainer.resume_from_path=null", "trainer.resume_mode=auto"],
            VERL,
            "verl",
            False,
            ["verl.trainer.main_ppo", f"+{VERL[1]}", VERL[0]],
        ),
        (
            ["torchrun", "-m", "torchtitan.train"],
            TITAN,
            "torchtitan",
            False,
            ["torchrun", "-m", "torchtitan.train", *TITAN],
        ),
        # Or the user says which framework it is.
        (["./my_ppo.sh"], VERL, "verl", True, ["./my_ppo.sh", *VERL]),
        (["./my_ppo.sh"], VERL, "verl", False, ["./my_ppo.sh"]),
        # Nothing to add.
        (["train.py"], (), "pytorch", True, ["train.py"]),
        (["train.py", "--finetune"], ("--finetune",), "megatron", True, ["train.py", "--finetune"]),
    ],
)
def test_only_a_command_that_knows_them_gets_them(
    command: list[str], arguments: tuple[str, ...], layout: str, named: bool, expected: list[str]
) -> None:
    assert with_resume(command, arguments, layout, named=named) == expected


def test_the_command_itself_stays() -> None:
    command = ["t.py", "--resume_from_checkpoint", "/x"]
    with_resume(command, HF, "hf", named=True)
    assert command == ["t.py", "--resume_from_checkpoint", "/x"]


@pytest.mark.parametrize(
    ("command", "place"),
    [
        ("llamafactory-cli train a.yaml", 2),
        ("srun /venv/bin/llamafactory-cli train a.json lr=1", 3),
        ("llamafactory-cli train --stage sft", None),
        ("python train.py a.yaml", None),
        ("srun --config=slurm.yaml llamafactory-cli train a.yml", 4),
    ],
)
def test_llamafactorys_configuration_is_the_file_behind_its_program(command, place):
    assert configuration(command.split()) == place
