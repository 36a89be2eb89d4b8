"""Prunes what is over, where that was asked for: a page at a time, in idle moments.

Nothing is asked of the store where no retention is configured, neither the app's nor a workflow's. Two
processes that prune at once do each other no harm: every page is one transaction that looks again.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from onceward.core import errors
from onceward.core.model import WorkflowRow
from onceward.core.retention import Keep, Pruned, Retention, Rules, What, rules_of
from onceward.runtime.outage import Outage

if TYPE_CHECKING:
    from onceward.runtime.worker import Worker

_log = logging.getLogger("onceward.pruning")

PAGE_PAUSE_S = 2.0
"""Between two pages of which nothing went, so that to look for it is never a load worth a look."""

BUSY_SHARE = 0.1
"""Of the time, for pages of which something went: hundreds of rows a second, or a store that gets many events
would grow for good."""

BUSY_PAUSE_S = 0.05
"""Between two such pages, at least."""

TOLD_EVERY_S = 60.0
"""How often what goes is logged, at most."""

PASS_PAUSE_S = 600.0
"""Between two passes through all there is."""


class Pruning:
    """What one worker prunes.

    Attributes:
        retention: the app's, told before the worker starts.
    """

    def __init__(self, worker: Worker) -> None:
        self.retention: Retention | None = None
        self._worker = worker
        self._workflows: dict[str, Keep] = {}
        self._task: asyncio.Task[None] | None = None
        self._outage = Outage(_log, "nothing can be pruned, the store is away", "pruning goes on")
        self._values = self._rows = 0  # that went and are not logged yet
        self._told_at = 0.0

    def learn(self, rows: Iterable[WorkflowRow]) -> None:
        """Hear which workflows are registered; begin, if one of them or the app says for how long."""
        self._workflows = keeps_of(rows)
        worker = self._worker
        if self._task is None and worker.workflows and not worker.is_draining and self.rules.whats:
            self._task = worker.loop.create_task(self._forever())

    @property
    def rules(self) -> Rules:
        """Give what holds at present."""
        return rules_of(self.retention, self._workflows)

    @property
    def is_active(self) -> bool:
        """Say whether this process prunes."""
        return self._task is not None

    def stop(self) -> None:
        """Begin no further page."""
        if self._task is not None:
            self._task.cancel()

    async def _forever(self) -> None:
        # Not at once: a process that starts has better things to do.
        await asyncio.sleep(PAGE_PAUSE_S)
        while True:
            for what in self.rules.whats:
                after: str | None = ""
                while after is not None:
                    pause = PAGE_PAUSE_S
                    if self._has_time:
                        after, pause = await self._page(what, after)
                    await asyncio.sleep(pause)
                self._tell(what)
            await asyncio.sleep(PASS_PAUSE_S)

    @property
    def _has_time(self) -> bool:
        """Say whether a slot is free: no run waits for this process."""
        return len(self._worker.executions) < self._worker.settings.concurrency

    async def _page(self, what: What, after: str) -> tuple[str | None, float]:
        """Prune a page; give where the next one begins, if there is one, and in how many seconds."""
        worker = self._worker
        prune = functools.partial(worker.store.prune, what, self.rules, worker.now_ms(), after=after)
        began_at = worker.elapsed_s()
        try:
            found: Pruned = await worker.read(prune)
        except (errors.StoreUnavailable, errors.ReplyLost) as error:
            self._outage.failed(error)
            return after, PAGE_PAUSE_S
        except Exception:  # noqa: BLE001 - whatever it is, the rest of the process goes on
            _log.exception("a page was not pruned; the next pass looks at it again")
            return None, PAGE_PAUSE_S
        self._outage.worked()
        if not found.values and not found.rows:
            return found.next, PAGE_PAUSE_S
        self._values += found.values
        self._rows += found.rows
        now = worker.elapsed_s()
        if now - self._told_at >= TOLD_EVERY_S:
            self._tell(what)
        return found.next, min(max((now - began_at) / BUSY_SHARE, BUSY_PAUSE_S), PAGE_PAUSE_S)

    def _tell(self, what: What) -> None:
        if self._values or self._rows:
            _log.info("pruned the values of %d and %d whole of %s", self._values, self._rows, what.value)
            self._values = self._rows = 0
            self._told_at = self._worker.elapsed_s()


def keeps_of(rows: Iterable[WorkflowRow]) -> dict[str, Keep]:
    """Give what registered workflows say about their runs, by name."""
    told = {row.name: row.retention for row in rows}
    return {name: msgspec.json.decode(text, type=Keep) for name, text in told.items() if text is not None}
