"""Finds the files that ship beside the package (the hooks), and the `slurm-ft` command that they call."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import slurm_ft
from slurm_ft.lab.errors import LabError


def checkout_root() -> Path | None:
    """The source tree that this package runs from; None when it was installed from a wheel."""
    root = Path(slurm_ft.__file__).resolve().parent.parent
    return root if (root / "pyproject.toml").is_file() else None


def resources_dir() -> Path:
    """The directory that holds prolog/, epilog/, sbatch_templates/ and examples/."""
    installed = Path(sys.prefix) / "share" / "slurm_ft"
    root = checkout_root() or installed
    if not root.is_dir():
        raise LabError(
            f"the files that belong to slurm_ft (prolog/, epilog/, …) are not in {installed}",
            "Reinstall slurm_ft with pip into this Python, or run it from its source tree.",
        )
    return root


def resource(name: str) -> Path:
    """One file of the resources directory, e.g. `prolog/node_prolog`."""
    path = resources_dir() / name
    if not path.is_file():
        raise LabError(f"slurm_ft's own file {name} is missing: {path}", "Reinstall slurm_ft, or restore the file.")
    return path


def command_script() -> str:
    """A `slurm-ft` of the lab's own: root's, since hooks start no other, and `sudo make demo` installs as the caller.

    In a source tree it runs that very tree, and not what pip installed, which might belong to another checkout. Not
    through PYTHONPATH: `slurm-ft run` becomes the training, which would inherit it.
    """
    root = checkout_root()
    if root is None:
        return f'#!/bin/sh\nexec {shlex.quote(str(Path(sys.executable).parent / "slurm-ft"))} "$@"\n'
    program = f"import sys; sys.path.insert(0, {str(root)!r}); from slurm_ft.cli.main import main; sys.exit(main())"
    return f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c {shlex.quote(program)} "$@"\n'
