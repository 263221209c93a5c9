"""DataStates-LLM's own interface: objects saved by path, in the background.

    from datastates.llm import Checkpointing

    engine = Checkpointing(runtime_config={"host_cache_size": 16}, rank=0)
    engine.save({"model": model.state_dict()}, "out/model.pt")
    engine.commit("step 10")   # returns once it is durable

Parameters may be copied after `save` has returned, behind a fence on the optimizer's step; nothing has to be called for
that. The files are torch's own, so `torch.load` reads them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._engine.file_saver import FileSaver
from .._engine.settings import parse
from . import sinks
from .log import show

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .._engine.file_saver import Job


class Checkpointing:
    """Saves objects to files named by path.

    `runtime_config` holds settings of docs/concurrent_checkpointing.md; raises SettingsError (a ValueError) for an
    unknown one. `rank` is accepted as upstream has it, and not needed: each process saves for itself.
    """

    def __init__(self, runtime_config: Mapping[str, object] | None = None, rank: int = 0) -> None:  # noqa: ARG002
        show()
        self._files = FileSaver(parse(runtime_config or {}))
        self._jobs: list[Job] = []

    def save(self, state_dict: Any, path: str | os.PathLike[str]) -> None:
        """Save to `path`, which appears once it is durable. Raises what torch.save raises for an unsavable object."""
        target = absolute(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        self._jobs = [job for job in self._jobs if not job.wait(0) or job.error is not None]
        self._jobs.append(self._files.save(state_dict, target))

    def load(self, path: str | os.PathLike[str], map_location: Any = None) -> Any:
        """Return what was saved; what is still being saved is waited for. As trusting as DeepSpeed's own engine."""
        import torch  # noqa: PLC0415 - heavy

        self._files.wait()
        return torch.load(path, map_location=map_location, weights_only=False)

    def wait(self, persist: bool = False) -> bool:
        """Return when nothing reads the training's memory any more; with `persist`, when all is durable.

        False: something could not be saved since the last call; the log says what.
        """
        self._files.fence.settle()
        if not persist:
            return True
        self._files.wait()
        failed = [job for job in self._jobs if job.error is not None]
        self._jobs.clear()
        return not failed

    def commit(self, tag: object = None) -> bool:  # noqa: ARG002 - upstream's signature
        """Return once all that was saved is durable; false if something could not be."""
        return self.wait(persist=True)

    def close(self) -> None:
        """Finish what is in flight. The end of the process does it as well."""
        self._files.close()


def saved_by_trainer(state: Any, path: Path) -> bool:
    """Save through the Trainer's hook if it is what runs this saver: then the file belongs to its checkpoint."""
    import torch  # noqa: PLC0415 - heavy

    if not sinks.capturing():
        return False
    torch.save(state, path)  # the attribute, not a binding of our own: it is the one that the hook watches
    return True


def absolute(path: str | os.PathLike[str]) -> Path:
    """Return the path from the root."""
    return Path(os.path.abspath(path))  # noqa: PTH100 - absolute, but with the user's own links in it
