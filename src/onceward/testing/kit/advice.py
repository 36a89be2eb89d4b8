"""Which tool makes a step safe, from what was seen of it outside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onceward.testing.kit.outside import BETWEEN, NOBODY, THREAD, Effect

PAGE = "docs/run-twice.md"


@dataclass(frozen=True)
class Advice:
    """What to do.

    Attributes:
        tool: its short name, for programs: ``keyed``, ``key-or-ensure``, ``ensure``, ``draw``, ``upsert``,
            ``transaction``, ``step``, ``await``, ``key``, ``event-id``, ``key_scope``, ``tolerate``, or ``first``
            where the workflow does not end well even without a crash.
        text: one line for people.
    """

    tool: str
    text: str


IN_A_STEP = Advice("step", "it happens between steps, at every attempt: move it into a step, ctx.step.run(…)")
NO_RUN = Advice("step", "it happens outside any run, at every delivery: move it into a step of a workflow")
IN_A_THREAD = Advice(
    "keyed",
    "a thread that a body starts itself knows neither step nor key: use asyncio.to_thread, or hand it the step's "
    "IdempotencyKey",
)
SEND_KEY = Advice(
    "keyed", "it sends no idempotency key: keyed(client), or a parameter of type IdempotencyKey"
)
GIVE_KEY = Advice(
    "key-or-ensure",
    "nothing tells the second from the first: pass the step's IdempotencyKey on, look first with ctx.step.ensure, "
    'or ask a person, unknown="ask"',
)
ENSURE = Advice(
    "ensure",
    'the service knows no keys: look before you create, ctx.step.ensure(…), or ask a person, unknown="ask"',
)
DRAW = Advice("draw", "what it is known by differs each time: draw it in a step of its own, ctx.step.uuid(…)")
SAME_BODY = Advice(
    "draw",
    "the same key comes with other content: draw what differs in a step of its own, ctx.step.uuid / now",
)
ROWS = Advice(
    "upsert",
    "the row is written again: commit it with the step, @app.transaction, or give it a unique id and write "
    "INSERT … ON CONFLICT DO NOTHING",
)
ROWS_DRAWN = Advice(
    "draw",
    "the row has an id, or a time, drawn in the body: commit it with the step, @app.transaction, or draw the id in a step of its own "
    "and INSERT … ON CONFLICT DO NOTHING",
)
ROWS_CHANGED = Advice(
    "transaction",
    "the row is changed again: commit it with the step, @app.transaction, or write what it is to be, not by how much "
    "it changes",
)
ONE_RUN = Advice(
    "key",
    "one thing told under two ids makes two runs: @app.workflow(…, key=event.payload[…]), from onceward import event",
)
SAME_ID = Advice(
    "event-id", "a redelivery made another run: the source must give the same event id for it each time"
)
BUSINESS = Advice("key_scope", 'a restart or replay makes a new key: @app.step(key_scope="business")')
OTHER_KEY = Advice(
    "key_scope",
    'it has key_scope="business" and is known by something else, which a restart or replay makes anew: pass the '
    "step's IdempotencyKey on",
)
STUCK = Advice(
    "tolerate",
    "the second try trips over what the first left: ctx.step.ensure(…), or write so that twice is once",
)
LOST = Advice(
    "await",
    "a crash keeps it from happening, and nobody does it then: the body must end when it is done; await it in a step, "
    "and start no thread or task that outlives the body",
)
FIRST = Advice(
    "first",
    'make it end as it should without a crash first; or say how it ends, ends="failed", or what it waits for, '
    "as a second event",
)
NOT_STARTED = Advice("first", "send what starts it: the events that it is on, or started(…)")
OTHER_STORE = Advice(
    "first",
    "in a test the store is the test's own and new each time: connect to app.settings.store, and make the tables "
    "there, in fresh=; or say that they are in another database in production, too: app.transactions(…, marker=True)",
)


def advice_for_end(error: str) -> Advice:
    """Give the tool where the workflow does not even end as it should without a crash, from its error."""
    return OTHER_STORE if "TransactionMisuse" in error and "the store is" in error else FIRST


def advice_for(seen: Sequence[Effect], *, same: str = "") -> Advice:
    """Give the tool for one thing that happened too often.

    Args:
        seen: every time it happened, in order; at least one.
        same: why it may have been told twice: ``new id``, ``redelivered``, ``restart``, ``replay`` or nothing.
    """
    first = seen[0]
    if same == "new id":
        return ONE_RUN
    if same == "redelivered":
        return SAME_ID
    if first.step == NOBODY:
        return NO_RUN
    if first.step == BETWEEN:
        return IN_A_STEP
    if first.step == THREAD:
        return IN_A_THREAD
    keys = [effect.key for effect in seen]
    if same in ("restart", "replay"):
        if first.of_business:
            return OTHER_KEY
        if None not in keys:
            return BUSINESS
    if any(effect.clash for effect in seen):
        return SAME_BODY
    if first.kind == "rows":
        if any(effect.is_replacing for effect in seen):  # a counter's first row is new, the next a change
            return ROWS_CHANGED
        return ROWS if len({effect.detail for effect in seen}) < len(seen) else ROWS_DRAWN
    if not first.knows_keys:
        return ENSURE
    if None in keys:
        return SEND_KEY if first.kind == "http" else GIVE_KEY
    return DRAW
