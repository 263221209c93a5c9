"""Whether an alert may go to a destination: the site's allow-list, and `residency: strict`."""

from __future__ import annotations

import ipaddress
import urllib.request
from collections.abc import Iterable
from urllib.parse import urlsplit

from slurm_ft.alerts.secret import ChannelError
from slurm_ft.config import Config, Residency


def check(hosts: Iterable[str], config: Config) -> None:
    """Raises ChannelError for the first host (or `scheme://`) that is not allowed.

    The name is compared as it stands in the configuration; this machine's own loopback is always allowed.
    """
    if not config.alert_destinations and config.residency is Residency.OFF:
        return
    for host in hosts:
        if not (_loopback(host) or any(_covers(allowed, host.lower()) for allowed in config.alert_destinations)):
            rule = "residency is strict and it is" if config.residency is Residency.STRICT else "it is"
            raise ChannelError(
                f"refused: {host}: {rule} not among alert_destinations", "Add it there if it may be used"
            )


def proxies(hosts: Iterable[str]) -> tuple[str, ...]:
    """The proxies that requests to these hosts pass: a destination too, which the environment of the sender names."""
    named = urllib.request.getproxies_environment()
    found = [urlsplit(url if "://" in url else f"//{url}").hostname or url for key, url in named.items() if key != "no"]
    passing = any(not urllib.request.proxy_bypass(host) for host in hosts)
    return tuple(dict.fromkeys(found)) if passing else ()


def _covers(allowed: str, host: str) -> bool:
    if allowed.startswith("."):
        return host.endswith(allowed)
    if "/" in allowed and not allowed.endswith("://"):
        return _in_network(allowed, host)
    return host == allowed


def _in_network(network: str, host: str) -> bool:
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
