"""A copy of a training's configuration that resumes from the chosen checkpoint. The user's file is never changed.

LLaMA-Factory reads `resume_from_checkpoint` from a YAML or JSON file. Only that value is replaced in the copy, at its
place in the text, so comments, order and spelling stay; the file is parsed to find the place, and the result is parsed
again to be sure that nothing else changed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from slurm_ft.checkpoints.state_directory import state_directory, write_atomically
from slurm_ft.errors import SlurmFtError

KEY = "resume_from_checkpoint"
SUFFIXES = (".yaml", ".yml", ".json")
SIZE_LIMIT = 1 << 20  # bytes
NODES_LIMIT = 100_000  # values, each alias counted as all that it stands for


def resuming_copy(config: Path, output_dir: Path, checkpoint: Path | None) -> Path:
    """Write the copy among our notes about the output directory and return its path; None: start from scratch.

    Raises SlurmFtError.
    """
    target = state_directory(output_dir.absolute()) / config.name
    try:
        with config.open("rb") as file:
            text = file.read(SIZE_LIMIT + 1).decode("utf-8-sig")
        changed = rewritten(text, None if checkpoint is None else str(checkpoint))
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, changed)
    except (OSError, UnicodeDecodeError) as error:
        raise SlurmFtError(
            f"cannot copy {config} to {target}: {error}", "Give a readable configuration file"
        ) from error
    except ConfigError as error:
        raise SlurmFtError(f"{config}: {error}", f"Set {KEY} on the command line instead") from error
    return target


class ConfigError(Exception):
    """The text is no configuration in which the key can be set."""


def rewritten(text: str, checkpoint: str | None) -> str:
    """Return the text with the key set; None sets null. Raises ConfigError."""
    if len(text) > SIZE_LIMIT:
        raise ConfigError(f"it has more than {SIZE_LIMIT} bytes")
    value = "null" if checkpoint is None else json.dumps(checkpoint, ensure_ascii=False)  # a string in both languages
    try:
        root = yaml.compose(text)
        _refuse_bomb(root)
        changed = _with_value(text, root, value)
        same = yaml.safe_load(changed) == {**yaml.safe_load(text), KEY: checkpoint}
    except yaml.YAMLError as error:
        raise ConfigError(f"it cannot be parsed: {error}") from error
    except RecursionError:
        raise ConfigError("it is nested too deeply, or an alias stands for itself") from None
    if not same:
        raise ConfigError(f"{KEY} cannot be set in it")
    return changed


def _refuse_bomb(root: yaml.Node | None) -> None:
    """A few lines of aliases can stand for more values than anybody can load or compare. Raises ConfigError."""
    sizes: dict[int, int] = {}

    def size(node: yaml.Node) -> int:
        if id(node) not in sizes:
            parts = [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else node.value
            sizes[id(node)] = 1 if isinstance(node, yaml.ScalarNode) else 1 + sum(map(size, parts))
        return sizes[id(node)]

    if root is not None and size(root) > NODES_LIMIT:
        raise ConfigError(f"its aliases stand for more than {NODES_LIMIT} values")


def _with_value(text: str, root: Any, value: str) -> str:
    if not isinstance(root, yaml.MappingNode):
        raise ConfigError("no mapping of options")
    found = [node for key, node in root.value if key.value == KEY]
    for node in reversed(found):
        start, end = node.start_mark.index, node.end_mark.index
        text = text[:start] + (" " if text[start - 1] == ":" else "") + value + text[end:]
    return text if found else _with_line(text, root, value)


def _with_line(text: str, root: yaml.MappingNode, value: str) -> str:
    """Add the key: at the end, or in a JSON object behind its brace."""
    if root.flow_style:
        start = root.start_mark.index + 1
        return f'{text[:start]}"{KEY}": {value}{", " if root.value else ""}{text[start:]}'
    end = "" if text.endswith("\n") else "\n"
    return f"{text}{end}{' ' * root.start_mark.column}{KEY}: {value}\n"
