"""Undoing what a run did: the undo of each done step, the last one first, each a step of its own.

It begins when the run ends badly (``undo="on_failure"``), or where the code says so. A mark is saved
before the first undo begins. With it in the records the code only recalls: it gives the arguments of
its steps again, and nothing new of it begins; then the undoing goes on where it was.

What must stay true: what is undone is undone once; nothing is undone that failed for good; where it
is not known whether a step took effect, its check or a person says so first; an undo that fails is
never passed over.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from onceward.authoring.keys import key_place
from onceward.authoring.options import StepOptions
from onceward.authoring.undo import undo_arguments
from onceward.core import codec, unknown
from onceward.core.model import StepKey, StepRow
from onceward.core.plan import UNDO_MARK
from onceward.core.states import StepState
from onceward.runtime import ending
from onceward.runtime.functions import FunctionFacts, facts_of, is_coroutine_function
from onceward.runtime.records import json_text
from onceward.runtime.tries import UNDO, Call, run_step
from onceward.runtime.unknown import settle

if TYPE_CHECKING:
    from onceward.runtime.execution import Execution

_Asked = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], StepOptions]

_UNDONE = ("run", "transaction")
"""Kinds of steps that may have an undo."""

BRANCH_S_MAX = 5
"""How long branches that the code left running may take to end before their steps are undone."""


class Undoing:
    """What of one run can be undone, and how far that is.

    Attributes:
        mark: the saved mark, if the undoing of the run has begun.
        is_rewinding: the code runs only to give the arguments of what is saved.
        is_over: the code is over; nothing but undoing begins.
        failure: what ended the run, as JSON text.
        waits: branches that came to the end of what is saved.
    """

    __slots__ = ("_calls", "_undone", "failure", "is_over", "is_rewinding", "mark", "waits")

    def __init__(self, history: list[StepRow]) -> None:
        self.mark = _mark_in(history) if history else None
        self.is_rewinding = self.mark is not None
        self.failure = None if self.mark is None else self.mark.error
        self.is_over = False
        self.waits = 0
        self._calls: dict[StepKey, _Asked] = {}
        self._undone: dict[StepKey, None] = {}

    @property
    def undone(self) -> list[str]:
        """Give the steps that were undone in this generation, in that order."""
        return [str(key) for key in self._undone]

    def note(
        self,
        execution: Execution,
        key: StepKey,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        options: StepOptions,
    ) -> None:
        """Hear that the code asks for a step that has an undo."""
        self._calls[key] = function, args, kwargs, options
        execution.whole.add(key)

    def rewind(self, failure: str) -> None:
        """Let the code only recall, because the run is to fail with this."""
        self.is_rewinding, self.failure = True, failure

    async def end_here(self, execution: Execution) -> None:
        """Wait where a branch comes to the end of what is saved, until all have; never returns."""
        self.waits += 1
        execution.recall.look_when_quiet()
        try:
            await execution.loop.create_future()
        finally:
            self.waits -= 1

    # --- undoing ---------------------------------------------------------------------------------

    async def everything(self, execution: Execution, failure: str | None) -> None:
        """Undo what the run did; its code is over.

        Args:
            execution: the run.
            failure: JSON of what ended it; None where it is being cancelled.

        Raises:
            Suspended: the run leaves memory; the undoing goes on later.
        """
        self.is_over = True
        await _end_branches(execution)
        before = None if self.mark is None else self.mark.seq
        if self.is_rewinding and (missed := execution.recall.missed(_UNDONE, before)):
            named = ", ".join(repr(one) for one in missed[:10])
            execution.mismatch(
                UNDO_MARK, f"whether {named} must be undone is not known, the code no longer asks"
            )
        todo = self._todo(execution, before, is_over=True)
        if self.mark is None and not todo:
            return
        if self.mark is None:
            now = execution.worker.now_ms()
            self.mark = execution.row(UNDO_MARK, UNDO, StepState.OPEN, now, error=failure)
            execution.save(self.mark)
        execution.calls += 1
        try:
            for row, call in todo:
                await self._undo(execution, row, call)
        finally:
            execution.calls -= 1
        now = execution.worker.now_ms()
        output = json_text(self.undone)
        execution.save(execution.row(UNDO_MARK, UNDO, StepState.DONE, now, record=self.mark, output=output))

    async def here(self, execution: Execution, key: StepKey) -> list[str]:
        """Undo what was done before this point of the code; give the steps, the last one first."""
        record = await execution.saved(key, UNDO)
        before = None if record is None else record.seq
        if record is None:
            mark = execution.row(key, UNDO, StepState.OPEN, execution.worker.now_ms())
            execution.save(mark)
            before = mark.seq
        is_done = record is not None and record.state is StepState.DONE
        undone: list[str] = []
        for row, call in self._todo(execution, before):
            if is_done and not self._has_undo(execution, call):
                continue  # another branch did it while this was under way
            if await self._undo(execution, row, call):
                undone.append(str(call.key))
        if is_done and record is not None:
            await execution.recall.hand_out(record)
        else:
            row = execution.row(
                key, UNDO, StepState.DONE, execution.worker.now_ms(), record=record, output=json_text(undone)
            )
            execution.save(row)
        return undone

    def _todo(
        self, execution: Execution, before: int | None, *, is_over: bool = False
    ) -> list[tuple[StepRow, Call]]:
        """Give what may have taken effect and is not undone, the last outcome first."""
        found = []
        for key, (function, args, kwargs, options) in self._calls.items():
            row = execution.latest(key)
            if row is None or key in self._undone or row.origin is not None:
                continue  # what a replay copied belongs to the run that did it
            is_doubtful = row.begun is not None and (is_over or row.state is not StepState.OPEN)
            if (row.state is StepState.DONE or is_doubtful) and (before is None or row.seq < before):
                call = Call(key, function, facts_of(function), args, kwargs, options, options.kind)
                found.append((row, call))
        return sorted(found, key=lambda one: one[0].seq, reverse=True)

    def _has_undo(self, execution: Execution, call: Call) -> bool:
        keys = _undo_key(call.key), _outcome_key(call.key)
        return any(execution.recall.record(key) is not None for key in keys)

    async def _undo(self, execution: Execution, row: StepRow, call: Call) -> bool:
        """Undo one step; False if it turns out that it took no effect."""
        undo, text = call.options.undo, row.output
        assert undo is not None
        if row.state is not StepState.DONE:
            happened, text = await self._outcome(execution, row, call)
            if not happened:
                return False
        key = _undo_key(call.key)
        record = await self._saved(execution, key)
        if record is None or record.state is not StepState.DONE:
            done = execution.row(call.key, call.kind, StepState.DONE, row.started_at, output=text)
            value = execution.answer(done, call.facts.result)
            in_transaction = call.options.database is not None
            named = unknown.named(
                call.function, call.args, call.kwargs, defaults=True, has_connection=in_transaction
            )
            args, kwargs = undo_arguments(undo, value, named)
            function, place = undo.function, key_place(undo.function)
            facts = FunctionFacts(is_coroutine_function(function), codec.codec_for(Any), place)
            own = Call(key, function, facts, args, kwargs, undo.options, UNDO)
            await run_step(execution, own, record, asyncio.current_task(execution.loop))
        self._undone[call.key] = None
        return True

    async def _outcome(self, execution: Execution, row: StepRow, call: Call) -> tuple[bool, str | None]:
        """Find out whether a step took effect that has no saved result; saved as a step of its own."""
        key = _outcome_key(call.key)
        record = await self._saved(execution, key)
        if record is not None and record.state is StepState.DONE:
            told = msgspec.json.decode(record.output or "{}", type=_Told)
            return told.happened, bytes(told.result).decode()
        begun = unknown.begun_of(record) or unknown.begun_of(row)
        assert begun is not None
        if not begun.is_asked:
            why = f"{begun.why or 'it was cut off'}; if it took effect, it must be undone"
            begun = msgspec.structs.replace(begun, why=why)
        way = call.options.unknown if call.options.if_unknown == "check" else "ask"
        options = dataclasses.replace(call.options, unknown=way)
        looked = msgspec.structs.replace(call, key=key, kind=UNDO, options=options, of=call.key)
        found = await settle(execution, looked, begun, 0, row.started_at)
        told = _Told(found.happened, msgspec.Raw((found.text or "null").encode()))
        saved = execution.row(
            key, UNDO, StepState.DONE, row.started_at, output=msgspec.json.encode(told).decode()
        )
        execution.save(saved)
        return found.happened, found.text

    async def _saved(self, execution: Execution, key: StepKey) -> StepRow | None:
        """Give the record of a part of the undoing; opened again if it was cut off."""
        record = execution.recall.record(key)
        execution.recall.asked(key)
        if record is None or record.state is StepState.OPEN:
            return record
        if record.kind != UNDO:
            execution.mismatch(key, f"it was saved as {record.kind!r} and its step is to be undone")
        if record.state is StepState.DONE:
            if not self.is_over:
                await execution.recall.hand_out(record)
            return record
        # What is cut off opens again, and only then has another outcome (I4).
        opened = execution.row(key, UNDO, StepState.OPEN, record.started_at, begun=record.begun)
        execution.save(opened)
        await execution.durable()
        return opened


async def judged_and_undone(
    execution: Execution, value: Any, error: BaseException | None
) -> tuple[BaseException | None, ending.Verdict]:
    """Undo what a run did, where it ends badly; give what ended its code, and what that means."""
    undoing, verdict = execution.undoing, ending.judge(execution, value, error)
    is_over = execution.stopping in (None, "rewound", "deadline") and execution.hold_reason is None
    is_bad = execution.cancel.is_on or (verdict.failure is not None and verdict.delay_ms is None)
    is_wanted = undoing.is_rewinding or (execution.workflow.policies.undoes_on_failure and is_bad)
    if not is_over or not is_wanted or ending.is_given_up(execution.run):
        return error, verdict
    if execution.stopping == "rewound":
        error = None  # it only took the code off the stack
    execution.stopping = None
    try:
        await undoing.everything(execution, verdict.failure)
    except BaseException as caught:  # noqa: BLE001 - as at the end of the code
        error = caught
    return error, verdict


def _mark_in(history: list[StepRow]) -> StepRow | None:
    """Give the open mark among the records of a run."""
    marks = (row for row in history if row.kind == UNDO and row.state is StepState.OPEN)
    return next((row for row in marks if row.key == UNDO_MARK), None)


class _Told(msgspec.Struct):
    happened: bool
    result: msgspec.Raw


def _undo_key(key: StepKey) -> StepKey:
    return StepKey(f"{key.name} (undo)", key.item, key.ordinal)


def _outcome_key(key: StepKey) -> StepKey:
    return StepKey(key.name + unknown.OUTCOME, key.item, key.ordinal)


async def _end_branches(execution: Execution) -> None:
    """End what the code left running, so that nothing takes effect beside the undoing."""
    tasks = [task for task in execution.branches.tasks() if task is not execution.root and not task.done()]
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=BRANCH_S_MAX)
    if execution.root is not None:
        while execution.root.cancelling():
            execution.root.uncancel()
