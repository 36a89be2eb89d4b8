"""Tries that began and have no saved end: run again, failed, checked, or a person is asked.

What must stay true: that a try begins is durable before its body does (RULINGS 5, 7); what was
found out, or answered, is saved before anything stands on it; while somebody is asked, the other
branches of the run go on until they wait themselves.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from onceward.core import errors, json_plain, retry, unknown
from onceward.core.codec import Codec
from onceward.core.model import Millis, StepRow
from onceward.core.shown import shown
from onceward.core.states import StepState
from onceward.core.unknown import Begun, DidNotHappen, Happened
from onceward.runtime.records import error_text, failure_of, one_line

if TYPE_CHECKING:
    from onceward.authoring.current import Frame
    from onceward.runtime.execution import Execution
    from onceward.runtime.tries import Call
    from onceward.runtime.worker import Worker

_log = logging.getLogger("onceward.run")

CUT_OFF = "the try that began was cut off: its process died, lost the run or was stopped"


known_results: weakref.WeakKeyDictionary[Worker, dict[tuple[str, str], Codec]] = weakref.WeakKeyDictionary()
"""How the results of steps are stored about which a worker asked, by workflow and step: for whoever
judges the answer, where that is the same process."""


@dataclass(frozen=True, slots=True)
class Found:
    """What became of a step: it took effect, and its result is *text*, or it did not.

    Attributes:
        happened: whether it took effect.
        text: its result as JSON.
        value: its result.
        by_person: a person said so.
    """

    happened: bool
    text: str | None = None
    value: Any = None
    by_person: bool = False


def begin(execution: Execution, call: Call, frame: Frame, started_at: Millis) -> Begun:
    """Save that a try begins, together with whatever was not durable yet; the caller waits for it."""
    begun = begun_now(execution, frame)
    row = call.row(execution, StepState.OPEN, started_at, tries=frame.try_number - 1, begun=begun.to_text())
    execution.save(row)
    return begun


def begun_now(execution: Execution, frame: Frame) -> Begun:
    """Give what is kept of the try that begins in this frame."""
    worker = execution.worker
    return Begun(
        at=worker.now_ms(),
        try_number=frame.try_number,
        attempt=execution.attempt,
        process_id=worker.process_id,
        key=frame.idempotency_key,
    )


async def settle(execution: Execution, call: Call, begun: Begun, tries: int, started_at: Millis) -> Found:
    """Find out what became of a try that began.

    Args:
        execution: the run.
        call: the step.
        begun: what is kept of the try.
        tries: tries that are known to have failed.
        started_at: when the step began.

    Raises:
        StepFailed: the step may be tried once only.
        Suspended: a person is asked; the run is held.
    """
    while True:
        if begun.answer == unknown.DID_NOT_HAPPEN:
            return Found(False, by_person=True)
        if begun.answer == unknown.HAPPENED:
            try:
                text, value = _answered(execution, call, begun)
            except errors.OncewardError as error:
                why = f"the result that was answered does not fit: {error.what.rstrip('.')}"
                begun = msgspec.structs.replace(begun, answer="", why=why)
            else:
                return Found(True, text, value, by_person=True)
        way = call.options.if_unknown
        if way == "fail" and call.kind == "run":
            _fail(execution, call, begun, started_at)
        if way != "check" or begun.is_asked:
            await ask(execution, call, begun, tries, started_at)
        found = await _check(execution, call, begun, tries, started_at)
        if isinstance(found, Found):
            return found
        begun = found


def _answered(execution: Execution, call: Call, begun: Begun) -> tuple[str, Any]:
    what = f"The result of step {str(call.key)!r}"
    result, text = call.facts.result, bytes(begun.result).decode()
    limit_bytes = execution.worker.settings.value_bytes_max
    if call.kind == "run" or call.of is not None:
        refuse_misfit(result, json_plain.decode_plain(text, what=what), str(call.key), execution.run_id)
    value = result.decode(text, what=what)
    return result.round_trip(value, what=what, limit_bytes=limit_bytes)


def refuse_misfit(codec: Codec, value: Any, step: str, run_id: str) -> None:
    """Refuse what a person says that a step gave, where the code says something else.

    Raises:
        NotStorable: it is none of the step's results.
    """
    misfit = codec.misfit(value)
    if misfit is not None:
        raise errors.NotStorable(
            f"The result of step {step!r} of run {run_id} cannot be {shown(value)}: {misfit}.",
            means="The run could not go on with it. Nothing was changed.",
            todo="Give what the step would have returned, as JSON.",
        )


def _fail(execution: Execution, call: Call, begun: Begun, started_at: Millis) -> NoReturn:
    """Fail a step that may be tried once and began: a second body would be a second try."""
    error = errors.OutcomeUnknown(
        f"{begun.why or CUT_OFF}. It may be tried once only, so it is not tried again; look whether it took "
        "effect, then retry or restart the run"
    )
    text = error_text(error, is_final=True)
    tries, kept = begun.try_number, begun.to_text()
    row = call.row(execution, StepState.FAILED, started_at, tries=tries, error=text, begun=kept)
    execution.save(row)
    raise failure_of(row)


async def _check(
    execution: Execution, call: Call, begun: Begun, tries: int, started_at: Millis
) -> Found | Begun:
    """Ask the step's check function; give what it says, or what to ask next with."""
    worker = execution.worker
    try:
        told = await call.look(execution, begun)
        if isinstance(told, DidNotHappen):
            return Found(False)
        if isinstance(told, Happened):
            what = f"The result that the check of step {str(call.key)!r} found"
            limit_bytes = worker.settings.value_bytes_max
            text, value = call.facts.result.round_trip(told.result, what=what, limit_bytes=limit_bytes)
            return Found(True, text, value)
        raise errors.StepMisuse(
            f"The check of step {str(call.key)!r} returned {shown(told)}.",
            means="It says nothing about what became of the step.",
            todo="Return Happened(result) or DidNotHappen(), or raise OutcomeUnknown.",
        )
    except asyncio.CancelledError as error:
        if execution.is_from_outside(error):
            raise
        failure: BaseException = error
    except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001 - then the policy decides
        failure = error
    execution.check_usable()
    checks = begun.checks + 1
    decision = retry.decide(
        call.options.retry,
        tries=checks,
        error=failure,
        elapsed_ms=worker.now_ms() - begun.at,
        draw=worker.ids.draw(),
        now_ms=worker.now_ms(),
    )
    if isinstance(failure, errors.OutcomeUnknown) or decision.delay_ms is None:
        kind = "cannot tell" if isinstance(failure, errors.OutcomeUnknown) else f"failed {checks} times"
        why = f"{begun.why or CUT_OFF}; its check {kind}: {one_line(failure)}"
        return msgspec.structs.replace(begun, why=why, is_asked=True)
    told = worker.redaction.text(one_line(failure))
    _log.info("run %s: the check of step %r failed: %s", execution.run_id, str(call.key), told)
    begun = msgspec.structs.replace(begun, checks=checks)
    wake_at = worker.now_ms() + decision.delay_ms
    text = begun.to_text()
    row = call.row(execution, StepState.OPEN, started_at, tries=tries, wake_at=wake_at, begun=text)
    execution.save(row)
    await execution.durable()
    await execution.parking.back_off(wake_at)
    return begun


