"""Asking the store whether runs are still ours: one question for all that ask in the same round of the loop.

Runs ask when their last answer is too old to begin a body by it (see `journal.CONFIRMED_S`). On a busy
machine that is every run of a batch at once, and a thread and a statement for each would make it busier.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from onceward.core.model import RunRow

if TYPE_CHECKING:
    from onceward.runtime.worker import Worker

Confirmed: TypeAlias = tuple[float, Mapping[str, RunRow]]
"""When the store was asked, by `Worker.elapsed_s`, and the runs that it has by their ids."""


class Confirming:
    """Asks for the runs of one worker."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._waiting: dict[asyncio.Future[Confirmed], str] = {}

    async def ask(self, run_id: str) -> Confirmed:
        """Give what the store says about a run, asked after this was called.

        Raises:
            StoreUnavailable: this process stops; until then the store is asked again and again.
        """
        future: asyncio.Future[Confirmed] = self._worker.loop.create_future()
        if not self._waiting:
            # The task is not that run's which happens to be the first.
            self._worker.loop.call_soon(self._send, context=self._worker.context)
        self._waiting[future] = run_id
        return await future

    def _send(self) -> None:
        waiting, self._waiting = self._waiting, {}
        self._worker.spawn(self._answer(waiting))

    async def _answer(self, waiting: dict[asyncio.Future[Confirmed], str]) -> None:
        worker, asked_at = self._worker, self._worker.elapsed_s()
        try:
            states = await worker.insist(worker.read, worker.store.states, list(waiting.values()))
        except asyncio.CancelledError:
            for future in waiting:
                future.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - who asked says what is wrong
            if len(waiting) > 1:  # one that cannot be read must not stop the others (F27)
                for future, run_id in waiting.items():
                    await self._answer({future: run_id})
                return
            for future in waiting:
                if not future.done():
                    future.set_exception(error)
                    future.exception()  # who asked may have gone
        else:
            for future in waiting:
                if not future.done():
                    future.set_result((asked_at, states))
