"""One module per file format. None of them needs a framework, and none executes what a file says.

To add one: its module with `check(source, level) -> Checked`, its line in CHECKERS.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from .dcp import check_dcp
from .deepspeed_tag import check_deepspeed_tags
from .json_file import check_json
from .mindspore import check_ckpt_file
from .safetensors import check_safetensors
from .sharded_index import check_sharded_indexes
from .torch_file import check_torch_file

if TYPE_CHECKING:
    from .source import Checker

# Glob on a file's base name -> who judges it. The first match counts. `.bin` is anybody's ending: only torch's names.
CHECKERS: tuple[tuple[str, Checker], ...] = (
    ("*.safetensors", check_safetensors),
    ("*.json", check_json),
    ("*.pt", check_torch_file),
    ("*.pth", check_torch_file),
    ("*.ckpt", check_ckpt_file),
    ("*.pkl", check_torch_file),
    ("pytorch_model*.bin", check_torch_file),
    ("adapter_model*.bin", check_torch_file),
    ("optimizer*.bin", check_torch_file),
    ("scheduler*.bin", check_torch_file),
    ("sampler*.bin", check_torch_file),
    ("dl_state_dict*.bin", check_torch_file),
    ("training_args.bin", check_torch_file),
    ("model_*.bin", check_torch_file),
)

# Those that look at several files of a checkpoint together.
GROUP_CHECKERS = (check_sharded_indexes, check_dcp, check_deepspeed_tags)


def checker_of(name: str) -> Checker | None:
    """Return the checker of a file's format; None for a file whose format nobody here knows."""
    base = name.rpartition("/")[2]
    return next((checker for glob, checker in CHECKERS if fnmatchcase(base, glob)), None)
