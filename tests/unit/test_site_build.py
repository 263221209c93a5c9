"""The pages make a site in which every link leads somewhere, and every page has its place."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from markdown.extensions.toc import slugify

ROOT = Path(__file__).parents[2]
PAGES = (
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").glob("*.md")),
)


def anchors(page: Path) -> set[str]:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {slugify(re.sub(r"[`*]|\]\([^)]*\)|\[", "", heading), "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_link_leads_to_a_file_and_to_a_heading(page: Path) -> None:
    links = [link.partition("#") for link in re.findall(r"\]\(([^):\s]+)\)", page.read_text())]
    places = [((page.parent / target).resolve() if target else page, anchor) for target, _, anchor in links]
    assert [str(place) for place, _ in places if not place.exists()] == []
    assert [f"{place.name}#{anchor}" for place, anchor in places if anchor and anchor not in anchors(place)] == []


def test_every_page_is_in_the_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text()
    named = set(re.findall(r": ([a-z_]+\.md)$", text, re.MULTILINE))
    made = {"index.md", "contributing.md", "security.md", "commands.md"}
    assert named - made == {page.name for page in (ROOT / "docs").glob("*.md")}
    assert yaml.safe_load(text)["strict"] is True


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "slurm-ft undrain" in (tmp_path / "site" / "commands.html").read_text()
    assert "Licence" in (tmp_path / "site" / "contributing.html").read_text()
