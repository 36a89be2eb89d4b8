"""Waits for events: how a run looks for what it waits for, and how it is told.

A wait is opened by a commit of the run: its record, and a row that whoever stores such an event
finds. Then, in a later transaction, the run looks for an event that is there already. Whoever stores
events looks for waits after that commit, too. So at least one of the two sees the other, and neither
has to lock anything (docs/adr/0015).

Which event a wait takes is decided here alone, by the one process that holds the run, and saved in
the wait's own record; what is told from outside is a hint.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from onceward.authoring.event import Event
from onceward.authoring.expect import Label, Parts
from onceward.core import awaiting, errors
from onceward.core.awaiting import ANY, EventKey, Seen
from onceward.core.model import DoneWait, EventRow, Millis, StepKey, StepRow, WaitRow
from onceward.core.ports import Awaited, EventPlace, Store
from onceward.core.states import StepState
from onceward.runtime.records import json_text

if TYPE_CHECKING:
    from onceward.runtime.execution import Execution

PAGE = 100
"""Events that one look reads at a time; each may have a payload of some size."""

LATE_MS: Millis = 600_000
"""How much later than its own time the row of a wait may become durable, at most. Of events that come
later yet, the run is told; so a wait for whatever subject need not read all of them when it comes back."""

Found = tuple[int, EventRow]


class _Open:
    """A wait of a run in memory: for events, or for the end of a promise, which has no rows."""

    __slots__ = ("future", "has_news", "rows", "told")

    def __init__(self, rows: Sequence[WaitRow]) -> None:
        self.rows = rows
        self.future: asyncio.Future[Found | None] | None = None  # while it is parked
        self.told: list[EventRow] = []
        self.has_news = False


class Waits:
    """The open waits of one run in memory.

    Args:
        execution: the run.
        history: its saved records.
    """

    __slots__ = ("_execution", "_open", "taken", "texts")

    def __init__(self, execution: Execution, history: Iterable[StepRow]) -> None:
        self._execution = execution
        self._open: dict[StepKey, _Open] = {}
        self.texts: dict[StepKey, str] = {}
        self.taken: set[EventKey] = set()
        for record in history:
            if record.kind == "wait" and record.state is StepState.DONE and record.output is not None:
                self._note(record.output)

    def _note(self, output: str) -> None:
        try:
            self.taken.add(awaiting.key_of(awaiting.taken_of(output)[1]))
        except msgspec.MsgspecError:
            return  # the wait itself says so, when the code asks for it

    def open(self, key: StepKey, rows: Sequence[WaitRow], text: str) -> _Open:
        """Begin to hear of what a wait is for; *text* says it to people."""
        self.texts[key] = text
        opened = self._open[key] = _Open(rows)
        return opened

    def close(self, key: StepKey) -> None:
        """Hear nothing more; a run that leaves memory still waits for it."""
        self._open.pop(key, None)
        if self._execution.stopping != "suspend":
            self.texts.pop(key, None)

    def fit(self, opened: _Open, event: EventRow) -> Found | None:
        """Give the event and as which of those waited for it counts, if it is still to be had."""
        if awaiting.key_of(event) in self.taken:
            return None
        seen = Seen(event, self._execution.worker.settings.namespace)
        return next(((row.part, event) for row in opened.rows if seen.fits(row)), None)

    def take(self, opened: _Open, looked: Found | None) -> Found | None:
        """Take the oldest of what was found and what was told meanwhile."""
        found = [looked] if looked is not None and awaiting.key_of(looked[1]) not in self.taken else []
        found += [fitting for event in opened.told if (fitting := self.fit(opened, event)) is not None]
        opened.told.clear()
        if not found:
            return None
        first = min(found, key=lambda one: awaiting.in_order(one[1]))
        self.taken.add(awaiting.key_of(first[1]))
        return first

    def offered(self, events: Iterable[EventRow]) -> None:
        """Hear of events that fit some wait of this run; each goes to the first wait that takes it."""
        for event in sorted(events, key=awaiting.in_order):
            for opened in self._open.values():
                future = opened.future
                if future is None:
                    opened.told.append(event)
                elif not future.done() and (found := self.fit(opened, event)) is not None:
                    self.taken.add(awaiting.key_of(event))
                    future.set_result(found)
                    break

    def look_again(self) -> None:
        """Let every wait look: something happened, in another process."""
        for opened in self._open.values():
            opened.has_news = True
            if opened.future is not None and not opened.future.done():
                opened.future.set_result(None)

    async def park(self, opened: _Open, until: Millis | None) -> Found | None:
        """Wait without keeping the run in memory; None says to look again."""
        execution = self._execution
        opened.future = execution.loop.create_future()
        try:
            found: Found | None = await execution.parking.park(until, opened.future)
        except BaseException:
            future = opened.future
            if future.done() and not future.cancelled() and (missed := future.result()) is not None:
                # The code cut the wait off in the very moment; another wait may have the event.
                self.taken.discard(awaiting.key_of(missed[1]))
                opened.future = None
                self.offered([missed[1]])
            raise
        finally:
            opened.future = None
        return found


async def wait(
    execution: Execution, key: StepKey, parts: Parts, timeout_ms: Millis | None, *, is_raising: bool
) -> tuple[Label | None, Event] | None:
    """Give the first event that is waited for, and as which; None when the time is over.

    Raises:
        WaitTimedOut: the time is over, and the code wants it so.
    """
    record = await execution.saved(key, "wait")
    if record is None or record.state is StepState.OPEN:
        record = await _wait(execution, key, record, parts, timeout_ms, is_raising=is_raising)
    if record.output is None:
        if is_raising:
            raise timed_out(record)
        return None
    try:
        label, event = awaiting.taken_of(record.output)
    except msgspec.MsgspecError as error:
        execution.mismatch(key, f"its saved event cannot be read: {error}")
    return label, Event(event)


async def _wait(
    execution: Execution,
    key: StepKey,
    record: StepRow | None,
    parts: Parts,
    timeout_ms: Millis | None,
    *,
    is_raising: bool,
) -> StepRow:
    """Wait for an event, or for the end of the time, and save which it was before the code sees it (I13)."""
    worker, waits = execution.worker, execution.waits
    is_new = record is None or record.tries == 0
    if record is None or is_new:
        now = worker.now_ms()
        wake_at = None if timeout_ms is None else now + timeout_ms
        # A second try says that a retry opened it again, so that its start says nothing of its row.
        tries = 1 if record is None else 2
        record = execution.row(key, "wait", StepState.OPEN, now, record=record, wake_at=wake_at, tries=tries)
    rows = _rows(execution, key, parts, record.wake_at)
    if is_new:
        execution.save(record)
        execution.operation().advance.waits.extend(rows)
        execution.has_waits = True
    horizon = None if is_new or record.tries > 1 else record.started_at + LATE_MS
    opened = waits.open(key, rows, " or ".join(part.show() for _, part in parts))
    try:
        found = None
        if is_new:
            await execution.durable()
        elif record.attempt == execution.attempt:
            # Whoever opened it has looked; after a crash it may not have, and something older be there.
            opened.told.extend(execution.told)
            found = waits.take(opened, None)
        if found is None:
            found = await _found(execution, opened, record.wake_at, horizon)
    finally:
        waits.close(key)
    row = _outcome(execution, key, record, parts, found, is_raising=is_raising)
    execution.save(row)
    done = DoneWait(key) if found is None else DoneWait(key, *awaiting.key_of(found[1]))
    execution.operation().advance.done_waits.append(done)
    if execution.recall.has_queue():
        await execution.recall.take_turn()
    return row


async def _found(
    execution: Execution, opened: _Open, until: Millis | None, horizon: Millis | None
) -> Found | None:
    """Look, and wait, until there is an event or the time is over."""
    worker, waits = execution.worker, execution.waits
    while True:
        # Read before the look: what came in time is seen by it.
        is_over = until is not None and worker.now_ms() >= until
        opened.has_news = False
        looked = await worker.insist(
            worker.read,
            look,
            worker.store,
            execution.run_id,
            opened.rows,
            worker.settings.namespace,
            frozenset(waits.taken),
            horizon,
        )
        execution.check_usable()
        found = waits.take(opened, looked)
        if found is not None:
            return found
        if looked is not None or opened.has_news:
            continue  # another wait of this run was quicker, or there is something new
        if is_over:
            return None
        found = await waits.park(opened, until)
        if found is not None:
            return found


def look(
    store: Store,
    run_id: str,
    rows: Sequence[WaitRow],
    namespace: str,
    taken: Container[EventKey],
    horizon: Millis | None,
) -> Found | None:
    """Give the oldest stored event that ends a wait; blocks.

    Args:
        store: is asked for the events that the run was told of, and for those of the types and
            subjects that are waited for.
        run_id: whose wait.
        rows: what it is for.
        namespace: of this process.
        taken: events that other waits of the run took.
        horizon: up to when events are looked for that are about whatever; of later ones the run is told.
    """
    found: list[Found] = []

    def fit(event: EventRow) -> bool:
        if awaiting.key_of(event) in taken:
            return False
        seen = Seen(event, namespace)
        fitting = [(row.part, event) for row in rows if seen.fits(row)]
        found.extend(fitting[:1])
        return bool(fitting)

    # What a wait that has just begun was told of, it finds among all events.
    offers = [] if horizon is None else store.offers([run_id]).get(run_id, [])
    for event in offers:
        if fit(event):
            break  # they come in order
    for place in dict.fromkeys(EventPlace(row.type, row.subject) for row in rows):
        until = rows[0].until_at
        if place.subject == ANY and horizon is not None:
            until = horizon if until is None else min(until, horizon)
        _look_at(store, Awaited(place, rows[0].since_at, until, limit=PAGE), fit)
    return min(found, key=lambda one: awaiting.in_order(one[1]), default=None)


def _look_at(store: Store, where: Awaited, fit: Any) -> None:
    while True:
        events = store.awaited(where)
        if any(fit(event) for event in events) or len(events) < where.limit:
            return
        where = msgspec.structs.replace(where, after=awaiting.in_order(events[-1]))


def _rows(execution: Execution, key: StepKey, parts: Parts, until_at: Millis | None) -> list[WaitRow]:
    return [
        WaitRow(
            run_id=execution.run_id,
            generation=execution.generation,
            name=key.name,
            item=key.item,
            ordinal=key.ordinal,
            part=number,
            type=part.type,
            subject=part.subject or ANY,
            source=part.source,
            since_at=execution.began_at,
            until_at=until_at,
            condition=part.condition,
        )
        for number, (_, part) in enumerate(parts)
    ]


def _outcome(
    execution: Execution,
    key: StepKey,
    record: StepRow,
    parts: Parts,
    found: Found | None,
    *,
    is_raising: bool,
) -> StepRow:
    """Give what is saved of a wait that is over."""
    now = execution.worker.now_ms()
    same: dict[str, Any] = {"record": record, "wake_at": record.wake_at, "tries": record.tries}
    if found is not None:
        text = awaiting.taken_text(parts[found[0]][0], found[1])
        return execution.row(key, "wait", StepState.DONE, now, output=text, **same)
    if is_raising:
        what = " or ".join(part.show() for _, part in parts)
        error = json_text({"type": "WaitTimedOut", "message": f"no event {what} came in time"})
        row = execution.row(key, "wait", StepState.FAILED, now, error=error, **same)
    else:
        row = execution.row(key, "wait", StepState.DONE, now, **same)
    return not_before(row)


def not_before(row: StepRow) -> StepRow:
    """Give the record of a time that is over, which says so also if the clock was set back since (I14)."""
    if row.ended_at is not None and row.wake_at is not None and row.ended_at < row.wake_at:
        return msgspec.structs.replace(row, ended_at=row.wake_at)
    return row


def timed_out(record: StepRow) -> errors.WaitTimedOut:
    """Give the error of a wait whose time is over."""
    told = msgspec.json.decode(record.error or "{}")
    error = errors.WaitTimedOut(str(record.key), told.get("message", "nothing came in time"))
    error.step_key = (record.name, record.item, record.ordinal)
    return error
