r"""One `#SBATCH` line in words, as sbatch cuts it (measured on 22.05, 24.11 and 26.05 with `sbatch -vvv`). Pure.

Both kinds of quotes, anywhere in a word, and in both a backslash escapes what follows it. Before a blank it does so
from 24.11 on (fields.ESCAPED_BLANK); an older sbatch refuses such a line by itself. An unquoted `#` ends the line, even
within a word, and so does an empty word.
"""

from __future__ import annotations

from collections.abc import Iterator

BLANKS = " \t\n\v\f\r"  # C's isspace(): a no-break space, as web pages have them, is none


class UnreadableLineError(ValueError):
    """sbatch gives up at such a line; the text says why."""


def words(text: str) -> Iterator[str]:
    """The words of what follows `#SBATCH`. Raises UnreadableLineError."""
    rest = text.lstrip(BLANKS)
    while rest and rest[0] != "#":
        if rest[0] == ":":
            raise UnreadableLineError("an option cannot begin with `:`")
        word, rest = _word(rest)
        if not word:
            return
        yield word
        rest = rest.lstrip(BLANKS)


def _word(text: str) -> tuple[str, str]:
    """The first word, unquoted, and what follows it."""
    word, quote, escaped = "", "", False
    for place, character in enumerate(text):
        if not quote and not escaped and (character in BLANKS or character == "#"):
            return word, text[place:]
        if escaped:
            word, escaped = word + character, False
        elif character == "\\":
            escaped = True
        elif quote == character:
            quote = ""
        elif character in "\"'" and not quote:
            quote = character
        else:
            word += character
    if quote:
        raise UnreadableLineError(f"the quote {quote} is not closed on its line")
    return word, ""
