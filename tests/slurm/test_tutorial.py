"""docs/tutorial.md, word for word: its files are written, its commands run, and what it shows is what comes."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from slurm_ft.lab import Lab, LabSpec
from slurm_ft.lab.errors import LabTimeoutError

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text()
# In the page's order: a file, something to wait for, commands.
STEP = re.compile(
    r"Save as `(?P<file>[^`]+)`:\n\n```\w+\n(?P<text>.*?)```"
    r"|Once `(?P<log>[^`]+)` shows `(?P<shown>[^`]+)`:"
    r"|```console\n(?P<console>.*?)```",
    re.DOTALL,
)


def pattern_of(shown: list[str]) -> str:
    """What is shown as an expression: `…` stands for anything, a line of `…` alone for any lines, blanks for blanks."""
    lines = [r"\s+".join(".*".join(map(re.escape, word.split("…"))) for word in line.split()) for line in shown]
    return r"\n.*?".join(line for line in lines if line != ".*")


class Reader:
    """Somebody who does what the page says."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.directory = lab.base / "home" / lab.spec.user
        tools = self.directory / "bin"  # what a user's PATH has
        tools.mkdir(exist_ok=True)
        for name, program in {"python": sys.executable, "slurm-ft": lab.command}.items():
            (tools / name).write_text(f'#!/bin/sh\nexec {program} "$@"\n')  # a link would leave the virtual environment
            (tools / name).chmod(0o755)
        self.environment = {
            **lab.environment(lab.spec.user),
            "PATH": f"{tools}:{lab.slurm_bin}:/usr/bin:/bin",
            "SLURM_FT_CONFIG": str(lab.layout.config),
            "GPU": lab.pci("n1", 0).removesuffix(".0"),
        }

    def write(self, name: str, text: str) -> None:
        (self.directory / name).write_text(text)

    def wait(self, log: str, shown: str) -> None:
        path = self.directory / log
        try:
            self.lab.wait_for(lambda: path.exists() and shown in path.read_text(), 60)
        except LabTimeoutError:
            said = path.read_text() if path.exists() else self.run("squeue; scontrol show job", root=True)
            pytest.fail(f"`{shown}` does not come in {log}:\n{said}", pytrace=False)

    def run(self, command: str, *, root: bool) -> str:
        user = [] if root else ["/usr/sbin/runuser", "-u", self.lab.spec.user, "--"]
        done = subprocess.run(
            [*user, "/bin/bash", "-c", command],
            env=self.environment, cwd=self.directory, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"`{command}` ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        return done.stdout

    def console(self, text: str) -> None:
        for block in re.split(r"^(?=[$#] )", text, flags=re.MULTILINE):
            if block:
                first, *shown = block.rstrip("\n").split("\n")
                said = self.run(first[2:], root=first.startswith("#"))
                assert re.search(pattern_of(shown), said, re.DOTALL), f"`{first}` said\n{said}\nand not\n{shown}"


def test_each_step_does_what_the_page_says() -> None:
    steps = list(STEP.finditer(PAGE))
    assert len(steps) > 10
    # Not in /tmp, which `slurm-ft check` rightly takes for a place that the nodes of a cluster do not share.
    with Lab(LabSpec(nodes=2, base=Path(tempfile.mkdtemp(prefix="slurm_ft-", dir="/srv")))) as lab:
        reader = Reader(lab)
        try:
            for step in steps:
                if step["file"]:
                    reader.write(step["file"], step["text"])
                elif step["log"]:
                    reader.wait(step["log"], step["shown"])
                else:
                    reader.console(step["console"])
        finally:
            Path("/dev/shm/lost.1.0").unlink(missing_ok=True)
