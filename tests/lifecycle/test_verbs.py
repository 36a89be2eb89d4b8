"""Every verb in every state, against real apps: once, twice, and from two of them at once.

The table of states and verbs says what must come of it. A run is driven into its state by a worker
that real code keeps there; the verbs come from two other apps on the same store.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Self

import pytest

from onceward import App, Context, Permanent, Retry, RunState, StateConflict, StepFailed
from onceward.core.model import AuditRow, RunRow
from onceward.core.states import TABLE, TERMINAL, Effect, Verb
from onceward.core.steer import Reply
from tests.helpers import eventually_async

S = RunState
CHANGES = frozenset(Effect) - {Effect.JOIN, Effect.NOTHING, Effect.REFUSE}
MOVING = {S.QUEUED: {S.QUEUED, S.RUNNING}}
"""Where a worker is there, a queued run soon runs."""


class Stage:
    """A worker with code for every state, and two operators.

    Args:
        store: the store's URL.
        extra: registers more workflows, with each app.
    """

    def __init__(self, store: str, extra: Callable[[App, Stage], object] = lambda *_: None) -> None:
        settings: dict[str, Any] = {"poll": "20ms", "linger": "10ms", "lease": "5s", "notify": False}
        self.worker = App(store, **settings)
        self.operators = [App(store, **settings) for _ in range(2)]
        self.gate = asyncio.Event()
        self.is_changed = self.has_slept = False
        self.fails = True
        self.bodies: Counter[str] = Counter()
        self._stack = AsyncExitStack()
        for app in (self.worker, *self.operators):
            for function in (self.gated, self.sleeper, self.parent, self.changed, self.failing, self.quick):
                app.workflow(function)
            app.workflow(name="backoff", retry=Retry(max_tries=3, base="1h", cap="1h"))(self.backoff)
            app.workflow(name="step_backoff")(self.step_backoff)
            extra(app, self)

    # --- code ------------------------------------------------------------------------------------

    async def body(self, name: str) -> str:
        self.bodies[name] += 1
        return name

    async def gated(self, ctx: Context) -> str:
        async def wait(name: str) -> str:
            self.bodies[name] += 1
            await self.gate.wait()
            return name

        try:
            return await ctx.step.run("work", wait, "work")
        finally:
            await ctx.step.run("clean up", wait, "clean up")

    async def sleeper(self, ctx: Context) -> None:
        await ctx.step.run("first", self.body, "first")
        await ctx.step.sleep("nap", "1h")

    async def parent(self, ctx: Context) -> None:
        await ctx.step.run("first", self.body, "first")
        await ctx.step.call("child", self.worker.workflows["sleeper"])

    async def changed(self, ctx: Context) -> None:
        if self.is_changed:
            await ctx.step.run("x", self.body, "x")
            return
        is_first, self.has_slept = not self.has_slept, True
        self.is_changed = True  # a deploy while it sleeps
        await ctx.step.sleep("x", "50ms")
        while is_first:  # a commit that was slow left so little of it that the run stayed in memory
            await ctx.step.sleep("x", "50ms")

    async def failing(self, ctx: Context) -> str:
        async def fail() -> str:
            self.bodies["fail"] += 1
            if self.fails:
                raise Permanent("no")
            return "yes"

        await ctx.step.run("first", self.body, "first")
        return await ctx.step.run("fail", fail)

    async def quick(self, ctx: Context) -> str:
        return await ctx.step.run("first", self.body, "first")

    async def backoff(self, ctx: Context) -> None:
        await ctx.step.run("first", self.body, "first")
        if self.fails:
            raise OSError("between steps")

    async def step_backoff(self, ctx: Context) -> str:
        async def fail() -> str:
            self.bodies["fail"] += 1
            if self.fails:
                raise OSError(f"try {ctx.try_number}")
            return "yes"

        return await ctx.step.run("fail", fail, retry=Retry(max_tries=3, base="1h", cap="1h"))

    # --- life ------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        for app in self.operators:
            await app.open(runs=False)
            self._stack.push_async_callback(app.close)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.gate.set()
        await self.leave()
        await self._stack.aclose()

    async def work(self) -> None:
        await self.worker.open()

    async def leave(self) -> None:
        await self.worker.close("0s")

    # --- looking ---------------------------------------------------------------------------------

    async def row(self, run_id: str) -> RunRow:
        return await self.operators[0].run(run_id).row()

    async def audits(self, run_id: str) -> list[AuditRow]:
        found: list[AuditRow] = await self.operators[0]._desk.ask("audits", run_id)
        return found

    async def reach(self, run_id: str, *states: RunState) -> RunRow:
        async def reached() -> RunRow | None:
            row = await self.row(run_id)
            return row if row.state in states else None

        found = await eventually_async(reached, 20, what=f"{[str(state) for state in states]} of {run_id}")
        assert found is not None
        return found

    async def begun(self, name: str, count: int = 1) -> None:
        async def is_begun() -> bool:
            return self.bodies[name] >= count

        await eventually_async(is_begun, 20, what=f"body {count} of {name}")

    async def start(self, workflow: str) -> str:
        handle = await self.operators[0].start(self.operators[0].workflows[workflow])
        return handle.run_id

    async def into(self, state: RunState, flavour: str = "") -> str:
        """Give a run in that state; the worker is gone, unless the state needs it."""
        workflow, is_kept = {
            S.QUEUED: ("quick", False),
            S.RUNNING: ("gated", True),
            S.SLEEPING: ("sleeper", False),
            S.WAITING: ("parent", False),
            S.BACKOFF: (flavour or "backoff", False),
            S.CANCELLING: ("gated", True),
            S.HELD: ("changed", False),
            S.COMPLETED: ("quick", False),
            S.FAILED: ("failing", False),
            S.CANCELLED: ("sleeper", False),
        }[state]
        run_id = await self.start(workflow)
        if state is S.QUEUED:
            return run_id
        await self.work()
        if state in (S.RUNNING, S.CANCELLING):
            await self.begun("work")
        if state is S.CANCELLING:
            await self.operators[0].run(run_id).cancel()
            await self.begun("clean up")
        if state is S.CANCELLED:
            await self.reach(run_id, S.SLEEPING)
            await self.operators[0].run(run_id).cancel()
        await self.reach(run_id, state)
        if not is_kept:
            await self.leave()
        return run_id

    async def do(self, verb: Verb, run_id: str, operator: int = 0, **more: Any) -> Any:
        handle = self.operators[operator].run(run_id)
        if verb is Verb.ANSWER:
            return await handle.answer("retry", actor=f"operator {operator}")
        if verb is Verb.RESTART:
            more = {"acknowledge": True, **more}
        return await getattr(handle, verb.value)(actor=f"operator {operator}", **more)


@asynccontextmanager
async def staged(store: str, extra: Callable[[App, Stage], object] = lambda *_: None) -> AsyncIterator[Stage]:
    async with Stage(store, extra) as stage:
        yield stage


AFTER: dict[tuple[RunState, Verb], RunState] = {
    (S.BACKOFF, Verb.RETRY): S.QUEUED,
    (S.FAILED, Verb.RETRY): S.QUEUED,
    **{(state, Verb.RESTART): S.QUEUED for state in RunState if state is not S.CANCELLING},
    (S.QUEUED, Verb.CANCEL): S.CANCELLED,
    **{
        (state, Verb.CANCEL): S.CANCELLING
        for state in (S.RUNNING, S.SLEEPING, S.WAITING, S.BACKOFF, S.HELD, S.CANCELLING)
    },
    (S.HELD, Verb.ANSWER): S.QUEUED,
}
"""The state after a verb; where it is not named, the state before."""

ATTEMPT_GROWS = {(S.FAILED, Verb.RETRY), (S.HELD, Verb.ANSWER)}

CELLS = [pytest.param(state, verb, id=f"{state}-{verb}") for state in RunState for verb in Verb]


async def outcome(call: Awaitable[Any]) -> Any:
    try:
        return await call
    except StateConflict as error:
        return error


def assert_refused(found: Any, state: RunState, verb: Verb, run_id: str) -> None:
    cell = TABLE[state, verb]
    assert isinstance(found, StateConflict), found
    assert found.what == f"{verb} of run {run_id} ({state}) was refused: {cell.reply}."
    assert found.means == "Nothing was changed."
    assert cell.hint.lower() in found.todo.lower()


def settled(row: RunRow) -> RunRow:
    """Give a row without what a worker may change at any moment."""
    return RunRow(row.run_id, row.workflow, row.source, row.event_id, row.created_at, row.state)


@pytest.mark.parametrize(("state", "verb"), CELLS)
async def test_a_verb_does_what_the_table_says_and_says_so(store: str, state: RunState, verb: Verb) -> None:
    async with staged(store) as stage:
        run_id = await stage.into(state)
        before, audits = await stage.row(run_id), await stage.audits(run_id)
        cell = TABLE[state, verb]

        found = await outcome(stage.do(verb, run_id))

        after, new = await stage.row(run_id), (await stage.audits(run_id))[len(audits) :]
        if verb is Verb.REPLAY:
            await assert_replayed(stage, before, found)
            return
        if cell.effect is Effect.REFUSE:
            assert_refused(found, state, verb, run_id)
        else:
            assert isinstance(found, Reply)
            assert (found.run_id, found.effect) == (run_id, cell.effect)
            assert found.text == (f"{cell.reply}: retry" if verb is Verb.ANSWER else cell.reply)
            expected = AFTER.get((state, verb), state)
            assert after.state in MOVING.get(expected, {expected})
            assert found.state is expected
            assert (found.generation, found.attempt) == (after.generation, after.attempt)
        if cell.effect in CHANGES:
            assert [(audit.verb, audit.actor) for audit in new] == [(verb.value, "operator 0")]
            assert after.fence > before.fence
        else:
            assert new == []
            assert settled(before) == settled(after)
        grows = (cell.effect is Effect.NEW_GENERATION, (state, verb) in ATTEMPT_GROWS)
        assert after.generation == before.generation + grows[0]
        assert after.attempt == (1 if grows[0] else before.attempt + grows[1])
        assert (after.ended_at is not None) is (after.state in TERMINAL)
        if verb is Verb.DISMISS and state is S.FAILED:
            assert await stage.operators[0].runs(problems=True) == []


async def assert_replayed(stage: Stage, before: RunRow, handle: Any) -> None:
    """A new run of the same event; the old one did not change by a byte."""
    new = await stage.row(handle.run_id)
    assert (new.replay_of, new.workflow, new.event_id) == (before.run_id, before.workflow, before.event_id)
    assert (new.generation, new.attempt) == (1, 1)
    assert [audit.verb for audit in await stage.audits(new.run_id)] == ["replay"]
    if before.state not in (S.RUNNING, S.CANCELLING):
        assert before == await stage.row(before.run_id)


@pytest.mark.parametrize(("state", "verb"), CELLS)
async def test_a_verb_twice_is_the_verb_and_then_the_verb_in_the_new_state(
    store: str, state: RunState, verb: Verb
) -> None:
    async with staged(store) as stage:
        run_id = await stage.into(state)
        more: dict[str, Any] = {"request_id": "r"} if verb is Verb.REPLAY else {}
        first = await outcome(stage.do(verb, run_id, **more))
        between = await stage.row(run_id)

        second = await outcome(stage.do(verb, run_id, 1, **more))

        if verb is Verb.REPLAY:
            assert first.run_id == second.run_id
            assert (first.is_duplicate, second.is_duplicate) == (False, True)
            assert len(await stage.audits(first.run_id)) == 1
            return
        cell = TABLE[between.state, verb]
        if verb is Verb.DISMISS and state is S.FAILED:
            assert (second.effect, second.text) == (Effect.JOIN, "already dismissed")
        elif cell.effect is Effect.REFUSE:
            assert_refused(second, between.state, verb, run_id)
        else:
            assert second.effect in (cell.effect, TABLE[S.RUNNING, verb].effect)
        changes = sum(isinstance(reply, Reply) and reply.effect in CHANGES for reply in (first, second))
        verbs = [audit.verb for audit in await stage.audits(run_id)]
        assert verbs.count(verb.value) == changes + (
            verb is Verb.CANCEL and state in (S.CANCELLING, S.CANCELLED)
        )


def look_together(stage: Stage) -> None:
    """Let no operator decide before both have read the run."""
    both = asyncio.Barrier(2)
    for operator in stage.operators:
        operator._desk.ask = _meeting(operator._desk.ask, both)  # type: ignore[method-assign]


def _meeting(ask: Callable[..., Awaitable[Any]], both: asyncio.Barrier) -> Callable[..., Any]:
    is_first = True

    async def meet(read: str, *args: Any) -> Any:
        nonlocal is_first
        value, waits, is_first = await ask(read, *args), is_first, False
        if waits:
            await both.wait()
        return value

    return meet


@pytest.mark.parametrize(("state", "verb"), CELLS)
async def test_a_verb_from_two_apps_at_once_happens_once(store: str, state: RunState, verb: Verb) -> None:
    async with staged(store) as stage:
        run_id = await stage.into(state)
        before, audits = await stage.row(run_id), await stage.audits(run_id)
        more: dict[str, Any] = {"request_id": "r"} if verb is Verb.REPLAY else {}
        look_together(stage)

        found = await asyncio.gather(*(outcome(stage.do(verb, run_id, n, **more)) for n in range(2)))

        if verb is Verb.REPLAY:
            assert found[0].run_id == found[1].run_id
            assert sorted(handle.is_duplicate for handle in found) == [False, True]
            return
        new = (await stage.audits(run_id))[len(audits) :]
        cell, after = TABLE[state, verb], await stage.row(run_id)
        if cell.effect is Effect.REFUSE:
            for one in found:
                assert_refused(one, state, verb, run_id)
            assert new == []
            return
        assert len(new) == (cell.effect in CHANGES)
        assert after.generation - before.generation == (cell.effect is Effect.NEW_GENERATION)
        replies = [one for one in found if isinstance(one, Reply)]
        assert sum(reply.effect in CHANGES for reply in replies) == (cell.effect in CHANGES)
        if verb is Verb.ANSWER:
            assert len(replies) == 1  # the other is told that the run is not held any more
        else:
            assert len(replies) == 2
            assert len({(reply.generation, reply.attempt) for reply in replies}) == 1


async def test_a_restart_that_joined_another_is_not_done_when_it_is_asked_again(store: str) -> None:
    """Its reply was lost: whoever asks again by the same request gets the same generation."""
    async with staged(store) as stage:
        run_id = await stage.into(S.COMPLETED)
        look_together(stage)

        async def ask(operator: int) -> Reply:
            reply: Reply = await stage.do(Verb.RESTART, run_id, operator, request_id=f"request {operator}")
            return reply

        replies = await asyncio.gather(ask(0), ask(1))
        again = [await ask(0), await ask(1)]

        assert Counter(reply.effect for reply in replies) == {Effect.NEW_GENERATION: 1, Effect.JOIN: 1}
        assert [(reply.generation, reply.is_done_before) for reply in again] == [(2, True), (2, True)]
        assert (await stage.row(run_id)).generation == 2
        assert [audit.verb for audit in await stage.audits(run_id)].count("restart") == 2


async def test_a_retry_that_joined_another_is_not_done_when_it_is_asked_again(store: str) -> None:
    async with staged(store) as stage:
        run_id = await stage.into(S.FAILED)
        look_together(stage)

        async def ask(operator: int) -> Reply:
            desk = stage.operators[operator]._desk
            return await desk.steer(Verb.RETRY, run_id, actor="ann", request_id=f"request {operator}")

        replies = await asyncio.gather(ask(0), ask(1))
        await stage.work()
        await stage.reach(run_id, S.FAILED)
        again = [await ask(0), await ask(1)]

        assert Counter(reply.effect for reply in replies) == {Effect.NEW_ATTEMPT: 1, Effect.JOIN: 1}
        assert [(reply.attempt, reply.is_done_before) for reply in again] == [(2, True), (2, True)]


# --- what follows a verb -----------------------------------------------------------------------------


async def test_two_retries_get_one_attempt_and_one_outcome_even_if_it_fails_at_once(store: str) -> None:
    """The second caller saw the same failure: it does not get an attempt of its own."""
    async with staged(store) as stage:
        run_id = await stage.into(S.FAILED)
        await stage.work()

        replies = await asyncio.gather(*(stage.do(Verb.RETRY, run_id, n) for n in (0, 1, 0, 1)))
        row = await stage.reach(run_id, S.FAILED)

        assert row.attempt == 2
        assert {reply.attempt for reply in replies} == {2}
        assert stage.bodies["fail"] == 2
        assert stage.bodies["first"] == 1
        assert Counter(reply.effect for reply in replies) == {Effect.NEW_ATTEMPT: 1, Effect.JOIN: 3}


async def test_a_retry_that_comes_too_late_joins_the_attempt_that_has_ended(store: str) -> None:
    """Between its look and its commit another's attempt began and ended."""
    async with staged(store) as stage:
        run_id = await stage.into(S.FAILED)
        stage.fails = False
        desk = stage.operators[1]._desk
        ask: Callable[..., Awaitable[Any]] = desk.ask

        async def slow_ask(read: str, *args: Any) -> Any:
            if read == "steps" and (await stage.row(run_id)).attempt == 1:
                await stage.do(Verb.RETRY, run_id, 0)
                await stage.work()
                await stage.reach(run_id, S.COMPLETED)
            return await ask(read, *args)

        desk.ask = slow_ask  # type: ignore[method-assign]
        reply = await stage.do(Verb.RETRY, run_id, 1)

        assert (reply.effect, reply.state, reply.attempt) == (Effect.JOIN, S.COMPLETED, 2)
        assert [audit.actor for audit in await stage.audits(run_id)] == ["operator 0"]


