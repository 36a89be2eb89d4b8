"""The app whose runs the histories are about: a few workflows for each kind of object.

With ``ONCEWARD_TEST_PLANT`` its store has some of `onceward.testing.planted`'s bugs or of `FAULTS`, with a plus
between them: the histories must find them.
"""

import asyncio
import json
import os
import secrets
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from onceward import App, Context, Event, OutcomeUnknown, Permanent, Retry, StepFailed
from onceward import event as e
from onceward.core.ports import Store
from onceward.sources import Stripe
from onceward.testing import planted

SECRET = "whsec_of_the_histories"
ONE_TRY = Retry(max_tries=1)


def _first_answer_is_forgotten(store: Any) -> None:
    """Whoever completes a promise is told that it counts, also when it was completed before."""
    statement = store._sql["settle_promise"]
    assert "state = 'open'" in statement
    store._sql["settle_promise"] = statement.replace("state = 'open'", "state <> 'expired'")


def _newest_is_forgotten(store: Any) -> None:
    """Every version counts as the newest of its subject."""
    statement = store._sql["raise_version"]
    assert "excluded.version >" in statement
    store._sql["raise_version"] = statement.replace("excluded.version >", "'' <>")


FAULTS: dict[str, Callable[[Any], None]] = {
    "answer-overwritten": _first_answer_is_forgotten,
    "version-forgotten": _newest_is_forgotten,
}
"""Faults of a SQLite store beside those of the simulation, by name."""


class Ordered(App):
    """An app whose store may have a fault."""

    def _make_store(self, draws: Any) -> Store:
        store = super()._make_store(draws)
        for name in filter(None, os.environ.get("ONCEWARD_TEST_PLANT", "").split("+")):
            if name in FAULTS:
                FAULTS[name](store)
            else:
                plant = planted.BUGS[name].store
                assert plant is not None, f"{name} is not a fault of a store"
                plant(SimpleNamespace(database=store))  # type: ignore[arg-type]
        return store


app = Ordered()
stripe = app.source(Stripe(secrets=[SECRET]))
SENDER = Stripe(secrets=[SECRET])
"""Signs what is delivered."""


def note(kind: str, **what: object) -> None:
    """Write a line into the ledger, whole, so that it survives a SIGKILL."""
    line = json.dumps({"kind": kind, "pid": os.getpid(), **what}).encode() + b"\n"
    descriptor = os.open(os.environ["ONCEWARD_TEST_LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line)
    finally:
        os.close(descriptor)


# --- keys -------------------------------------------------------------------------------------------------


def _keyed(once: Any, clash: Any) -> None:
    """Register the two workflows of a rule: one that is started, one that events start."""

    async def started(ctx: Context, key: str, ms: int) -> str:
        await ctx.step.sleep("a while", f"{ms}ms")
        return key

    async def told(ctx: Context, event: Event) -> str:
        await ctx.step.sleep("a while", f"{event.payload['ms']}ms")
        return str(event.payload["key"])

    at = e.payload
    keyed[f"start-{once}-{clash}"] = app.workflow(
        name=f"start-{once}-{clash}", key=at["key"], once=once, clash=clash
    )(started)
    app.workflow(
        name=f"emit-{once}-{clash}", on=f"key.{once}.{clash}", key=at["key"], once=once, clash=clash
    )(told)


keyed: dict[str, Any] = {}
RULES = (
    ("ever", "return"),
    ("ever", "reject"),
    ("active", "return"),
    ("active", "reject"),
    ("active", "replace"),
    ("active", "queue"),
)
for _once, _clash in RULES:
    _keyed(_once, _clash)


# --- verbs ------------------------------------------------------------------------------------------------


async def fail_at_odd(attempt: int) -> None:
    await asyncio.sleep(0.005)
    if attempt % 2:
        raise Permanent("an odd attempt")


async def ask() -> str:
    raise OutcomeUnknown("nobody knows")


@app.workflow
async def steered(ctx: Context, script: str) -> str:
    """Do a letter after the other: fail, ask, sleep, wait."""
    for number, letter in enumerate(script):
        name = f"{letter}{number}"
        if letter == "f":
            await ctx.step.run(name, fail_at_odd, ctx.attempt, retry=ONE_TRY)
        elif letter == "a":
            await ctx.step.run(name, ask, retry=ONE_TRY, unknown="ask")
        elif letter == "s":
            await ctx.step.sleep(name, "60ms")
        else:
            await ctx.step.wait_for(name, "steered.never", subject=ctx.run_id, timeout="150ms", default=None)
    return script


# --- waits, promises, versions, deliveries ------------------------------------------------------------------


@app.workflow
async def waits(ctx: Context, subject: str, count: int) -> list[str]:
    got: list[str] = []
    for number in range(count):
        event = await ctx.step.wait_for(f"wait {number}", "wait.told", subject=subject)
        got.append(event.id)
    return got


async def tell(name: str, token: str) -> None:
    note("promise", name=name, token=token)


@app.workflow
async def promises(ctx: Context, name: str, length: str) -> list[str]:
    promise = await ctx.step.promise("answer", timeout=length)
    await ctx.step.run("tell", tell, name, promise.token)
    try:
        return ["completed", str(await promise.result(default="nobody"))]
    except StepFailed as failed:
        return ["failed", failed.message]


@app.workflow(on="version.told", version=e.payload["version"], stale="drop")
async def newest(ctx: Context, event: Event) -> int:
    return int(event.payload["version"])


@app.workflow(on="version.told", version=e.payload["version"], stale="mark")
async def marked(ctx: Context, event: Event) -> bool:
    return bool(ctx.event.is_stale)


@app.workflow(on=stripe["history.told"])
async def first(ctx: Context, event: Event) -> str:
    return str(event.payload["data"]["object"]["body"])


@app.workflow(on=stripe["history.told"])
async def second(ctx: Context, event: Event) -> str:
    return str(event.payload["data"]["object"]["body"])


# --- leases -------------------------------------------------------------------------------------------------


async def write(run_id: str, number: int, holder: str, seen: list[str], ms: int) -> str:
    note("begin", run=run_id, number=number, holder=holder, seen=seen, at=time.monotonic_ns())
    await asyncio.sleep(ms / 1000)
    value = f"{holder}/{number}"
    note("end", run=run_id, number=number, holder=holder, value=value, at=time.monotonic_ns())
    return value


@app.workflow
async def leased(ctx: Context, count: int, ms: int) -> list[str]:
    """Save values that name who saved them, and note what each step sees of those before."""
    holder = f"{os.getpid()}-{secrets.token_hex(4)}"  # drawn anew by each execution, and in no step's name
    note("claim", run=ctx.run_id, holder=holder, attempt=ctx.attempt, at=time.monotonic_ns())
    seen: list[str] = []
    for number in range(count):
        step = f"write {number}"
        seen.append(await ctx.step.run(step, write, ctx.run_id, number, holder, list(seen), ms))
    return seen
