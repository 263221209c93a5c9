"""The object tree of a pickle, with inert stand-ins for everything that is no plain Python value.

No class or function that a pickle names is looked up, imported or called, so reading one executes nothing. The
interpreter is Python's own in its pure-Python form: the C one reserves memory for whatever index a memo entry names.
"""

from __future__ import annotations

import io
import pickle
from dataclasses import dataclass
from typing import IO, Any, ClassVar

MOST_PICKLE_BYTES = 16 << 20  # a tree takes some ten times its pickle; the memory stays below 300 MB

# torch's storage classes and dtypes -> safetensors' names for the dtype (torch/storage.py, torch/serialization.py).
DTYPES = {
    "DoubleStorage": "F64", "float64": "F64", "FloatStorage": "F32", "float32": "F32", "HalfStorage": "F16",
    "float16": "F16", "BFloat16Storage": "BF16", "bfloat16": "BF16", "LongStorage": "I64", "int64": "I64",
    "IntStorage": "I32", "int32": "I32", "ShortStorage": "I16", "int16": "I16", "CharStorage": "I8", "int8": "I8",
    "ByteStorage": "U8", "uint8": "U8", "BoolStorage": "BOOL", "bool": "BOOL", "UntypedStorage": "U8",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "ComplexFloatStorage": "C64", "complex64": "C64",
}  # fmt: skip
ITEM_BYTES = {
    "F64": 8, "I64": 8, "U64": 8, "C64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2,
    "I8": 1, "U8": 1, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1,
}  # fmt: skip


class OpaqueError(Exception):
    """The pickle cannot be followed: too large, damaged, or of a kind that this reader does not know."""


class Stub:
    """An object of a class that was not loaded. What the pickle gave it is kept, as data."""

    path = ""  # module and name of its class
    args: tuple[Any, ...]
    state: Any
    items: list[Any]

    def __new__(cls, *args: Any, **_options: Any) -> Stub:  # noqa: D102 - as its class would be called
        stub = object.__new__(cls)
        stub.args, stub.state, stub.items = args, None, []
        return stub

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def append(self, item: Any) -> None:
        """Keep an item of a list-like or set-like object."""
        self.items.append(item)

    add = append

    def __setitem__(self, key: Any, value: Any) -> None:
        self.items.append((key, value))

    def get(self, name: str, default: Any = None) -> Any:
        """Return one attribute of the object's state: a dict, or the pair that objects with slots have."""
        parts = self.state if isinstance(self.state, tuple) else (self.state,)
        found = (part[name] for part in parts if isinstance(part, dict) and name in part)
        return next(found, default)


@dataclass(frozen=True, eq=False)
class StorageStub:
    """The bytes that a tensor lies in: the record `data/<key>` of the archive."""

    dtype: str
    key: str
    numel: int


@dataclass(frozen=True, eq=False)
class TensorStub:
    """A tensor, without its numbers."""

    storage: StorageStub
    shape: tuple[int, ...]
    dtype: str


class _Mapping(dict[Any, Any]):
    """An OrderedDict or defaultdict; attributes that torch hangs onto one, such as `_metadata`, are dropped."""

    def __setstate__(self, state: Any) -> None:
        """Drop the attributes."""


class _StubUnpickler(pickle._Unpickler):
    """Resolves a name to a stub, or to one of a few harmless values."""

    # A byte array of a size that the pickle names would be filled with zeros before a byte of it is read.
    dispatch: ClassVar[dict[int, Any]] = {
        code: load for code, load in pickle._Unpickler.dispatch.items() if code != pickle.BYTEARRAY8[0]
    }

    def find_class(self, module: str, name: str) -> Any:
        return _KNOWN.get(f"{module}.{name}") or _stub_class(f"{module}.{name}")

    def persistent_load(self, pid: Any) -> Any:
        if isinstance(pid, tuple) and len(pid) >= 5 and pid[0] == "storage" and isinstance(pid[4], int):
            return StorageStub(_dtype(pid[1]), str(pid[2]), pid[4])
        return Stub(pid)

    def get_extension(self, code: int) -> None:
        self.stack.append(_stub_class(f"extension.{code}"))  # type: ignore[attr-defined]


def _stub_class(path: str) -> type[Stub]:
    return type("Stub", (Stub,), {"path": path})


def _dtype(kind: Any) -> str:
    """Return safetensors' name for a storage's class or a dtype; empty for anything else."""
    return DTYPES.get(str(getattr(kind, "path", "")).rpartition(".")[2], "")


def _mapping(*args: Any) -> _Mapping:
    """OrderedDict(), OrderedDict(pairs), defaultdict(factory)."""
    return _Mapping(args[-1]) if args and isinstance(args[-1], (list, dict)) else _Mapping()


def _tensor(storage: Any, _offset: Any = 0, shape: Any = (), *rest: Any) -> Any:
    """Stand for torch._utils._rebuild_tensor*: version 3 names the dtype, the others' storage has it."""
    if not isinstance(storage, StorageStub) or not isinstance(shape, tuple):
        return Stub("tensor", (storage, shape))
    named = next(filter(None, map(_dtype, rest)), storage.dtype)
    return TensorStub(storage, tuple(shape), named)


def _first(first: Any = None, *_rest: Any) -> Any:
    return first


def _tuple(items: Any = (), *_rest: Any) -> tuple[Any, ...]:
    return tuple(items) if isinstance(items, (tuple, list)) else ()


def _bytes(text: Any = "", *_rest: Any) -> bytes:
    """What protocol 2 writes for bytes: _codecs.encode(text, 'latin1')."""
    return text.encode("latin-1", "replace") if isinstance(text, str) else b""


_KNOWN: dict[str, Any] = {
    "collections.OrderedDict": _mapping,
    "collections.defaultdict": _mapping,
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _tensor,
    "torch._utils._rebuild_parameter": _first,
    "torch._utils._rebuild_parameter_with_state": _first,
    "torch.Size": _tuple,
    "_codecs.encode": _bytes,
    "builtins.set": _tuple,
    "__builtin__.set": _tuple,
    "builtins.frozenset": _tuple,
    "pathlib.PosixPath": lambda *parts: "/".join(str(part) for part in parts),
    "pathlib._local.PosixPath": lambda *parts: "/".join(str(part) for part in parts),
}


def load(content: bytes | IO[bytes]) -> Any:
    """Return the object tree of one pickle. Raises OpaqueError; never executes what the pickle says."""
    file = io.BytesIO(content) if isinstance(content, bytes) else content
    if isinstance(content, bytes) and len(content) > MOST_PICKLE_BYTES:
        raise OpaqueError("its pickle is too large to follow")
    try:
        return _StubUnpickler(file, encoding="latin-1").load()
    except (OSError, MemoryError):
        raise
    except Exception as error:  # a pickle's opcodes can fail in any way; it stays one kind of failure for the caller
        raise OpaqueError(str(error) or type(error).__name__) from error
