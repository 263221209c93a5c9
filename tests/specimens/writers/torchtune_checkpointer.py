"""torchtune's checkpointer as its full fine-tuning recipe calls it: once per epoch, with one shared recipe state.

python torchtune_checkpointer.py write OUTPUT_DIR
python torchtune_checkpointer.py resume OUTPUT_DIR resume_from_checkpoint=True checkpointer.checkpoint_dir=… …
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import torch
from torchtune import training
from torchtune.training import FullModelHFCheckpointer
from transformers import LlamaConfig, LlamaForCausalLM

EPOCHS = (9, 10)


def base_model(directory):
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=8,
        hidden_size=4,
        intermediate_size=4,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=8,
    )
    LlamaForCausalLM(config).save_pretrained(directory)


def checkpointer(checkpoint_dir, files, output_dir, *, resume):
    return FullModelHFCheckpointer(
        checkpoint_dir=checkpoint_dir,
        checkpoint_files=files,
        model_type="LLAMA3",
        output_dir=output_dir,
        should_load_recipe_state=resume,
    )


def write(output_dir):
    with tempfile.TemporaryDirectory() as base:
        base_model(base)
        writer = checkpointer(base, ["model.safetensors"], output_dir, resume=False)
        weights = writer.load_checkpoint()[training.MODEL_KEY]
        optimizer = torch.optim.AdamW([torch.nn.Parameter(weight) for weight in weights.values()])
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        for epoch in EPOCHS:
            state = {
                training.MODEL_KEY: dict(weights),
                training.OPT_KEY: {"state": {0: optimizer.state_dict()["state"][0]}, "param_groups": [{"lr": 1e-3}]},
                training.SEED_KEY: 0,
                training.EPOCHS_KEY: epoch + 1,  # the recipe counts the epochs that are behind it
                training.TOTAL_EPOCHS_KEY: 12,
                training.MAX_STEPS_KEY: None,
            }
            writer.save_checkpoint(state, epoch=epoch, intermediate_checkpoint=True)
    return 0, EPOCHS[-1]


def resume(output_dir, options):
    given = dict(option.split("=", 1) for option in options)
    assert given["resume_from_checkpoint"] == "True", given
    files = given["checkpointer.checkpoint_files"].strip("[]").split(",")
    with tempfile.TemporaryDirectory() as base:
        base_model(base)
        loaded = checkpointer(base, files, output_dir, resume=True).load_checkpoint()
    return loaded[training.EPOCHS_KEY] - 1, loaded[training.EPOCHS_KEY] - 1


def main(verb, output_dir, *options):
    first, last = write(output_dir) if verb == "write" else resume(Path(output_dir), options)
    print(json.dumps({"first_step": first, "last_step": last}))


if __name__ == "__main__":
    main(*sys.argv[1:])
