"""Concurrent checkpointing: training goes on while its checkpoint is written.

`datastates.llm.DecoratedCheckpointing` serves the Hugging Face Trainer, `datastates.Checkpoints` a loop of one's own,
`datastates.CheckpointEngine` stock DeepSpeed. See docs/concurrent_checkpointing.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .checkpoint_engine import CheckpointEngine as CheckpointEngine
    from .loop import Checkpoints as Checkpoints

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Load what is asked for, not more: importing this package must stay cheap."""
    if name == "Checkpoints":
        from .loop import Checkpoints  # noqa: PLC0415

        return Checkpoints
    if name == "CheckpointEngine":
        from .checkpoint_engine import CheckpointEngine  # noqa: PLC0415

        return CheckpointEngine
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