async def test_a_retry_runs_what_failed_and_nothing_that_was_saved(store: str) -> None:
    async with staged(store) as stage:
        run_id = await stage.into(S.FAILED)
        stage.fails = False
        await stage.work()

        await stage.do(Verb.RETRY, run_id)
        await stage.reach(run_id, S.COMPLETED)

        assert (stage.bodies["first"], stage.bodies["fail"]) == (1, 2)
        assert await stage.operators[0].run(run_id).result("5s") == "yes"


@pytest.mark.parametrize(("flavour", "attempt"), [("backoff", 2), ("step_backoff", 1)])
async def test_a_retry_brings_a_back_off_forward(store: str, flavour: str, attempt: int) -> None:
    """Of the run and of a step; the tries that were made stay counted."""
    async with staged(store) as stage:
        run_id = await stage.into(S.BACKOFF, flavour)
        stage.fails = False
        await stage.work()

        reply = await stage.do(Verb.RETRY, run_id)
        row = await stage.reach(run_id, S.COMPLETED)

        assert (reply.effect, row.attempt) == (Effect.BRING_FORWARD, attempt)
        if flavour == "step_backoff":
            (step,) = await stage.operators[0].run(run_id).steps()
            assert (step.tries, stage.bodies["fail"]) == (2, 2)


