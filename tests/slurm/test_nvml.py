"""A GPU that is lost without a word in the kernel log: only NVML tells. The library is a stub, all else is real."""

from __future__ import annotations

import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest
from steps import ENDED, OPTED_IN, end, running, submit

import slurm_ft
from slurm_ft.lab import Lab, LabSpec

ROOT = Path(__file__).parents[2]
PYTHON_PATH = Path(slurm_ft.__file__).parents[1]


def hook(directory: Path, name: str) -> Path:
    """Our hook, with the stub in place of NVIDIA's library."""
    script = directory / Path(name).name
    script.write_text(
        f"#!/bin/sh\nexport LD_LIBRARY_PATH={directory} NVML_STUB={directory}/script PYTHONPATH={PYTHON_PATH}\n"
        f'exec {ROOT / name} "$@"\n'
    )
    script.chmod(0o755)
    return script


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """Where the stub lies."""
    tmp_path.chmod(0o755)
    source = ROOT / "tests" / "stubs" / "nvml_stub.c"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", tmp_path / "libnvidia-ml.so.1", source], check=True)
    return tmp_path


def spec(library: Path) -> LabSpec:
    hooks = {"prolog": hook(library, "prolog/node_prolog"), "epilog": hook(library, "epilog/node_epilog")}
    return LabSpec(nodes=2, hooks=hooks, config={"nvml_timeout": 10})


def script(lab: Lab, library: Path, *lines: str) -> None:
    """All GPUs of the lab in good health, except for `lines`."""
    gpus = [lab.pci(node, gpu).removesuffix(".0") for node in lab.nodes for gpu in range(lab.spec.gpus_per_node)]
    (library / "script").write_text("\n".join([*(f"gpu {pci} GPU-{pci}" for pci in gpus), *lines]) + "\n")


def driver_is_loaded(lab: Lab) -> None:
    """The node Prolog takes its list of GPUs for the sign of it."""
    run = lab.layout.run / "slurm_ft"
    for name in ("attempts", "ended"):
        (run / name).mkdir(parents=True, exist_ok=True)
    (run / "gpus").write_text("0 0000:3b:00.0\n")


def test_a_gpu_that_only_nvml_calls_lost_is_failed_over(library: Path) -> None:
    with Lab(spec(library)) as lab:
        driver_is_loaded(lab)
        script(lab, library)
        job = submit(lab, *OPTED_IN)
        bad = running(lab, job, 0)
        snapshot = lab.layout.run / "slurm_ft" / "gpu_state" / f"{bad}.{job}.json"
        lab.wait_for(snapshot.exists, 30, "the snapshot of the attempt's start")
        index = lab.nodes.index(bad) * lab.spec.gpus_per_node
        script(lab, library, f"handle {index} 15")
        end(lab, job, 0, 1)
        good = running(lab, job, 1)
        end(lab, job, 1, 0)
        done = lab.wait_job(job, *ENDED)
        assert (done["state"], done["exc_nodes"], good != bad) == ("COMPLETED", bad, True)
        state, reason, _ = lab.node(bad)
        assert state.startswith("drain")
        assert reason.startswith("slurm_ft: hardware gpu_lost gpu ")
        assert not snapshot.exists()


def watch(lab: Lab, library: Path, node: str) -> subprocess.Popen[str]:
    environ = lab.environment() | {
        "SLURM_FT_CONFIG": str(lab.layout.config),
        "SLURM_FT_RUN_DIR": str(lab.layout.run / "slurm_ft"),
        "LD_LIBRARY_PATH": str(library),
        "NVML_STUB": str(library / "script"),
    }
    watcher = subprocess.Popen(
        [str(lab.command), "watch", "--node", node], env=environ, stderr=subprocess.PIPE, text=True
    )
    assert watcher.stderr is not None
    assert f"watching node {node}" in watcher.stderr.readline()
    return watcher


@pytest.mark.parametrize("lines", [(), ("hang - event_set",)], ids=["nvml speaks", "nvml hangs"])
def test_the_watcher_hears_nvml_and_is_not_held_up_by_it(library: Path, lines: tuple[str, ...]) -> None:
    config = {"nvml_events": True, "watch_grace": 1, "nvml_timeout": 10}
    with Lab(replace(spec(library), config=config)) as lab:
        driver_is_loaded(lab)
        script(lab, library, *lines)
        job = submit(lab, *OPTED_IN)
        bad = running(lab, job, 0)
        watcher = watch(lab, library, bad)
        try:
            if lines:  # then the kernel log has to do
                lab.inject_xid(bad, 0, 79, "GPU has fallen off the bus.")
            else:
                index = lab.nodes.index(bad) * lab.spec.gpus_per_node
                script(lab, library, f"event {index} once:0 8 79")
            assert running(lab, job, 1) != bad
        finally:
            watcher.terminate()
            watcher.communicate(timeout=20)
        assert lab.job(job)["exc_nodes"] == bad
        assert ("NVML event" in lab.node(bad)[1]) is not bool(lines)
        end(lab, job, 1, 0)
        lab.wait_job(job, *ENDED)


def test_an_nvml_that_hangs_delays_no_job_and_no_epilog_for_long(library: Path) -> None:
    with Lab(spec(library)) as lab:
        driver_is_loaded(lab)
        script(lab, library, "hang - init")
        job = submit(lab, *OPTED_IN)
        began = time.monotonic()
        node = running(lab, job, 0)
        end(lab, job, 0, 1)
        assert lab.wait_job(job, *ENDED)["state"] == "FAILED"
        assert time.monotonic() - began < 60
        lab.wait_for(lambda: lab.node(node)[0] == "idle", 30, "the end of the epilog")
