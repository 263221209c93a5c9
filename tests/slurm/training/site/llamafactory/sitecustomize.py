"""Python imports this at its start. LLaMA-Factory takes no callback from its configuration: it gets ours here."""

from __future__ import annotations

import os
import sys
from pathlib import Path

if "LOCAL_RANK" in os.environ:  # a rank, not a launcher
    sys.path.append(str(Path(__file__).parents[2]))
    import transformers
    from tells import Tells

    plain = transformers.Trainer.__init__

    def with_tells(self, *arguments, **options):
        plain(self, *arguments, **options)
        self.add_callback(Tells())

    transformers.Trainer.__init__ = with_tells
