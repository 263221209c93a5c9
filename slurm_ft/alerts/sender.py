"""The sender: takes what the hooks have spooled and delivers it, for as long as there is something to deliver now.

Started by the hook that spools (detached), by `slurm-ft reconcile` and by `slurm-ft alert send`; one at a time works.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from logging import Logger
from queue import Empty, SimpleQueue

from slurm_ft.alert_channels import Channel
from slurm_ft.alerts import outbox as box
from slurm_ft.alerts import outbox_file, spool
from slurm_ft.alerts.deliver import deliver
from slurm_ft.alerts.outbox import Message, Outbox
from slurm_ft.alerts.secret import ChannelError
from slurm_ft.alerts.spooling import LOCK
from slurm_ft.config import Config
from slurm_ft.state_file import give_to_owner_of

PASS_LIMIT = 60.0  # seconds that the channels have together, one beside the other
MOST_PASSES = 10  # then the next sender goes on; a bound, should hooks spool without end


@dataclass(frozen=True, slots=True)
class Sent:
    """What one sender has done."""

    delivered: int = 0
    failed: int = 0
    busy: bool = False  # another one is at work

    def __add__(self, other: Sent) -> Sent:
        return Sent(self.delivered + other.delivered, self.failed + other.failed, self.busy or other.busy)


def send(config: Config, log: Logger) -> Sent:
    """Deliver what can be delivered now. Raises OSError when the state directory cannot be used."""
    done = Sent()
    for _ in range(MOST_PASSES):
        with _only_sender(config) as alone:
            if not alone:
                return Sent(done.delivered, done.failed, busy=True)
            done += _pass(config, log)
        # Looked at after the lock is free: who has spooled before that, and found us at work, has started no other.
        if not spool.paths(config.state_dir):
            break
    return done


@contextmanager
def _only_sender(config: Config) -> Iterator[bool]:
    directory = spool.made(config.state_dir).parent
    descriptor = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o640)
    try:
        give_to_owner_of(config.state_dir, descriptor)
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield True
            return
        yield False
    finally:
        os.close(descriptor)


def _pass(config: Config, log: Logger) -> Sent:
    """Take the spool in, write that down, deliver, write that down."""
    files = spool.paths(config.state_dir)
    now = time.time()
    before = box.without_channels(outbox_file.load(config.state_dir), config)
    outbox = box.admit(before, spool.read(files), config, now)
    outbox_file.save(config.state_dir, outbox)
    for path in files:
        path.unlink(missing_ok=True)
    results = _deliver_all(outbox, config, now)
    for message, error in results:
        outbox = box.delivered(outbox, message, error, time.time())
        if error:
            log.warning("alert not delivered, try %d of %d: %s", message.tries + 1, box.MOST_TRIES, error)
    outbox_file.save(config.state_dir, outbox)
    failed = sum(bool(error) for _, error in results)
    return Sent(len(results) - failed, failed)


def _deliver_all(outbox: Outbox, config: Config, now: float) -> list[tuple[Message, str]]:
    """Each channel in a thread of its own: a slow one costs the others nothing, and a hanging one is left behind."""
    work = [(channel, due) for channel in config.alert_channels if (due := box.due(outbox, channel.name, now))]
    answers: SimpleQueue[tuple[Message, str]] = SimpleQueue()
    threads = [
        threading.Thread(target=_deliver_due, args=(channel, due, config, answers), daemon=True)
        for channel, due in work
    ]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + PASS_LIMIT
    for thread in threads:
        thread.join(max(deadline - time.monotonic(), 0.0))
    hanging = [work[place] for place, thread in enumerate(threads) if thread.is_alive()]
    results = _drained(answers)
    answered = [message for message, _ in results]
    for channel, messages in hanging:
        left = [message for message in messages if message not in answered]
        results += [(message, f"{channel.name}: too slow") for message in left[:1]]
    return results


def _deliver_due(
    channel: Channel, messages: Sequence[Message], config: Config, answers: SimpleQueue[tuple[Message, str]]
) -> None:
    """Until the first failure: what comes after it would most likely fail too, and waits."""
    for message in messages:
        try:
            deliver(channel, message.alert, message.untold, config)
        except ChannelError as error:
            answers.put((message, str(error)))
            return
        answers.put((message, ""))


def _drained(answers: SimpleQueue[tuple[Message, str]]) -> list[tuple[Message, str]]:
    found: list[tuple[Message, str]] = []
    with suppress(Empty):
        while True:
            found.append(answers.get_nowait())
    return found
