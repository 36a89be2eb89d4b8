"""A process dies between an effect and its save: nothing is done again of which that was not said."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import pytest

from onceward import RunHandle, RunState
from tests.helpers import eventually_async
from tests.lifecycle.checks import check
from tests.lifecycle.procs import Nursery
from tests.lifecycle.scenarios import WITHIN_S, N, ended, start
from tests.lifecycle.shop import Shop

PAYMENT = f"payment-{N}"
UNDONE = [f"hold-{N}", f"charge-{N}", f"no-charge-{N}", f"no-hold-{N}"]


def settings_of(nursery: Nursery) -> dict[str, Any]:
    """Take over at once: by the lock file on SQLite, by the instance's name on PostgreSQL."""
    return {} if nursery.is_sqlite else {"instance": "shop"}


async def killed(nursery: Nursery, failpoint: str) -> None:
    child = nursery.fork(failpoint=failpoint, **settings_of(nursery))
    assert await asyncio.to_thread(child.wait) == -signal.SIGKILL, nursery.logs()


async def is_in(run: RunHandle[Any], state: RunState) -> None:
    async def there() -> bool:
        return await run.state() is state

    await eventually_async(there, WITHIN_S, what=f"the run is {state}")


def payments(shop: Shop) -> int:
    return [what for what, _ in shop.made()].count(PAYMENT)


@pytest.mark.parametrize(
    ("workflow", "state", "result", "made"),
    [
        ("asking", RunState.HELD, "", 1),
        ("looking", RunState.COMPLETED, f"{PAYMENT}, found", 1),
        ("once", RunState.FAILED, "", 1),
        ("again", RunState.COMPLETED, PAYMENT, 2),
    ],
)
async def test_a_kill_between_the_effect_and_the_save(
    nursery: Nursery, workflow: str, state: RunState, result: str, made: int
) -> None:
    """Only the step that says nothing pays twice: that is what the others are for."""
    async with nursery.client() as shop:
        run = await start(shop, workflow, N)
        await killed(nursery, "step.after_body:kill:1")
        last = nursery.fork(**settings_of(nursery))

        await is_in(run, state)

        assert payments(shop) == made
        assert len(set(shop.made())) == 1
        if state is RunState.HELD:
            (question,) = await run.questions()
            assert (question.step, question.arguments) == ("payment", f'{{"what":"{PAYMENT}"}}')
            assert question.idempotency_key == shop.made()[0][1]
            await run.answer("happened", result="seen by a person")
            assert await run.result(WITHIN_S) == "seen by a person"
            assert payments(shop) == 1
        elif state is RunState.COMPLETED:
            assert await run.result(WITHIN_S) == result
        last.signal(signal.SIGTERM)
        assert await asyncio.to_thread(last.wait) == 0
    check(nursery.store, nursery.ledger, kills=1, width=1)


@pytest.mark.parametrize("workflow", ["asking", "looking", "once"])
async def test_a_kill_before_the_body_and_one_before_its_record(nursery: Nursery, workflow: str) -> None:
    """Killed before the record: it never began. Killed after it: it is not known, and nothing is done."""
    async with nursery.client() as shop:
        run = await start(shop, workflow, N)
        await killed(nursery, "step_start.before_commit:kill:1")
        await killed(nursery, "step.before_body:kill:1")
        assert payments(shop) == 0
        last = nursery.fork(**settings_of(nursery))

        if workflow == "asking":
            await is_in(run, RunState.HELD)
            await run.answer("did_not_happen")
        elif workflow == "once":
            await is_in(run, RunState.FAILED)
            await run.retry()
        assert await run.result(WITHIN_S) == PAYMENT

        assert payments(shop) == 1
        last.signal(signal.SIGTERM)
        assert await asyncio.to_thread(last.wait) == 0
    check(nursery.store, nursery.ledger, kills=2, width=1)


@pytest.mark.parametrize("failpoint", ["end.before_commit", "end.after_commit"])
async def test_a_kill_around_the_question_does_not_lose_it(nursery: Nursery, failpoint: str) -> None:
    async with nursery.client() as shop:
        run = await start(shop, "asking", N)
        await killed(nursery, "step.after_body:kill:1")
        await killed(nursery, f"{failpoint}:kill:1")
        last = nursery.fork(**settings_of(nursery))
        await is_in(run, RunState.HELD)

        await run.answer("happened", result="seen")

        assert await run.result(WITHIN_S) == "seen"
        assert payments(shop) == 1
        last.signal(signal.SIGTERM)
        assert await asyncio.to_thread(last.wait) == 0
    check(nursery.store, nursery.ledger, kills=2, width=1)


PLACES = [
    ("step.before_body", 4),  # before the first undo
    ("step.after_body", 3),  # between its effect and its save
    ("save.before_commit", 4),
    ("save.after_commit", 4),
    ("step.before_body", 5),
    ("step.after_body", 4),
    ("end.before_commit", 1),
    ("end.after_commit", 1),
]


BETWEEN = ("step.after_body", "save.before_commit", "end.before_commit")
"""Places between an effect and its save: it happens again, with the same key."""


@pytest.mark.parametrize(("place", "nth"), PLACES)
async def test_a_kill_half_way_through_undoing(nursery: Nursery, place: str, nth: int) -> None:
    """It goes on where it was: what was saved as undone is not undone again, what was not has one key."""
    async with nursery.client() as shop:
        run = await start(shop, "undone", N)
        await killed(nursery, f"{place}:kill:{nth}")
        nursery.fork(**settings_of(nursery))

        assert await ended(run) is RunState.FAILED

        made = shop.made()
        assert list(dict.fromkeys(what for what, _ in made)) == UNDONE
        assert len(made) == len(UNDONE) + (place in BETWEEN)
        assert len(set(made)) == len(UNDONE)
        row = await run.row()
        assert row.warning == '{"undone":["charge","hold"]}'
    check(nursery.store, nursery.ledger, kills=1, width=1)
