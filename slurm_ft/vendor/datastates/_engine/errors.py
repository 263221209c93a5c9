"""What the engine raises. Only settings errors reach a training script; everything else is counted and logged."""

from __future__ import annotations


class EngineError(Exception):
    """A save cannot go on: says what failed, with which input, and what to do next."""

    def __init__(self, what: str, fix: str = "") -> None:
        super().__init__(f"{what}. {fix}" if fix else what)


class SettingsError(EngineError, ValueError):
    """A setting has an unknown name or a value that cannot be used."""


class AbandonedError(EngineError):
    """A save was given up: another rank failed, a time limit passed, or the process is leaving."""


class AlreadyThereError(EngineError):
    """Another training in the same directory has committed this step: there is a checkpoint of it, so no failure."""


class TornError(EngineError):
    """Bytes changed between the capture and their copy: something other than an optimizer step edited them."""


class UnknownMemoryError(EngineError):
    """A tensor lies where the engine cannot copy from in the background; the framework's own saver can."""
