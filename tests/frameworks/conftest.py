"""Real trainings: transformers, accelerate, deepspeed and peft on the CPU, in one of the two sets of versions.

`make test-frameworks` makes both sets and runs these tests in each.
"""

from __future__ import annotations

import importlib.util
import sys

from launching import VENDOR

# The development environment has none of it. `make test-frameworks` fails if nothing is collected.
collect_ignore_glob = [] if importlib.util.find_spec("deepspeed") else ["test_*.py"]

sys.path.insert(0, str(VENDOR))  # as PYTHONPATH=$CHECKPOINT_VENDOR does
