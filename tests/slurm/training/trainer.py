"""A transformers Trainer that resumes as the vendor's document has it. Usage: trainer.py OUTPUT_DIR STEPS"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
from lost_gpu import die_if_lost
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

directory, steps = Path(sys.argv[1]), int(sys.argv[2])


class Tells(TrainerCallback):
    """Says what has been saved, and dies with the GPU."""

    def on_train_begin(self, args, state, control, **_):
        print(f"starts behind {state.global_step}", flush=True)

    def on_step_begin(self, args, state, control, **_):
        die_if_lost(directory, "checkpoint-*")

    def on_step_end(self, args, state, control, **_):
        time.sleep(0.1)

    def on_save(self, args, state, control, **_):
        print(f"saved {state.global_step}", flush=True)


torch.manual_seed(1)
model = LlamaForCausalLM(
    LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2)
)
data = [{"input_ids": (tokens := torch.randint(0, 64, (16,))), "labels": tokens} for _ in range(64)]
arguments = TrainingArguments(
    output_dir=str(directory),
    max_steps=steps,
    save_steps=5,
    per_device_train_batch_size=2,
    report_to="none",
    use_cpu=True,
    disable_tqdm=True,
)
trainer = Trainer(model=model, args=arguments, train_dataset=data, callbacks=[Tells()])
resume_from_checkpoint = False
if os.getenv("CKPT_LAST_STEP") != None:  # noqa: E711 - as the document has it
    resume_from_checkpoint = True
trainer.train(resume_from_checkpoint=resume_from_checkpoint)
print(f"training complete: {trainer.state.global_step} steps", flush=True)
