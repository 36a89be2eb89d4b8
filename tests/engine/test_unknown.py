"""A step that began and has no saved end: run again, failed, looked at, or a person is asked."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from onceward import (
    AUTO,
    App,
    ConfigError,
    Context,
    DidNotHappen,
    Happened,
    IdempotencyKey,
    NotStorable,
    OutcomeUnknown,
    Permanent,
    Question,
    Retry,
    RunFailed,
    RunHandle,
    RunState,
    StateConflict,
    StepFailed,
    SyncContext,
)
from onceward.core.states import StepState
from onceward.runtime.unknown import known_results
from tests.engine.running import ONCE, SOON, evict, make_app, open_store, result_of, run_app
from tests.helpers import eventually_async


@dataclass
class Charge:
    id: str
    cents: int


@dataclass
class Bank:
    """What is outside: charges that took effect, and a gate at which a charge can be cut off.

    Attributes:
        charges: what took effect.
        asked: what the checks were called with.
        gate: a body waits here after its effect, the first time only, if there is one.
    """

    charges: list[Charge] = field(default_factory=list)
    asked: list[tuple[Any, ...]] = field(default_factory=list)
    stops: int = 1

    async def charge(self, order: str, cents: int, *, key: IdempotencyKey = AUTO) -> Charge:
        self.charges.append(Charge(f"{order} {len(self.charges) + 1}", cents))
        if len(self.charges) <= self.stops:
            await asyncio.sleep(60)
        return self.charges[-1]

    async def did_charge(
        self, order: str, cents: int, *, key: IdempotencyKey = AUTO
    ) -> Happened[Charge] | DidNotHappen:
        self.asked.append((order, cents, key))
        return Happened(self.charges[-1]) if self.charges else DidNotHappen()


async def is_held(handle: RunHandle[Any]) -> None:
    async def held() -> bool:
        return await handle.state() is RunState.HELD

    await eventually_async(held, what="the run is held")


async def charging(bank: Bank, charges: int = 1) -> bool:
    return len(bank.charges) == charges


async def cut_off(app: App, handle: RunHandle[Any], bank: Bank, charges: int = 1) -> None:
    """Throw the run out of memory in the middle of its charge."""
    await eventually_async(lambda: charging(bank, charges), what="the charge took effect")
    await evict(app, handle.run_id)


def paying(app: App, bank: Bank, **options: Any) -> Any:
    charge = app.step(name="charge", **options)(bank.charge)

    @app.workflow(name="pay")
    async def pay(ctx: Context, order: str) -> str:
        await ctx.step.run("before", str, order)
        charged = await charge(order, 990)
        await ctx.step.run("after", str, order)
        return f"{charged.id}: {charged.cents} {type(charged).__name__}"

    return pay


# --- a person is asked -----------------------------------------------------------------------------


def test_a_person_is_told_all_that_is_known(store_url: str) -> None:
    app, bank = make_app(store_url), Bank()
    pay = paying(app, bank, unknown="ask")

    async def scenario() -> tuple[list[Question], str | None, str]:
        handle = await app.start(pay, "o-1")
        await cut_off(app, handle, bank)
        await is_held(handle)
        return await handle.questions(), (await handle.row()).reason, app.worker.process_id

    (question,), reason, process_id = run_app(app, scenario)

    assert reason == "outcome unknown: step 'charge'"
    assert (question.step, question.kind, question.try_number, question.attempt) == ("charge", "run", 1, 1)
    assert json.loads(question.arguments) == {"order": "o-1", "cents": 990}
    assert question.idempotency_key.startswith("ow_")
    assert question.process_id == process_id
    assert "cut off" in question.why
    assert question.began_at > 0
    assert question.answers == ("happened", "did_not_happen", "fail")
    assert len(bank.charges) == 1


def test_it_happened_with_a_result(store_url: str) -> None:
    app, bank = make_app(store_url), Bank()
    pay = paying(app, bank, unknown="ask")

    async def scenario() -> tuple[str, list[str], list[Any]]:
        handle = await app.start(pay, "o-1")
        await cut_off(app, handle, bank)
        await is_held(handle)
        with pytest.raises(ConfigError, match="does not say what step 'charge' gave"):
            await handle.answer("happened")
        reply = await handle.answer("happened", result={"id": "ch_7", "cents": 990}, actor="ann")
        assert reply.text == "answered: happened"
        result = await handle.result()
        with open_store(store_url) as store:
            audits = [row for row in store.audits(handle.run_id) if row.verb == "answer"]
        return result, [row.name for row in await handle.steps()], audits

    result, order, (audit,) = run_app(app, scenario)

    assert result == "ch_7: 990 Charge"
    assert order == ["before", "charge", "after"]
    assert len(bank.charges) == 1
    assert audit.actor == "ann"
    assert json.loads(audit.detail) == {
        "answer": "happened",
        "step": "charge",
        "result": {"id": "ch_7", "cents": 990},
    }


@pytest.mark.parametrize("options", [{}, {"key_memory": "400ms"}], ids=["plain", "forgotten"])
def test_it_did_not_happen_and_is_tried_again(store_url: str, options: dict[str, Any]) -> None:
    """Also when its key is forgotten by then: what did not happen cannot happen twice."""
    app, bank = make_app(store_url), Bank()
    pay = paying(app, bank, unknown="ask", **options)

    async def scenario() -> str:
        handle = await app.start(pay, "o-1")
        await cut_off(app, handle, bank)
        await is_held(handle)
        began_at = (await handle.questions())[0].began_at

        async def is_forgotten() -> bool:
            return app.worker.now_ms() > began_at + 500

        await eventually_async(is_forgotten)
        await handle.answer("did_not_happen")
        result: str = await handle.result()
        assert await handle.questions() == []
        return result

    assert run_app(app, scenario) == "o-1 2: 990 Charge"


def test_the_run_is_given_up(store_url: str) -> None:
    app, bank = make_app(store_url), Bank()
    pay = paying(app, bank, unknown="ask")

    async def scenario() -> RunState:
        handle = await app.start(pay, "o-1")
        await cut_off(app, handle, bank)
        await is_held(handle)
        await handle.answer("fail")
        with pytest.raises(RunFailed, match="gave up"):
            await handle.result()
        await handle.retry()  # nobody has said what became of it, so it is asked again
        await is_held(handle)
        assert [question.step for question in await handle.questions()] == ["charge"]
        return await handle.state()

    assert run_app(app, scenario) is RunState.HELD
    assert len(bank.charges) == 1


def test_a_held_run_that_is_cancelled_ends(store_url: str) -> None:
    app, bank = make_app(store_url), Bank()
    pay = paying(app, bank, unknown="ask")

    async def scenario() -> tuple[RunState, Any]:
        handle = await app.start(pay, "o-1")
        await cut_off(app, handle, bank)
        await is_held(handle)
        await handle.cancel()

        async def over() -> bool:
            return await handle.state() is RunState.CANCELLED

        await eventually_async(over)
        return await handle.state(), {row.name: row.state for row in await handle.steps()}

    state, records = run_app(app, scenario)

    assert state is RunState.CANCELLED
    assert records["charge"] is StepState.CANCELLED
    assert len(bank.charges) == 1


@pytest.mark.parametrize(
    ("answer", "more", "error", "says"),
    [
        ("retry", {}, StateConflict, "'happened' .*'did_not_happen' .*'fail'"),
        ("perhaps", {}, ConfigError, "'happened' .*'did_not_happen' .*'fail'"),
        ("happened", {"step": "ship"}, ConfigError, "asked is about 'charge'"),
        ("happened", {"result": {"id": 7}}, NotStorable, "charge"),
        ("happened", {}, ConfigError, "does not say what step .charge. gave"),
        ("happened", {"result": object()}, NotStorable, "charge"),
        ("did_not_happen", {"result": 1}, ConfigError, "has a result"),
        ("hapened", {"result": 1}, ConfigError, "'did_not_happen'"),
    ],
)
def test_an_answer_that_does_not_fit_changes_nothing(
    sqlite_url: str, answer: str, more: dict[str, Any], error: type[Exception], says: str
) -> None:
    app, bank = make_app(sqlite_url), Bank()
    pay = paying(app, bank, unknown="ask")

    async def scenario() -> str:
        handle = await app.start(pay, "o-1")
        await cut_off(app, handle, bank)
        await is_held(handle)
        with pytest.raises(error, match=says):
            await handle.answer(answer, **more)
        assert len(await handle.questions()) == 1
        await handle.answer("happened", result=Charge("ch_1", 1))
        result: str = await handle.result()
        return result

    assert run_app(app, scenario) == "ch_1: 1 Charge"


def test_a_run_that_is_held_for_another_reason_is_not_asked_about_a_step(sqlite_url: str) -> None:
    app = make_app(sqlite_url)

    @app.workflow
    async def changed(ctx: Context) -> None:
        await (ctx.step.run("a", str) if ctx.attempt == 1 else ctx.step.uuid("a"))
        if ctx.attempt == 1:
            raise ConnectionError

    changed.policies.__dict__["retry"] = Retry(max_tries=2, base="1ms")

    async def scenario() -> None:
        handle = await app.start(changed)
        await is_held(handle)
        assert await handle.questions() == []
        with pytest.raises(
            StateConflict, match="'retry' to go on with another attempt, or 'fail' to give up"
        ):
            await handle.answer("happened")
        await handle.answer("fail")

    run_app(app, scenario)


def test_an_answer_that_nobody_could_judge_is_judged_by_the_code(store_url: str) -> None:
    """Where the answering process does not know the step, the run is held again and says why."""
    app, bank = make_app(store_url), Bank()
    pay = paying(app, bank, unknown="ask")

    async def scenario() -> tuple[str, str]:
        handle = await app.start(pay, "o-1")
        await cut_off(app, handle, bank)
        await is_held(handle)
        known_results.clear()
        app._steps.clear()
        attempt = (await handle.row()).attempt
        await handle.answer("happened", result={"cents": "many"})

        async def again() -> bool:
            row = await handle.row()
            return row.state is RunState.HELD and row.attempt > attempt

        await eventually_async(again)
        (question,) = await handle.questions()
        await handle.answer("happened", result={"id": "ch_2", "cents": 2})
        return question.why, await handle.result()

    why, result = run_app(app, scenario)

    assert "does not fit" in why
    assert result == "ch_2: 2 Charge"


def test_an_answer_is_not_judged_by_another_step_of_the_same_name(sqlite_url: str) -> None:
    app, bank = make_app(sqlite_url), Bank()
    pay = paying(app, bank, unknown="ask")

    @app.step(name="charge")
    async def charge_of_another_workflow() -> int:
        return 1

    async def scenario() -> str:
        handle = await app.start(pay, "o-1")
        await cut_off(app, handle, bank)
        await is_held(handle)
        known_results.clear()  # as in a process that has not run the step
        await handle.answer("happened", result={"id": "ch_2", "cents": 2})
        result: str = await handle.result()
        return result

    assert run_app(app, scenario) == "ch_2: 2 Charge"


@pytest.mark.parametrize(
    ("annotation", "wrong", "right"),
    [
        (str, 12, "tx 12"),
        (int, "12", 12),
        (float, "1.5", 2),
        (bool, 1, True),
        (list[str], ["a", 1], ["a"]),
        (str | None, 12, None),
        (None, "tx", None),
    ],
)
def test_an_answer_is_compared_with_what_the_step_gives_also_where_that_is_plain(
    store_url: str, annotation: Any, wrong: Any, right: Any
) -> None:
    app = make_app(store_url)

    async def send() -> Any:
        raise OutcomeUnknown("no answer")

    send.__annotations__["return"] = annotation

    @app.workflow
    async def sending(ctx: Context) -> Any:
        return await ctx.step.run("send", send, unknown="ask", retry=ONCE)

    async def scenario() -> tuple[str, str, Any]:
        handle = await app.start(sending)
        await is_held(handle)
        before = await handle.row(), await handle.steps()
        with pytest.raises(NotStorable, match=r"step 'send' of run .* cannot be .* is expected") as refused:
            await handle.answer("happened", result=wrong)
        assert (await handle.row(), await handle.steps()) == before
        # A process without the code takes it, says so, and leaves it to the run.
        known_results.clear()
        reply = await handle.answer("happened", result=wrong)
        assert "is not known here" in reply.text

        async def again() -> bool:
            row = await handle.row()
            return row.state is RunState.HELD and row.attempt > before[0].attempt

        await eventually_async(again)
        (question,) = await handle.questions()
        assert (await handle.answer("happened", result=right)).text == "answered: happened"
        return str(refused.value), question.why, await handle.result()

    refused, why, result = run_app(app, scenario)

    assert (repr(wrong) in refused, repr(wrong) in why) == (True, True)
    assert (type(result), result) == (type(right), right)


def test_of_two_answers_at_once_one_wins_and_an_equal_one_joins(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, bank = make_app(store_url), Bank()
    pay = paying(app, bank, unknown="ask")
    one, two = {"id": "one", "cents": 1}, {"id": "two", "cents": 2}

    async def scenario() -> tuple[list[Any], str, int]:
        handle = await app.start(pay, "o-1")
        await cut_off(app, handle, bank)
        await is_held(handle)
        # At once means that each found the question open; whoever comes later finds none.
        steer, calls, all_have_read = app.worker.store.steer, itertools.count(), threading.Barrier(4)

        def together(*args: Any, **options: Any) -> Any:
            if next(calls) < 4:
                all_have_read.wait(10)
            return steer(*args, **options)

        monkeypatch.setattr(app.worker.store, "steer", together)
        answers = [handle.answer("happened", result=one if number % 2 else two) for number in range(4)]
        replies = await asyncio.gather(*answers, return_exceptions=True)
        result = await handle.result()
        with open_store(store_url) as store:
            audits = [row for row in store.audits(handle.run_id) if row.verb == "answer"]
        return replies, result, len(audits)

    replies, result, audits = run_app(app, scenario)

    lost = [reply for reply in replies if isinstance(reply, BaseException)]
    assert audits == 1
    assert len(lost) == 2
    assert all(isinstance(reply, StateConflict) for reply in lost)
    winner = [number for number, reply in enumerate(replies) if not isinstance(reply, BaseException)]
    assert {number % 2 for number in winner} == {1 if result.startswith("one") else 0}


def test_each_of_several_steps_must_be_answered(store_url: str) -> None:
    app, bank = make_app(store_url), Bank(stops=2)

    @app.workflow
    async def both(ctx: Context) -> list[str]:
        async def branch(order: str) -> str:
            charge = bank.charge
            charged = await ctx.step.run("charge", charge, order, 1, item=order, unknown="ask")
            return charged.id

        return list(await asyncio.gather(branch("a"), branch("b")))

    async def scenario() -> tuple[str, str, list[str]]:
        handle = await app.start(both)
        await cut_off(app, handle, bank, 2)
        await is_held(handle)
        reason = str((await handle.row()).reason)
        assert [question.step for question in await handle.questions()] == ["charge[a]", "charge[b]"]
        with pytest.raises(ConfigError, match="does not say which step"):
            await handle.answer("did_not_happen")
        reply = await handle.answer("happened", step="charge[b]", result=Charge("by hand", 1))
        assert reply.state is RunState.HELD
        assert [question.step for question in await handle.questions()] == ["charge[a]"]
        await handle.answer("did_not_happen")
        return reason, reply.text, await handle.result()

    reason, text, result = run_app(app, scenario)

    assert reason == "outcome unknown: steps 'charge[a]', 'charge[b]'"
    assert text == "answered: happened; still held, outcome unknown: step 'charge[a]'"
    assert result == ["a 3", "by hand"]


def test_the_other_branches_go_on_until_they_wait(store_url: str) -> None:
    app, bank = make_app(store_url), Bank()

    @app.workflow
    async def both(ctx: Context) -> str:
        async def rest() -> None:
            for number in range(3):
                await ctx.step.run("rest", asyncio.sleep, 0.02, item=number)
            await ctx.step.sleep("long", "10d")

        side = asyncio.create_task(rest())
        charged = await ctx.step.run("charge", bank.charge, "a", 1, unknown="ask")
        side.cancel()
        return charged.id

    async def scenario() -> tuple[list[str], str]:
        handle = await app.start(both)
        await cut_off(app, handle, bank)
        await is_held(handle)
        done = [str(row.key) for row in await handle.steps() if row.state is StepState.DONE]
        await handle.answer("happened", result=Charge("by hand", 1))
        return done, await handle.result()

    assert run_app(app, scenario) == (["rest[0]", "rest[1]", "rest[2]"], "by hand")


# --- where the unknown comes from ------------------------------------------------------------------


def test_a_time_out_is_unknown(store_url: str) -> None:
    app, bank = make_app(store_url), Bank()
    pay = paying(app, bank, unknown="ask", timeout="30ms")

    async def scenario() -> tuple[str, str]:
        handle = await app.start(pay, "o-1")
        await is_held(handle)
        (question,) = await handle.questions()
        await handle.answer("did_not_happen")
        return question.why, await handle.result()

    why, result = run_app(app, scenario)

    assert "StepTimedOut" in why
    assert result.startswith("o-1 2")


@pytest.mark.parametrize("cause", [False, True])
def test_a_body_can_say_that_it_does_not_know(sqlite_url: str, cause: bool) -> None:
    app = make_app(sqlite_url)
    tries: list[int] = []

    async def body() -> int:
        tries.append(1)
        if len(tries) == 1 and cause:
            raise ConnectionError("the answer was cut off") from OutcomeUnknown()
        if len(tries) == 1:
            raise OutcomeUnknown("the answer was cut off")
        return len(tries)

    @app.workflow
    async def flow(ctx: Context) -> int:
        return await ctx.step.run("body", body, unknown="ask", retry=SOON)

    async def scenario() -> tuple[str, int]:
        handle = await app.start(flow)
        await is_held(handle)
        (question,) = await handle.questions()
        await handle.answer("did_not_happen")
        return question.why, await handle.result()

    why, result = run_app(app, scenario)

    assert "the answer was cut off" in why
    assert result == 2


@pytest.mark.parametrize("error", [ConnectionError("refused"), Permanent("no")])
def test_a_failure_that_is_none_of_these_is_a_failure(sqlite_url: str, error: Exception) -> None:
    app = make_app(sqlite_url)
    tries: list[int] = []

    async def body() -> int:
        tries.append(1)
        raise error from (OutcomeUnknown() if isinstance(error, Permanent) else None)

    @app.workflow
    async def flow(ctx: Context) -> str:
        try:
            await ctx.step.run("body", body, unknown="ask", retry=Retry(max_tries=2, base="1ms"))
        except StepFailed as failure:
            return failure.error_type
        return ""

    assert result_of(app, flow).endswith(type(error).__name__)
    assert len(tries) == (1 if isinstance(error, Permanent) else 2)


def test_a_stop_that_cuts_a_body_off_leaves_it_unknown(store_url: str) -> None:
    first, bank = make_app(store_url, drain="50ms"), Bank()

    pay = paying(first, bank, unknown="ask")

    async def begin() -> str:
        handle = await first.start(pay, "o-1")
        await eventually_async(lambda: charging(bank))
        return handle.run_id

    run_id = run_app(first, begin)
    second = make_app(store_url)
    paying(second, bank, unknown="ask")

    async def scenario() -> tuple[Question, str]:
        handle = second.run(run_id)
        await is_held(handle)
        (question,) = await handle.questions()
        await handle.answer("happened", result=Charge("seen", 990))
        return question, await handle.result()

    question, result = run_app(second, scenario)

    assert (question.attempt, question.try_number) == (1, 1)
    assert result == "seen: 990 Charge"
    assert len(bank.charges) == 1


def test_what_a_sibling_cut_off_is_asked_about_by_a_retry(store_url: str) -> None:
    app, bank = make_app(store_url), Bank()
    mended: list[bool] = []

    async def broken() -> str:
        await eventually_async(lambda: charging(bank), what="the charge took effect")
        if not mended:
            raise Permanent("broken")
        return "mended"

    @app.workflow
    async def flow(ctx: Context) -> str:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(ctx.step.run("charge", bank.charge, "a", 1, unknown="ask"))
            group.create_task(ctx.step.run("broken", broken))
        return task.result().id

    async def scenario() -> str:
        handle = await app.start(flow)
        with pytest.raises(RunFailed):
            await handle.result()
        mended.append(True)
        await handle.retry()
        await is_held(handle)
        await handle.answer("happened", result=Charge("by hand", 1))
        return await handle.result()

    assert run_app(app, scenario) == "by hand"
    assert len(bank.charges) == 1


# --- a function looks -------------------------------------------------------------------------------


def test_the_check_finds_what_happened(store_url: str) -> None:
    app, bank = make_app(store_url), Bank()
    pay = paying(app, bank, unknown=bank.did_charge)

    async def scenario() -> str:
        handle = await app.start(pay, "o-1")
        await cut_off(app, handle, bank)
        result: str = await handle.result()
        return result

    assert run_app(app, scenario) == "o-1 1: 990 Charge"
    assert len(bank.charges) == 1
    ((order, cents, key),) = bank.asked
    assert (order, cents, key[:3]) == ("o-1", 990, "ow_")


def test_the_check_finds_that_it_did_not_happen(store_url: str) -> None:
    """After a time-out that is a failed try like any other."""
    app = make_app(store_url)
    tries: list[int] = []

    async def body(order: str) -> int:
        tries.append(1)
        await asyncio.sleep(60 if len(tries) == 1 else 0)
        return len(tries)

    def check(order: str) -> DidNotHappen:
        return DidNotHappen()

    @app.workflow
    async def flow(ctx: Context) -> tuple[int, ...]:
        await ctx.step.run("body", body, "a", unknown=check, retry=SOON, timeout="20ms")
        return ()

    async def scenario() -> list[Any]:
        handle = await app.start(flow)
        await handle.result()
        return await handle.steps()

    (record,) = run_app(app, scenario)
    assert (record.tries, record.output) == (2, "2")


def test_a_try_that_a_crash_cut_off_and_did_not_happen_is_not_counted(sqlite_url: str) -> None:
    app, bank = make_app(sqlite_url), Bank()

    def check(order: str, cents: int) -> DidNotHappen:
        return DidNotHappen()

    pay = paying(app, bank, unknown=check, retry=ONCE)

    async def scenario() -> str:
        handle = await app.start(pay, "o-1")
        await cut_off(app, handle, bank)
        result: str = await handle.result()
        return result

    assert run_app(app, scenario).startswith("o-1 2")


def test_a_check_that_fails_is_tried_again_by_the_policy_and_then_a_person_is_asked(store_url: str) -> None:
    app, bank = make_app(store_url), Bank()
    checks: list[int] = []

    def check(order: str, cents: int) -> DidNotHappen:
        checks.append(1)
        raise ConnectionError("the bank is closed")

    pay = paying(app, bank, unknown=check, retry=Retry(max_tries=3, base="1ms"))

    async def scenario() -> tuple[Question, str]:
        handle = await app.start(pay, "o-1")
        await cut_off(app, handle, bank)
        await is_held(handle)
        (question,) = await handle.questions()
        await handle.answer("happened", result=Charge("by hand", 1))
        return question, await handle.result()

    question, result = run_app(app, scenario)

    assert len(checks) == 3
    assert "its check failed 3 times" in question.why
    assert "the bank is closed" in question.why
    assert result.startswith("by hand")


@pytest.mark.parametrize("kind", ["unknown", "permanent", "nonsense", "wrong result", "emits"])
def test_a_check_that_cannot_tell_has_a_person_asked(sqlite_url: str, kind: str) -> None:
    app, bank = make_app(sqlite_url), Bank()

    async def check(order: str, cents: int) -> Any:
        bank.asked.append((order,))
        if kind == "unknown":
            raise OutcomeUnknown("no such search")
        if kind == "permanent":
            raise Permanent("no such search")
        if kind == "emits":
            await app.emit("looked")
        return {"nonsense": True, "wrong result": Happened("text")}.get(kind, DidNotHappen())

    pay = paying(app, bank, unknown=check)

    async def scenario() -> str:
        handle = await app.start(pay, "o-1")
        await cut_off(app, handle, bank)
        await is_held(handle)
        (question,) = await handle.questions()
        return question.why

    why = run_app(app, scenario)
    assert "its check" in why
    assert len(bank.asked) == 1


def test_plain_functions_are_asked_likewise(store_url: str) -> None:
    app = make_app(store_url)
    made: list[str] = []

    def make(name: str) -> str:
        made.append(name)
        raise OutcomeUnknown("cut off")

    def find(name: str) -> Happened[str] | DidNotHappen:
        return Happened(f"found {made[0]}") if name == "a" else DidNotHappen()

    made_step = app.step(name="made", unknown=find)(make)

    @app.workflow
    def flow(ctx: SyncContext) -> list[str]:
        return [made_step("a"), ctx.step.run("asked", make, "b", unknown="ask")]

    handle_result: list[Any] = []
    with app.sync as sync:
        handle = sync.start(flow)

        def held() -> bool:
            return handle.state() is RunState.HELD

        wait_until(held)
        (question,) = handle.questions()
        assert question.step == "asked"
        handle.answer("happened", result="by hand")
        handle_result = handle.result("10s")

    assert handle_result == ["found a", "by hand"]


def wait_until(condition: Callable[[], bool]) -> None:
    async def check() -> bool:
        return await asyncio.to_thread(condition)

    asyncio.run(eventually_async(check))


# --- a step that may be tried once, and options ------------------------------------------------------


def test_a_step_that_may_be_tried_once_and_was_cut_off_fails(store_url: str) -> None:
    app, bank = make_app(store_url), Bank()
    pay = paying(app, bank, retry=ONCE)

    async def scenario() -> tuple[str, str]:
        handle = await app.start(pay, "o-1")
        await cut_off(app, handle, bank)
        with pytest.raises(RunFailed) as failed:
            await handle.result()
        assert len(bank.charges) == 1
        await handle.retry()  # a person wants it
        return failed.value.message, await handle.result()

    message, result = run_app(app, scenario)

    assert "It may be tried once only" in message
    assert result.startswith("o-1 2")


def test_such_a_failure_is_not_tried_again_by_the_run(sqlite_url: str) -> None:
    app, bank = make_app(sqlite_url), Bank()

    @app.workflow(retry=SOON)
    async def pay(ctx: Context) -> str:
        return (await ctx.step.run("charge", bank.charge, "a", 1, retry=ONCE)).id

    async def scenario() -> None:
        handle = await app.start(pay)
        await cut_off(app, handle, bank)
        with pytest.raises(RunFailed):
            await handle.result()

    run_app(app, scenario)
    assert len(bank.charges) == 1


def test_running_it_again_can_be_chosen_for_a_step_that_may_be_tried_once(sqlite_url: str) -> None:
    app, bank = make_app(sqlite_url), Bank()
    pay = paying(app, bank, retry=ONCE, unknown="retry")

    async def scenario() -> str:
        handle = await app.start(pay, "o-1")
        await cut_off(app, handle, bank)
        result: str = await handle.result()
        return result

    assert run_app(app, scenario).startswith("o-1 2")


@pytest.mark.parametrize("unknown", ["perhaps", 7])
def test_what_is_no_choice_is_refused(unknown: Any) -> None:
    app = App("sqlite:///:memory:")
    with pytest.raises(ConfigError, match=r"The unknown of a step cannot be"):
        app.step(unknown=unknown)


class Client:
    """Has no JSON."""


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (Client(), "<tests.engine.test_unknown.Client>"),
        ({"a": Client()}, {"a": "<tests.engine.test_unknown.Client>"}),
        (Charge("a", 1), {"id": "a", "cents": 1}),
        ("x" * 5_000, '"' + "x" * 1_999 + "… (5,002 bytes)"),
        ("\ud800", "<str>"),
    ],
)
def test_arguments_are_shown_bounded_and_without_running_code(
    sqlite_url: str, value: Any, shown: Any
) -> None:
    app = make_app(sqlite_url)

    async def body(value: Any, **more: Any) -> None:
        raise OutcomeUnknown

    @app.workflow
    async def flow(ctx: Context) -> None:
        await ctx.step.run("body", body, value, extra=1, unknown="ask")

    async def scenario() -> str:
        handle = await app.start(flow)
        await is_held(handle)
        return (await handle.questions())[0].arguments

    assert json.loads(run_app(app, scenario)) == {"value": shown, "more": {"extra": 1}}


def test_what_a_plan_must_know_of_the_step_stays_in_its_record(sqlite_url: str) -> None:
    app, bank = make_app(sqlite_url), Bank()
    pay = paying(app, bank, unknown="ask", effect="own_database", key_scope="business")

    async def scenario() -> list[tuple[str | None, str | None]]:
        handle = await app.start(pay, "o-1")
        found = []
        await cut_off(app, handle, bank)
        await is_held(handle)
        for _ in range(2):
            found += [(row.effect, row.key_scope) for row in await handle.steps() if row.name == "charge"]
            if await handle.state() is RunState.HELD:
                await handle.answer("happened", result=Charge("by hand", 1))
                await handle.result()
        return found

    assert run_app(app, scenario) == [("own_database", "business")] * 2
