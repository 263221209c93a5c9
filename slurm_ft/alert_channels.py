"""The configuration's `alert_channels`: where alerts go. A secret is named by a file or a variable, never held."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from slurm_ft.alert import Kind, Severity


class Service(str, Enum):
    """Who delivers: the apprise library (mail, chat, webhooks), or an API that we call ourselves."""

    APPRISE = "apprise"
    ALERTMANAGER = "alertmanager"
    DATADOG = "datadog"


@dataclass(frozen=True, slots=True)
class Secret:
    """Where a secret is read from when it is needed: a file or an environment variable; `plain` is none."""

    file: Path | None = None
    variable: str = ""
    plain: str = ""


@dataclass(frozen=True, slots=True)
class Channel:
    """One way to tell people. `kinds` empty: all; `severity`: the least urgent that goes here."""

    name: str
    service: Service
    url: Secret
    key: Secret = Secret()
    severity: Severity = Severity.INFO
    kinds: frozenset[Kind] = frozenset()


_KEYS = ("name", "type", "url", "url_file", "url_env", "key_file", "key_env", "severity", "kinds")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,40}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")


def read_channels(value: object) -> tuple[Channel, ...]:
    """Raises ValueError, which never quotes a URL: it may hold a password."""
    if not isinstance(value, list):
        raise ValueError("expected a list of channels, each with name, type and url_file, url_env or url")
    channels = tuple(_channel(one, number) for number, one in enumerate(value, start=1))
    names = [channel.name for channel in channels]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"more than one channel is called {', '.join(twice)}")
    return channels


def _channel(value: object, number: int) -> Channel:
    if not isinstance(value, dict) or not _NAME.fullmatch(str(value.get("name", ""))):
        raise ValueError(f"channel {number}: expected a mapping with a name of letters, digits, '.', '_' and '-'")
    name = str(value["name"])
    if unknown := sorted(str(key) for key in value if key not in _KEYS):
        raise ValueError(f"channel {name}: unknown key {', '.join(unknown)}; valid: {', '.join(_KEYS)}")
    service = _member(Service, value.get("type"), f"channel {name}: type")
    kinds = value.get("kinds", [])
    if not isinstance(kinds, list):
        raise ValueError(f"channel {name}: kinds: expected a list, such as [limit_reached, breaker_open]")
    return Channel(
        name=name,
        service=service,
        url=_url(name, service, value),
        key=_key(name, service, value),
        severity=_member(Severity, value.get("severity", "info"), f"channel {name}: severity"),
        kinds=frozenset(_member(Kind, kind, f"channel {name}: kinds") for kind in kinds),
    )


def _member(kind: Any, value: object, where: str) -> Any:
    try:
        return kind(value)
    except ValueError:
        raise ValueError(f"{where}: {value!r} is not one of: {', '.join(member.value for member in kind)}") from None


def _url(name: str, service: Service, value: Mapping[str, Any]) -> Secret:
    given = [key for key in ("url", "url_file", "url_env") if key in value]
    if len(given) != 1:
        raise ValueError(f"channel {name}: exactly one of url_file, url_env and url has to be given")
    if given != ["url"]:
        return _secret(name, "url", value)
    if service is Service.APPRISE:
        raise ValueError(f"channel {name}: apprise's URLs hold secrets: name url_file or url_env instead of url")
    return Secret(plain=_plain(name, value["url"]))


def _plain(name: str, text: object) -> str:
    parts = urlsplit(text) if isinstance(text, str) else None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"channel {name}: url: expected http://HOST:PORT or https://HOST")
    if parts.username or parts.password or parts.query:
        raise ValueError(f"channel {name}: url: it holds a secret: move it into a file and name that as url_file")
    return str(text)


def _key(name: str, service: Service, value: Mapping[str, Any]) -> Secret:
    given = [key for key in ("key_file", "key_env") if key in value]
    if len(given) != (service is Service.DATADOG):
        needs = "one of key_file and key_env" if service is Service.DATADOG else "no key_file and no key_env"
        raise ValueError(f"channel {name}: type {service.value} takes {needs}")
    return _secret(name, "key", value) if given else Secret()


def _secret(name: str, what: str, value: Mapping[str, Any]) -> Secret:
    file, variable = value.get(f"{what}_file"), value.get(f"{what}_env")
    if file is not None:
        if not isinstance(file, str) or not file.startswith("/") or "\0" in file:
            raise ValueError(f"channel {name}: {what}_file: expected an absolute path")
        return Secret(file=Path(file))
    if not isinstance(variable, str) or not _VARIABLE.fullmatch(variable):
        raise ValueError(f"channel {name}: {what}_env: expected the name of an environment variable")
    return Secret(variable=variable)


_DESTINATION = re.compile(r"[a-z][a-z0-9]*://|\.?[A-Za-z0-9_-][A-Za-z0-9._:-]*(?:/[0-9]{1,3})?")


def read_destinations(value: object) -> tuple[str, ...]:
    """Raises ValueError."""
    if not isinstance(value, list) or not all(isinstance(one, str) and _DESTINATION.fullmatch(one) for one in value):
        raise ValueError("expected a list of hosts, .domains, networks (10.0.0.0/8) and apprise schemes (slack://)")
    return tuple(one.lower() for one in value)
