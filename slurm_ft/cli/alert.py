"""`slurm-ft alert test|send|list`: the channels for alerts, tried, served and looked at by hand."""

from __future__ import annotations

import argparse
import os
import time
from datetime import datetime

from slurm_ft import config
from slurm_ft.alert import Alert, Kind
from slurm_ft.alert_channels import Channel
from slurm_ft.alerts import outbox_file, sender, spool
from slurm_ft.alerts.deliver import deliver
from slurm_ft.alerts.secret import ChannelError
from slurm_ft.config import Config
from slurm_ft.errors import SlurmFtError
from slurm_ft.log import open_log

NAME = "alert"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="test|send|list")
    test = actions.add_parser("test", help="send a test alert to every channel at once, and say how it went")
    test.add_argument("--channel", metavar="NAME", help="only to this one")
    actions.add_parser("send", help="deliver what the hooks have spooled, and what has to be tried again")
    actions.add_parser("list", help="show what waits, and how the last deliveries went")


def run(arguments: argparse.Namespace) -> int:
    """Run one of the actions."""
    settings = config.load()
    if not settings.alert_channels and arguments.action == "send":
        print("no channel for alerts is configured: nothing to deliver")  # no failure of the timer that asks
        return 0
    if not settings.alert_channels:
        raise SlurmFtError(
            "no channel for alerts is configured", "Set alert_channels in slurm_ft.yaml, see docs/alerts.md"
        )
    if arguments.action == "test":
        return _test(settings, arguments.channel)
    try:
        return _send(settings) if arguments.action == "send" else _list(settings)
    except OSError as error:
        raise SlurmFtError(f"the spool in {settings.state_dir}: {error}", "Run as root or as SlurmUser") from error


def _test(settings: Config, only: str | None) -> int:
    channels = [channel for channel in settings.alert_channels if only in (None, channel.name)]
    if not channels:
        names = ", ".join(channel.name for channel in settings.alert_channels)
        raise SlurmFtError(f"no channel is called {only}", f"There are: {names}")
    return max(_try(channel, settings) for channel in channels)


def _try(channel: Channel, settings: Config) -> int:
    node = os.uname().nodename
    alert = Alert(
        kind=Kind.TEST,
        what=f"a test of the channel {channel.name}",
        at=time.time(),
        subject=f"test {time.time_ns()}",
        nodes=node,
        following="nothing: somebody ran `slurm-ft alert test`",
        command="slurm-ft alert list",
    )
    try:
        deliver(channel, alert, 0, settings)
    except ChannelError as error:
        print(f"fail  {error}")
        return 1
    print(f"ok    {channel.name}: taken ({channel.service.value}, from {channel.severity.value} on)")
    return 0


def _send(settings: Config) -> int:
    done = sender.send(settings, open_log(settings, NAME))
    if done.busy:
        print("another sender is at work")
    print(f"{done.delivered} delivered, {done.failed} failed and to be tried again")
    return 0 if not done.failed else 1


def _list(settings: Config) -> int:
    outbox = outbox_file.load(settings.state_dir)
    for alert in spool.read(spool.paths(settings.state_dir)):
        print(f"{_time(alert.at)}  spooled    -  {alert.kind.value}: {alert.what}")
    for one in outbox.waiting:
        tried = f"tried {one.tries} times, again at {_time(one.next_try)}" if one.tries else "not tried yet"
        print(f"{_time(one.alert.at)}  waiting    {one.channel}  {one.alert.kind.value}: {one.alert.what} ({tried})")
    for ended in outbox.recent:
        word = "given up" if ended.error else "delivered"
        print(f"{_time(ended.at)}  {word:<9}  {ended.channel}  {ended.kind}: {ended.what} {ended.error}".rstrip())
    return 0


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="seconds")
