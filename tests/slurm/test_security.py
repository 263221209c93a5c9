"""What a user can put into a job leads no hook of a real Slurm astray, and what he and the site keep secret stays so.

Each thing that a job brings along leaves a mark with the user id of whoever fell for it: the job's own id shows that
the trap works, root's would be the fault.
"""

from __future__ import annotations

import pwd
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from steps import ENDED, FELL_OFF, OPTED_IN, end, entries, lose_gpu, make_healthy, running, settings

from slurm_ft.journal_entry import Stage
from slurm_ft.lab import Lab, LabSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

PRELOADED = """#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
__attribute__((constructor)) static void loaded(void) {
    char name[512];
    snprintf(name, sizeof name, "%s/preload.%d", DIRECTORY, (int)getuid());
    close(open(name, O_WRONLY | O_CREAT, 0666));
}
"""
TOOLS = ("dd", "awk", "timeout", "setsid", "find", "stat", "id", "squeue", "scontrol", "mkdir", "touch", "rm", "date")
SECRET = "T0KEN-very-secret"


@pytest.fixture
def traps(lab: Lab) -> Iterator[Path]:
    """A directory where everybody may leave a mark."""
    make_healthy(lab)
    directory = Path(tempfile.mkdtemp(dir=lab.shared))
    (directory / "bin").mkdir()
    directory.chmod(0o1777)
    yield directory
    make_healthy(lab)


def environment(lab: Lab, traps: Path) -> dict[str, str]:
    """An environment that runs code of the user's wherever it gets."""
    mark = f"/usr/bin/touch {traps}/{{}}.$(/usr/bin/id -u)\n"
    for tool in TOOLS:
        script = traps / "bin" / tool
        script.write_text("#!/bin/sh\n" + mark.format("path") + f'exec /usr/bin/{tool} "$@"\n')
        script.chmod(0o755)
    (traps / "startup.sh").write_text(mark.format("startup"))
    (traps / "sitecustomize.py").write_text(f"import os; open('{traps}/python.%d' % os.getuid(), 'w')\n")
    (traps / "preload.c").write_text(PRELOADED)
    command = [
        "gcc",
        "-shared",
        "-fPIC",
        f'-DDIRECTORY="{traps}"',
        "-o",
        str(traps / "preload.so"),
        str(traps / "preload.c"),
    ]
    subprocess.run(command, check=True)
    (traps / "slurm_ft.yaml").write_text(f"mode: observe\nslurm_bin: {traps}/bin\nlog_file: {traps}/redirected\n")
    (traps / "slurm-ft").write_text("#!/bin/sh\n" + mark.format("command"))
    (traps / "slurm-ft").chmod(0o755)
    return {
        "PATH": f"{traps}/bin:/usr/bin:/bin", "BASH_ENV": str(traps / "startup.sh"), "ENV": str(traps / "startup.sh"),
        "LD_PRELOAD": str(traps / "preload.so"), "PYTHONPATH": str(traps), "IFS": "/s",
        "SLURM_FT_CONFIG": str(traps / "slurm_ft.yaml"), "SLURM_FT_BIN": str(traps / "slurm-ft"),
        "SLURM_FT_RUN_DIR": str(traps), "SPANK_SLURM_FT_BIN": str(traps / "slurm-ft"), "SLURM_JOB_GPUS": "7",
    }  # fmt: skip


def marks(traps: Path) -> set[str]:
    return {path.name for path in traps.iterdir() if path.suffix[1:].isdigit() or path.name == "redirected"}


def test_the_environment_of_a_job_reaches_no_hook(lab: Lab, traps: Path) -> None:
    script = (
        f"#!/bin/bash\ndd --version\n/usr/bin/python3 -c pass\nwhile [ ! -e {traps}/go ]; do sleep 0.1; done\nexit 1\n"
    )
    job = lab.sbatch(script, "--export=ALL", *OPTED_IN, env=environment(lab, traps))
    lab.wait_for(lambda: any(mark.startswith("python.") for mark in marks(traps)), 30, "the job's own traps")
    node = lab.job(job)["nodelist"]
    lab.inject_xid(node, 0, 79, FELL_OFF)
    (traps / "go").touch()
    lab.wait_for(lambda: lab.job(job)["restarts"] == "1", 30, "the failover")
    lab.wait_for(lambda: lab.job(job)["state"] in ENDED, 60, "the end of the second attempt")
    user = pwd.getpwnam(lab.spec.user).pw_uid
    assert marks(traps) >= {f"preload.{user}", f"startup.{user}", f"path.{user}", f"python.{user}"}  # the traps work
    assert {mark for mark in marks(traps) if not mark.endswith(f".{user}")} == set()
    assert lab.job(job)["comment"].startswith("[slurm_ft n=1/3 ")


