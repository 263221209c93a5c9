"""MindSpore's Model.train with its ModelCheckpoint callback. Usage: mindspore_loop.py OUTPUT_DIR STEPS

A save is an epoch of five steps, so CKPT_LAST_STEP counts what its file names count.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from pathlib import Path

import mindspore
import numpy as np
from lost_gpu import die_if_lost
from mindspore import nn
from mindspore.dataset import NumpySlicesDataset
from mindspore.train import Callback, CheckpointConfig, Model, ModelCheckpoint

directory, steps = Path(sys.argv[1]), int(sys.argv[2])
STEPS_OF_EPOCH = 5


class Tells(Callback):
    """Dies with the GPU, and says what has been saved: behind ModelCheckpoint, at the end of each epoch."""

    def step_begin(self, run_context):
        die_if_lost(directory, "net*.ckpt")
        time.sleep(0.1)

    def epoch_end(self, run_context):
        for path in directory.glob("net*.ckpt"):
            path.chmod(path.stat().st_mode | stat.S_IWUSR)  # MindSpore makes them read-only; a disk knows no such thing
        print(f"saved {before + run_context.original_args().cur_epoch_num * STEPS_OF_EPOCH}", flush=True)


mindspore.set_device("CPU")
mindspore.set_seed(0)
net = nn.Dense(4, 2)
optimizer = nn.Momentum(net.trainable_params(), learning_rate=0.01, momentum=0.9)
rows = {"data": np.ones((2 * STEPS_OF_EPOCH, 4), np.float32), "label": np.zeros((2 * STEPS_OF_EPOCH, 2), np.float32)}
data = NumpySlicesDataset(rows, shuffle=False).batch(2)
before = 0
if "CKPT_LAST_STEP" in os.environ:
    parameters = mindspore.load_checkpoint(os.environ["CKPT_LAST_PATH"])
    mindspore.load_param_into_net(net, parameters)
    mindspore.load_param_into_net(optimizer, parameters)
    before = int(os.environ["CKPT_LAST_STEP"])
    print(f"starts behind {before}", flush=True)
config = CheckpointConfig(
    save_checkpoint_steps=STEPS_OF_EPOCH, append_info=[{"epoch_num": before // STEPS_OF_EPOCH, "step_num": before}]
)
save = ModelCheckpoint(prefix="net", directory=str(directory), config=config)
Model(net, nn.MSELoss(), optimizer).train((steps - before) // STEPS_OF_EPOCH, data, callbacks=[save, Tells()])
print(f"training complete: {steps} steps", flush=True)
