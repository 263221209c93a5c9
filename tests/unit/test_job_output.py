from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from slurm_ft.model import Evidence
from slurm_ft.sensors import job_output
from slurm_ft.sensors.job_output import MAX_TAIL, User, of_this_attempt, read_job_output, read_tail
from slurm_ft.sensors.output_path import expand, output_path

ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
BANNER = "==== slurm_ft job 12 attempt 2/4 · restart 1 ====\n"
NOBODY = 65534
ENVIRON = {
    "SLURM_JOB_ID": "12",
    "SLURM_ARRAY_JOB_ID": "10",
    "SLURM_ARRAY_TASK_ID": "23",
    "SLURM_JOB_USER": "alice",
    "SLURM_JOB_NAME": "train",
    "SLURMD_NODENAME": "n1.cluster",
    "SLURM_JOB_NODELIST": "n1",
    "SLURM_JOB_WORK_DIR": "/home/alice",
}
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def environ_of(path: Path | str, **more: str) -> dict[str, str]:
    own = {"SLURM_JOB_STDOUT": str(path), "SLURM_JOB_UID": str(os.geteuid()), "SLURM_JOB_GID": str(os.getegid())}
    return {**ENVIRON, **own, **more}


def names(evidence: Evidence) -> list[str]:
    return [event.name for event in evidence.events]


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("/tmp/o-%j.txt", "/tmp/o-12.txt"),
        ("o-%A_%a.out", "/home/alice/o-10_23.out"),
        ("%x.%u.%N.%n.%t.%s.log", "/home/alice/train.alice.n1.0.0.batch.log"),
        ("%5j-%3a-%b", "/home/alice/00012-023-3"),
        ("%99j", "/home/alice/0000000012"),
        ("100%%-%j", "/home/alice/100%-12"),
        ("%q%", "/home/alice/%q%"),
        ("a\\b-%j", "/home/alice/ab-%j"),
    ],
)
def test_slurms_patterns(pattern: str, path: str) -> None:
    assert output_path({**ENVIRON, "SLURM_JOB_STDOUT": pattern}) == path


def test_a_job_that_is_no_array() -> None:
    assert expand("%A_%a_%j", {"SLURM_JOB_ID": "7"}) == "7_4294967294_7"


def test_no_path_is_no_crash() -> None:
    assert output_path({}) is None
    assert output_path({"SLURM_JOB_WORK_DIR": "/w", "SLURM_JOB_ID": "7"}) == "/w/slurm-7.out"
    assert output_path({"SLURM_JOB_STDOUT": "o.txt"}) is None
    assert output_path({"SLURM_JOB_STDOUT": "/tmp/\0"}) is None
    assert read_job_output({}, 0).detail
    assert read_job_output({"SLURM_JOB_STDOUT": "/tmp/x", "SLURM_JOB_UID": "x"}, 0).detail


def test_the_end_of_the_output_is_read(tmp_path: Path) -> None:
    path = tmp_path / "o.txt"
    path.write_text("step 1\n" * 50_000 + ECC)
    assert names(read_job_output(environ_of(path), 0)) == ["cuda_ecc"]


@pytest.mark.parametrize("name", ["SLURM_JOB_NUM_NODES", "SLURM_JOB_NODELIST", "SLURM_NODELIST"])
@pytest.mark.parametrize("nodes", ["n1,n2", "n[1-2]", "2"])
def test_of_several_nodes_nobody_knows_which_one(tmp_path: Path, name: str, nodes: str) -> None:
    if nodes == "2" and name != "SLURM_JOB_NUM_NODES":
        return
    path = tmp_path / "o.txt"
    path.write_text(ECC)
    environ = environ_of(path)
    del environ["SLURM_JOB_NODELIST"]
    assert names(read_job_output({**environ, name: nodes}, 0)) == ["cuda_ecc_somewhere"]


def test_the_name_of_the_job_is_not_known_to_the_node_epilog(tmp_path: Path) -> None:
    (tmp_path / "my train-12.log").write_text(ECC)
    (tmp_path / "train-13.log").write_text("KeyError: 1")
    environ = environ_of(tmp_path / "%x-%j.log")
    del environ["SLURM_JOB_NAME"]
    assert names(read_job_output(environ, 0)) == ["cuda_ecc"]
    (tmp_path / "other-12.log").write_text(ECC)
    assert "2 files fit" in read_job_output(environ, 0).detail
    environ["SLURM_JOB_STDOUT"] = str(tmp_path / "%x.log")
    assert "did not say" in read_job_output(environ, 0).detail


def test_an_earlier_attempt_in_the_same_file_convicts_nobody(tmp_path: Path) -> None:
    path = tmp_path / "o.txt"
    path.write_text(ECC + BANNER + "KeyError: 'x'\n")
    assert names(read_job_output(environ_of(path), 1)) == ["python_exception"]
    path.write_text(ECC)
    evidence = read_job_output(environ_of(path), 1)
    assert (evidence.events, bool(evidence.detail)) == ((), True)


def test_the_last_banner_counts() -> None:
    assert of_this_attempt([BANNER, "a", BANNER, "b"], 3) == ["b"]
    assert of_this_attempt(["a"], 0) == ["a"]
    assert of_this_attempt(["a"], 1) is None


def test_errors_in_a_file_of_their_own_are_read_too(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("step 1\n")
    (tmp_path / "err-12").write_text(ECC)
    environ = environ_of(tmp_path / "out", SLURM_JOB_STDERR=f"{tmp_path}/err-%j")
    evidence = read_job_output(environ, 0)
    assert (names(evidence), evidence.detail) == (["cuda_ecc"], "")
    (tmp_path / "out").unlink()
    evidence = read_job_output(environ, 0)
    assert (names(evidence), evidence.detail) == (["cuda_ecc"], job_output.NO_FILE)
    (tmp_path / "err-12").unlink()
    assert read_job_output(environ, 0).detail == job_output.NO_FILE
    (tmp_path / "out").write_text(ECC)
    same = read_job_output({**environ, "SLURM_JOB_STDERR": environ["SLURM_JOB_STDOUT"]}, 0)
    assert names(same) == ["cuda_ecc"]


def special(tmp_path: Path, kind: str) -> Path:
    path = tmp_path / kind
    if kind == "link":
        path.symlink_to("/etc/shadow")
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "device":
        return Path("/dev/zero")
    return path


@pytest.mark.parametrize("kind", ["link", "fifo", "directory", "device", "missing"])
def test_whatever_is_no_regular_file_is_harmless(tmp_path: Path, kind: str) -> None:
    evidence = read_job_output(environ_of(special(tmp_path, kind)), 0)
    assert evidence.events == ()
    assert "could not be read" in evidence.detail


def test_a_sparse_file_of_ten_gigabytes_costs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(10 << 30)
    start = time.monotonic()
    assert read_job_output(environ_of(path), 0).events == ()
    assert time.monotonic() - start < 3
    assert len(read_tail(str(path), User(os.geteuid(), os.getegid(), ""), 5)) == MAX_TAIL + 1


@root_only
def test_it_reads_with_the_rights_of_the_user(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text(ECC)
    path.chmod(0o600)
    evidence = read_job_output(environ_of(path, SLURM_JOB_UID=str(NOBODY), SLURM_JOB_GID=str(NOBODY)), 0)
    assert evidence.events == ()
    assert "Permission denied" in evidence.detail


def test_a_file_system_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_output, "_tail", lambda _: time.sleep(60))
    start = time.monotonic()
    evidence = read_job_output(environ_of(tmp_path / "x"), 0, timeout=0.2)
    assert time.monotonic() - start < 2
    assert "no answer in time" in evidence.detail
