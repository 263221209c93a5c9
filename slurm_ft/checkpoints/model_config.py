"""Do the shapes of a model's weights fit its config.json? A mix of two saves shows here."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from .errors import UnreadableCheckpointError
from .finding import Finding, inconsistent
from .formats.safetensors import Tensor, read_header
from .formats.source import DamagedError, opened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .files import Files

CONFIG = "config.json"
EMBEDDING = re.compile(r"(?:^|\.)(?:embed_tokens|wte|word_embeddings)\.weight$")
LAYER = re.compile(r"(?:^|\.)(?:layers|h|layer)\.(\d+)\.")


def check_config(files: Files) -> Iterator[Finding]:
    """Compare the embedding's shape and the number of layers. Says nothing where config or weights do not tell."""
    config = files.read_json(CONFIG)
    tensors = [
        tensor for name in files.matching("model*.safetensors") if "/" not in name for tensor in _read(files, name)
    ]
    if not isinstance(config, dict) or not tensors or isinstance(config.get("vision_config"), dict):
        return  # a model of several towers has several of each
    text = config.get("text_config")
    yield from _embedding({**config, **(text if isinstance(text, dict) else {})}, tensors)


def _embedding(config: dict[str, Any], tensors: list[Tensor]) -> Iterator[Finding]:
    wanted = (config.get("vocab_size"), config.get("hidden_size") or config.get("n_embd"))
    for tensor in tensors:
        if EMBEDDING.search(tensor.name) and all(isinstance(size, int) for size in wanted) and len(tensor.shape) == 2:
            if tensor.shape != wanted:
                yield inconsistent(f"{tensor.name} has the shape {tensor.shape} where {CONFIG} says {wanted}")
            break
    layers = {int(match[1]) for tensor in tensors if (match := LAYER.search(tensor.name))}
    expected = config.get("num_hidden_layers") or config.get("n_layer")
    if layers and isinstance(expected, int) and max(layers) + 1 < expected:
        yield inconsistent(f"{max(layers) + 1} layers where {CONFIG} says {expected}")


def _read(files: Files, name: str) -> tuple[Tensor, ...]:
    """A damaged shard is its own finding."""
    try:
        with opened(files.location(name), name) as source:
            header = read_header(source)
    except (DamagedError, FileNotFoundError):
        return ()
    except OSError as error:
        raise UnreadableCheckpointError(files.location(name), error) from error
    return header.tensors if header else ()
