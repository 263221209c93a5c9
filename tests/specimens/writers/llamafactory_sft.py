"""LLaMA-Factory fine-tunes a tiny model with LoRA: `llamafactory-cli train sft.yaml`, as the user's document has it.

    python llamafactory_sft.py write DIRECTORY                 # makes model, data and sft.yaml below DIRECTORY/input
    python llamafactory_sft.py resume DIRECTORY [sft.yaml] [name=value …]   # trains two steps more

Checkpoints lie in DIRECTORY/output. LLaMA-Factory imports torchaudio, whose wheels do not fit torch's CPU build: an
empty module stands in for it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

YAML = """\
### model
model_name_or_path: {input}/model

### method
stage: sft
do_train: true
finetuning_type: lora
lora_rank: 1
lora_target: q_proj

### dataset
dataset: tiny
dataset_dir: {input}/data
template: empty
cutoff_len: 16

### output
output_dir: {output}
save_steps: 1
save_total_limit: 2
overwrite_output_dir: true   # as in all examples that LLaMA-Factory ships
report_to: none
max_steps: {steps}
per_device_train_batch_size: 1

### train
resume_from_checkpoint: null # {output} in the user's document
"""

WORDS = ["<unk>", "<s>", "</s>", "<pad>", *"abcdefgh"]


def make_input(directory):
    from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: PLC0415
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast  # noqa: PLC0415

    config = LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=4,
        intermediate_size=4,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        max_position_embeddings=32,
    )
    LlamaForCausalLM(config).save_pretrained(directory / "model")
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(directory / "model")
    data = directory / "data"
    data.mkdir()
    rows = [{"instruction": "a b c", "input": "", "output": "d e f"}] * 16
    (data / "tiny.json").write_text(json.dumps(rows))
    (data / "dataset_info.json").write_text(json.dumps({"tiny": {"file_name": "tiny.json"}}))


def train(config, options=()):
    with tempfile.TemporaryDirectory() as stub:
        Path(stub, "torchaudio.py").touch()
        environment = os.environ | {"PYTHONPATH": stub, "DISABLE_VERSION_CHECK": "1", "CUDA_VISIBLE_DEVICES": ""}
        cli = Path(sys.executable).with_name("llamafactory-cli")
        command = [sys.executable, str(cli), "train", str(config), *options]
        return subprocess.run(
            command, env=environment, check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ).stdout


def first_step(log):
    lines = [line for line in log.splitlines() if "Resuming training from checkpoint with epoch" in line]
    return int(lines[0].split()[-1]) if lines else 0


def main(verb, directory, *options):
    root = Path(directory).absolute()
    config = root / "input" / "sft.yaml"
    if verb == "write":
        make_input(root / "input")
        config.write_text(YAML.format(input=root / "input", output=root / "output", steps=10))
        log = train(config)
    else:
        if options and options[0].endswith(".yaml"):
            config, options = Path(options[0]), options[1:]
        log = train(config, ["max_steps=12", *options])
    last = json.loads((root / "output" / "trainer_state.json").read_text())["global_step"]
    print(json.dumps({"first_step": first_step(log), "last_step": last}))


if __name__ == "__main__":
    main(*sys.argv[1:])
