"""`slurm-ft`: finds the subcommand's module, and turns every error into one line and an exit code.

Subcommands are imported only when they are asked for: the hooks pay for every import.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from slurm_ft import __version__
from slurm_ft.errors import SlurmFtError

# name -> (module with `configure(parser)` and `run(arguments)`, one line of help)
COMMANDS = {
    "status": ("slurm_ft.cli.status", "show jobs as squeue does, with their failovers and causes"),
    "logs": ("slurm_ft.cli.logs", "show a job's output, attempt by attempt; follow it across a restart"),
    "explain": ("slurm_ft.cli.explain", "say what was seen, decided and done about each attempt of a job"),
    "resume": ("slurm_ft.cli.resume", "find the newest valid checkpoint; for eval in an sbatch script"),
    "run": ("slurm_ft.cli.run", "resume and start a training: the whole of it, once per attempt"),
    "check": ("slurm_ft.cli.check", "find what in an sbatch script would spoil a failover"),
    "template": ("slurm_ft.cli.template", "list, show or write sbatch scripts for the launchers and frameworks"),
    "advise": ("slurm_ft.cli.advise", "how often to save, from what a save costs and how often nodes fail"),
    "checkpoints": ("slurm_ft.cli.checkpoints", "list and validate checkpoints; move back what was moved aside"),
    "watch": ("slurm_ft.cli.watch", "watch a node's GPUs, and fail over jobs that hang on a broken one"),
    "check-node": ("slurm_ft.cli.check_node", "look at the GPUs of a node while no job is on it"),
    "classify": ("slurm_ft.cli.classify", "judge a pasted kernel log or a file of cases: what would you have said?"),
    "reconcile": ("slurm_ft.cli.reconcile", "finish the failovers whose hooks were killed (root, on the controller)"),
    "alert": ("slurm_ft.cli.alert", "test the channels for alerts; send or list what waits for them"),
    "nodes": ("slurm_ft.cli.nodes", "list the nodes that were drained, why, and which ones keep failing"),
    "undrain": ("slurm_ft.cli.undrain", "check a node that was drained, and return it to service (root, on the node)"),
    "pause": ("slurm_ft.cli.pause", "stop all drains and failovers of the cluster at once (operators)"),
    "unpause": ("slurm_ft.cli.unpause", "let them go on, also after the breaker has opened (operators)"),
    "metrics": ("slurm_ft.cli.metrics", "print metrics for Prometheus, or write them for node_exporter"),
    "install": ("slurm_ft.cli.install", "put slurm_ft into this machine's service, or print what that would change"),
    "uninstall": ("slurm_ft.cli.uninstall", "undo what `slurm-ft install` made here"),
    "doctor": ("slurm_ft.cli.doctor", "check that a fault would be found, decided on and told, all the way"),
    "lab": ("slurm_ft.lab.command", "start a real Slurm cluster on this machine, to try things"),
    "demo": ("slurm_ft.cli.demo", "show a failover, or its refusal, on such a cluster"),
    "hook": ("slurm_ft.cli.hook", "run by Slurm's hooks, not by hand"),
}
UNWRITABLE = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF))
HELP = frozenset(("-h", "--help"))
DESCRIPTION = """\
Keeps GPU training alive on plain Slurm: finds out why a job died, drains the bad node,
starts the same job again elsewhere, and lets the training go on from its newest valid checkpoint."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    _open_what_is_closed()
    try:
        try:
            return _dispatch(given)
        finally:
            sys.stdout.flush()  # here, where a reader that went away is no error; at the exit it would be one
    except SlurmFtError as error:
        print(f"slurm-ft: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:  # the reader of our output went away, as `| head` does
        _discard_output()
        return 0
    except OSError as error:
        if error.errno not in UNWRITABLE or error.filename is not None:
            raise
        _discard_output()
        print(f"slurm-ft: the output cannot be written: {error.strerror}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _open_what_is_closed() -> None:
    """Python has None for a stream that the caller closed. What is written to that stdout fails; stderr is dropped."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDONLY if name == "stdout" else os.O_WRONLY)
            setattr(sys, name, os.fdopen(descriptor, "w", encoding="utf-8"))


def _discard_output() -> None:
    """What is still in the buffer would fail once more at the interpreter's exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _dispatch(given: list[str]) -> int:
    name = given[0] if given else ""
    if name not in COMMANDS:
        _top_level().parse_args(given or ["--help"])  # prints help, version or the error, and exits
        return 2
    command = import_module(COMMANDS[name][0])
    parser = parser_of(name, manual=not HELP.isdisjoint(given))
    prepare: Callable[[Sequence[str]], Sequence[str]] = getattr(command, "prepare", list)
    code: int = command.run(parse(parser, prepare(given[1:])))
    return code


def parser_of(name: str, *, manual: bool = True) -> argparse.ArgumentParser:
    """The parser of one subcommand; `manual`: with the examples, exit codes and files that its help shows."""
    module, summary = COMMANDS[name]
    command, described = import_module(module), f"{summary[0].upper()}{summary[1:]}."
    parser = argparse.ArgumentParser(f"slurm-ft {name}", description=described, add_help=False)
    parser.add_argument(*getattr(command, "HELP", ("-h", "--help")), action="help", help="show this help and exit")
    command.configure(parser)
    if manual:
        from slurm_ft.cli.manual import complete  # noqa: PLC0415 - no hook needs it

        complete(parser, name)
    return parser


def parse(parser: argparse.ArgumentParser, given: Sequence[str]) -> argparse.Namespace:
    """Parse, for a subcommand that takes a command of the user's (`command` has a default), only what is before `--`.

    argparse itself would look for options in the command, or for the command before the last option.
    """
    takes_command = parser.get_default("command") is not None
    end = list(given).index("--") if takes_command and "--" in given else len(given)
    arguments = parser.parse_args(given[:end])
    if takes_command:
        arguments.command = tuple(given[end + 1 :])
    return arguments


def _top_level() -> argparse.ArgumentParser:
    lines = "\n".join(f"  {name:<10} {summary}" for name, (_, summary) in COMMANDS.items())
    parser = argparse.ArgumentParser(
        "slurm-ft",
        usage="slurm-ft [--version] COMMAND …",
        description=DESCRIPTION,
        epilog=f"commands:\n{lines}\n\n`slurm-ft COMMAND --help` says more about each.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"slurm_ft {__version__}")
    parser.add_argument("command", choices=list(COMMANDS), metavar="COMMAND", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
