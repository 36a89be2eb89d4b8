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
"""Between two pages, so that pruning is never a load worth a look."""

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
                    if self._has_time:
                        after = await self._page(what, after)
                    await asyncio.sleep(PAGE_PAUSE_S)
            await asyncio.sleep(PASS_PAUSE_S)

    @property
    def _has_time(self) -> bool:
        """Say whether a slot is free: no run waits for this process."""
        return len(self._worker.executions) < self._worker.settings.concurrency

    async def _page(self, what: What, after: str) -> str | None:
        worker = self._worker
        prune = functools.partial(worker.store.prune, what, self.rules, worker.now_ms(), after=after)
        try:
            found: Pruned = await worker.read(prune)
        except (errors.StoreUnavailable, errors.ReplyLost) as error:
            self._outage.failed(error)
            return after
        except Exception:  # noqa: BLE001 - whatever it is, the rest of the process goes on
            _log.exception("a page was not pruned; the next pass looks at it again")
            return None
        self._outage.worked()
        if found.values or found.rows:
            _log.info("pruned the values of %d and %d whole of %s", found.values, found.rows, what.value)
        return found.next


def keeps_of(rows: Iterable[WorkflowRow]) -> dict[str, Keep]:
    """Give what registered workflows say about their runs, by name."""
    told = {row.name: row.retention for row in rows}
    return {name: msgspec.json.decode(text, type=Keep) for name, text in told.items() if text is not None}