async def test_bringing_forward_again_and_again_gives_no_more_tries_than_the_policy(store: str) -> None:
    """I15: three tries are three tries, however impatient the operator is."""
    async with staged(store) as stage:
        run_id = await stage.into(S.BACKOFF, "step_backoff")
        await stage.work()
        for _ in range(2):
            await stage.reach(run_id, S.BACKOFF)
            await stage.do(Verb.RETRY, run_id)
            await stage.reach(run_id, S.BACKOFF, S.FAILED)
        await stage.reach(run_id, S.FAILED)

        assert stage.bodies["fail"] == 3


async def test_a_restart_runs_every_step_again_and_keeps_the_old_records(store: str) -> None:
    async with staged(store) as stage:
        run_id = await stage.into(S.COMPLETED)
        old = await stage.operators[0].run(run_id).steps(1)
        await stage.work()

        await stage.do(Verb.RESTART, run_id)
        row = await stage.reach(run_id, S.COMPLETED)

        assert (row.generation, row.attempt, stage.bodies["first"]) == (2, 1, 2)
        assert await stage.operators[0].run(run_id).steps(1) == old
        assert len(await stage.operators[0].run(run_id).steps()) == 1


async def test_a_restart_cancels_the_unfinished_called_runs_of_before(store: str) -> None:
    """RULINGS 21, even if the process dies before it came to it: a later attempt does it."""
    async with staged(store) as stage:
        run_id = await stage.into(S.WAITING)
        (child,) = await stage.operators[0].run(run_id).children()

        await stage.do(Verb.RESTART, run_id)
        await stage.work()

        await stage.reach(child.run_id, S.CANCELLED)
        await stage.reach(run_id, S.WAITING)
        children = await stage.operators[0].run(run_id).children()
        assert [(row.state, row.parent_generation) for row in children] == [(S.CANCELLED, 1), (S.SLEEPING, 2)]


