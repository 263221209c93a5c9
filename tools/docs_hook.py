"""What mkdocs does beside copying docs/: README and its neighbours become pages, and so does every command's --help.

The pages are read in the repository, too, where a link may lead to any file: in the site it becomes the file's name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from slurm_ft.cli.main import COMMANDS, parser_of

ROOT = Path(__file__).parent.parent
OUTSIDE = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "SECURITY.md": "security.md"}
LINK = re.compile(r"\[([^\]]+)\]\(([^):\s]+)\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that do not lie in docs/."""
    for name, page in OUTSIDE.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=_linked(text, ROOT / name)))
    files.append(File.generated(config, "commands.md", content="\n".join(_commands())))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite the links of a page of docs/."""
    place = page.file.abs_src_path
    return markdown if place is None else _linked(markdown, Path(place))


def _linked(markdown: str, place: Path) -> str:
    """The text of the file `place` with the links that the site needs."""
    return LINK.sub(lambda link: _link(link, place), markdown)


def _link(link: re.Match[str], place: Path) -> str:
    text, (target, sharp, anchor) = link[1], link[2].partition("#")
    path = (place.parent / target).resolve() if target else place
    name = os.path.relpath(path, ROOT)
    if name in OUTSIDE:
        return f"[{text}]({OUTSIDE[name]}{sharp}{anchor})"
    if path.parent == ROOT / "docs":
        return f"[{text}]({path.name}{sharp}{anchor})"
    return text if name in text else f"{text} (`{name}`)"


def _commands() -> Iterator[str]:
    os.environ["COLUMNS"] = "100"
    yield "# Commands\n"
    for command, (_, summary) in COMMANDS.items():
        shown = parser_of(command).format_help()
        yield f"## slurm-ft {command}\n\n{summary[0].upper()}{summary[1:]}.\n\n```text\n{shown}```\n"
