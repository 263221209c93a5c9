"""Checkpoints of DeepSpeed's own loop: `engine.save_checkpoint(save_dir, tag)` through `datastates.CheckpointEngine`.

DeepSpeed saves several files per rank by path, and then neither waits nor commits, and never writes `latest` (its
DataStatesCheckpointEngine gives it no commit information). So a tag is finished here: each rank's files, its record;
then rank 0 has all records, puts the files in their place, writes manifest and marker, and `latest` last.

DeepSpeed says nothing when a rank has saved its last file of a tag. What says so is the next thing that can only come
after `save_checkpoint` has returned: an optimizer step, a save to another tag, `wait`, or the end. Since it returns
behind a barrier, every rank has announced its part by then; whoever announced nothing has none.
"""

from __future__ import annotations

import dataclasses
import logging
import re
import shutil
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._checkpoints.files import list_files
from ._checkpoints.finding import Level
from ._checkpoints.formats.deepspeed_tag import check_deepspeed_tags
from ._engine import commit, retention
from ._engine.durable import encode, sync_directory, write_whole
from ._engine.manifest import FileRecord, RankRecord, Save, encode_manifest, encode_marker
from ._engine.paths import LATEST, MANIFEST, MARKER, OWNER, TEMPORARY_PREFIX
from ._engine.run_identity import Owner, this_process

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._engine.file_saver import FileSaver, Job
    from ._engine.ranks import Ranks

log = logging.getLogger("datastates.engine")

FILE = re.compile(
    r".*_states\.pt"
)  # every file of a tag is called so (deepspeed/runtime/engine.py, `_get_*_ckpt_name`)
NUMBER = re.compile(r"(\d+)$")


@dataclass
class Part:
    """This rank's part of one save of a tag."""

    save: Save
    save_dir: Path
    tag: str
    run_dir: Path
    step: int | None = None  # as the model's file says
    files: dict[str, FileRecord] = field(default_factory=dict)
    jobs: list[Job] = field(default_factory=list)
    error: str = ""


class Tags:
    """The tags that this process saves. Made on every rank: it agrees on one attempt's name for all."""

    def __init__(self, files: FileSaver, ranks: Ranks) -> None:
        owner = this_process()
        run, attempt = ranks.broadcast(f"{owner.run}\n{owner.attempt}").split("\n")
        self.on_commit: list[Callable[[Path], None]] = []
        self._owner: Owner = dataclasses.replace(owner, run=run, attempt=attempt)
        self._files, self._ranks = files, ranks
        self._open: Part | None = None
        self._jobs: list[Job] = []
        self._saves: Counter[Path] = Counter()
        self._cleared: set[Path] = set()

    def save(self, state: Any, path: Path) -> None:
        """Save a file of a tag. What goes wrong is logged, and the tag is not committed."""
        part = self._part(path)
        if isinstance(state, dict) and isinstance(state.get("global_steps"), int):
            part.step = state["global_steps"]
        try:
            self._announce(part.run_dir)
            target = part.run_dir / path.name
            job = self._files.save(state, target, _parameters(state), lambda record: _note(part, path.name, record))
            part.jobs.append(job)
            self._jobs.append(job)
        except Exception as error:  # the training goes on without this tag
            part.error = str(error) or repr(error)
            log.error("%s could not be saved: %s", path, part.error)

    def close(self) -> None:
        """Note that the last file of the open tag is there; commit it in the background. Costs nothing without one."""
        part, self._open = self._open, None
        if part is None:
            return
        self._files.fence.forget_optimizers()
        self._files.later(f"checkpoint {part.tag} in {part.save_dir}", lambda: self._finish(part))

    def close_at_end(self) -> None:
        """The same when the process ends. An exception may have broken off the save itself: then its files must say."""
        part = self._open
        if part is not None and _ends_badly() and not self._looks_whole(part):
            self._open = None
            log.error("checkpoint %s in %s was broken off; it is not committed", part.tag, part.save_dir)
            return
        self.close()

    # --- one save of a tag -----------------------------------------------------------------------------------------

    def _part(self, path: Path) -> Part:
        save_dir, tag = path.parent.parent, path.parent.name
        if self._open is not None and (self._open.save_dir, self._open.tag) != (save_dir, tag):
            self.close()
        if self._open is None:
            self._wait_written()
            self._clear(save_dir)
            self._saves[path.parent] += 1
            number = NUMBER.search(tag)
            attempt = self._owner.attempt
            run_dir = save_dir / f"{TEMPORARY_PREFIX}{tag}-{attempt}-{self._saves[path.parent]}"
            save = Save(int(number[1]) if number else 0, self._owner.run, attempt, self._ranks.world_size)
            self._open = Part(save, save_dir, tag, run_dir)
        return self._open

    def _wait_written(self) -> None:
        """Two tags at once would need twice the memory. Other ranks are not waited for: they may be behind us."""
        for job in self._jobs:
            job.wait()
        self._jobs.clear()

    def _announce(self, run_dir: Path) -> None:
        run_dir.mkdir(parents=True, exist_ok=True)
        _announcement(run_dir, self._ranks.rank).touch()
        if self._ranks.rank == 0:
            (run_dir / OWNER).write_bytes(encode(self._owner.encoded()))

    def _clear(self, save_dir: Path) -> None:
        """Remove what killed attempts left in flight."""
        if self._ranks.rank == 0 and save_dir not in self._cleared:
            self._cleared.add(save_dir)
            retention.remove_leftovers(save_dir, self._owner)

    def _looks_whole(self, part: Part) -> bool:
        for job in part.jobs:
            job.wait(self._files.settings.drain_timeout)
        try:
            files = list_files(part.run_dir, part.run_dir)
        except OSError:
            return False
        checks = [checked for _, checked in check_deepspeed_tags(files, Level.STRUCTURAL)]
        return bool(checks) and all(finding.resumable for checked in checks for finding in checked.findings)

    def _finish(self, part: Part) -> None:
        """Report this rank's part; on rank 0 commit the whole. In the background, after the part's own files."""
        error = part.error or next((str(job.error) for job in part.jobs if job.error is not None), "")
        record = RankRecord(self._ranks.rank, part.files, error)
        commit.report(part.run_dir, part.save, record)
        if self._ranks.rank != 0:
            return
        try:
            records = self._gather(part)
            final = publish(part, records, self._owner.encoded())
        except BaseException:
            commit.abandon(part.run_dir)
            raise
        log.info("checkpoint %s committed", final)
        for tell in self.on_commit:
            tell(final)

    def _gather(self, part: Part) -> list[RankRecord]:
        ranks = [rank for rank in range(self._ranks.world_size) if _announcement(part.run_dir, rank).exists()]
        timeout = self._files.settings.commit_timeout
        return commit.gather(part.run_dir, part.save, timeout, lambda: self._files.leaving, ranks)


