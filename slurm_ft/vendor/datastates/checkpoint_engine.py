"""What DeepSpeed's configuration `"datastates_ckpt": {"host_cache_size": 16}` makes it import and call.

DeepSpeed calls `save` for each file of `save_checkpoint`, `load` for each of `load_checkpoint`, and `wait` from
`destroy` and `save_16bit_model`. Everything else a checkpoint needs is done in `deepspeed_tags`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._engine.companion import Companion, start_where_missing
from ._engine.paths import LATEST
from ._engine.ranks import discover
from .deepspeed_tags import FILE, Tags
from .llm.checkpointing import Checkpointing, absolute, saved_by_trainer

if TYPE_CHECKING:
    import os


class CheckpointEngine(Checkpointing):
    """The engine of stock DeepSpeed. Create it on every rank: that is collective.

    `config` is DeepSpeed's whole configuration object, or a dictionary with the engine's settings.
    """

    def __init__(self, config: Any, rank: int) -> None:
        super().__init__(_settings_in(config), rank)
        start_where_missing()
        self._ranks = discover()
        self._tags = Tags(self._files, self._ranks)
        self._tags.on_commit.append(Companion(self._files.settings).tell)
        self._files.fence.before_step.append(self._tags.close)
        self._files.before_close.append(self._tags.close_at_end)

    def save(self, state_dict: Any, path: str | os.PathLike[str]) -> None:
        """Save one file. A checkpoint's file appears in its place when those of all ranks are durable."""
        target = absolute(path)
        if saved_by_trainer(state_dict, target):
            self._name_tag_for_trainer(target)
        elif FILE.fullmatch(target.name):
            self._tags.save(state_dict, target)
        else:
            super().save(state_dict, target)

    def load(self, path: str | os.PathLike[str], map_location: Any = None) -> Any:
        """Return what was saved. What is still being saved is committed first."""
        self._tags.close()
        return super().load(path, map_location)

    def wait(self, persist: bool = False) -> bool:
        """Return when nothing reads the training's memory any more; with `persist`, when all is committed."""
        if persist:
            self._tags.close_at_end()
        return super().wait(persist)

    def _name_tag_for_trainer(self, target: Path) -> None:
        """DeepSpeed leaves `latest` to this engine; in a checkpoint of the Trainer's hook it is one of the files."""
        if self._ranks.rank == 0 and FILE.fullmatch(target.name):
            (target.parent.parent / LATEST).write_text(target.parent.name, encoding="utf-8")


def _settings_in(config: Any) -> Mapping[str, object]:
    section = getattr(getattr(config, "datastates_config", None), "config", config)
    return section if isinstance(section, Mapping) else {}
