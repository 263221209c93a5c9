"""kill -9 at any point: a Slurm and a journal whose calls end the "process" before or after the N-th of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

from fake_slurm import LOOKS, FakeSlurm


class Killed(BaseException):
    """The process is no more. Not an Exception: nothing in the product may catch it."""


@dataclass
class Killer:
    """Counts down at each point; at zero the process dies."""

    points_left: int | None = None

    def point(self) -> None:
        if self.points_left is None:
            return
        self.points_left -= 1
        if self.points_left < 0:
            self.points_left = None
            raise Killed

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def wrapped(*arguments: Any, **named: Any) -> Any:
            self.point()
            answer = function(*arguments, **named)
            self.point()
            return answer

        return wrapped


class KillingSlurm:
    """What the hooks are given: the fake, with `check` called before each change that they ask for."""

    def __init__(self, fake: FakeSlurm, killer: Killer, check: Callable[..., None]) -> None:
        self._fake, self._killer, self._check = fake, killer, check

    def within(self, budget: float) -> KillingSlurm:
        return self

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._fake, name)
        if name not in LOOKS:
            method = self._checked(name, method)
        return self._killer.around(method)

    def _checked(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def checked(*arguments: Any) -> Any:
            self._check(name, *arguments)
            return method(*arguments)

        return checked
