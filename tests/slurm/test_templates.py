"""Each template that can run on a CPU, from its own file: a real training loses its node in the middle of a save, and
finishes on another node from its newest whole checkpoint."""

from __future__ import annotations

import os
import re
import shutil
import sys
from dataclasses import dataclass, field
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
FRAMEWORKS = Path(os.environ.get("SLURM_FT_FRAMEWORKS", "/var/tmp/slurm_ft-frameworks/current")) / "bin"
OWN = Path(sys.executable).parent
TORCHRUN = OWN if (OWN / "torchrun").exists() else FRAMEWORKS
STEPS = 40
START_SECONDS = 180  # imports of torch and transformers on a busy machine, twice


@dataclass(frozen=True)
class Case:
    """One template with a training for it."""

    template: str
    script: str
    programs: Path  # where its launcher is
    layout: str
    before: tuple[str, ...] = ()  # words before the script
    options: tuple[str, ...] = ("--gres=gpu:2",)  # two ranks on one node
    nodes: int = 1
    environ: Mapping[str, str] = field(default_factory=dict)


CPU = {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
CASES = {
    "python": Case("python", "own_loop.py", OWN, "pytorch", before=("python",), options=("--gres=gpu:1",)),
    "torchrun": Case("torchrun", "own_loop.py", TORCHRUN, "pytorch"),
    # All nodes of the lab are this machine, and their names do not resolve.
    "torchrun, two nodes": Case(
        "torchrun",
        "own_loop.py",
        TORCHRUN,
        "pytorch",
        options=("--gres=gpu:1", "--nodes=2"),
        nodes=2,
        environ={"MASTER": "127.0.0.1"},
    ),
    "deepspeed": Case("deepspeed", "zero.py", FRAMEWORKS, "deepspeed"),
    "accelerate": Case(
        "accelerate",
        "trainer.py",
        FRAMEWORKS,
        "hf",
        environ={"LAUNCHER_OPTIONS": "--cpu --mixed_precision=no --dynamo_backend=no"},
    ),
}


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
    if not (case.programs / case.template).exists() and case.programs is FRAMEWORKS:
        pytest.skip(f"{case.template} is not in {FRAMEWORKS}: `make test-frameworks` installs it")
    directory = lab.shared / f"case{len(list(lab.shared.iterdir()))}"
    shutil.copytree(TRAINING, directory)
    (directory / "out").mkdir()
    for path in (directory, directory / "out"):
        shutil.chown(path, lab.spec.user)
    environ = {
        "PATH": f"{case.programs}:{lab.environment()['PATH']}",
        "OUTPUT_DIR": str(directory / "out"),
        "SLURM_FT_BIN": str(lab.command),
        "SLURM_FT_CONFIG": str(lab.layout.config),
        **CPU,
        **case.environ,
    }
    options = ("--cpus-per-task=1", f"--output={directory}/job.log", *case.options)
    words = (*case.before, str(directory / case.script), str(directory / "out"), str(STEPS))
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

    torn = int(re.search(r"torn: \D*(\d+)", run.log)[1])  # type: ignore[index]
    chosen = torn - 5
    assert re.search(rf"slurm_ft: passed over \S*{torn}\S* \(step {torn}\): (incomplete|corrupt)", run.log)
    assert f"· resume step {chosen} ·" in run.log
    assert re.search(rf"starts behind {chosen}\b", run.log)
    assert f"confirmed: training went on from step {chosen}" in run.log
    assert f"training complete: {STEPS} steps" in run.log

    tag, mark = comment_tag.read(done["comment"]), resume_tag.read(done["comment"])
    assert tag is not None
    assert (tag.count, tag.excluded) == (1, (first[-1],))
    assert mark == resume_tag.ResumeMark(chosen, 1, 1, saved=mark.saved if mark else None)
