"""Python imports this at its start. VeRL's PPO needs Ray and GPUs: `-m verl.trainer.main_ppo` runs ours instead."""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from pathlib import Path


class Instead(importlib.abc.MetaPathFinder):
    """Finds the stand-in under the name of VeRL's own entry point; all else of VeRL is VeRL's."""

    def find_spec(self, fullname, path, target=None):
        if fullname != "verl.trainer.main_ppo":
            return None
        return importlib.util.spec_from_file_location(fullname, Path(__file__).parents[2] / "verl_ppo.py")


sys.meta_path.insert(0, Instead())
