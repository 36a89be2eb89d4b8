"""Runs that ask whether they are still ours share one question to the store."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, cast

import pytest

from onceward.core import errors
from onceward.core.model import RunRow
from onceward.runtime.confirming import Confirming
from onceward.runtime.worker import Worker


class Asked:
    """What of a worker the questions use; its store cannot read the run ``damaged``."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.context = contextvars.Context()
        self.store = self
        self.questions: list[list[str]] = []
        self.tasks: list[asyncio.Task[None]] = []

    def elapsed_s(self) -> float:
        return float(len(self.questions))

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(self.loop.create_task(coroutine))

    async def insist(self, function: Callable[..., Coroutine[Any, Any, Any]], *args: Any) -> Any:
        return await function(*args)

    async def read(self, function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)

    def states(self, run_ids: Sequence[str]) -> dict[str, RunRow]:
        self.questions.append(list(run_ids))
        if "damaged" in run_ids:
            raise errors.StoreError("A row cannot be read.")
        return {run_id: RunRow(run_id, "work", "emit/a", "1", created_at=0) for run_id in run_ids}


def asked() -> tuple[Asked, Confirming]:
    worker = Asked()
    return worker, Confirming(cast("Worker", worker))


def test_runs_that_ask_in_one_round_share_a_question() -> None:
    async def ask() -> None:
        worker, confirming = asked()
        first, second = await asyncio.gather(confirming.ask("a"), confirming.ask("b"))

        assert worker.questions == [["a", "b"]]
        assert first == second
        assert first[0] == 0.0, "asked when it was sent, not when it was answered"
        assert set(first[1]) == {"a", "b"}

    asyncio.run(ask())


def test_an_answer_is_never_older_than_its_question() -> None:
    async def ask() -> None:
        worker, confirming = asked()
        await confirming.ask("a")
        again = await confirming.ask("a")

        assert worker.questions == [["a"], ["a"]]
        assert again[0] == 1.0

    asyncio.run(ask())


def test_a_run_that_cannot_be_read_stops_no_other() -> None:
    async def ask() -> None:
        worker, confirming = asked()
        told = await asyncio.gather(
            confirming.ask("a"), confirming.ask("damaged"), confirming.ask("b"), return_exceptions=True
        )

        assert worker.questions == [["a", "damaged", "b"], ["a"], ["damaged"], ["b"]]
        assert isinstance(told[1], errors.StoreError)
        assert not isinstance(told[0], BaseException)
        assert not isinstance(told[2], BaseException)

    asyncio.run(ask())


def test_a_run_that_is_cancelled_meanwhile_takes_nobody_along() -> None:
    async def ask() -> None:
        worker, confirming = asked()
        gone = asyncio.ensure_future(confirming.ask("a"))
        stays = asyncio.ensure_future(confirming.ask("b"))
        await asyncio.sleep(0)
        gone.cancel()

        assert set((await stays)[1]) == {"a", "b"}
        with pytest.raises(asyncio.CancelledError):
            await gone
        assert all(task.exception() is None for task in worker.tasks if task.done())

    asyncio.run(ask())
