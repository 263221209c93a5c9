# The script of our users' document, as far as it goes: their typing errors (an unquoted option, lost commas and
# indents) are mended, what a test needs to be small and offline comes from the environment. Everything that has to do
# with concurrent checkpointing stands as it stands there.
#
# Written based on transformers==5.10.2.

import argparse
import os
import time
from pathlib import Path

import torch
from datasets import load_dataset
from datastates.llm import DecoratedCheckpointing
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--local_rank",
        type=int,
        default=-1,
        help="local rank passed from distributed launcher (Deepspeed, torchrun, etc.)",
    )
    return parser.parse_args()


class SlowSteps(TrainerCallback):
    def on_step_begin(self, args, state, control, **kwargs):
        time.sleep(float(os.environ["SLOW_STEPS"]))


if __name__ == "__main__":
    args = parse_args()

    data = Path(os.environ["TINY_LLAMA"])  # what tiny_llama.py wrote
    model_path = str(data / "model")

    # Load tokenizer and model
    tokenizer = AutoTokenizer.from_pretrained(model_path, local_files_only=True)

    # Set pad token to EOS if not already defined
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token

    dataset = load_dataset(
        "text",
        data_files={name: str(data / f"{name}.txt") for name in ("train", "validation")},
        cache_dir=str(data / "datasets"),
    )

    # Tokenization function
    def tokenize_function(examples):
        return tokenizer(examples["text"], truncation=True, max_length=16, padding="max_length")

    # Tokenize the dataset
    tokenized_dataset = dataset.map(tokenize_function, batched=True, remove_columns=["text"])

    train_dataset = tokenized_dataset["train"]
    valid_dataset = tokenized_dataset["validation"]

    data_collator = DataCollatorForLanguageModeling(
        tokenizer=tokenizer,
        mlm=False,  # Causal LM (not masked LM)
    )

    training_args = TrainingArguments(
        output_dir=os.environ["OUTPUT_DIR"],
        num_train_epochs=1,
        per_device_train_batch_size=2,  # Adjust based on GPU memory
        gradient_accumulation_steps=4,  # Effective batch size = batch_size * gradient_accumulation_steps
        save_strategy="steps",
        save_steps=4,
        logging_steps=2,
        eval_strategy="steps",
        eval_steps=3,
        bf16="BF16" in os.environ,  # Enable BF16 mixed precision (use fp16 if unsupported)
        deepspeed=os.environ.get("DS_CONFIG"),  # Path to DeepSpeed config file
        report_to="none",
        use_cpu=not torch.cuda.is_available(),
    )

    model = AutoModelForCausalLM.from_pretrained(
        model_path, local_files_only=True, low_cpu_mem_usage=True, device_map=None
    )

    # Initialize Trainer
    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=train_dataset,
        eval_dataset=valid_dataset,  # Optional: validation set for evaluation
        processing_class=tokenizer,
        data_collator=data_collator,
    )

    # ADD configuration for Concurrent CHECKPOINT ENGINE
    config = {
        "host_cache_size": 50,
        "parser_threads": 1,
        "pin_host_cache": True,
        "trainer": trainer,
    }

    if "SLOW_STEPS" in os.environ:  # seconds: for tests that interrupt it
        trainer.add_callback(SlowSteps())

    ckpt_engine = DecoratedCheckpointing(runtime_config=config, rank=args.local_rank)

    resume_from_checkpoint = False

    if os.getenv("CKPT_LAST_STEP") is not None:
        resume_from_checkpoint = True

    trainer.train(resume_from_checkpoint=resume_from_checkpoint)
