"""The layouts we know, one file each.

To add one: its file here, its line in LAYOUTS, a fixture in the tests, a row in the documentation.
"""

from __future__ import annotations

from slurm_ft.checkpoints.layouts.pytorch import PYTORCH

# `--framework auto` takes the first whose names occur in the directory: the more particular ones stand first.
LAYOUTS = (PYTORCH,)

BY_NAME = {layout.name: layout for layout in LAYOUTS}
