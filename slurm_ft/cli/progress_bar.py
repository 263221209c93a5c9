"""How far a long reading has come: a bar on a terminal, a line now and then in a log."""

from __future__ import annotations

import time
from typing import TextIO

from slurm_ft.checkpoints.printable import printable

BAR_CELLS = 30
TERMINAL_SECONDS = 0.1  # between two drawings of the bar
LOG_SECONDS = 10.0  # between two lines in a log
GIGABYTE = 1 << 30


class ProgressBar:
    """Draws on a terminal; elsewhere writes a line every ten seconds, and none for what takes less."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.terminal = stream.isatty()
        self.name, self.total, self.done = "", 0, 0
        self.started = self.shown = 0.0

    def start(self, name: str, total: int) -> None:
        """Begin with a checkpoint of so many bytes."""
        self.name, self.total, self.done = printable(name), total, 0
        self.started = self.shown = time.monotonic()

    def advance(self, count: int) -> None:
        """Add bytes that were read."""
        self.done += count
        now = time.monotonic()
        if now - self.shown >= (TERMINAL_SECONDS if self.terminal else LOG_SECONDS):
            self.shown = now
            self._show(now)

    def stop(self) -> None:
        """Take the bar away; a log keeps its lines."""
        if self.terminal and self.shown > self.started:
            self.stream.write("\r\x1b[K")
            self.stream.flush()

    def _show(self, now: float) -> None:
        share = self.done / self.total if self.total else 1.0
        rate = self.done / GIGABYTE / max(now - self.started, 1e-9)
        numbers = f"{share:4.0%} of {self.total / GIGABYTE:.1f} GiB, {rate:.1f} GiB/s"
        if self.terminal:
            cells = int(share * BAR_CELLS)
            self.stream.write(f"\r{self.name} [{'#' * cells}{'.' * (BAR_CELLS - cells)}] {numbers}\x1b[K")
        else:
            self.stream.write(f"slurm_ft: checking {self.name}: {numbers.strip()}\n")
        self.stream.flush()
