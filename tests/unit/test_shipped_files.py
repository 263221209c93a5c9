"""What is shipped beside the code says what the code does."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from slurm_ft import __version__, config
from slurm_ft.config import Config

ROOT = Path(__file__).parents[2]
PAGES = (Path("README.md"), *(path.relative_to(ROOT) for path in sorted((ROOT / "docs").glob("*.md"))))
HOOKS = (
    "prolog/node_prolog",
    "prolog/slurmctld_prolog",
    "prolog/task_prolog",
    "epilog/node_epilog",
    "epilog/slurmctld_epilog",
)


def test_the_packaged_configuration_is_the_default_and_names_every_key() -> None:
    text = (ROOT / "contrib" / "slurm_ft.yaml").read_text()
    assert config.parse(text) == Config()
    assert all(re.search(rf"^(# )?{key}:", text, re.MULTILINE) for key in config.READERS)


@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_is_executable_and_named_in_the_installation_guide(hook: str) -> None:
    assert os.access(ROOT / hook, os.X_OK)
    assert f"share/slurm_ft/{hook}\n" in (ROOT / "docs" / "installation.md").read_text()


@pytest.mark.parametrize(
    "page", [Path("README.md"), *(path.relative_to(ROOT) for path in (ROOT / "docs").glob("*.md"))]
)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", (ROOT / page).read_text())
    assert [link for link in links if not (ROOT / page.parent / link).exists()] == []


def test_the_changelog_has_this_version() -> None:
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text()
