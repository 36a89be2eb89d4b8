"""What is handed in is committed whole, whenever the next batch goes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from onceward.core.model import StepKey, StepRow
from onceward.core.ports import Batch, BatchResult, Begun, Store
from onceward.core.states import StepState
from onceward.runtime.committer import Committer, PendingAdvance


class _Store:
    """Keeps batches; says that every fence held."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []

    def begin(self, process_id: str, epoch: int, batch: Batch) -> Begun | None:
        return None

    def apply(self, process_id: str, epoch: int, batch: Batch) -> BatchResult:
        self.batches.append(batch)
        return BatchResult([], [True] * len(batch.advances), [])


class _Writer:
    """Commits at once; tells in the next round of the loop."""

    def submit(self, call: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        asyncio.get_running_loop().call_soon(done, call(), None)

    def close(self) -> None: ...


def test_what_is_added_while_the_store_waits_is_committed_with_what_it_is_filled_with() -> None:
    """A batch that goes because it is late has what was added before, whole, and not the next, empty."""

    async def scenario() -> None:
        clock, store = [0.0], _Store()
        took: list[float] = []
        committer = Committer(
            cast("Store", store),
            _Writer(),
            batch_ids=lambda: f"batch_{len(store.batches)}",
            draw=lambda: 0.0,
            elapsed_s=lambda: clock[0],
            claims=list,
            claimed=lambda _: None,
            routed=lambda _: None,
            moved=lambda again: again(),
            arrived=lambda *_: None,
            took=took.append,
            evicted=lambda _: None,
        )
        committer._pace.over(-1.0, overlaps=True)  # the last commit took a second
        pending = []
        for number in range(3):
            one = PendingAdvance(f"run_{number}", 1, 1, asyncio.get_running_loop())
            committer.add(one)
            row = StepRow("a", "", 1, 1, "run", StepState.DONE, 1, 0, 0)
            one.steps[StepKey("a", "", 1)] = row
            pending.append(one)
            clock[0] += 10.0  # later than the store may be left idle

        assert await asyncio.gather(*(one.future for one in pending)) == [True] * 3
        assert len(took) == len(store.batches), "each commit is timed"

        saved = [
            (advance.run_id, len(advance.steps)) for batch in store.batches for advance in batch.advances
        ]
        assert sorted(saved) == [("run_0", 1), ("run_1", 1), ("run_2", 1)]

    asyncio.run(scenario())
