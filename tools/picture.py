"""The README's picture: `slurm-ft status` on a terminal while a real training fails over (docs/status.svg).

    python tools/picture.py docs/status.svg     # root; a real Slurm cluster on this machine, about a minute

Nothing in it is drawn by hand: the commands run on a terminal of their own, and rich turns what they print into SVG.
"""

from __future__ import annotations

import argparse
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from rich.text import Text

from slurm_ft.cli.demo import FAULT_FILE, XID, XID_TEXT, Show, follow, submit
from slurm_ft.config import CONFIG_VARIABLE
from slurm_ft.errors import SlurmFtError
from slurm_ft.failover import resume_tag
from slurm_ft.lab import Lab, LabSpec
from slurm_ft.model import JobState

COLUMNS = 148
BACKOFF = 15  # seconds in which the picture of the failover is taken; a site's default for the first one is 0
BUG = "#!/bin/sh\necho 'ValueError: no such column' >&2; exit 1\n"
# rich's own letters come from a server; a page that shows the picture should ask nobody.
_FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
_FAMILY = re.compile(r"Fira Code, monospace|Fira Code")


def on_terminal(lab: Lab, *words: str) -> str:
    """What `slurm-ft` prints on a terminal, colours and all."""
    ours, theirs = pty.openpty()
    environment = {
        **lab.environment(),
        CONFIG_VARIABLE: str(lab.base / "etc" / "slurm_ft.yaml"),
        "COLUMNS": str(COLUMNS),
        "TERM": "xterm-256color",
    }
    command = [str(Path(sys.executable).with_name("slurm-ft")), *words]
    with subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs):
        os.close(theirs)
        printed = b"".join(_until_end(ours))
    os.close(ours)
    return printed.decode().replace("\r\n", "\n")


def _until_end(terminal: int) -> Iterator[bytes]:
    """The end of a terminal whose last program has gone is EIO."""
    with suppress(OSError):
        while part := os.read(terminal, 65536):
            yield part


def others(lab: Lab) -> None:
    """A partition has more than one job: one with a bug of its own, an array, one that asked for nothing."""
    opted_in = ("--comment=[slurm_ft]", "--requeue", "--output=/dev/null")
    bug = lab.sbatch(BUG, "--job-name=ablation", *opted_in)
    lab.wait_job(bug, "FAILED")
    lab.sbatch("#!/bin/sh\nsleep 600\n", "--job-name=sweep", "--array=1-2", "--gres=gpu:1", *opted_in)
    lab.sbatch("#!/bin/sh\nsleep 600\n", "--job-name=eval", "--output=/dev/null")
    lab.sbatch("#!/bin/sh\nsleep 600\n", "--job-name=wide", "--nodes=3", "--exclusive", *opted_in)


def scene(lab: Lab) -> Iterator[tuple[str, str]]:
    """Commands and what they printed: during the failover, and once the training has gone on."""
    show = Show(lab)
    job = submit(show)
    others(lab)
    bad = follow(show, job, lambda: sorted(show.output.glob("ckpt_2?.pth"))).job.nodes
    lab.inject_xid(bad, 0, XID, XID_TEXT)
    (lab.shared / FAULT_FILE).write_text(bad)
    follow(show, job, lambda: show.view(job).job.state == "PENDING")
    if show.view(job).state is not JobState.FAILOVER_IN_PROGRESS:
        raise SlurmFtError(f"job {job} is {show.view(job).state.value}, not failing over", f"Its log:\n{show.log}")
    yield "slurm-ft status", on_terminal(lab, "status")

    def resumed() -> bool:
        mark = resume_tag.read(show.view(job).job.comment)
        return mark is not None and mark.attempt == 1 and mark.step is not None

    follow(show, job, resumed)
    yield f"slurm-ft status {job}", on_terminal(lab, "status", str(job))


def picture(scenes: Iterator[tuple[str, str]]) -> str:
    """The terminal as SVG."""
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere, force_terminal=True, color_system="truecolor")
        for at, (command, printed) in enumerate(scenes):
            console.print(Text("\n" * bool(at)) + Text("$ ", style="bold green") + Text(command, style="bold"))
            console.print(Text.from_ansi(printed.rstrip("\n")), soft_wrap=True)
        text = console.export_svg(title="a training loses its GPU", unique_id="status")
    kept = text.replace("<svg ", '<svg xml:space="preserve" ', 1)  # not every viewer keeps blanks at the start
    return _FAMILY.sub("ui-monospace, monospace", _FONT.sub("", kept))


def main() -> int:
    """Take the picture; 1 if what it should show did not happen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("svg", type=Path, help="the file to write")
    target: Path = parser.parse_args().svg
    spec = LabSpec(nodes=4, config={"backoff": [BACKOFF]})
    try:
        with Lab(spec) as lab:
            svg = picture(scene(lab))
    except SlurmFtError as error:
        print(f"tools/picture.py: {error}", file=sys.stderr)
        return 1
    target.write_text("\n".join(filter(None, map(str.rstrip, svg.splitlines()))) + "\n", encoding="utf-8")
    print(f"wrote {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
