"""`slurm-ft status` as its users run it, on a real cluster: an array, a het job, a terminal, a pipe, no controller."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from steps import ENDED, OPTED_IN, end, lose_gpu, make_healthy, running, submit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slurm_ft.lab import Lab

NARROW = 60  # columns


@pytest.fixture(autouse=True)
def healthy(lab: Lab) -> Iterator[None]:
    yield
    make_healthy(lab)


def command(lab: Lab, *arguments: str) -> tuple[list[str], dict[str, str]]:
    settings = {"SLURM_FT_CONFIG": str(lab.base / "etc" / "slurm_ft.yaml")}
    return [str(lab.command), "status", *arguments], {**lab.environment(), **settings}


def status(lab: Lab, *arguments: str) -> str:
    words, environment = command(lab, *arguments)
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout


def on_terminal(lab: Lab, *arguments: str) -> list[str]:
    words, environment = command(lab, *arguments)
    ours, theirs = pty.openpty()
    size = {"COLUMNS": str(NARROW), "TERM": "xterm"}
    with subprocess.Popen(words, env={**environment, **size}, stdout=theirs, stderr=theirs):
        os.close(theirs)
        printed = b""
        with suppress(OSError):  # EIO: its last program has gone
            while part := os.read(ours, 65536):
                printed += part
    os.close(ours)
    return printed.decode().splitlines()


def test_a_failover_as_a_page_as_a_row_and_on_a_narrow_terminal(lab: Lab) -> None:
    job = submit(lab, *OPTED_IN, "--job-name=tr|ain")
    bad = lose_gpu(lab, job, 0)
    good = running(lab, job, 1)
    page = status(lab, str(job))
    assert re.search(rf"attempt 1/4, restart 0: on {bad}, \S+ - \S+ \(\d", page)
    assert re.search(r"lost: 0:\d\d until the next start", page)
    assert re.search(rf"attempt 2/4, restart 1: on {good}, \S+ - now", page)
    assert "(2 failovers left)" in page
    assert status(lab, "--parsable", "-j", str(job), "-o", "jobid,name,attempt,excluded", "-h") == (
        f"{job}|tr%7Cain|2/4|{bad}\n"
    )
    lines = on_terminal(lab, "-j", str(job))
    plain = [re.sub(r"\x1b\[\d*m", "", line) for line in lines]
    assert max(map(len, plain)) <= NARROW
    assert "\x1b[32mRunning\x1b[0m" in lines[1]
    assert any(line.startswith("no room for ") for line in plain)


def test_our_own_states_filter_and_the_others_go_to_squeue(lab: Lab) -> None:
    failed, runs = submit(lab, *OPTED_IN), submit(lab, *OPTED_IN)
    running(lab, failed, 0)
    running(lab, runs, 0)
    end(lab, failed, 0, 3)
    lab.wait_job(failed, *ENDED)
    ours = ("-h", "-j", f"{failed},{runs}", "-o", "jobid")  # other tests leave jobs, too
    assert status(lab, *ours, "-t", "internalerror").split() == [str(failed)]
    assert status(lab, *ours, "-t", "R").split() == [str(runs)]
    both = status(lab, *ours, "-t", "running,internalerror", "-S", "-jobid").split()
    assert both == [str(runs), str(failed)]


def test_of_an_array_the_task_that_failed_over_has_a_story(lab: Lab) -> None:
    array = lab.sbatch(
        "#!/bin/sh\nn=$SLURM_ARRAY_TASK_ID\nr=${SLURM_RESTART_COUNT:-0}\n"
        "echo $r $SLURMD_NODENAME >>started.$SLURM_JOB_ID\n"
        "[ $n$r = 10 ] || exec sleep 100\nuntil [ -e go ]; do sleep 0.1; done\nexit 1\n",
        "--array=1-3", *OPTED_IN,
    )  # fmt: skip
    lab.wait_for(lambda: status(lab, "-h", "-t", "R", "-j", f"{array}_[1-3]").count("\n") == 3, 30, "three tasks")
    node = status(lab, "-h", "-j", f"{array}_1", "-o", "nodelist").strip()
    lab.inject_xid(node, int(_gpu_of(lab, f"{array}_1", node)), 79, "GPU has fallen off the bus.")
    (lab.shared / "go").touch()
    lab.wait_for(lambda: "2/4" in status(lab, "-h", "-t", "R", "-j", f"{array}_1", "-o", "attempt"), 30, "a failover")
    text = status(lab, str(array))
    assert text.startswith("JOBID")
    assert text.count("\njob ") == 1
    assert f"\njob {array}_1 " in text
    assert f"slurm-ft logs {array}_1" in text


def _gpu_of(lab: Lab, address: str, node: str) -> str:
    shown = lab.run("scontrol", "-d", "show", "job", address)
    match = re.search(rf"Nodes={node} .*GRES=gpu\S*\(IDX:(\d)", shown)
    assert match, shown
    return match[1]


def test_a_het_job_is_one_story(lab: Lab) -> None:
    job = lab.sbatch("#!/bin/sh\nsleep 100\n", *OPTED_IN, ":", "--gres=gpu:2")
    lab.wait_for(lambda: lab.run("squeue", "-h", "-t", "R").count("\n") == 2, 30, "both components")
    page = status(lab, str(job))
    assert page.count("job ") == 1
    assert re.search(r"on n\[\d[-,]\d\]|on n\d,", page)
    assert len(status(lab, "-h", "-j", str(job)).splitlines()) == 2


def test_json_of_a_real_job_has_real_numbers(lab: Lab) -> None:
    job = submit(lab, *OPTED_IN, "--time=30")
    node = running(lab, job, 0)
    (found,) = json.loads(status(lab, "--json", "-j", str(job)))["jobs"]
    assert (found["nodes"], found["node_count"], found["time_limit"]) == (node, 1, 1800.0)
    assert 0 <= time.time() - found["started"] < 60
    assert found["ended"] is None


def test_refreshing_goes_on_without_a_controller_and_ends_at_ctrl_c(lab: Lab) -> None:
    words, environment = command(lab, "-i", "0.5", "-h", "-o", "jobid")
    words = ["/usr/bin/env", "--default-signal=INT", *words]  # what a shell starts in the background ignores it
    job = submit(lab, *OPTED_IN)
    running(lab, job, 0)
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        lines = (line.strip() for line in process.stdout)
        for _ in range(2):
            assert next(line for line in lines if line == str(job))
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, "")


def test_without_a_controller_it_says_so_and_ends_with_1(lab: Lab) -> None:
    words, environment = command(lab)
    conf = lab.shared / "nobody.conf"
    conf.write_text(re.sub(r"SlurmctldPort=\d+", "SlurmctldPort=1", lab.slurm_conf.read_text()))
    settings = lab.shared / "nobody.yaml"
    settings.write_text((lab.base / "etc" / "slurm_ft.yaml").read_text().replace(str(lab.slurm_conf), str(conf)))
    settings.chmod(0o644)
    done = subprocess.run(
        words, env={**environment, "SLURM_FT_CONFIG": str(settings)}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("slurm-ft: `squeue ")
    assert len(done.stderr.splitlines()) <= 2
