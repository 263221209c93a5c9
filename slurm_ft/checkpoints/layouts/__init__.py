"""The layouts we know, one file each.

To add one: its file here, its line in LAYOUTS, a fixture in the tests, a row in docs/adding_a_layout.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .accelerate import ACCELERATE
from .concurrent import CONCURRENT
from .dcp import DCP
from .deepspeed import DEEPSPEED
from .hf import HF
from .pytorch import PYTORCH

if TYPE_CHECKING:
    from ..layout import Layout

# `--framework auto` takes the first whose names and content are there: the more particular ones stand first.
LAYOUTS: tuple[Layout, ...] = (
    HF,
    CONCURRENT,
    DCP,
    ACCELERATE,
    DEEPSPEED,
    PYTORCH,
)

BY_NAME = {layout.name: layout for layout in LAYOUTS}