@pytest.mark.parametrize(
    "text",
    [
        "$(/usr/bin/touch TRAPS/ran.0)", "`/usr/bin/touch TRAPS/ran.0`", "'; /usr/bin/touch TRAPS/ran.0; '",
        "a\n/usr/bin/touch TRAPS/ran.0\n", '"; /usr/bin/touch TRAPS/ran.0 #',
        "é\u202e\uff1b$(/usr/bin/touch TRAPS/ran.0)",
    ],
    ids=["substitution", "backquotes", "quote", "newline", "double quote", "unicode"],
)  # fmt: skip
def test_a_job_of_hostile_names_fails_over_like_any_other(lab: Lab, traps: Path, text: str) -> None:
    text = text.replace("TRAPS", str(traps))
    directory = lab.shared / text.replace("/", "_")[:80]
    directory.mkdir(exist_ok=True)
    directory.chmod(0o777)
    comment = f"{text} [slurm_ft] {text}"
    names = (f"--job-name={text}", f"--comment={comment}", f"--chdir={directory}", f"--wckey={text[:20]}")
    script = "#!/bin/bash\n" + f"cd {lab.shared}\n" + ATTEMPT
    job = lab.sbatch(script, *names, "--requeue", "--gres=gpu:1", f"--output={text.replace('/', '_')[:60]}%j.log")
    bad = lose_gpu(lab, job, 0)
    assert running(lab, job, 1) != bad
    end(lab, job, 1, 0)
    done = lab.wait_job(job, *ENDED)
    assert done["state"] == "COMPLETED"
    assert done["comment"] == comment.replace("[slurm_ft]", f"[slurm_ft n=1/3 ex={bad} cause=xid79]")
    assert marks(traps) == set()


ATTEMPT = """restart=${SLURM_RESTART_COUNT:-0}
echo "$restart $SLURMD_NODENAME" >> started.$SLURM_JOB_ID
for _ in $(seq 600); do
    if [ -s end.$SLURM_JOB_ID.$restart ]; then exit "$(cat end.$SLURM_JOB_ID.$restart)"; fi
    sleep 0.1
done
exit 99
"""


def test_a_configuration_that_others_may_write_to_stops_no_job_and_decides_nothing(lab: Lab, traps: Path) -> None:
    lab.layout.config.chmod(0o666)
    try:
        job = lab.sbatch(f"#!/bin/bash\ncd {lab.shared}\n{ATTEMPT}", *OPTED_IN)
        node = lose_gpu(lab, job, 0)
        done = lab.wait_job(job, *ENDED)
    finally:
        lab.layout.config.chmod(0o644)
    assert (done["state"], done["restarts"]) == ("FAILED", "0")
    assert lab.node(node)[0] == "idle"
    assert entries(lab, job) == []


def test_no_secret_gets_out(tmp_path: Path) -> None:
    url = tmp_path / "url"
    url.write_text(f"http://user:{SECRET}@127.0.0.1:9/{SECRET}\n")  # nobody listens: each delivery ends in an error
    url.chmod(0o600)
    channel = {"name": "dead", "type": "alertmanager", "url_file": str(url)}
    line = f"RuntimeError: CUDA error: uncorrectable ECC error encountered, token={SECRET}"
    with Lab(LabSpec(nodes=2, config={"alert_channels": [channel]})) as lab:
        (lab.shared / "line").write_text(f"{line}\n")  # Slurm keeps a copy of the script
        job = lab.sbatch("#!/bin/bash\ncat line\nexit 1\n", "--comment=[slurm_ft limit=0]", *OPTED_IN[1:])
        lab.wait_job(job, "FAILED")
        seen = ""

        def told() -> bool:
            nonlocal seen
            seen += subprocess.run(["/bin/ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
            return "alert not delivered" in lab.log_of("slurm_ft")

        lab.wait_for(told, 30, "the sender's error")
        assert entries(lab, job, Stage.DECIDED)[0]["rule"] == "limit_reached"
        slurm = lab.run("scontrol", "-d", "show", "job", str(job)) + lab.run("scontrol", "show", "node")
        state = settings(lab).state_dir
        private = {path for path in state.rglob("*") if path.is_file() and path.parent.name == "judged"}
        files = [path for path in lab.base.rglob("*") if path.is_file() and path not in private]
        public = [path for path in files if lab.shared not in path.parents and "spool" not in path.parts]
        assert [path for path in public if SECRET.encode() in path.read_bytes()] == []
        assert all(path.stat().st_mode & 0o007 == 0 for path in private)
        assert SECRET not in seen + slurm