async def ask(execution: Execution, call: Call, begun: Begun, tries: int, started_at: Millis) -> NoReturn:
    """Have a person asked; the run is held as soon as its other branches wait, too.

    Raises:
        Suspended: always, when the run leaves memory.
    """
    hidden = None if call.facts.key_place is None else call.facts.key_place.name
    begun = msgspec.structs.replace(
        begun,
        why=begun.why or CUT_OFF,
        is_asked=True,
        answer="",
        arguments=unknown.shown_arguments(
            call.function, call.args, call.kwargs, hidden, has_connection=call.options.database is not None
        ),
    )
    known_results.setdefault(execution.worker, {})[execution.run.workflow, call.key.name] = call.facts.result
    text = begun.to_text()
    row = call.row(execution, StepState.OPEN, started_at, tries=tries, begun=text)
    execution.questions[call.key] = row
    try:
        await execution.parking.park(None)
    finally:
        if execution.stopping is None:
            del execution.questions[call.key]  # the code cut it off
    raise AssertionError("nobody wakes a branch that asks")


def questions(execution: Execution) -> tuple[str, list[StepRow]]:
    """Give the reason and the records with which a run is held that asks."""
    rows = list(execution.questions.values())
    return unknown.reason_of([str(row.key) for row in rows]), rows
