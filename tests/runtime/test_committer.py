"""What is handed in is committed whole, whenever the next batch goes."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any, cast

import pytest

from onceward.core import errors
from onceward.core.model import EventRow, StepKey, StepRow
from onceward.core.ports import Accept, Accepted, Batch, BatchResult, Begun, Store
from onceward.core.states import StepState
from onceward.runtime.commits import Writer
from onceward.runtime.committer import Committer, PendingAdvance
from onceward.runtime.pace import GATHER_MIN


class _Store:
    """Keeps batches; says that every fence held."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []

    def begin(self, process_id: str, epoch: int, batch: Batch) -> Begun | None:
        return None

    def apply(self, process_id: str, epoch: int, batch: Batch) -> BatchResult:
        self.batches.append(batch)
        accepted = [Accepted(False, False, {}) for _ in batch.accepts]
        return BatchResult(accepted, [True] * len(batch.advances), [])


class _Writer:
    """Commits at once; tells in the next round of the loop."""

    def submit(self, call: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        asyncio.get_running_loop().call_soon(done, call(), None)

    def close(self) -> None: ...


def committer_on(
    store: object,
    *,
    writer: Writer | None = None,
    elapsed_s: Callable[[], float] = lambda: 0.0,
    took: Callable[[float], None] = lambda _: None,
    is_core_full: Callable[[], bool] = lambda: False,
) -> Committer:
    numbers = itertools.count()
    return Committer(
        cast("Store", store),
        writer or _Writer(),
        batch_ids=lambda: f"batch_{next(numbers)}",
        draw=lambda: 0.0,
        elapsed_s=elapsed_s,
        claims=list,
        claimed=lambda _: None,
        routed=lambda _: None,
        moved=lambda again: again(),
        arrived=lambda *_: None,
        took=took,
        evicted=lambda _: None,
        is_core_full=is_core_full,
    )


def test_what_is_added_while_the_store_waits_is_committed_with_what_it_is_filled_with() -> None:
    """A batch that goes because it is late has what was added before, whole, and not the next, empty."""

    async def scenario() -> None:
        clock, store = [0.0], _Store()
        took: list[float] = []
        committer = committer_on(store, elapsed_s=lambda: clock[0], took=took.append)
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


@pytest.mark.parametrize("is_busy", [True, False])
def test_a_busy_process_commits_what_some_rounds_bring_together(is_busy: bool) -> None:
    async def scenario() -> None:
        store = _Store()
        committer = committer_on(store, is_core_full=lambda: is_busy)
        event = EventRow("shop", "1", "paid", None, 0)
        await asyncio.gather(*(committer.accept([Accept(event, [])]) for _ in range(GATHER_MIN)))
        for _ in range(4):
            committer.accept([Accept(event, [])])
            await asyncio.sleep(0)  # to the next round
        await committer.accept([Accept(event, [])])

        sizes = [len(batch.accepts) for batch in store.batches]
        assert (sizes[0], sum(sizes)) == (GATHER_MIN, GATHER_MIN + 5)
        assert (len(sizes) == 2) is is_busy, sizes

    asyncio.run(scenario())


class _Away(_Store):
    """Cannot be reached."""

    def apply(self, process_id: str, epoch: int, batch: Batch) -> BatchResult:
        self.batches.append(batch)
        raise errors.StoreUnavailable("The store is away.")


class _Telling(_Writer):
    """Tells of an error at once."""

    def submit(self, call: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        try:
            call()
        except errors.StoreUnavailable as error:
            done(None, error)


def test_a_process_that_stops_waits_no_longer_for_a_store_that_is_away() -> None:
    """Neither what waits to be tried again, nor what a run adds when it hears of that."""

    async def scenario() -> None:
        store = _Away()
        committer = committer_on(store, writer=_Telling())
        tried, late = (PendingAdvance(f"run_{n}", 1, 1, asyncio.get_running_loop()) for n in range(2))
        committer.add(tried)
        await asyncio.sleep(0)  # the next round commits
        assert len(store.batches) == 1
        assert not tried.future.done()

        committer.close()
        committer.add(late)

        for one in (tried, late):
            with pytest.raises(errors.StoreUnavailable, match="stopping"):
                await one.future
        with pytest.raises(errors.StoreUnavailable, match="stopping"):
            await committer.accept([])
        assert len(store.batches) == 1

    asyncio.run(scenario())


class _Slow(_Writer):
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.answer: Callable[[], None] = lambda: None

    def submit(self, call: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        self.answer = lambda: _Telling().submit(call, done)


def test_a_store_that_is_closed_under_the_last_commit_is_not_said_to_be_away(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A process that stops waits for its runs, and not for a claim that is on its way."""

    async def scenario() -> None:
        writer = _Slow()
        committer = committer_on(_Away(), writer=writer)
        under_way = PendingAdvance("run_1", 1, 1, asyncio.get_running_loop())
        committer.add(under_way)
        await asyncio.sleep(0)  # the next round commits

        committer.close()
        writer.answer()

        with pytest.raises(errors.StoreUnavailable):
            await under_way.future

    asyncio.run(scenario())

    assert caplog.text == ""


OPERATIONS = 10_000


class _Picky:
    """A store to which nothing can be sent that has a bad name; it says so before it waits for anything."""

    def __init__(self) -> None:
        self.written: list[str] = []

    def begin(self, _process: str, _epoch: int, batch: Batch) -> _Answered:
        names = [accept.event.id for accept in batch.accepts] + [one.run_id for one in batch.advances]
        if any(name.startswith("bad") for name in names):
            raise errors.NotStorable("A name is bad.")
        self.written += names
        return _Answered(batch)


class _Answered:
    """A batch whose answer is there at once."""

    fileno = None
    is_ready = True

    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    def finish(self) -> BatchResult:
        accepted = [Accepted(False, False, {}) for _ in self._batch.accepts]
        return BatchResult(accepted, [True] * len(self._batch.advances), [])


def test_ten_thousand_operations_that_cannot_be_written_fail_each_alone() -> None:
    """However they are handed in; those between them are written, and the stack does not grow."""

    async def scenario() -> None:
        store, loop = _Picky(), asyncio.get_running_loop()
        committer = committer_on(store)
        names = [f"good_{n}" if n % 1_001 == 7 else f"bad_{n}" for n in range(OPERATIONS)]
        futures: dict[str, asyncio.Future[Any]] = {}
        for name in names[::2]:
            futures[name] = committer.accept([Accept(EventRow("s", name, "t", "{}", 0), [])])
        for name in names[1::2]:
            one = PendingAdvance(name, 1, 1, loop)
            committer.add(one)
            futures[name] = one.future

        found = await asyncio.gather(*futures.values(), return_exceptions=True)

        refused = [
            name for name, one in zip(futures, found, strict=True) if isinstance(one, errors.NotStorable)
        ]
        assert sorted(refused) == sorted(name for name in names if name.startswith("bad"))
        assert sorted(store.written) == sorted(set(names) - set(refused))

    asyncio.run(scenario())


def test_what_is_withdrawn_is_refused_and_in_no_batch() -> None:
    """A run that is ours by a newer claim has its operation of now, and not the old one beside it (RULINGS 4)."""

    async def scenario() -> None:
        store = _Store()
        committer = committer_on(store)
        old, new = (PendingAdvance("run_1", 1, fence, asyncio.get_running_loop()) for fence in (3, 5))
        committer.add(old)
        committer.withdraw(old)
        committer.add(new)
        assert [await old.future, await new.future] == [False, True]

        committer.withdraw(new)  # it is durable: nothing is taken back
        assert [advance.fence for batch in store.batches for advance in batch.advances] == [5]
        assert new.future.result() is True

    asyncio.run(scenario())
