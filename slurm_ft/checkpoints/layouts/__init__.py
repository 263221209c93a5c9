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
from .lightning import LIGHTNING
from .llamafactory import LLAMAFACTORY, LLAMAFACTORY_V1
from .megatron import MEGATRON, MINDSPEED
from .mindspore import MINDSPORE
from .nemo import NEMO
from .pytorch import PYTORCH
from .torchtitan import TORCHTITAN
from .torchtune import TORCHTUNE
from .verl import VERL

if TYPE_CHECKING:
    from ..layout import Layout

# `--framework auto` takes the first whose names and content are there: the more particular ones stand first.
LAYOUTS: tuple[Layout, ...] = (
    CONCURRENT,
    LLAMAFACTORY,
    LLAMAFACTORY_V1,
    HF,
    MEGATRON,
    MINDSPEED,
    VERL,
    TORCHTITAN,
    TORCHTUNE,
    NEMO,
    MINDSPORE,
    LIGHTNING,
    DCP,
    ACCELERATE,
    DEEPSPEED,
    PYTORCH,
)

BY_NAME = {layout.name: layout for layout in LAYOUTS}