async def test_a_cancel_of_a_parent_cancels_the_run_it_called(store: str) -> None:
    async with staged(store) as stage:
        run_id = await stage.into(S.WAITING)
        (child,) = await stage.operators[0].run(run_id).children()
        await stage.work()

        await stage.do(Verb.CANCEL, run_id)

        await stage.reach(run_id, S.CANCELLED)
        await stage.reach(child.run_id, S.CANCELLED)


async def test_a_cancel_from_elsewhere_stops_a_body_that_runs(store: str) -> None:
    """Also where the process that held the run is the one that claims it again."""
    async with staged(store) as stage:
        run_id = await stage.into(S.RUNNING)

        await stage.do(Verb.CANCEL, run_id)
        await stage.begun("clean up")
        stage.gate.set()
        await stage.reach(run_id, S.CANCELLED)

        steps = {step.name: step.state.value for step in await stage.operators[0].run(run_id).steps()}
        assert steps == {"work": "cancelled", "clean up": "done"}
        assert stage.bodies == {"work": 1, "clean up": 1}


async def test_a_held_run_is_answered_retry_and_goes_on(store: str) -> None:
    async with staged(store) as stage:
        run_id = await stage.into(S.HELD)
        row = await stage.row(run_id)
        assert row.reason is not None
        assert "'x'" in row.reason
        stage.is_changed = False
        await stage.work()

        reply = await stage.operators[0].run(run_id).answer("retry", actor="ann")
        after = await stage.reach(run_id, S.COMPLETED)

        assert (reply.effect, after.attempt) == (Effect.GO_ON, 2)
        assert [(audit.verb, audit.detail) for audit in await stage.audits(run_id)] == [("answer", "retry")]


