"""Where the frameworks write tensors to disk, and the switch that sends these bytes into a capture instead.

A saver (transformers, accelerate, peft, deepspeed) calls `torch.save`, `safetensors.torch.save_file` or
`torch.distributed.checkpoint.save`. Many modules hold them under names of their own, bound at import
(`transformers.modeling_utils.safe_save_file`, …), so the functions are found by identity in all loaded modules and
replaced by thin wrappers. These stay: a thread-local switch says whether they do anything but call the original, so
another thread's save, or one outside a capture, is never touched. What a saver reaches in another way (a binding in a
closure) writes its file at once, as it would without us: slower, never wrong.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeAlias

    from .._engine.capture import Capture

    Writer: TypeAlias = Callable[..., Any]


class _Switch(threading.local):
    capture: Capture | None = None


_switch = _Switch()
_wrappers: dict[int, Writer] = {}  # identity of a framework's function -> ours, which keeps it alive
_scanned = 0  # modules that were loaded when the bindings were last replaced


def capturing() -> bool:
    """Whether this thread is running a saver whose bytes go into a capture."""
    return _switch.capture is not None


@contextmanager
def redirected(capture: Capture) -> Iterator[None]:
    """Send what this thread saves below the capture's directory into the capture."""
    _replace_bindings()
    before, _switch.capture = _switch.capture, capture
    try:
        yield
    finally:
        _switch.capture = before


def _replace_bindings() -> None:
    """Replace every binding of the savers; a new scan (26 ms with 2,000 modules) only after further imports."""
    global _scanned  # noqa: PLW0603 - the modules of a process are one, too
    if len(sys.modules) == _scanned:
        return
    _add_wrappers()
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", {})
        for name, value in list(names.items()):
            wrapper = _wrappers.get(id(value))
            if wrapper is not None:
                names[name] = wrapper
    _scanned = len(sys.modules)


def _add_wrappers() -> None:
    for module_name, attribute, make in _SINKS:
        original = getattr(sys.modules.get(module_name), attribute, None)
        if original is not None and not hasattr(original, "__wrapped_by_datastates__"):
            wrapper = make(original)
            vars(wrapper)["__wrapped_by_datastates__"] = True
            _wrappers[id(original)] = wrapper


def _torch_save(original: Writer) -> Writer:
    @functools.wraps(original)
    def save(obj: object, f: Any, *args: Any, **options: Any) -> Any:
        capture = _switch.capture
        if capture is None or args or not _is_path(f) or not capture.owns(f):
            return original(obj, f, *args, **options)
        with _paused():  # what the capture itself saves is not intercepted
            return capture.torch_save(obj, f, **options)

    return save


def _save_safetensors(original: Writer) -> Writer:
    @functools.wraps(original)
    def save_file(tensors: dict[str, Any], filename: Any, metadata: dict[str, str] | None = None) -> Any:
        capture = _switch.capture
        if capture is None or not capture.owns(filename):
            return original(tensors, filename, metadata)
        with _paused():
            return capture.save_safetensors(tensors, filename, metadata)

    return save_file


def _save_distributed(original: Writer) -> Writer:
    @functools.wraps(original)
    def save(state_dict: Any, *args: Any, **options: Any) -> Any:
        capture = _switch.capture
        path = _directory_of(options)
        if capture is None or args or path is None or not capture.owns(path):
            return original(state_dict, *args, **options)
        options.pop("checkpoint_id", None)
        with _paused():
            return original(state_dict, **{**options, "storage_writer": capture.dcp_writer(path)})

    return save


def _directory_of(options: dict[str, Any]) -> Any | None:
    """Return the directory that a plain FileSystemWriter, or no writer, would write to; None for other writers."""
    writer = options.get("storage_writer")
    if writer is None:
        return options.get("checkpoint_id")
    from torch.distributed.checkpoint.filesystem import FileSystemWriter  # noqa: PLC0415 - heavy, for FSDP only

    return writer.path if type(writer) is FileSystemWriter else None


_SINKS = (
    ("torch", "save", _torch_save),
    ("safetensors.torch", "save_file", _save_safetensors),
    ("torch.distributed.checkpoint", "save", _save_distributed),
)


def _is_path(target: object) -> bool:
    """Whether a save goes to a named file: one into an open file or a buffer is its caller's business."""
    return isinstance(target, str | os.PathLike)


@contextmanager
def _paused() -> Iterator[None]:
    capture, _switch.capture = _switch.capture, None
    try:
        yield
    finally:
        _switch.capture = capture
