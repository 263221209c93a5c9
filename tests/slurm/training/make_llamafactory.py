"""Write what `llamafactory-cli train` needs: a tiny model, data, and the configuration.

Usage: make_llamafactory.py DIRECTORY STEPS WRITERS, the last where the specimens' writers are: theirs makes the model.
"""

from __future__ import annotations

import sys
from pathlib import Path

directory, steps = Path(sys.argv[1]), sys.argv[2]
sys.path.insert(0, sys.argv[3])
from llamafactory_sft import YAML, make_input  # noqa: E402

make_input(directory / "input")
text = YAML.format(input=directory / "input", output=directory / "out", steps=steps)
text = text.replace("save_steps: 1\n", "save_steps: 5\nlogging_steps: 5\n").replace("save_total_limit: 2\n", "")
(directory / "train.yaml").write_text(text + "\nuse_cpu: true\n")
