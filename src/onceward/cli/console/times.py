"""Times that people type: how long ago, or when."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from onceward.core.errors import ConfigError
from onceward.core.model import Millis

if TYPE_CHECKING:
    ParamType = click.ParamType[Millis]
else:
    ParamType = click.ParamType  # generic from click 8.4 on


class Moment(ParamType):
    """A time: ``2h`` means two hours ago; else ISO 8601, in UTC unless it says another zone."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Millis:
        """Give Unix milliseconds."""
        from onceward.cli.console.words import now_ms
        from onceward.core.duration import to_ms

        if isinstance(value, int):
            return value
        try:
            return now_ms() - to_ms(str(value), what="time")
        except ConfigError:
            pass
        try:
            moment = datetime.fromisoformat(str(value))
        except ValueError:
            self.fail(
                f"{value!r} is no time: write how long ago, such as 2h or 7d, or 2026-01-31T12:00Z.",
                param,
                ctx,
            )
        at = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return round(at.timestamp() * 1000)
