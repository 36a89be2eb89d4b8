"""What a process does in a crash test: idempotent stories over the reference workflows.

The first process plays a scenario and is killed, stopped or failed somewhere in it; the next plays
the same from its beginning and must bring it to its end. So a scenario starts its runs with fixed
ids, and looks before it steers.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from onceward import RunHandle, RunState, StateConflict
from onceward.core.states import TERMINAL
from onceward.runtime.clock import wall_ms
from onceward.web.receiver import Receiver
from tests.helpers import eventually_async
from tests.lifecycle.shop import Shop

T = TypeVar("T")

WITHIN_S = 20
N = 7


@dataclass(frozen=True)
class Scenario:
    """A story.

    Attributes:
        play: tells it; raises where the end is not as it must be.
        width: bodies that may be under way at once, so that one kill may repeat that many.
        reopened: bodies that begin once more because an operator retries.
    """

    name: str
    play: Callable[[Shop], Awaitable[None]]
    width: int = 1
    reopened: int = 0


async def persist(call: Callable[[], Awaitable[T]]) -> T:
    """Do what any client does when it gets an error: ask again."""
    last: Exception | None = None
    for _ in range(20):
        try:
            return await call()
        except StateConflict:
            raise
        except Exception as error:  # noqa: BLE001 - whatever the failpoint made of it
            last = error
            await asyncio.sleep(0.02)
    raise AssertionError("no answer in twenty tries") from last


async def start(shop: Shop, workflow: str, *args: Any) -> RunHandle[Any]:
    return await persist(lambda: shop.app.start(shop[workflow], *args, id=f"{workflow}-1"))


async def ended(handle: RunHandle[Any]) -> RunState:
    async def state() -> RunState | None:
        found = await handle.state()
        return found if found in TERMINAL else None

    found = await eventually_async(lambda: persist(state), WITHIN_S, what=f"the end of {handle}")
    assert found is not None
    return found


async def completed(handle: RunHandle[Any], *expected: Any) -> None:
    """Wait for the run's end and compare its result, if one is given."""
    assert await ended(handle) is RunState.COMPLETED, await handle.row()
    result = await handle.result()
    assert not expected or [result] == list(expected), result


def simple(name: str, *expected: Any, width: int = 1) -> Scenario:
    async def play(shop: Shop) -> None:
        await completed(await start(shop, name, N), *expected)

    return Scenario(name, play, width)


async def _emitter(shop: Shop) -> None:
    await completed(await start(shop, "emitter", N))

    async def runs() -> list[Any] | None:
        found = await persist(lambda: shop.app.runs(limit=100))
        return found if len(found) == 5 else None

    rows = await eventually_async(runs, WITHIN_S, what="the five runs")
    assert rows is not None
    for row in rows:
        await completed(shop.app.run(row.run_id))
    workflows = sorted(row.workflow for row in await shop.app.runs())
    assert workflows == ["emitter", "listener", "listener", "steps", "steps"], workflows


async def _cancelled(shop: Shop) -> None:
    run = await start(shop, "cleaner", N)

    async def is_waiting() -> bool:
        return await persist(run.state) in (RunState.SLEEPING, RunState.CANCELLING, *TERMINAL)

    await eventually_async(is_waiting, WITHIN_S, what="the sleep")
    await persist(run.cancel)
    assert await ended(run) is RunState.CANCELLED, await run.row()
    steps = {row.name: row.state.value for row in await run.steps()}
    assert steps == {
        "reserve": "done",
        "wait for payment": "cancelled",
        "release": "done",
        "pause": "done",
        "tell": "done",
    }, steps


async def _queued_cancel(shop: Shop) -> None:
    """Cancel at once: before it begins, or with whatever has begun."""
    run = await start(shop, "cleaner", N)
    await persist(run.cancel)
    assert await ended(run) is RunState.CANCELLED, await run.row()
    steps = {row.name: row.state.value for row in await run.steps()}
    assert "ship" not in steps, steps


async def _retried(shop: Shop) -> None:
    run = await start(shop, "failing", N)

    async def retry_once() -> None:
        if await ended(run) is RunState.FAILED:
            await run.retry()

    await persist(retry_once)
    await completed(run, N)
    assert shop.ledger.starts("declined") <= 2, "a caught failure ran again at a retry"