async def test_a_held_run_is_answered_fail_and_can_be_retried_later(store: str) -> None:
    async with staged(store) as stage:
        run_id = await stage.into(S.HELD)
        reply = await stage.operators[0].run(run_id).answer("fail")
        assert reply.state is S.FAILED
        assert [row.run_id for row in await stage.operators[0].runs(problems=True)] == [run_id]

        stage.is_changed = False
        await stage.work()
        await stage.do(Verb.RETRY, run_id)

        assert (await stage.reach(run_id, S.COMPLETED)).attempt == 2


async def test_code_that_does_not_fit_is_held_once_and_never_loops(store: str) -> None:
    async with staged(store) as stage:
        run_id = await stage.into(S.HELD)
        await stage.work()
        await stage.operators[0].run(run_id).answer("retry")

        row = await stage.reach(run_id, S.HELD)

        assert row.attempt == 2
        assert stage.bodies["x"] == 0


async def test_a_held_run_that_is_cancelled_ends_although_its_code_does_not_fit(store: str) -> None:
    async with staged(store) as stage:
        run_id = await stage.into(S.HELD)
        await stage.work()

        await stage.do(Verb.CANCEL, run_id)

        row = await stage.reach(run_id, S.CANCELLED)
        assert row.error is not None
        assert "'x'" in row.error