def publish(part: Part, records: list[RankRecord], owner: dict[str, Any]) -> Path:
    """Put the files of all ranks in their place and make `latest` name them. Raises OSError or EngineError.

    A tag that is saved again is no checkpoint while its files are exchanged: its marker goes first, and `latest` with
    it if it names this tag.
    """
    final = part.save_dir / part.tag
    save = dataclasses.replace(part.save, step=part.save.step if part.step is None else part.step)
    manifest = encode_manifest(save, records, owner)
    final.mkdir(parents=True, exist_ok=True)
    _withdraw(part.save_dir, final)
    for name in (name for record in records for name in record.files):
        (part.run_dir / name).replace(final / name)
    sync_directory(final)
    write_whole(final / MANIFEST, manifest)
    write_whole(final / MARKER, encode_marker(save, manifest))
    sync_directory(part.save_dir)
    write_whole(part.save_dir / LATEST, part.tag.encode())
    shutil.rmtree(part.run_dir, ignore_errors=True)
    return final


def _withdraw(save_dir: Path, final: Path) -> None:
    if not (final / MARKER).exists():
        return
    latest = save_dir / LATEST
    if latest.is_file() and latest.read_text(encoding="utf-8").strip() == final.name:
        others = [path.parent for path in save_dir.glob(f"*/{MARKER}") if path.parent != final]
        if others:
            write_whole(latest, max(others, key=lambda path: (path / MARKER).stat().st_mtime_ns).name.encode())
        else:
            latest.unlink()
    (final / MARKER).unlink()
    sync_directory(final)
    sync_directory(save_dir)


def _announcement(run_dir: Path, rank: int) -> Path:
    return run_dir / f".rank-{rank}.begun"


def _note(part: Part, name: str, record: FileRecord) -> None:
    part.files[name] = record


def _parameters(state: Any) -> list[Any]:
    """Return the model's parameters in a file of DeepSpeed's: the module's tensors without its buffers."""
    import torch  # noqa: PLC0415 - heavy

    module = state.get("module") if isinstance(state, dict) else None
    if not isinstance(module, dict) or not isinstance(state.get("buffer_names"), list | tuple | set):
        return []
    buffers = set(state["buffer_names"])
    return [value for name, value in module.items() if isinstance(value, torch.Tensor) and name not in buffers]


def _ends_badly() -> bool:
    """Whether an exception is being handled, or has ended the script."""
    return sys.exc_info()[0] is not None or getattr(sys, "last_value", None) is not None
