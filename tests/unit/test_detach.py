"""With real forks: the tests run in a Python of their own, so that nothing of pytest is inherited."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import slurm_ft

PACKAGE = Path(slurm_ft.__file__).parents[1]
PARENT = """
import os, sys, time
from pathlib import Path
from slurm_ft.controller.detach import detach
{setup}

def report(text):
    part = Path(sys.argv[1] + ".part")
    part.write_text(text)
    part.rename(sys.argv[1])

def work():
{work}

pipe = os.pipe()
os.set_inheritable(pipe[1], True)
detach(work)
print("returned", flush=True)
{after}
"""
REPORT = """
    links = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            links.add(os.readlink(f"/proc/self/fd/{number}"))
        except FileNotFoundError:
            pass  # of listdir itself
    report(repr((os.getsid(0), os.getpgid(0), os.getpid(), links - {"/dev/null"})))
"""


def parent(report: Path, work: str, after: str = "", setup: str = "") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PARENT.format(setup=setup, work=work, after=after), str(report)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(PACKAGE)},
        start_new_session=True,
    )


def awaited(path: Path, timeout_s: float = 10) -> str:
    deadline = time.monotonic() + timeout_s
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} was never written"
        time.sleep(0.01)
    return path.read_text()


def test_the_work_runs_in_another_session_and_keeps_no_pipe(tmp_path: Path) -> None:
    process = parent(tmp_path / "report", REPORT)
    out, err = process.communicate(timeout=10)
    session, group, pid, descriptors = eval(awaited(tmp_path / "report"))
    assert (out, err, process.returncode) == ("returned\n", "", 0)
    assert session == group
    assert session not in (process.pid, os.getsid(0))
    assert pid != session, "a session leader could be given a terminal"
    assert descriptors == set()


def test_the_hook_ends_and_its_output_closes_while_the_work_goes_on(tmp_path: Path) -> None:
    process = parent(tmp_path / "report", "    time.sleep(1.5)\n" + REPORT)
    began = time.monotonic()
    assert process.communicate(timeout=10)[0] == "returned\n"
    assert time.monotonic() - began < 1.4
    assert not (tmp_path / "report").exists()
    awaited(tmp_path / "report")


def test_the_session_exists_when_the_hook_goes_on(tmp_path: Path) -> None:
    """Slurm kills the process group right after the hook has returned: here no later than the next statement."""
    for attempt in range(5):
        report = tmp_path / f"report{attempt}"
        work = "    time.sleep(0.1)\n    report('survived')\n"
        process = parent(report, work, "import signal; os.killpg(0, signal.SIGKILL)")
        assert process.communicate(timeout=10)[0] == "returned\n"
        assert process.returncode == -signal.SIGKILL
        assert awaited(report) == "survived"


def test_an_exception_in_the_work_reaches_nobody(tmp_path: Path) -> None:
    process = parent(tmp_path / "report", "    raise RuntimeError('boom')\n", "print('went on')")
    assert process.communicate(timeout=10) == ("returned\nwent on\n", "")
    assert process.returncode == 0


def test_an_exit_in_the_work_does_not_run_the_hooks_own_code_twice(tmp_path: Path) -> None:
    process = parent(tmp_path / "report", "    sys.exit(3)\n", "report(str(os.getpid()))")
    process.communicate(timeout=10)
    time.sleep(0.1)
    assert awaited(tmp_path / "report") == str(process.pid)


def test_no_zombie_is_left(tmp_path: Path) -> None:
    children = "print(Path(f'/proc/self/task/{os.getpid()}/children').read_text().split())"
    process = parent(tmp_path / "report", "    time.sleep(0.2)\n", children)
    assert process.communicate(timeout=10)[0] == "returned\n[]\n"


def test_the_work_can_open_the_log_of_the_hook_again(tmp_path: Path) -> None:
    """The hook's own log object is dropped then: it must not close the descriptor that the new one was given."""
    work = f"""
    log = open_log(config, "hook")
    log.info("from the work")
    report(Path({str(tmp_path / "log")!r}).read_text())
"""
    opened = f"""
from slurm_ft.log import open_log
from slurm_ft.config import Config
config = Config(log_file=Path({str(tmp_path / "log")!r}))
open_log(config, "hook").info("from the hook")
"""
    process = parent(tmp_path / "report", work, setup=opened)
    process.communicate(timeout=10)
    lines = awaited(tmp_path / "report").splitlines()
    assert [line.split(" ", 5)[-1] for line in lines] == ["from the hook", "from the work"]
