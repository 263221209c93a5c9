"""MindSpore's Model.train with its ModelCheckpoint callback, as the user's document has it.

python mindspore_train.py write OUTPUT_DIR
python mindspore_train.py resume OUTPUT_DIR     # load_checkpoint($CKPT_LAST_PATH)
"""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path

import mindspore
import numpy as np
from mindspore import nn
from mindspore.dataset import NumpySlicesDataset
from mindspore.train import CheckpointConfig, Model, ModelCheckpoint


def training():
    mindspore.set_seed(0)
    net = nn.Dense(4, 2)
    optimizer = nn.Momentum(net.trainable_params(), learning_rate=0.01, momentum=0.9)
    data = NumpySlicesDataset(
        {"data": np.ones((8, 4), np.float32), "label": np.zeros((8, 2), np.float32)}, shuffle=False
    ).batch(2)
    return net, optimizer, data


def write(output_dir):
    """Train ten epochs, then restart and train one more: MindSpore counts it as epoch 1 of the files `net_1-…`."""
    net, optimizer, data = training()
    model = Model(net, nn.MSELoss(), optimizer)
    for epochs, behind in ((10, 0), (1, 10)):
        config = CheckpointConfig(
            save_checkpoint_steps=data.get_dataset_size(),
            keep_checkpoint_max=2,
            append_info=[{"epoch_num": behind, "step_num": behind * data.get_dataset_size()}],
        )
        model.train(epochs, data, callbacks=[ModelCheckpoint(prefix="net", directory=output_dir, config=config)])
    for path in Path(output_dir).iterdir():
        path.chmod(path.stat().st_mode | stat.S_IWUSR)  # MindSpore makes them read-only
    return 0, 11


def resume():
    parameters = mindspore.load_checkpoint(os.environ["CKPT_LAST_PATH"])
    net, optimizer, _ = training()
    missing, _ = mindspore.load_param_into_net(net, parameters)
    assert not missing, missing
    mindspore.load_param_into_net(optimizer, parameters)
    epoch = int(parameters["epoch_num"])
    return epoch, epoch


def main(verb, output_dir):
    mindspore.set_device("CPU")
    first, last = write(output_dir) if verb == "write" else resume()
    print(json.dumps({"first_step": first, "last_step": last}))


if __name__ == "__main__":
    main(*sys.argv[1:])
