"""LLaMA-Factory v1's checkpoint coordinator, with a trainer that has what the coordinator asks for.

python llamafactory_v1.py write OUTPUT_DIR
python llamafactory_v1.py resume OUTPUT_DIR [resume_from_checkpoint=PATH]     # default auto
"""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import torch
from llamafactory.v1.core.utils.checkpoint import TrainingCheckpointCoordinator
from transformers import LlamaConfig, LlamaForCausalLM

SAVED_STEPS = (9, 10)


class Batches:
    """The data loader: all that is saved of it is how far it is."""

    def __init__(self):
        self.given = 0

    def state_dict(self):
        return {"given": self.given}

    def load_state_dict(self, state):
        self.given = state["given"]


def trainer_of(output_dir):
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=8,
            hidden_size=4,
            intermediate_size=4,
            num_hidden_layers=1,
            num_attention_heads=1,
            num_key_value_heads=1,
            max_position_embeddings=8,
        )
    )
    optimizer = torch.optim.AdamW(model.parameters())
    arguments = {"output_dir": output_dir, "dist_config": None, "save_ckpt_as_hf": False, "save_total_limit": 2}
    return SimpleNamespace(
        args=SimpleNamespace(**arguments),
        model=model,
        optimizer=optimizer,
        lr_scheduler=torch.optim.lr_scheduler.StepLR(optimizer, 1),
        train_batch_generator=Batches(),
        renderer=SimpleNamespace(processor=SimpleNamespace(save_pretrained=lambda _: None)),
        device=torch.device("cpu"),
        global_step=0,
        num_training_steps=12,
    )


def one_step(trainer):
    tokens = torch.ones(1, 4, dtype=torch.long)
    trainer.model(input_ids=tokens, labels=tokens).loss.backward()
    trainer.optimizer.step()
    trainer.optimizer.zero_grad()
    trainer.lr_scheduler.step()
    trainer.train_batch_generator.given += 1
    trainer.global_step += 1


def main(verb, output_dir, *options):
    trainer = trainer_of(output_dir)
    coordinator = TrainingCheckpointCoordinator(trainer)
    first = 0
    if verb == "resume":
        coordinator.resume(options[0].partition("=")[2] if options else "auto")
        first = trainer.global_step
        assert trainer.train_batch_generator.given == first
    while verb == "write" and trainer.global_step < SAVED_STEPS[-1]:
        one_step(trainer)
        if trainer.global_step in SAVED_STEPS:
            coordinator.save(epoch=0)
    print(json.dumps({"first_step": first, "last_step": trainer.global_step}))


if __name__ == "__main__":
    main(*sys.argv[1:])
