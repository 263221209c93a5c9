"""Mail, chat and webhooks through the apprise library (`pip install slurm_ft[alerts]`)."""

from __future__ import annotations

import logging
from typing import Any

from slurm_ft.alert import Alert, Severity
from slurm_ft.alerts import message
from slurm_ft.alerts.secret import ChannelError

# These take the host from the URL; every other service goes to the host that apprise knows, and is named by its scheme.
HOST_IN_URL = ("json", "jsons", "xml", "xmls", "form", "forms")
MAIL = ("mailto", "mailtos")


def hosts(url: str) -> tuple[str, ...]:
    """Where the URL's messages go: hosts (of mail, the relay and the recipients' domains), or `scheme://`.

    Raises ChannelError.
    """
    service, scheme = _service(url), _scheme(url)
    if is_mail(url):
        domains = [target[1].rpartition("@")[2] for target in (*service.targets, *_copies(service))]
        return (str(service.smtp_host), *dict.fromkeys(domains))
    return (str(service.host),) if scheme in HOST_IN_URL else (f"{scheme}://",)


def is_mail(url: str) -> bool:
    """Whether the messages go by mail."""
    return _scheme(url) in MAIL


def _scheme(url: str) -> str:
    return url.partition("://")[0].lower()


def _copies(service: Any) -> list[tuple[Any, str]]:
    return [(None, address) for name in ("cc", "bcc") for address in getattr(service, name, ())]


def send(url: str, alert: Alert, untold: int) -> None:
    """Raises ChannelError, whose text may quote the URL: the caller redacts it."""
    import apprise  # noqa: PLC0415 - optional, and slow to import

    kinds = {
        Severity.INFO: apprise.NotifyType.INFO,
        Severity.WARNING: apprise.NotifyType.WARNING,
        Severity.CRITICAL: apprise.NotifyType.FAILURE,
    }
    service = _service(url)
    with _Said() as said:
        sent = service.notify(
            body=message.body(alert, untold),
            title=message.title(alert),
            notify_type=kinds[alert.severity],
            body_format=apprise.NotifyFormat.TEXT,
        )
    if not sent:
        raise ChannelError(f"not delivered: {said.last or 'the service did not say why'}")


def _service(url: str) -> Any:
    try:
        import apprise  # noqa: PLC0415 - optional, and slow to import
    except ImportError:
        raise ChannelError("apprise is not installed", "pip install 'slurm_ft[alerts]' beside slurm_ft") from None
    with _Said():
        service = apprise.Apprise.instantiate(url, suppress_exceptions=True)
    if not isinstance(service, apprise.NotifyBase):
        scheme = url.partition("://")[0][:20] if "://" in url else "none"
        raise ChannelError(
            f"apprise does not understand its URL (scheme {scheme})", "See apprise's page on the service"
        )
    service.redirects = False  # a destination is one that the site has named
    return service


class _Said(logging.Handler):
    """Keeps apprise's own log out of ours: it may quote a URL. The last thing it said is the reason of a failure."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.last = ""
        self.logger = logging.getLogger("apprise")

    def emit(self, record: logging.LogRecord) -> None:
        self.last = " ".join(record.getMessage().split())[:300]

    def __enter__(self) -> _Said:
        self.logger.propagate = False
        self.logger.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        self.logger.removeHandler(self)
