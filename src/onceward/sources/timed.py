"""Sources whose sender signs the time of sending, so that old deliveries cannot be sent again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import ClassVar

from onceward.core.duration import Duration, to_ms
from onceward.core.errors import ConfigError
from onceward.sources.base import Source
from onceward.sources.signing import check_window


class TimedSource(Source):
    """A source that refuses a signed time too far from now, before or after.

    Args:
        name: see `Source`.
        secrets: likewise.
        insecure: likewise.
        tolerance: how far the signed time may lie from now, before or after: a ``timedelta``,
            seconds or a text such as ``"5m"``; None: `tolerance_default`.

    Raises:
        ConfigError: see `Source`; or a tolerance of 0, which would refuse everything.
    """

    tolerance_default: ClassVar[timedelta | None] = timedelta(seconds=300)

    def __init__(
        self,
        *,
        name: str | None = None,
        secrets: str | Sequence[str] = (),
        insecure: bool = False,
        tolerance: Duration | None = None,
    ) -> None:
        super().__init__(name=name, secrets=secrets, insecure=insecure)
        if tolerance is None:
            self.tolerance = self.tolerance_default
            return
        self.tolerance = checked_tolerance(tolerance, source=self.name)

    def check_age(self, sent_at_ms: int, now_ms: int) -> None:
        """Refuse a time outside the tolerance with `SignatureInvalid`.

        Called last, so that an operator reads "stale" only of genuine deliveries.
        """
        if self.tolerance is not None:
            check_window(sent_at_ms, now_ms, self.tolerance)


def checked_tolerance(tolerance: Duration, *, source: str) -> timedelta:
    """Give a configured tolerance; `ConfigError` for one of 0, or what is no length of time."""
    tolerance_ms = to_ms(tolerance, what=f"tolerance of source {source!r}")
    if not tolerance_ms:
        raise ConfigError(
            f"Source {source!r} has a tolerance of 0.",
            means="Every delivery would be refused as too old.",
            todo="Use a positive one; five minutes fit most senders.",
        )
    return timedelta(milliseconds=tolerance_ms)
