"""A transformers Trainer that resumes as the vendor's document has it. Usage: trainer.py OUTPUT_DIR STEPS"""

from __future__ import annotations

import os
import sys

import torch
from tells import Tells
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

torch.manual_seed(1)
model = LlamaForCausalLM(
    LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2)
)
data = [{"input_ids": (tokens := torch.randint(0, 64, (16,))), "labels": tokens} for _ in range(64)]
arguments = TrainingArguments(
    output_dir=sys.argv[1],
    max_steps=int(sys.argv[2]),
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
