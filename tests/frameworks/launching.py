"""Starts training scripts as users do, with the vendor folder first on PYTHONPATH."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest

HERE = Path(__file__).parent
VENDOR = HERE.parent.parent / "slurm_ft" / "vendor"
BIN = Path(sys.executable).parent

LAUNCH_SECONDS = 240  # a guard against a hang; a launch takes about 15 s


def with_core(names: Iterable[str], *core: str) -> list[object]:
    """Return the names as parameters; CI runs those of `core` in both sets of versions."""
    return [pytest.param(name, marks=[pytest.mark.core] if name in core else []) for name in names]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment(**more: str) -> dict[str, str]:
    """Return a plain user's environment: nothing of pytest's, no GPU, no network."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CKPT_", "PYTHON", "SLURM_"))}
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "DS_ACCELERATOR": "cpu"}
    path = f"{BIN}:{kept.get('PATH', '')}"
    vendor = more.pop("CHECKPOINT_VENDOR", str(VENDOR))
    return {**kept, **offline, "PATH": path, "OMP_NUM_THREADS": "1", "PYTHONPATH": vendor, **more}


def python() -> list[str]:
    return [sys.executable]


def torchrun(ranks: int = 2) -> list[str]:
    return [str(BIN / "torchrun"), f"--nproc-per-node={ranks}", f"--master-port={free_port()}"]


def deepspeed(ranks: int = 2) -> list[str]:
    return [str(BIN / "deepspeed"), f"--num_gpus={ranks}", f"--master_port={free_port()}"]


def accelerate(ranks: int = 2) -> list[str]:
    command = [str(BIN / "accelerate"), "launch", "--cpu", f"--num_processes={ranks}", "--num_machines=1"]
    return [*command, "--mixed_precision=no", "--dynamo_backend=no", f"--main_process_port={free_port()}"]


def run(launcher: Sequence[str], script: Path, *arguments: str, env: dict[str, str], code: int = 0) -> str:
    """Run to the end and return what it printed; fail unless it ends with `code`."""
    with started(launcher, script, *arguments, env=env) as process:
        output, _ = process.communicate(timeout=LAUNCH_SECONDS)
        assert process.returncode == code, f"exit {process.returncode}\n{output[-6000:]}"
    return output


@contextlib.contextmanager
def started(
    launcher: Sequence[str], script: Path, *arguments: str, env: dict[str, str]
) -> Iterator[subprocess.Popen[str]]:
    """Start in a session of its own; whatever is left of it at the end is killed."""
    command = [*launcher, str(script), *arguments]
    process = subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        yield process
    finally:
        kill_session(process)
        if process.stdout:
            process.stdout.close()


def kill_session(process: subprocess.Popen[str]) -> None:
    """Kill the launcher and all its ranks at once, as a lost node does. torchrun gives each a session of its own."""
    ranks = _descendants(process.pid)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for pid in ranks:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def _descendants(pid: int) -> list[int]:
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in path.read_text().split():
                found += [int(child), *_descendants(int(child))]
    return found


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    """Wait until a path exists, while the process lives."""
    give_up = time.monotonic() + LAUNCH_SECONDS
    while not path.exists():
        assert process.poll() is None, f"it ended before {path} was there: {process.communicate()[0][-6000:]}"
        assert time.monotonic() < give_up, f"{path} did not come"
        time.sleep(0.02)


def scenario(
    launcher: Sequence[str], directory: Path, runs: Sequence[dict], code: int = 0, **env: str
) -> dict[str, list[dict]] | str:
    """Run scenario.py; return each run's reports, one per rank. One that is to fail with `code`: what it printed."""
    directory.mkdir(parents=True, exist_ok=True)
    specification = directory / "specification.json"
    specification.write_text(json.dumps({"report": str(directory), "runs": runs}))
    output = run(launcher, HERE / "scenario.py", str(specification), env=environment(**env), code=code)
    (directory / "output.txt").write_text(output)
    return output if code else {entry["name"]: _reports(directory, entry["name"]) for entry in runs}


def _reports(directory: Path, name: str) -> list[dict]:
    paths = sorted(directory.glob(f"{name}-[0-9].json"))
    assert paths, f"no rank reported about {name}"
    return [json.loads(path.read_text()) for path in paths]
