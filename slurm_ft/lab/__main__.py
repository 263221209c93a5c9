"""`python -m slurm_ft.lab up|down|status`: the same as `slurm-ft lab …`."""

from __future__ import annotations

import sys

from slurm_ft.lab.command import main

if __name__ == "__main__":
    sys.exit(main())
