"""What the Trainer of these tests says in its log, and how it dies with its GPU."""

from __future__ import annotations

import time
from pathlib import Path

from lost_gpu import die_if_lost
from transformers import TrainerCallback


class Tells(TrainerCallback):
    """Says what has been saved; a step takes a tenth of a second, so that a test can meet it."""

    def on_train_begin(self, args, state, control, **_):
        print(f"starts behind {state.global_step}", flush=True)

    def on_step_begin(self, args, state, control, **_):
        die_if_lost(Path(args.output_dir), "checkpoint-*")

    def on_step_end(self, args, state, control, **_):
        time.sleep(0.1)

    def on_save(self, args, state, control, **_):
        print(f"saved {state.global_step}", flush=True)

    def on_train_end(self, args, state, control, **_):
        print(f"training complete: {state.global_step} steps", flush=True)
