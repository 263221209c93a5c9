"""Read a channel's secrets when they are needed, and keep them out of every text."""

from __future__ import annotations

import os
import re
import stat
from urllib.parse import unquote

from slurm_ft.alert_channels import Secret
from slurm_ft.errors import SlurmFtError

SIZE_LIMIT = 8192  # bytes
SHORTEST = 4  # characters of a part of a URL that is worth hiding
_PUBLIC = re.compile(r"https?|localhost|api|alerts|v[0-9]+|hooks?|services|webhooks?")


class ChannelError(SlurmFtError):
    """A channel cannot be used, or did not take an alert. Never holds a secret."""


def read(secret: Secret) -> str:
    """Raises ChannelError."""
    if secret.file is not None:
        return _of_file(secret)
    if secret.variable:
        text = os.environ.get(secret.variable, "").strip()
        if not text:
            raise ChannelError(f"the environment variable {secret.variable} is not set", "Set it, or name a file")
        return text
    return secret.plain


def _of_file(secret: Secret) -> str:
    assert secret.file is not None  # noqa: S101 - for mypy: the caller looked
    try:
        with secret.file.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(SIZE_LIMIT + 1).decode("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ChannelError(f"{secret.file}: cannot be read: {reason}", "Mend its path or permissions") from None
    if mode & (stat.S_IRWXO | stat.S_IWGRP):
        raise ChannelError(f"{secret.file}: others can read it", f"chmod 600 {secret.file}")
    if not text or len(text.splitlines()) > 1 or len(text) > SIZE_LIMIT:
        raise ChannelError(f"{secret.file}: expected one line", "Write the URL or key alone into it")
    return text


def redact(text: str, *secrets: str) -> str:
    """`text` without any part of the secrets, however a library quotes or splits them."""
    parts = {part for secret in secrets for whole in (secret, unquote(secret)) for part in _parts(whole)}
    for part in sorted(parts, key=len, reverse=True):
        text = text.replace(part, "****")
    return text


def _parts(secret: str) -> list[str]:
    return [part for part in re.split(r"[/:?&=#\s]|@", secret) if len(part) >= SHORTEST and not _PUBLIC.fullmatch(part)]
