"""The two APIs that we call ourselves: Prometheus Alertmanager (v2) and Datadog events (v1)."""

from __future__ import annotations

import base64
import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from slurm_ft.alert import Alert, Severity
from slurm_ft.alerts import message
from slurm_ft.alerts.secret import ChannelError

TIMEOUT = 10.0  # seconds without a byte
ANSWER_LIMIT = 2048  # bytes of an answer that we look at
DATADOG_BODY = 4000  # characters that an event's text may have


def to_alertmanager(url: str, alert: Alert, untold: int, lasts: float, now: float) -> None:
    """POST to api/v2/alerts. Raises ChannelError.

    Alertmanager groups by labels, so these name the matter and nothing that changes from one alert to the next; it
    resolves the alert after `lasts` seconds.
    """
    labels = {
        "alertname": "SlurmFt" + "".join(word.capitalize() for word in alert.kind.value.split("_")),
        "severity": alert.severity.value,
        "cluster": alert.cluster,
        "subject": alert.subject,
        "slurm_job": alert.job,
        "user": alert.user,
    }
    one = {
        "labels": {name: value for name, value in labels.items() if value},
        "annotations": {"summary": message.title(alert), "description": message.body(alert, untold)},
        "startsAt": _time(min(alert.at, now)),
        "endsAt": _time(now + max(lasts, 60.0)),
    }
    _post(url.rstrip("/") + "/api/v2/alerts", [one], {})


def to_datadog(url: str, key: str, alert: Alert, untold: int) -> None:
    """POST to api/v1/events. Raises ChannelError."""
    kinds = {Severity.INFO: "info", Severity.WARNING: "warning", Severity.CRITICAL: "error"}
    tags = {"kind": alert.kind.value, "cluster": alert.cluster, "job": alert.job, "user": alert.user}
    event = {
        "title": message.title(alert),
        "text": message.body(alert, untold)[:DATADOG_BODY],
        "alert_type": kinds[alert.severity],
        "aggregation_key": alert.key[:100],
        "date_happened": int(alert.at),
        "source_type_name": "slurm_ft",
        "tags": ["source:slurm_ft", *(f"{name}:{value}" for name, value in tags.items() if value)],
    }
    _post(url.rstrip("/") + "/api/v1/events", event, {"DD-API-KEY": key})


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A destination is one that the site has named, and no other that this one names."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _post(url: str, body: object, headers: Mapping[str, str]) -> None:
    address, credentials = _without_credentials(url)
    data = json.dumps(body).encode()
    given = {"Content-Type": "application/json", **credentials, **headers}
    request = urllib.request.Request(address, data, given, method="POST")  # noqa: S310 - http or https, checked
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=TIMEOUT) as answer:
            answer.read(ANSWER_LIMIT)
    except urllib.error.HTTPError as error:
        with error:
            said = error.read(ANSWER_LIMIT).decode("utf-8", "replace")
        raise ChannelError(f"it answered {error.code}: {' '.join(said.split())[:200]}") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise ChannelError(f"no answer: {getattr(error, 'reason', error)}") from None


def _without_credentials(url: str) -> tuple[str, dict[str, str]]:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ChannelError("its URL is none of http or https", "Write http://HOST:PORT or https://HOST")
    host = parts.netloc.rpartition("@")[2]
    address = urlunsplit((parts.scheme, host, parts.path, parts.query, ""))
    if parts.username is None:
        return address, {}
    pair = f"{parts.username}:{parts.password or ''}".encode()
    return address, {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
