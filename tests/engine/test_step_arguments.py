"""Calls of steps with arguments that their functions do not take."""

from __future__ import annotations

import functools
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from onceward import ConfigError, Context, Retry, StepFailed, StepMisuse
from tests.engine.running import SOON, make_app, result_of


@pytest.mark.parametrize("is_async", [True, False])
def test_arguments_that_the_function_does_not_take_end_a_step_at_its_first_try(
    store_url: str, is_async: bool
) -> None:
    app = make_app(store_url)

    async def book(n: int, *, for_whom: str = "") -> int:
        raise AssertionError("the body begins")

    def book_plainly(n: int, *, for_whom: str = "") -> int:
        raise AssertionError("the body begins")

    asynchronous: Any = app.step(name="book a")(book)

    @app.workflow()
    async def flow(ctx: Context) -> Any:
        unchecked: Any = ctx.step  # a type checker refuses such calls
        try:
            if is_async:
                await asynchronous(1, y=3)
            else:
                await unchecked.run("book a", book_plainly, 1, 3)
        except StepFailed as failure:
            return [failure.tries, failure.error_type, failure.message]

    tries, kind, message = result_of(app, flow)

    assert (tries, kind) == (1, "onceward.StepMisuse")
    assert "The step 'book a' was called with arguments that its function does not take" in message
    assert ("unexpected keyword argument 'y'" if is_async else "too many positional arguments") in message
    assert "it takes n, for_whom" in message


def test_a_type_error_of_the_body_or_behind_a_wrapper_is_tried_again(store_url: str) -> None:
    calls = []

    app = make_app(store_url)

    def inner(client: str, n: int) -> int:
        calls.append(n)
        if len(calls) < 3:
            raise TypeError("something of the body's")
        return n

    @functools.wraps(inner)
    def with_client(n: int) -> int:
        return inner("client", n)

    @app.workflow()
    async def flow(ctx: Context) -> Any:
        return await ctx.step.run("the step", with_client, 7, retry=SOON)

    assert result_of(app, flow) == 7
    assert calls == [7, 7, 7]


def test_a_transaction_that_is_called_with_too_little_fails_at_its_first_try(tmp_path: Path) -> None:
    app = make_app(f"sqlite:///{tmp_path}/x.db")

    def insert(connection: sqlite3.Connection, name: str) -> None:
        raise AssertionError("the body begins")

    @app.workflow()
    async def flow(ctx: Context) -> Any:
        unchecked: Any = ctx.step  # a type checker refuses such calls
        try:
            await unchecked.transaction(
                "keep",
                insert,
                connect=lambda: sqlite3.connect(tmp_path / "x.db"),
            )
        except StepFailed as failure:
            return [
                failure.tries,
                failure.error_type,
                "missing a required argument: 'name'" in failure.message,
            ]

    assert result_of(app, flow) == [1, "onceward.StepMisuse", True]


def test_a_step_without_a_name_and_a_policy_with_a_wrong_word_are_answered(sqlite_url: str) -> None:
    app = make_app(sqlite_url)

    async def book() -> None: ...

    @app.workflow()
    async def flow(ctx: Context) -> str:
        unchecked: Any = ctx.step
        with pytest.raises(StepMisuse, match=r"given book where the step's name belongs.*run\('book', book"):
            await unchecked.run(book)
        return "done"

    assert result_of(app, flow) == "done"
    policy: Any = Retry
    with pytest.raises(ConfigError, match=r"Retry has no option 'max_try'.* Write max_tries=…"):
        policy(max_try=3)
