"""Each template, from its own file: a training loses its node in the middle of a save, and finishes on another node
from its newest whole checkpoint.

VeRL's PPO needs Ray and GPUs, and Megatron-LM is on no index: there a loop of ours stands for the framework's, around
its own checkpoint code, and takes the options that it has.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from steps import ENDED, FELL_OFF, make_healthy

from slurm_ft.failover import comment_tag, resume_tag
from slurm_ft.lab.resources import resource
from slurm_ft.slurm import nodelist

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from slurm_ft.lab import Lab

TRAINING = Path(__file__).parent / "training"
WRITERS = Path(__file__).parents[1] / "specimens" / "writers"
FRAMEWORKS = Path(os.environ.get("SLURM_FT_FRAMEWORKS", "/var/tmp/slurm_ft-frameworks/current")) / "bin"
OWN = Path(sys.executable).parent
SETS = FRAMEWORKS.parents[1]
TORCHRUN = OWN if (OWN / "torchrun").exists() else FRAMEWORKS
STEPS = 40
START_SECONDS = 180  # imports of torch and transformers on a busy machine, twice


@dataclass(frozen=True)
class Case:
    """One template with a training for it."""

    template: str
    words: tuple[str, ...]  # behind the template; {here} is the case's directory
    programs: Path  # where its launcher is
    launcher: str = ""  # as the template, if it is not told
    options: tuple[str, ...] = ("--gres=gpu:2",)  # two ranks on one node
    make: tuple[str, ...] = ()  # a command of `programs` that writes what the training needs
    nodes: int = 1
    environ: Mapping[str, str] = field(default_factory=dict)


OWN_LOOP = ("{here}/own_loop.py", "{here}/out", str(STEPS))
ONE_RANK = ("--gres=gpu:1",)
CPU = {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
CASES = {
    "python": Case("python", ("python", *OWN_LOOP), OWN, options=ONE_RANK),
    "torchrun": Case("torchrun", OWN_LOOP, TORCHRUN),
    "deepspeed": Case("deepspeed", ("{here}/zero.py", "{here}/out", str(STEPS)), FRAMEWORKS),
    "accelerate": Case(
        "accelerate",
        ("{here}/trainer.py", "{here}/out", str(STEPS)),
        FRAMEWORKS,
        environ={"LAUNCHER_OPTIONS": "--multi_gpu"},  # with --cpu it starts one process
    ),
    "llamafactory": Case(
        "llamafactory",
        ("{here}/train.yaml",),
        SETS / "llamafactory" / "bin",
        "llamafactory-cli",
        options=ONE_RANK,  # on two, transformers 5.6 loads the optimizer to "cpu:0", which torch does not know
        make=("python", "{here}/make_llamafactory.py", "{here}", str(STEPS), "{here}/writers"),
        environ={"PYTHONPATH": "{here}/site/llamafactory", "DISABLE_VERSION_CHECK": "1"},
    ),
    "mindspeed": Case(
        "mindspeed", ("{here}/megatron_loop.py", "{here}/writers", str(STEPS)), SETS / "megatron" / "bin", "torchrun"
    ),
    "mindspore": Case(
        "mindspore",
        ("{here}/mindspore_loop.py", "{here}/out", str(STEPS)),
        SETS / "mindspore" / "bin",
        "msrun",
        options=ONE_RANK,
    ),
    "verl": Case(
        "verl",
        (f"trainer.total_training_steps={STEPS}", "data.writers={here}/writers"),
        SETS / "verl" / "bin",
        "torchrun",
        options=ONE_RANK,
        environ={"PYTHONPATH": "{here}/site/verl:{here}"},
    ),
}


# All nodes of the lab are this machine, and their names do not resolve: they meet at Slurm's address of the first one.
ON_TWO = {
    f"{name}, two nodes": replace(CASES[name], options=("--gres=gpu:1", "--nodes=2"), nodes=2)
    for name in ("torchrun", "deepspeed", "accelerate", "mindspeed")
}
CASES |= ON_TWO
# accelerate refuses a port that is taken, and on one machine either node may be the first to take it; static: one host.
STATIC = "--multi_gpu --same_network --rdzv_backend=static"
CASES["accelerate, two nodes"] = replace(CASES["accelerate, two nodes"], environ={"LAUNCHER_OPTIONS": STATIC})


@pytest.fixture(autouse=True)
def healthy(lab: Lab) -> Iterator[None]:
    yield
    make_healthy(lab)


@dataclass
class Run:
    """A submitted case."""

    lab: Lab
    job: int
    directory: Path

    @property
    def log(self) -> str:
        path = self.directory / "job.log"
        return path.read_text(errors="replace") if path.exists() else ""

    @property
    def nodes(self) -> tuple[str, ...]:
        return nodelist.expand(self.lab.job(self.job)["nodelist"])

    def wait_log(self, pattern: str) -> None:
        try:
            self.lab.wait_for(partial(self._says_or_ended, pattern), START_SECONDS, f"{pattern!r} in the log")
        finally:
            print(self.log)  # pytest shows it where the test fails
        assert re.search(pattern, self.log)

    def _says_or_ended(self, pattern: str) -> bool:
        return bool(re.search(pattern, self.log)) or self.lab.job(self.job)["state"] in ENDED

    def lose_gpu(self, node: str) -> None:
        self.lab.inject_xid(node, 0, 79, FELL_OFF)
        (self.directory / "fault").write_text(node)


@pytest.fixture
def run(lab: Lab, tmp_path: Path, request: pytest.FixtureRequest) -> Run:
    case = CASES[request.param]
    launcher = case.launcher or case.template
    if case.programs not in (OWN, TORCHRUN) and not (case.programs / launcher).exists():
        pytest.skip(f"{launcher} is not in {case.programs}: `make test-frameworks` or test-specimens installs it")
    directory = lab.shared / f"case{len(list(lab.shared.iterdir()))}"
    shutil.copytree(TRAINING, directory)
    shutil.copytree(WRITERS, directory / "writers")
    (directory / "out").mkdir()
    environ = {
        "PATH": f"{case.programs}:{lab.environment()['PATH']}",
        "OUTPUT_DIR": str(directory / "out"),
        "SLURM_FT_BIN": str(lab.command),
        "SLURM_FT_CONFIG": str(lab.layout.config),
        **CPU,
        **{name: value.format(here=directory) for name, value in case.environ.items()},
    }
    if case.make:
        words = [word.format(here=directory) for word in case.make]
        subprocess.run([case.programs / words[0], *words[1:]], check=True, env={**os.environ, **CPU})
    for path in (directory, *directory.rglob("*")):
        shutil.chown(path, lab.spec.user)
    options = ("--cpus-per-task=1", f"--output={directory}/job.log", *case.options)
    words = tuple(word.format(here=directory) for word in case.words)
    template = resource(f"sbatch_templates/{case.template}.sbatch")
    return Run(lab, lab.sbatch(template, *options, arguments=words, env=environ), directory)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("run", "case"), [(name, CASES[name]) for name in CASES], indirect=["run"], ids=list(CASES))
def test_it_finishes_elsewhere_from_its_newest_whole_checkpoint(lab: Lab, run: Run, case: Case) -> None:
    run.wait_log("saved 15")
    first = run.nodes
    run.lose_gpu(first[-1])
    run.wait_log(r"(?s)restart 1.*training complete")
    done = lab.wait_job(run.job, *ENDED)
    second = nodelist.expand(done["nodelist"])
    assert (done["state"], done["restarts"]) == ("COMPLETED", "1")
    assert len(second) == case.nodes
    assert first[-1] not in second

    name = re.search(r"torn: (\S+)", run.log)[1]  # type: ignore[index]
    torn = math.prod(map(int, re.findall(r"\d+", name)))  # MindSpore's names tell epoch and step of the epoch
    chosen = torn - 5
    assert re.search(rf"slurm_ft: passed over {name} \(step {torn}\): (incomplete|corrupt)", run.log)
    assert f"· resume step {chosen} ·" in run.log
    assert re.search(rf"starts behind {chosen}\b", run.log)
    assert f"confirmed: training went on from step {chosen}" in run.log
    assert f"training complete: {STEPS} steps" in run.log

    tag, mark = comment_tag.read(done["comment"]), resume_tag.read(done["comment"])
    assert tag is not None
    assert (tag.count, tag.excluded) == (1, (first[-1],))
    assert mark == resume_tag.ResumeMark(chosen, 1, 1, saved=mark.saved if mark else None)
