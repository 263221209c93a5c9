"""Compares two checkpoints of one step, the framework's own and a concurrent one: files, tensors, values, readers."""

from __future__ import annotations

import json
import re
from enum import Enum
from pathlib import Path
from typing import Any

import numpy
import torch
from safetensors.torch import load_file

OURS = {"MANIFEST.json", "COMMITTED", "VALIDATION.json"}  # what a concurrent checkpoint has besides

# In trainer_state.json the flags of the TrainerControl are those of the moment of the save, and paths name a directory.
MOMENTARY = {"stateful_callbacks"}
MEASURED = re.compile("runtime|per_second")


def differences(stock: Path, ours: Path) -> list[str]:
    """Return what differs, one sentence each."""
    names, our_names = _files(stock), _files(ours) - OURS
    found = [f"missing: {name}" for name in sorted(names - our_names)]
    found += [f"extra: {name}" for name in sorted(our_names - names)]
    for name in sorted(names & our_names):
        found += [f"{name}: {what}" for what in _file_differences(stock / name, ours / name)]
    return found


def _files(directory: Path) -> set[str]:
    return {path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()}


def _file_differences(stock: Path, ours: Path) -> list[str]:
    if stock.name == "trainer_state.json":
        return _values(_trainer_state(stock), _trainer_state(ours))
    if stock.suffix in (".pt", ".pth", ".bin"):
        return [*_readable_alike(stock, ours), *_values(_load(stock), _load(ours))]
    if stock.suffix == ".safetensors":
        return _values(load_file(stock), load_file(ours))
    return [] if stock.read_bytes() == ours.read_bytes() else ["other bytes"]


def _trainer_state(path: Path) -> dict[str, Any]:
    state = json.loads(path.read_text())
    for entry in state["log_history"]:
        for key in [key for key in entry if MEASURED.search(key)]:
            del entry[key]
    return {key: value for key, value in state.items() if key not in MOMENTARY}


def _load(path: Path) -> Any:
    return torch.load(path, weights_only=False)


def _readable_alike(stock: Path, ours: Path) -> list[str]:
    """Whether torch.load(weights_only=True) accepts a file is the framework's doing, and must stay so."""
    verdicts = [_refused(stock), _refused(ours)]
    return [] if verdicts[0] == verdicts[1] else [f"weights_only refuses stock: {verdicts[0]}, ours: {verdicts[1]}"]


def _refused(path: Path) -> bool:
    try:
        torch.load(path, weights_only=True, mmap=True)
    except Exception:
        return True
    return False


def _values(left: Any, right: Any, place: str = "") -> list[str]:
    if type(left) is not type(right):
        return [f"{place} is {type(left).__name__} and {type(right).__name__}"]
    if isinstance(left, torch.Tensor):
        same = left.dtype == right.dtype and left.shape == right.shape and torch.equal(left, right)
        return [] if same else [f"{place} differs"]
    parts, our_parts = _parts(left), _parts(right)
    if parts is None or our_parts is None:
        return [] if left is right or numpy.all(left == right) else [f"{place}: {left!r} and {right!r}"[:200]]
    if list(map(str, parts)) != list(map(str, our_parts)):
        return [f"{place} has other keys"]
    return [what for key in parts for what in _values(parts[key], our_parts[key], f"{place}/{key}")]


def _parts(value: Any) -> dict[Any, Any] | None:
    if isinstance(value, dict):
        return value
    if isinstance(value, list | tuple):
        return dict(enumerate(value))
    return None if isinstance(value, Enum | type) else getattr(value, "__dict__", None)
