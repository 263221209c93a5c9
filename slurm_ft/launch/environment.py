"""The environment in which the training starts. Pure."""

from __future__ import annotations

import os
from collections.abc import Mapping

VENDOR = "CHECKPOINT_VENDOR"
PYTHONPATH = "PYTHONPATH"


def training_environment(environ: Mapping[str, str], resume: Mapping[str, str | None]) -> dict[str, str]:
    """`environ` with what `resume` sets (None: it must not be set) and the site's library first on the Python path."""
    merged = {name: value for name, value in environ.items() if resume.get(name, "") is not None}
    merged.update({name: value for name, value in resume.items() if value is not None})
    vendor = environ.get(VENDOR, "")
    if vendor:
        merged[PYTHONPATH] = first_on_path(vendor, environ.get(PYTHONPATH, ""))
    return merged


def first_on_path(directory: str, path: str) -> str:
    """`directory` before the other parts of `path`. An empty part would mean the current directory: none is made."""
    others = [part for part in path.split(os.pathsep) if part and part != directory]
    return os.pathsep.join((directory, *others))
