"""What the sender has to deliver, and what it has told already. Pure: values in, values out; `now` is an argument."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from slurm_ft.alert import Alert, Kind
from slurm_ft.alerts.deliver import takes
from slurm_ft.config import Config

MOST_AT_ONCE = 20  # messages to one channel within RATE_WINDOW; what is beyond them is told in one digest
RATE_WINDOW = 300.0  # seconds
DIGEST_PAUSE = 60.0  # seconds in which a digest grows before it is told
FIRST_PAUSE = 30.0  # seconds before the second try, doubled for each further one
LONGEST_PAUSE = 3600.0
MOST_TRIES = 12  # over about six hours
MOST_PENDING = 1000  # messages that wait
MOST_TOLD = 5000  # keys that are remembered
MOST_RECENT = 200  # deliveries that `slurm-ft alert list` shows


@dataclass(frozen=True, slots=True)
class Message:
    """One alert on its way to one channel. `untold`: such alerts since the last one; of a digest: alerts in it."""

    channel: str
    alert: Alert
    untold: int = 0
    tries: int = 0
    next_try: float = 0.0


@dataclass(frozen=True, slots=True)
class Told:
    """When something was last told, and how often it has come again since."""

    at: float
    again: int = 0


@dataclass(frozen=True, slots=True)
class Delivery:
    """How a message ended: `error` is empty when the channel took it."""

    at: float
    channel: str
    kind: str
    what: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class Outbox:
    """All that the sender keeps between two passes."""

    waiting: tuple[Message, ...] = ()
    told: Mapping[str, Told] = field(default_factory=dict)
    queued: Mapping[str, tuple[float, ...]] = field(default_factory=dict)  # channel -> when messages were accepted
    recent: tuple[Delivery, ...] = ()


def admit(outbox: Outbox, alerts: Iterable[Alert], config: Config, now: float) -> Outbox:
    """Take new alerts in: those that were told a short while ago are counted, the others go to their channels."""
    told, fresh = dict(outbox.told), list[Message]()
    for alert in sorted(alerts, key=lambda one: (-one.severity.rank, one.at)):
        before = told.get(alert.key)
        if before and now - before.at < config.alert_cool_down:
            told[alert.key] = replace(before, again=before.again + 1)
            continue
        told[alert.key] = Told(now)
        fresh += (
            Message(channel.name, alert, before.again if before else 0)
            for channel in config.alert_channels
            if takes(channel, alert)
        )
    kept = dict(sorted(told.items(), key=lambda item: item[1].at)[-MOST_TOLD:])
    return _queue(replace(outbox, told=kept), fresh, now)


def _queue(outbox: Outbox, fresh: Sequence[Message], now: float) -> Outbox:
    waiting, queued = list(outbox.waiting), {}
    for channel in {*outbox.queued, *(message.channel for message in fresh)}:
        times = [at for at in outbox.queued.get(channel, ()) if now - at < RATE_WINDOW]
        mine = [message for message in fresh if message.channel == channel]
        room = max(MOST_AT_ONCE - len(times), 0)
        waiting += mine[:room]
        if mine[room:]:
            waiting = _digested(waiting, mine[room:], now)
        queued[channel] = (*times, *(now for _ in mine[:room]))
    return replace(outbox, waiting=tuple(waiting[-MOST_PENDING:]), queued=queued)


def _digested(waiting: Sequence[Message], more: Sequence[Message], now: float) -> list[Message]:
    """One message for all of `more`, and for those of a digest that was not tried yet."""
    channel = more[0].channel
    open_ones = [one for one in waiting if one.channel == channel and one.alert.kind is Kind.DIGEST and not one.tries]
    number = len(more) + sum(one.untold for one in open_ones)
    kinds = ", ".join(f"{count} {kind}" for kind, count in Counter(one.alert.kind.value for one in more).most_common())
    alert = Alert(
        kind=Kind.DIGEST,
        what=f"{number} more alerts, too many to tell one by one",
        at=now,
        subject=f"digest {now:.0f}",
        cluster=more[-1].alert.cluster,
        cause=f"the last of them: {kinds}",
        line=more[-1].alert.what,
        command="slurm-ft status",
    )
    due = min((one.next_try for one in open_ones), default=now + DIGEST_PAUSE)
    return [*(one for one in waiting if one not in open_ones), Message(channel, alert, number, next_try=due)]


def due(outbox: Outbox, channel: str, now: float) -> list[Message]:
    """What this channel is to be given now, the most urgent first."""
    mine = [one for one in outbox.waiting if one.channel == channel and one.next_try <= now]
    return sorted(mine, key=lambda one: (-one.alert.severity.rank, one.alert.at))


def delivered(outbox: Outbox, message: Message, error: str, now: float) -> Outbox:
    """After a try: the message is gone, waits for its next try, or is given up."""
    rest = tuple(one for one in outbox.waiting if one != message)
    tries = message.tries + 1
    if error and tries < MOST_TRIES:
        pause = min(FIRST_PAUSE * 2**message.tries, LONGEST_PAUSE)
        return replace(outbox, waiting=(*rest, replace(message, tries=tries, next_try=now + pause)))
    shown = f"given up after {tries} tries: {error}" if error else ""
    ended = Delivery(now, message.channel, message.alert.kind.value, message.alert.what, shown)
    return replace(outbox, waiting=rest, recent=(*outbox.recent, ended)[-MOST_RECENT:])


def without_channels(outbox: Outbox, config: Config) -> Outbox:
    """Without what waits for channels that the site has taken out of its configuration."""
    names = {channel.name for channel in config.alert_channels}
    return replace(outbox, waiting=tuple(one for one in outbox.waiting if one.channel in names))
