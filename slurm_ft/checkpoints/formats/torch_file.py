"""Which of torch's formats a file is in, by its first bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import UnreadableCheckpointError
from ..finding import corrupt
from . import stub_pickle
from .datastates import check_datastates, is_datastates
from .pickle_file import check_pickle, is_pickle
from .source import Checked, DamagedError, opened
from .torch_legacy import LEGACY_MAGIC, check_torch_legacy, read_stream
from .torch_zip import check_torch_zip, read_tree
from .zip_directory import read_archive

if TYPE_CHECKING:
    from pathlib import Path

    from ..finding import Level
    from .source import Source


def check_torch_file(source: Source, level: Level) -> Checked:
    """Judge a file that `torch.save` or `pickle.dump` should have written."""
    start = source.at(0, len(LEGACY_MAGIC))
    if start.startswith(b"PK"):
        return check_torch_zip(source, level)
    if start == LEGACY_MAGIC:
        return check_torch_legacy(source, level)
    if is_pickle(start):
        return check_pickle(source, level)
    if is_datastates(source):
        return check_datastates(source, level)
    return Checked((corrupt("it does not begin as a torch.save file does"),))


def read_torch_object(path: Path) -> Any:
    """Return the object tree of a torch file, with stubs for tensors and classes; None if it cannot be followed.

    Executes nothing that the file says. Raises UnreadableCheckpointError.
    """
    try:
        with opened(path, path.name) as source:
            return _tree(source)
    except (DamagedError, stub_pickle.OpaqueError, FileNotFoundError, IsADirectoryError):
        return None
    except OSError as error:
        raise UnreadableCheckpointError(path, error) from error


def _tree(source: Source) -> Any:
    start = source.at(0, len(LEGACY_MAGIC))
    if start.startswith(b"PK"):
        return read_tree(source, read_archive(source))
    if start == LEGACY_MAGIC:
        return read_stream(source)[0]
    if is_pickle(start) and source.size <= stub_pickle.MOST_PICKLE_BYTES:
        return stub_pickle.load(source.at(0, source.size))
    return None
