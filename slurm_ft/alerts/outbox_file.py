"""The outbox on disk: one JSON file below state_dir, replaced as a whole by the one sender that holds the lock."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from slurm_ft.alert import from_json, to_json
from slurm_ft.alerts import spool
from slurm_ft.alerts.outbox import Delivery, Message, Outbox, Told
from slurm_ft.state_file import read_newest

FILE_NAME = "outbox.json"
SCHEMA_VERSION = 1
READ_AT_MOST = 32 << 20  # bytes; all that may wait and be remembered is less


def load(state_dir: Path) -> Outbox:
    """An empty one when there is none, or one that cannot be understood: an alert told twice is better than none.

    Raises OSError.
    """
    try:
        return _parsed(json.loads(read_newest(state_dir / spool.DIRECTORY / FILE_NAME, READ_AT_MOST)))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Outbox()


def save(state_dir: Path, outbox: Outbox) -> None:
    """Raises OSError."""
    value = {
        "v": SCHEMA_VERSION,
        "waiting": [{**asdict(one), "alert": to_json(one.alert)} for one in outbox.waiting],
        "told": {key: [one.at, one.again] for key, one in outbox.told.items()},
        "queued": {channel: list(times) for channel, times in outbox.queued.items()},
        "recent": [asdict(one) for one in outbox.recent],
    }
    spool.write_whole(state_dir / spool.DIRECTORY / FILE_NAME, json.dumps(value).encode("ascii"), state_dir)


def _parsed(value: Mapping[str, Any]) -> Outbox:
    return Outbox(
        waiting=tuple(message for one in value["waiting"] if (message := _message(one))),
        told={str(key): Told(float(at), int(again)) for key, (at, again) in value["told"].items()},
        queued={str(channel): tuple(map(float, times)) for channel, times in value["queued"].items()},
        recent=tuple(Delivery(**one) for one in value["recent"]),
    )


def _message(value: Mapping[str, Any]) -> Message | None:
    alert = from_json(value["alert"])
    rest = {name: value[name] for name in ("channel", "untold", "tries", "next_try")}
    return Message(alert=alert, **rest) if alert else None
