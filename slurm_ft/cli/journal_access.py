"""The controller's journal, for whoever may read it."""

from __future__ import annotations

from slurm_ft import journal
from slurm_ft.config import Config
from slurm_ft.journal_entry import Entry


def read(settings: Config, unseen: list[str]) -> list[Entry]:
    """All entries; where they cannot be read none, and `unseen` gets a line that says why."""
    path = settings.state_dir / journal.FILE_NAME
    try:
        if not path.exists():
            unseen.append(f"the journal (no {path} on this machine; it is on the controller)")
        return journal.entries(settings.state_dir)
    except OSError as error:
        unseen.append(f"the journal ({path}: {error.strerror})")
        return []
