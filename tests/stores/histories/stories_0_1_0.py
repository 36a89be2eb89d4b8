"""The runs that 0.1.0 left behind: where each of them stood, and the end that it has to come to.

Not edited once it is released; see `works_0_1_0`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from onceward import RunHandle
from tests.helpers import eventually_async
from tests.stores.histories.works_0_1_0 import Works

Do = Callable[[Works, RunHandle[Any]], Awaitable[Any]]


UNSAID = object()


@dataclass(frozen=True)
class Story:
    """One run.

    Attributes:
        name: its event's id, and what its bodies are told.
        workflow: of which it is a run.
        stood: its state in the store that was left behind.
        ends: the state that it ends in, or is held in.
        output: what it gives, where that can be said beforehand.
        hangs: what the body says that was under way, words of `Works.act`; several with spaces between.
        event: its event, where something else than a start began it; ``delivery`` is one over HTTP.
        payload: of that event.
        steered: what an operator, or the outside, did while no process ran.
        then: what is done when the run has gone on.
        is_begun_away: it was accepted while no process ran.
        is_in_outbox: its event was written beside the user's own rows, and nothing was made of it yet.
        replay: the end is that of the run that replayed it.
    """

    name: str
    workflow: str
    stood: str
    ends: str = "completed"
    output: Any = UNSAID
    hangs: str = ""
    event: str = ""
    payload: Any = None
    steered: Do | None = None
    then: Do | None = None
    is_begun_away: bool = False
    is_in_outbox: bool = False
    replay: str = ""

    @property
    def source(self) -> str:
        """Give the source of its event."""
        if self.event == "delivery":
            return "stripe"
        return f"emit/{self.event}" if self.event else f"start/{self.workflow}"

    @property
    def words(self) -> list[str]:
        """Give what hangs."""
        return self.hangs.split(" + ") if self.hangs else []


# --- what is done -------------------------------------------------------------------------------


def emits(type: str, payload: Any = None) -> Do:
    async def do(works: Works, run: RunHandle[Any]) -> None:
        row = await run.row()
        await works.app.emit(type, payload, subject=row.event_id, id=f"{type} {row.event_id}")

    return do


def emits_about(type: str) -> Do:
    async def do(works: Works, run: RunHandle[Any]) -> None:
        of = (await run.row()).event_id
        await works.app.emit(type, {"of": "another"}, id=f"{type} of another")
        await works.app.emit(type, {"of": of}, id=f"{type} {of}")

    return do


def answers(answer: str, **more: Any) -> Do:
    async def do(_: Works, run: RunHandle[Any]) -> None:
        async def is_held() -> bool:
            return (await run.state()).value == "held"

        await eventually_async(is_held, 60, what=f"{run} is held")
        await run.answer(answer, **more)

    return do


def completes(value: Any, *, fails: bool = False) -> Do:
    async def do(works: Works, run: RunHandle[Any]) -> None:
        token = json.loads({row.name: row.output for row in await run.steps()}["ask"] or "")
        if fails:
            await works.app.fail_promise(token, value)
        else:
            await works.app.complete_promise(token, value)

    return do


async def deliver(works: Works, type: str, event_id: str, about: str) -> None:
    """Send a signed delivery to the receiver, below HTTP."""
    body = json.dumps({"id": event_id, "type": type, "data": {"object": {"id": about}}}).encode()
    headers = works.stripe.sign(body, time.time_ns() // 1_000_000)
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/hooks/stripe",
        "root_path": "",
        "query_string": b"",
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
    }
    statuses: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    await works.app.asgi()(scope, receive, send)
    assert statuses in ([200], [202]), statuses


def delivers(type: str) -> Do:
    async def do(works: Works, run: RunHandle[Any]) -> None:
        about = (await run.row()).event_id
        await deliver(works, type, f"{type} {about}", about)

    return do


async def cancels(_: Works, run: RunHandle[Any]) -> None:
    await run.cancel()


async def retries(_: Works, run: RunHandle[Any]) -> None:
    await run.retry()


async def dismisses(_: Works, run: RunHandle[Any]) -> None:
    await run.dismiss()


def restarts(**kept: Any) -> Do:
    async def do(_: Works, run: RunHandle[Any]) -> None:
        await run.restart(acknowledge=True, **kept)

    return do


def replays(**kept: Any) -> Do:
    async def do(_: Works, run: RunHandle[Any]) -> None:
        await run.replay(request_id=f"replay of {(await run.row()).event_id}", **kept)

    return do


async def is_started_again(works: Works, run: RunHandle[Any]) -> None:
    """See that the id still means this run."""
    row = await run.row()
    again = await works.app.start(works.workflows[row.workflow], row.event_id, id=row.event_id)
    assert again.run_id == run.run_id
    assert again.is_duplicate


def finds_it_held(type: str, payload: Any) -> Do:
    """See that another event with the same key gets this run."""

    async def do(works: Works, run: RunHandle[Any]) -> None:
        told = await works.app.emit(type, payload, id=f"another {type}")
        assert [one.run_id for one in told.runs] == [run.run_id]

    return do


def finds_it_stale(version: int) -> Do:
    """See that an older version still has no run."""

    async def do(works: Works, _: RunHandle[Any]) -> None:
        told = await works.app.emit("newest", {"version": version}, subject="s", id=f"older {version}")
        assert told.runs == []

    return do


def three(story: str) -> list[str]:
    return [f"{what} of {story}" for what in ("a", "b", "c")]


RUNNING = [
    Story("nothing saved", "three", "running", output=three("nothing saved"), hangs="a"),
    Story("after one step", "three", "running", output=three("after one step"), hangs="b"),
    Story("after two steps", "three", "running", output=three("after two steps"), hangs="c"),
    Story("in a thread", "three_plain", "running", output=three("in a thread"), hangs="b"),
    Story(
        "in branches",
        "branches",
        "running",
        output=[f"second {name} of in branches" for name in ("x", "y", "z")],
        hangs="first y + second x",
    ),
    Story("in a loop", "items", "running", output=[f"one {n} of in a loop" for n in range(4)], hangs="one 2"),
    Story(
        "a name again",
        "again",
        "running",
        output=[f"same {n} of a name again" for n in range(3)],
        hangs="same 2",
    ),
    Story("a race is decided", "race", "running", output="quick", hangs="slow + after quick"),
    Story("drawn values", "drawn", "running", hangs="b"),
    Story("rich values", "rich", "running", output=True, hangs="b"),
    Story("ensured", "ensured", "running", output="ticket of ensured", hangs="b"),
    Story("being ensured", "ensured", "running", output="ticket of being ensured", hangs="ticket"),
    Story("committed", "booking", "running", output="put committed", hangs="b"),
    Story(
        "after a failure that was caught",
        "caught",
        "running",
        output="declined for after a failure that was caught",
        hangs="b",
    ),
    Story("delivered", "delivered", "running", output="b of delivered", hangs="b", event="delivery"),
    Story("has its event", "waiter", "running", output={"boxes": 1}, hangs="b"),
    Story("emits are done", "emitter", "running", output="b of emits are done", hangs="b"),
    Story("emits are not done", "emitter", "running", output="b of emits are not done", hangs="inside"),
    Story("a child is started", "starter", "running", output="b of a child is started", hangs="b + y"),
    Story(
        "its child is refused",
        "parent",
        "running",
        hangs="b",
        output="Step 'declined' failed after 1 try: onceward.Permanent: declined for its child is refused",
    ),
    Story(
        "holds a key",
        "queueing",
        "running",
        output="b of holds a key",
        hangs="b",
        event="queueing",
        payload={"key": 1},
    ),
    Story(
        "is to be replaced",
        "replacing",
        "cancelling",
        "cancelled",
        hangs="b",
        event="replacing",
        payload={"key": 2},
    ),
]

STILL = [
    Story("not begun", "three", "queued", output=three("not begun"), is_begun_away=True),
    Story(
        "from the outbox",
        "listener",
        "",
        output="heard of from the outbox",
        event="told",
        payload={"of": "from the outbox"},
        is_begun_away=True,
        is_in_outbox=True,
    ),
    Story("asleep", "sleeper", "sleeping", output="b of asleep"),
    Story("asleep in a thread", "sleeper_plain", "sleeping", output="b of asleep in a thread"),
    Story(
        "asleep in branches",
        "sleepers",
        "sleeping",
        output=[f"after {name} of asleep in branches" for name in ("x", "y")],
    ),
    Story("a try is to come", "retrying", "backoff", output=2),
    Story("an attempt is to come", "backoff", "backoff", output=2),
    Story("past its deadline", "late", "sleeping", "failed"),
    Story("waits for an event", "waiter", "waiting", output={"boxes": 2}, then=emits("packed", {"boxes": 2})),
    Story(
        "an event has come", "waiter", "waiting", output={"boxes": 3}, steered=emits("packed", {"boxes": 3})
    ),
    Story(
        "waits with a condition",
        "picky",
        "waiting",
        output={"of": "waits with a condition"},
        then=emits_about("line"),
    ),
    Story(
        "waits for a delivery",
        "charged",
        "waiting",
        output="charge.captured waits for a delivery",
        then=delivers("charge.captured"),
    ),
    Story(
        "a delivery has come",
        "charged",
        "waiting",
        output="charge.captured a delivery has come",
        steered=delivers("charge.captured"),
    ),
    Story("waits in vain", "expiring", "waiting", output="nothing"),
    Story("waits for one of two", "choosing", "waiting", output=["no", 5], then=emits("no", 5)),
    Story("waits for a promise", "promising", "waiting", output="yes", then=completes("yes")),
    Story("a promise is kept", "promising", "waiting", output="yes", steered=completes("yes")),
    Story("a promise is broken", "promising", "waiting", output="no", steered=completes("no", fails=True)),
    Story("a promise expired", "promising", "waiting", output="nobody"),
    Story("waits for a child", "parent", "waiting", output="y of waits for a child", hangs="y"),
    Story("waits for a child asleep", "parent", "waiting", output="y of waits for a child asleep"),
    Story(
        "waits for a key",
        "queueing",
        "queued",
        output="b of waits for a key",
        event="queueing",
        payload={"key": 1},
    ),
    Story(
        "replaces another",
        "replacing",
        "queued",
        output="replaces another",
        event="replacing",
        payload={"key": 2},
        is_begun_away=True,
    ),
]

HELD = [
    Story(
        "begun, to be asked about",
        "asking",
        "running",
        output="paid",
        hangs="pay",
        then=answers("happened", result="paid"),
    ),
    Story(
        "begun, to be looked for and found",
        "looking",
        "running",
        output="pay of begun, to be looked for and found, found",
        hangs="pay",
    ),
    Story(
        "begun, to be looked for in vain",
        "looking",
        "running",
        output="pay of begun, to be looked for in vain",
        hangs="pay",
    ),
    Story("begun, to be tried once", "trying_once", "running", "failed", hangs="pay"),
    Story(
        "begun, and the key is forgotten",
        "remembered",
        "running",
        "completed",
        hangs="pay",
        then=answers("retry"),
    ),
    Story("asks", "doubtful", "held", hangs="doubt", output="letter of asks", then=answers("did_not_happen")),
    Story("asks, and nobody answers", "doubtful", "held", "held", hangs="doubt"),
    Story(
        "was answered",
        "doubtful",
        "queued",
        hangs="doubt",
        output="sent",
        steered=answers("happened", result="sent"),
    ),
    Story("gave up", "doubtful", "held", "failed", hangs="doubt", then=answers("fail")),
    Story("has no key", "keyless", "held", "held", event="keyless", payload={}),
    Story(
        "kills its processes", "killer", "held", output="die of kills its processes", then=answers("retry")
    ),
    Story("has a damaged step", "three", "running", "held", hangs="c"),
]

STEERED = [
    Story("is cancelled asleep", "cleaner", "cancelling", "cancelled", steered=cancels),
    Story("cleans up", "cleaner", "cancelling", "cancelled", hangs="tell"),
    Story(
        "is cancelled before it began", "three", "cancelled", "cancelled", steered=cancels, is_begun_away=True
    ),
    Story("is undone", "undoing", "running", "failed", hangs="undo charge"),
    Story("is half undone", "undoing", "running", "failed", hangs="undo reserve"),
    Story("is cancelled and to be undone", "regretting", "cancelling", "cancelled", steered=cancels),
    Story(
        "undoes by itself", "undoing_by_itself", "running", hangs="undo reserve", output=["charge", "reserve"]
    ),
    Story("failed", "failing", "failed", output=2, then=retries),
    Story("failed for good", "failing", "failed", "failed"),
    Story("failed and was retried", "failing", "queued", output=2, steered=retries),
    Story("failed and was dismissed", "failing", "failed", "failed", steered=dismisses),
    Story("is done", "three", "completed", output=three("is done"), then=is_started_again),
    Story("was restarted", "three", "queued", output=three("was restarted"), steered=restarts()),
    Story(
        "was restarted from a step",
        "three",
        "queued",
        output=three("was restarted from a step"),
        steered=restarts(from_step="b"),
    ),
    Story("is restarted", "three", "running", output=three("is restarted"), hangs="2 b"),
    Story(
        "was replayed", "three", "completed", output=three("was replayed"), steered=replays(), replay="queued"
    ),
    Story(
        "was replayed from a step",
        "three",
        "completed",
        output=three("was replayed from a step"),
        steered=replays(from_step="c"),
        replay="queued",
    ),
    Story(
        "is the only one",
        "only",
        "completed",
        output="b of is the only one",
        event="only",
        payload={"key": 3},
        then=finds_it_held("only", {"key": 3}),
    ),
    Story(
        "is the newest",
        "newest",
        "completed",
        output="b of is the newest",
        event="newest",
        payload={"version": 5},
        then=finds_it_stale(4),
    ),
]

STORIES = [*RUNNING, *STILL, *HELD, *STEERED]
