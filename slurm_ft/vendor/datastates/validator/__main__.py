"""Start of the companion: `python -m datastates.validator --socket PATH`."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from types import FrameType

from ..llm.log import show
from .low_priority import end_with_parent, step_back
from .over import Over
from .server import InUseError, Server
from .work import Work

IN_USE = 3  # exit code: another companion answers on this socket


def main() -> int:
    """Listen until the training ends. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m datastates.validator", description=__doc__)
    parser.add_argument("--socket", type=Path, required=True, help="where to listen; its directory must exist")
    options = parser.parse_args()
    show()
    over = Over()
    end_with_parent(over)
    step_back()
    _end_on_signals(over)
    work = Work()
    try:
        server = Server(options.socket, work.add)
    except (InUseError, OSError) as error:
        print(f"datastates.validator: cannot listen on {options.socket}: {error}", file=sys.stderr)
        return IN_USE if isinstance(error, InUseError) else 1
    with server:
        server.start()
        work.run(over)
    return 0


def _end_on_signals(over: Over) -> None:
    def end(_number: int, _frame: FrameType | None) -> None:
        over.set()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, end)


if __name__ == "__main__":
    sys.exit(main())