async def test_an_answer_that_there_is_not_is_refused_with_those_that_there_are(store: str) -> None:
    async with staged(store) as stage:
        run_id = await stage.into(S.HELD)

        with pytest.raises(Exception, match=r"'retry'.*'fail'"):
            await stage.operators[0].run(run_id).answer("maybe")

        assert await stage.operators[0].run(run_id).state() is S.HELD


async def late(ctx: Context) -> None:
    await ctx.step.sleep("too long", "1h")


async def test_a_deadline_is_as_long_after_every_retry(store: str) -> None:
    """It used to grow by what had passed before."""
    async with staged(store, lambda app, _: app.workflow(deadline="200ms")(late)) as stage:
        await stage.work()
        run_id = await stage.start("late")
        lengths: list[int] = []
        for _ in range(3):
            row = await stage.reach(run_id, S.FAILED)
            assert row.deadline_at is not None
            began = (await stage.audits(run_id))[-1].at if lengths else row.created_at
            lengths.append(row.deadline_at - began)
            await stage.do(Verb.RETRY, run_id)

        assert lengths == [200, 200, 200]


def chain(app: App, stage: Stage) -> None:
    async def refuse(name: str) -> None:
        stage.bodies[name] += 1
        if stage.fails or name == "caught":
            raise Permanent(name)

    @app.workflow
    async def chain(ctx: Context) -> None:
        try:
            await ctx.step.run("caught", refuse, "caught")
        except StepFailed:
            await ctx.step.run("instead", stage.body, "instead")

        async def wrapped() -> None:
            try:
                await ctx.step.run("cause", refuse, "cause")
            except StepFailed as error:
                raise ValueError("wrapped") from error

        found = await asyncio.gather(
            ctx.step.run("grouped", refuse, "grouped"), wrapped(), return_exceptions=True
        )
        failures = [one for one in found if isinstance(one, Exception)]
        if failures:
            raise ExceptionGroup("both", failures)


