"""The errors users see. Each says what failed, with which input, and what to do next."""

from __future__ import annotations


class SlurmFtError(Exception):
    """Base of every error that the command line prints as one line, without a traceback.

    `what` names the thing that failed with its input; `fix` is what the reader can do about it.
    """

    exit_code = 1

    def __init__(self, what: str, fix: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.what}. {self.fix}" if self.fix else self.what


class ConfigError(SlurmFtError):
    """The configuration file cannot be used; names file, line, key and the valid values."""

    exit_code = 78  # EX_CONFIG of sysexits.h


class UsageError(SlurmFtError):
    """The command line, or a filter in it that Slurm refused, makes no sense."""

    exit_code = 2  # argparse's own


class SlurmCommandError(SlurmFtError):
    """A Slurm command failed, timed out or answered something unexpected.

    `busy`: the controller did not answer, and may when it is asked again.
    """

    def __init__(self, command: str, status: str, output: str, fix: str = "", *, busy: bool = False) -> None:
        super().__init__(f"`{command}` {status}: {output or 'no output'}", fix)
        self.command = command
        self.status = status
        self.output = output
        self.busy = busy


class HookEnvironmentError(SlurmFtError):
    """A hook was started without the variables that Slurm gives it."""
