"""How far a deep check has come, for whoever watches."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Told about the bytes that a deep check reads. Called from one thread."""

    def start(self, name: str, total: int) -> None:
        """A checkpoint of so many bytes to read."""

    def advance(self, count: int) -> None:
        """So many bytes more have been read."""

    def stop(self) -> None:
        """It ended, or its budget did."""


class Silent:
    """Nobody watches."""

    def start(self, name: str, total: int) -> None:
        """Say nothing."""

    def advance(self, count: int) -> None:
        """Say nothing."""

    def stop(self) -> None:
        """Say nothing."""
