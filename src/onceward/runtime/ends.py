"""Who waits for the end of which run, here or in another process.

A run that ends in this process is told at once; for the others the store is asked, for all of
them with a few queries, and only while somebody waits.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from onceward.core import errors
from onceward.core.model import RunRow
from onceward.core.shown import shown
from onceward.core.states import TERMINAL

if TYPE_CHECKING:
    from onceward.runtime.worker import Worker

FIRST_S, CAP_S = 0.02, 0.5
"""Pauses between looks at runs that somebody waits for and that are not in memory here."""

IDS_MAX = 500
"""Runs asked for by one query."""


class Ends:
    """The ends that are awaited in one process."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._waiters: dict[str, list[asyncio.Future[RunRow]]] = {}
        self._is_watching = False

    async def of(self, run_id: str) -> RunRow:
        """Give the run when it has ended.

        Raises:
            NotFound: no such run in this namespace.
        """
        worker = self._worker
        future: asyncio.Future[RunRow] = worker.loop.create_future()
        self._waiters.setdefault(run_id, []).append(future)
        try:
            if run_id not in worker.executions:
                row: RunRow | None = await worker.read(worker.store.run, run_id)
                if row is None:
                    raise errors.NotFound(f"There is no run {shown(run_id)} in this namespace.")
                if row.state in TERMINAL:
                    return row
            if not self._is_watching:
                self._is_watching = True
                worker.spawn(self._watch())
            return await future
        finally:
            waiting = self._waiters.get(run_id, [])
            if future in waiting:
                waiting.remove(future)
            if not waiting:
                self._waiters.pop(run_id, None)

    async def _watch(self) -> None:
        worker, pause = self._worker, FIRST_S
        while self._waiters and not worker.is_draining:
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, CAP_S)
            away = [run_id for run_id in self._waiters if run_id not in worker.executions]
            for start in range(0, len(away), IDS_MAX):
                try:
                    rows = await worker.read(worker.store.states, away[start : start + IDS_MAX])
                except errors.StoreUnavailable:
                    break
                for row in rows.values():
                    if row.state in TERMINAL:
                        self.tell(row)
        self._is_watching = False

    def tell(self, run: RunRow) -> None:
        """Hear that a run ended."""
        for future in self._waiters.pop(run.run_id, ()):
            if not future.done():
                future.set_result(run)

    def close(self) -> None:
        """End every wait; this process stops."""
        for futures in self._waiters.values():
            for future in futures:
                future.cancel()
