"""Deliver one alert through one channel: read its secrets, check where it goes, call its service."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from slurm_ft.alert import Alert
from slurm_ft.alert_channels import Channel, Service
from slurm_ft.alerts import api, apprise_service, destinations, secret
from slurm_ft.alerts.secret import ChannelError
from slurm_ft.config import Config


def takes(channel: Channel, alert: Alert) -> bool:
    """Whether this alert goes to this channel."""
    urgent_enough = alert.severity.rank >= channel.severity.rank
    return urgent_enough and (not channel.kinds or alert.kind in channel.kinds)


@dataclass(frozen=True, slots=True)
class Access:
    """What a delivery needs: the secrets, and the hosts (or `scheme://`) that it goes to."""

    url: str = field(repr=False)
    key: str = field(repr=False)
    hosts: tuple[str, ...]


def prepare(channel: Channel, config: Config) -> Access:
    """Read the channel's secrets, and look whether it may go where it goes. Raises ChannelError, see deliver."""
    url = key = ""
    try:
        url, key = secret.read(channel.url), secret.read(channel.key)
        hosts = _hosts(channel, url)
        destinations.check(hosts, config)
    except Exception as error:
        raise _told(error, channel, url, key) from None
    return Access(url, key, hosts)


def deliver(channel: Channel, alert: Alert, untold: int, config: Config) -> None:
    """Raises ChannelError, which names the channel and holds no secret, for whatever goes wrong."""
    access = prepare(channel, config)
    try:
        _call(channel, (access.url, access.key), alert, untold, config)
    except Exception as error:  # a library's bug or an odd answer must not keep the other channels waiting
        raise _told(error, channel, access.url, access.key) from None


def _told(error: Exception, channel: Channel, url: str, key: str) -> ChannelError:
    if isinstance(error, ChannelError):
        return ChannelError(_safe(f"{channel.name}: {error.what}", channel, url, key), error.fix)
    return ChannelError(_safe(f"{channel.name}: {type(error).__name__}: {error}", channel, url, key))


def _hosts(channel: Channel, url: str) -> tuple[str, ...]:
    """Where the channel's messages go, and the proxies on the way; mail knows none."""
    if channel.service is Service.APPRISE:
        hosts = apprise_service.hosts(url)
        return hosts if apprise_service.is_mail(url) else (*hosts, *destinations.proxies(hosts))
    host = urlsplit(url).hostname or ""
    return (host, *destinations.proxies((host,)))


def _call(channel: Channel, access: tuple[str, str], alert: Alert, untold: int, config: Config) -> None:
    url, key = access
    if channel.service is Service.APPRISE:
        apprise_service.send(url, alert, untold)
    elif channel.service is Service.ALERTMANAGER:
        api.to_alertmanager(url, alert, untold, config.alert_cool_down, time.time())
    else:
        api.to_datadog(url, key, alert, untold)


def _safe(text: str, channel: Channel, url: str, key: str) -> str:
    """What a plain URL says is no secret; what a file or a variable holds is."""
    return secret.redact(text, key, "" if channel.url.plain else url)
