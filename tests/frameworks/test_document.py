"""The script of our users' document under each of the launchers it names: first start, loss of the node, resume."""

from __future__ import annotations

import json
import re
import shutil
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import launching
import pytest
from launching import HERE, accelerate, deepspeed, environment, kill_session, python, run, started, torchrun, wait_for
from test_resume_identical import zero

SCRIPT = HERE / "train_document.py"

NOT_FOUND = re.compile(
    r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\] \[ERROR\] \[decorator\.py:\d+:get_last_checkpoint_preprocess\] "
    r"\[Concurrent Checkpoint\] No Checkpoint found with step: -1\n"
)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model and the texts that stand for what the document downloads."""
    directory = tmp_path_factory.mktemp("tiny_llama")
    run(python(), HERE / "tiny_llama.py", str(directory), env=environment())
    return directory


def script_environment(tiny: Path, output_dir: Path, **more: str) -> dict[str, str]:
    mends = HERE / "site"  # sitecustomize.py, which mends the frameworks on a CPU
    return environment(
        TINY_LLAMA=str(tiny), OUTPUT_DIR=str(output_dir), PYTHONPATH=f"{launching.VENDOR}:{mends}", **more
    )


LAUNCHERS: dict[str, Callable[[], Sequence[str]]] = {
    "python": python,
    "torchrun": torchrun,
    "deepspeed": deepspeed,
    "accelerate": accelerate,
}


@pytest.mark.parametrize("launcher", launching.with_core(LAUNCHERS, "torchrun"))
def test_a_killed_training_resumes(launcher: str, tiny: Path, tmp_path: Path) -> None:
    output_dir = tmp_path / "results"
    settings = script_environment(tiny, output_dir)
    if launcher == "deepspeed":
        (tmp_path / "ds_config.json").write_text(json.dumps(zero(2)))
        settings["DS_CONFIG"] = str(tmp_path / "ds_config.json")
    with started(LAUNCHERS[launcher](), SCRIPT, env={**settings, "CKPT_LAST_STEP": "-1"}) as process:
        wait_for(output_dir / "concurrent_checkpoint/checkpoint-4/COMMITTED", process)
        kill_session(process)
        assert process.stdout is not None
        assert NOT_FOUND.search(process.stdout.read())  # the document's line: nothing there yet, so from scratch
    for own in output_dir.glob("checkpoint-*"):
        shutil.rmtree(own)  # whatever the Trainer saved itself

    output = run(LAUNCHERS[launcher](), SCRIPT, env={**settings, "CKPT_LAST_STEP": "4"})

    assert re.search(r"resuming from .*/concurrent_checkpoint/checkpoint-[48]\n", output)
    last = max(output_dir.glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
    state = json.loads((last / "trainer_state.json").read_text())
    assert state["global_step"] == state["max_steps"]
    assert (output_dir / "concurrent_checkpoint" / last.name / "COMMITTED").exists()


def test_bfloat16_as_in_the_document(tiny: Path, tmp_path: Path) -> None:
    output = run(python(), SCRIPT, env=script_environment(tiny, tmp_path / "results", BF16="1"))
    assert "ERROR" not in output
    assert (tmp_path / "results/concurrent_checkpoint/checkpoint-12/COMMITTED").exists()


@pytest.mark.parametrize("launcher", ["python", "torchrun"])
def test_sigterm_saves_once_more_and_then_ends_it(launcher: str, tiny: Path, tmp_path: Path) -> None:
    output_dir = tmp_path / "results"
    settings = script_environment(tiny, output_dir, SLOW_STEPS="0.5")
    with started(LAUNCHERS[launcher](), SCRIPT, env=settings) as process:
        wait_for(output_dir / "concurrent_checkpoint/checkpoint-4/COMMITTED", process)
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=launching.LAUNCH_SECONDS)
    assert process.returncode != 0
    said = re.search(r"saving step (\d+) before the job ends", output)
    assert said, output[-3000:]
    assert (output_dir / f"concurrent_checkpoint/checkpoint-{said[1]}/COMMITTED").exists()
    assert int(said[1]) in (5, 6, 7)  # not one of the interval's

    output = run(LAUNCHERS[launcher](), SCRIPT, env=script_environment(tiny, output_dir, CKPT_LAST_STEP="-1"))
    assert f"resuming from {output_dir}/concurrent_checkpoint/checkpoint-{said[1]}\n" in output