async def test_caught_failures_stay_saved_and_those_that_ended_the_attempt_run_again(store: str) -> None:
    """RULINGS 19: found through causes and groups; what was caught would charge twice."""
    async with staged(store, chain) as stage:
        await stage.work()
        run_id = await stage.start("chain")
        await stage.reach(run_id, S.FAILED)
        first = Counter(stage.bodies)
        stage.fails = False

        await stage.do(Verb.RETRY, run_id)
        await stage.reach(run_id, S.COMPLETED)

        assert first == {"caught": 1, "instead": 1, "grouped": 1, "cause": 1}
        assert stage.bodies == {"caught": 1, "instead": 1, "grouped": 2, "cause": 2}


async def test_a_replay_keeps_what_came_before_a_step_and_takes_another_payload(store: str) -> None:
    def told(app: App, stage: Stage) -> None:
        @app.workflow
        async def told(ctx: Context, text: str) -> str:
            await ctx.step.run("first", stage.body, "first")
            return await ctx.step.run("second", stage.body, text)

    async with staged(store, told) as stage:
        await stage.work()
        handle = await stage.worker.start(stage.worker.workflows["told"], "old")
        assert await handle.result("5s") == "old"
        before = await handle.row(), await handle.steps()
        payload = (await stage.worker.event(before[0].source, before[0].event_id)).payload

        again = (
            await stage.operators[0]
            .run(handle.run_id)
            .replay(from_step="second", payload=_with(payload, "new"), request_id="once")
        )
        twin = (
            await stage.operators[1]
            .run(handle.run_id)
            .replay(from_step="second", payload=_with(payload, "newer"), request_id="once")
        )

        assert await again.result("5s") == "new"
        assert twin.run_id == again.run_id
        assert stage.bodies == {"first": 1, "old": 1, "new": 1}
        assert before == (await handle.row(), await handle.steps())
        copied = [step for step in await again.steps() if step.origin is not None]
        assert [step.name for step in copied] == ["first"]
        assert handle.run_id in (copied[0].origin or "")


def _with(payload: Any, text: str) -> Any:
    """Put another argument in place of the old one, whatever form arguments are kept in."""
    if payload == "old":
        return text
    if isinstance(payload, list):
        return [_with(part, text) for part in payload]
    if isinstance(payload, dict):
        return {key: _with(part, text) for key, part in payload.items()}
    return payload
