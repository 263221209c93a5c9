"""The page on concurrent checkpointing names every setting with its default."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from slurm_ft.vendor.datastates._engine.settings import Settings

PAGE = Path(__file__).parents[2] / "docs" / "concurrent_checkpointing.md"
ROW = re.compile(r"^\| `(\w+)` \|(.*?)\|", re.MULTILINE)

# Defaults that are no value but depend on something else.
TOLD_IN_WORDS = {"host_cache_size", "save_steps", "validator_socket"}


def test_every_setting_is_in_the_table_with_its_default():
    _, settings = PAGE.read_text(encoding="utf-8").split("## Settings")
    rows = dict(ROW.findall(settings))
    assert sorted(rows) == sorted(field.name for field in fields(Settings))
    for field in fields(Settings):
        if field.name not in TOLD_IN_WORDS:
            assert rows[field.name].strip(' `"') == shown(field.default), field.name


def shown(default: object) -> str:
    if default is None:
        return ""
    return f"{default:g}" if isinstance(default, float) and default != 1.0 else str(default)