async def _restarted(shop: Shop) -> None:
    run = await start(shop, "steps", N)
    await ended(run)

    async def restart_once() -> None:
        # An error may come after the restart is stored, so a client looks before it asks again.
        if (await run.row()).generation == 1:
            await run.restart(acknowledge=True)

    await persist(restart_once)
    await completed(run, [7, 8, 9])
    assert (await run.row()).generation == 2
    assert [len(await run.steps(generation)) for generation in (1, 2)] == [3, 3]


async def _replayed(shop: Shop) -> None:
    run = await start(shop, "steps", N)
    await completed(run)
    before = await run.row(), await run.steps()
    replay = await persist(lambda: run.replay(from_step="b", request_id="r-1"))
    await completed(replay, [7, 8, 9])
    assert before == (await run.row(), await run.steps())
    assert shop.ledger.starts("a", run_id=replay.run_id) == 0


async def _awaiter(shop: Shop) -> None:
    """Send what the run waits for once it does, each under an id of its own; then complete its promise."""
    run = await start(shop, "awaiter", N)

    async def waits() -> bool:
        names = {row.name for row in await persist(run.steps)}
        return {"packed", "line"} <= names

    async def token() -> Any:
        steps = {row.name: row.output for row in await persist(run.steps)}
        return json.loads(steps.get("ask") or "null")

    await eventually_async(waits, WITHIN_S, what="the waits")
    await persist(lambda: shop.app.emit("shop.packed", {"n": 1}, subject=str(N), id="packed-1"))
    await persist(lambda: shop.app.emit("shop.line", {"n": 2, "of": N}, id="line-1"))
    asked = await eventually_async(token, WITHIN_S, what="the token")
    await persist(lambda: shop.app.complete_promise(asked, 4))
    await completed(run, N + 7)


async def _late(shop: Shop) -> None:
    run = await start(shop, "late", N)
    assert await ended(run) is RunState.FAILED
    assert json.loads((await run.row()).error or "")["type"].endswith("DeadlineExceeded")


async def _delivered(shop: Shop) -> None:
    """The same delivery until it is answered 2xx, and once more: one run."""
    body = json.dumps(
        {"id": "evt_1", "type": "charge.succeeded", "data": {"object": {"id": "ch_1"}}}
    ).encode()
    replies = []

    async def is_accepted() -> bool:
        replies.append(await deliver(shop.app.asgi(), shop, body))
        return 200 <= replies[-1][0] < 300

    await eventually_async(is_accepted, WITHIN_S, what="a 2xx")
    await eventually_async(is_accepted, WITHIN_S, what="another 2xx")
    (row,) = await shop.app.runs(workflow="paid")
    await completed(shop.app.run(row.run_id), "evt_1")


async def deliver(receiver: Receiver, shop: Shop, body: bytes) -> tuple[int, Any]:
    """POST a signed delivery to the receiver, below HTTP, and give status and reply."""
    headers = shop.stripe.sign(body, wall_ms())
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/hooks/stripe",
        "root_path": "",
        "query_string": b"",
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
    }
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    try:
        await receiver(scope, receive, send)
    except Exception:  # noqa: BLE001 - a server answers 500
        return 500, {}
    return sent[0]["status"], json.loads(b"".join(part.get("body", b"") for part in sent[1:]) or b"{}")


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        simple("steps", [7, 8, 9]),
        simple("plain", [7, 8, 9]),
        simple("parallel", [70, 80, 90], width=3),
        simple("race", width=2),
        simple("sleeper", 8),
        simple("retrier", 7),
        simple("parent", 15),
        simple("backoff", 7),
        simple("values"),
        simple("ensured", ["ticket-7", "payment-7"]),
        Scenario("emitter", _emitter, width=5),
        Scenario("awaiter", _awaiter),
        Scenario("cancelled", _cancelled),
        Scenario("queued cancel", _queued_cancel),
        Scenario("retried", _retried, reopened=1),
        Scenario("restarted", _restarted),
        Scenario("replayed", _replayed),
        Scenario("late", _late),
        Scenario("delivered", _delivered),
    )
}
"""Every story by name."""
