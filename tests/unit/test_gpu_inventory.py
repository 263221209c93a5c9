from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_ft.sensors.gpu_inventory import gpus_of_job, parse_indices, uuids_of_driver

NOWHERE = Path("/nonexistent")
FOUR = ("0000:07:00.0", "0000:46:00.0", "0000:85:00.0", "0000:C7:00.0")


def proc(root: Path, *gpus: tuple[int, str]) -> Path:
    for minor, address in gpus:
        directory = root / address
        directory.mkdir(parents=True)
        (directory / "information").write_text(
            f"Model: \t\t NVIDIA H100\nIRQ:   \t\t 90\nGPU UUID: \t GPU-x\nBus Type: \t PCIe\n"
            f"Bus Location: \t {address}\nDevice Minor: \t {minor}\nGPU Excluded:\t No\n"
        )
    return root


def cache(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "inventory"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "indices"),
    [
        ("", set()),
        ("0", {0}),
        ("0,1", {0, 1}),
        ("0-3", {0, 1, 2, 3}),
        ("0-1,7", {0, 1, 7}),
        (" 2 \n", {2}),
    ],
)
def test_index_lists(text: str, indices: set[int]) -> None:
    assert parse_indices(text) == indices


@pytest.mark.parametrize(
    "text", ["a", "0,", ",", "-1", "1-", "0x1", "N/A", "gpu:0", "0-99999999", "²", "1;2", "(null)", "3-1"]
)
def test_malformed_index_lists_map_nothing(text: str) -> None:
    assert gpus_of_job(text, configured=FOUR) is None


@given(st.text(max_size=30))
def test_no_text_crashes_it(text: str) -> None:
    gpus_of_job(text, configured=FOUR)


def test_configured() -> None:
    assert gpus_of_job("1,3", configured=FOUR) == {"0000:46:00", "0000:c7:00"}
    assert gpus_of_job("0-3", configured=FOUR) is not None
    assert gpus_of_job("4", configured=FOUR) is None


def test_the_configuration_is_not_completed_from_elsewhere(tmp_path: Path) -> None:
    root = proc(tmp_path / "gpus", (0, "0000:3b:00.0"), (1, "0000:5e:00.0"))
    assert gpus_of_job("1", configured=("0000:07:00.0",), proc_root=root) is None
    assert gpus_of_job("0", configured=("not an address",), proc_root=root) is None


def test_driver(tmp_path: Path) -> None:
    root = proc(tmp_path / "gpus", (1, "0000:3b:00.0"), (0, "0000:5e:00.0"))
    assert gpus_of_job("0", proc_root=root) == {"0000:5e:00"}
    assert gpus_of_job("0,1", proc_root=root) == {"0000:5e:00", "0000:3b:00"}
    assert gpus_of_job("2", proc_root=root) is None


def test_the_cache_knows_a_gpu_that_has_vanished(tmp_path: Path) -> None:
    root = proc(tmp_path / "gpus", (1, "0000:5e:00.0"))
    path = cache(tmp_path, "0 0000:3b:00.0\n1 0000:5e:00.0\n")
    assert gpus_of_job("0,1", cache=path, proc_root=root) == {"0000:3b:00", "0000:5e:00"}


@pytest.mark.parametrize(
    "text", ["0 0000:3b:00.0\nrubbish\n", "0 0000:3b:00.0\n0 0000:5e:00.0\n", "x 0000:3b:00.0\n", ""]
)
def test_a_damaged_cache_is_not_trusted(tmp_path: Path, text: str) -> None:
    root = proc(tmp_path / "gpus", (0, "0000:c7:00.0"))
    assert gpus_of_job("0", cache=cache(tmp_path, text), proc_root=root) == {"0000:c7:00"}
    assert gpus_of_job("0", cache=cache(tmp_path, text), proc_root=NOWHERE) is None


def test_no_source() -> None:
    assert gpus_of_job("0", cache=NOWHERE, proc_root=NOWHERE) is None
    assert gpus_of_job("", cache=NOWHERE, proc_root=NOWHERE) == frozenset()


def test_uuids_of_the_driver(tmp_path: Path) -> None:
    assert uuids_of_driver(proc(tmp_path, (0, "0000:C7:00.0"))) == {"GPU-x": "0000:c7:00"}
    (tmp_path / "0000:46:00.0").mkdir()
    (tmp_path / "0000:46:00.0" / "information").write_text("GPU UUID: GPU-y\n")
    (tmp_path / "junk").mkdir()
    (tmp_path / "junk" / "information").write_text("GPU UUID: GPU-z\nBus Location: nowhere\n")
    assert uuids_of_driver(tmp_path) == {"GPU-x": "0000:c7:00", "GPU-y": "0000:46:00"}
    assert uuids_of_driver(NOWHERE) == {}
