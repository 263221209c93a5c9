"""The transformers Trainer writes its checkpoints and resumes from one: plain, LoRA, DDP and DeepSpeed ZeRO.

    python transformers_trainer.py MODE write OUTPUT_DIR
    python transformers_trainer.py MODE resume OUTPUT_DIR

MODE is plain, lora, zero1, zero2 or zero3; DDP is `plain` under torchrun. `resume` does what the user's scripts do:
`if os.getenv("CKPT_LAST_STEP") is not None: resume_from_checkpoint = True`.
"""

from __future__ import annotations

import json
import os
import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

SAVED_STEPS = (9, 10)  # by name, checkpoint-9 comes after checkpoint-10
LAST_STEP = 12


class SaveAt(TrainerCallback):
    def __init__(self, steps):
        self.steps = steps
        self.first = None

    def on_train_begin(self, args, state, control, **kwargs):
        self.first = state.global_step

    def on_step_end(self, args, state, control, **kwargs):
        control.should_save = state.global_step in self.steps
        return control


def tiny_model(mode):
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=16,
            hidden_size=4,
            intermediate_size=4,
            num_hidden_layers=1,
            num_attention_heads=1,
            num_key_value_heads=1,
            max_position_embeddings=8,
        )
    )
    if mode != "lora":
        return model
    from peft import LoraConfig, get_peft_model  # noqa: PLC0415 - only this mode needs it

    return get_peft_model(model, LoraConfig(r=1, target_modules=["q_proj"], task_type="CAUSAL_LM"))


def samples():
    rows = torch.arange(32 * 4).reshape(32, 4) % 16
    return [{"input_ids": row, "labels": row} for row in rows]


def deepspeed_config(stage):
    return {
        "train_micro_batch_size_per_gpu": 1,
        "zero_optimization": {"stage": stage, "stage3_gather_16bit_weights_on_model_save": True},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
        "zero_allow_untested_optimizer": True,
    }


def arguments(mode, output_dir, last):
    config = deepspeed_config(int(mode[-1])) if mode.startswith("zero") else None
    return TrainingArguments(
        output_dir=output_dir,
        max_steps=last,
        per_device_train_batch_size=1,
        learning_rate=1e-3,
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        deepspeed=config,
    )


def main(mode, verb, output_dir):
    saver = SaveAt(SAVED_STEPS if verb == "write" else ())
    last = SAVED_STEPS[-1] if verb == "write" else LAST_STEP
    trainer = Trainer(
        model=tiny_model(mode), args=arguments(mode, output_dir, last), train_dataset=samples(), callbacks=[saver]
    )
    resume = os.getenv("CKPT_LAST_STEP") is not None
    trainer.train(resume_from_checkpoint=resume if verb == "resume" else None)
    if trainer.args.process_index == 0:
        print(json.dumps({"first_step": saver.first, "last_step": trainer.state.global_step}))


if __name__ == "__main__":
    main(*sys.argv[1:])
