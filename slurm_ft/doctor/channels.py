"""Whether alerts would reach anybody: each channel's secrets, and whether it may be used. Nothing is sent."""

from __future__ import annotations

from collections.abc import Iterator

from slurm_ft.alerts.deliver import prepare
from slurm_ft.alerts.secret import ChannelError
from slurm_ft.config import Config, Residency
from slurm_ft.doctor.finding import Finding, Stage, fail, ok, warning

STAGE = Stage.ALERTS


def check_channels(config: Config) -> Iterator[Finding]:
    """A line for each channel; `slurm-ft alert test` sends something."""
    if not config.alert_channels:
        yield warning(
            STAGE, "no channel: alerts stand in the log alone", "alert_channels in slurm_ft.yaml, docs/alerts.md"
        )
    for channel in config.alert_channels:
        try:
            access = prepare(channel, config)
        except ChannelError as error:
            yield fail(STAGE, error.what, error.fix or "See docs/alerts.md")
        else:
            where = ", ".join(access.hosts)
            yield ok(STAGE, f"{channel.name}: {channel.service.value} to {where}; `slurm-ft alert test` tries it")
    yield residency(config)


def residency(config: Config) -> Finding:
    """Where alerts may go."""
    allowed = ", ".join(config.alert_destinations)
    if config.residency is Residency.STRICT:
        return ok(STAGE, f"residency is strict: this machine{f', {allowed}' * bool(allowed)}, and nowhere else")
    return ok(STAGE, f"alerts go to {allowed} alone" if allowed else "alerts may go anywhere (residency: off)")
