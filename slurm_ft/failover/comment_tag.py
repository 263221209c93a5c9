r"""Our tag in a job's Comment: it opts a job in and carries the count, and keeps all foreign text byte for byte.

    [slurm_ft]                              the job asks for failover
    [slurm_ft limit=1]                      ... with a limit of its own
    [slurm_ft n=1/3 ex=n1 cause=xid79]      one failover of three spent; n1 is excluded

The first such tag counts. Slurm refuses a Comment of more than 1024 characters (measured on 22.05 to 26.05), and with
it the whole update; so the tag shrinks until the comment fits, and never the user's own text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

COMMENT_LIMIT = 1024
_TAG = re.compile(r"\[slurm_ft(?P<fields>(?: [^\[\]\n]*)?)\]")
_COUNT = re.compile(r"(\d{1,3})(?:/(\d{1,3}))?")


@dataclass(frozen=True, slots=True)
class Tag:
    """The tag's content. `limit` is what the job asks for or, with a count beside it, what was in force."""

    count: int = 0
    limit: int | None = None
    excluded: tuple[str, ...] = ()  # plain node names
    cause: str = ""


@lru_cache(maxsize=64)  # several questions about one job after the other; the status asks for thousands of jobs
def read(comment: str) -> Tag | None:
    """The first tag in `comment`, or None. A field that makes no sense is as good as absent: users edit comments."""
    match = _TAG.search(comment)
    if match is None:
        return None
    pairs = dict(word.partition("=")[::2] for word in match["fields"].split())
    count, limit = _counts(pairs.get("n", ""))
    return Tag(
        count=count,
        limit=_number(pairs.get("limit", "")) if limit is None else limit,
        excluded=_split_nodes(pairs.get("ex", "")),
        cause=pairs.get("cause", ""),
    )


def write(comment: str, tag: Tag) -> str | None:
    """`comment` with its tag replaced by `tag`, or with the tag appended; None if not even the shortest form fits."""
    candidates = (_replace(comment, text) for text in _forms(tag))
    return next((text for text in candidates if size(text) <= COMMENT_LIMIT), None)


def size(text: str) -> int:
    """Bytes, since Slurm counts bytes; a comment that is not UTF-8 arrives with surrogate escapes."""
    return len(text.encode("utf-8", "surrogateescape"))


def _forms(tag: Tag) -> Sequence[str]:
    """From the fullest to the shortest: cause goes first, then the node names; the count always stays."""
    count = f"n={tag.count}" if tag.limit is None else f"n={tag.count}/{tag.limit}"
    excluded = f" ex={','.join(tag.excluded)}" if tag.excluded else ""
    cause = f" cause={tag.cause}" if tag.cause else ""
    return (f"[slurm_ft {count}{excluded}{cause}]", f"[slurm_ft {count}{excluded}]", f"[slurm_ft {count}]")


def _replace(comment: str, text: str) -> str:
    match = _TAG.search(comment)
    if match is None:
        return f"{comment} {text}" if comment else text
    return comment[: match.start()] + text + comment[match.end() :]


def _counts(text: str) -> tuple[int, int | None]:
    match = _COUNT.fullmatch(text)
    if match is None:
        return 0, None
    return int(match[1]), int(match[2]) if match[2] else None


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[0-9]{1,3}", text) else None


def _split_nodes(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split(",") if name)
