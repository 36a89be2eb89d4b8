"""Tells of an outage: when it begins, ever more rarely while it lasts, and when it is over.

A store that is away for an hour is met by every poll and every heartbeat of every process. One line
each would bury what else the log says, and the one that matters: that it is back.
"""

from __future__ import annotations

import logging

from onceward.core.errors import OncewardError


class Outage:
    """Counts failures in a row of one thing that is done again and again.

    Args:
        log: where it is told.
        what: what fails, e.g. ``"the store is away"``.
        over: that it works again, e.g. ``"the store is back"``.
    """

    def __init__(self, log: logging.Logger, what: str, over: str) -> None:
        self._log = log
        self._what = what
        self._over = over
        self._failures = 0

    @property
    def lasts(self) -> bool:
        """Whether it failed the last time."""
        return self._failures > 0

    def failed(self, error: OncewardError) -> None:
        """Hear of a failure; the first is told with what to do, then the 2nd, 4th, 8th … in short."""
        self._failures += 1
        if self._failures == 1:
            self._log.warning("%s, trying again: %s", self._what, error)
        elif self._failures & (self._failures - 1) == 0:
            self._log.warning("%s, %d times in a row: %s", self._what, self._failures, error.what)

    def worked(self) -> None:
        """Hear that it worked."""
        if self._failures:
            # As loud as the failure: who was woken by the one must not miss the other.
            self._log.warning("%s; failures in a row: %d", self._over, self._failures)
            self._failures = 0
