"""Writes what the training scripts need and no network gives: a tiny random Llama with a tokenizer, and a text.

    python tiny_llama.py DIRECTORY

makes `DIRECTORY/model` for `from_pretrained` and `DIRECTORY/{train,validation}.txt` for `load_dataset("text")`. The
same bytes every time.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

WORDS = tuple(
    "the a old quiet grey long river harbour letter road stone boat sailor child clock cat watches paints".split()
)


def sentences(count: int, seed: int) -> list[str]:
    """Return `count` lines of random words."""
    generator = random.Random(seed)
    return [" ".join(generator.choices(WORDS, k=generator.randint(6, 12))) for _ in range(count)]


def tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of whole words, with an end-of-sequence token and no padding token, as Llama's has none."""
    vocabulary = {word: number for number, word in enumerate(["<unk>", "<s>", "</s>", *WORDS])}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>", bos_token="<s>", eos_token="</s>")


def model(dropout: float = 0.2) -> LlamaForCausalLM:
    """Return a two-layer Llama with the same random weights every time; dropout makes the random state matter."""
    torch.manual_seed(5)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        attention_dropout=dropout,
        bos_token_id=1,
        eos_token_id=2,
    )
    return LlamaForCausalLM(config)


def write(directory: Path) -> None:
    """Write the model's folder and the two texts."""
    model().save_pretrained(directory / "model")
    tokenizer().save_pretrained(directory / "model")
    (directory / "train.txt").write_text("\n".join(sentences(96, seed=1)) + "\n")
    (directory / "validation.txt").write_text("\n".join(sentences(8, seed=2)) + "\n")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
