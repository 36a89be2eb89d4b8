"""What prunes one subject, as both stores do it: a page in a transaction, by ``retention.sql``.

First the events about it, oldest first, and behind each what its runs emitted and started; then, run by run,
the copies that waits of other runs have of such events.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol

import msgspec

from onceward.core import awaiting
from onceward.core.model import Millis
from onceward.core.retention import Ended, Kept, Needed, SubjectPruned, need
from onceward.stores.rows import to_values

VALUES = ("prune_step_values", "prune_promise_values", "prune_run_values")
_TEXTS = ("prune_step_errors", "prune_attempt_errors", "prune_run_errors")

ERROR = '{"type":"Pruned","message":"what it said was pruned with all about its subject"}'
"""What stands in the place of an error."""

AtPlace = Annotated[int, msgspec.Meta(ge=-1, le=2**63 - 1)]
TextPlace = Annotated[str, msgspec.Meta(pattern=r"\A[^\x00]*\Z")]
"""Parts of a place, which whoever asks may have written by hand: what no statement could be asked with is none."""

EventAt = tuple[AtPlace, TextPlace, TextPlace]
"""When an event came, its source and its id."""


class Do(Protocol):
    """Runs one named statement in the transaction and gives its rows."""

    def __call__(self, name: str, /, **values: str | int | None) -> list[tuple[Any, ...]]:
        """Give the rows; of a statement that only writes, none."""
        ...


def as_list(found: Iterable[str]) -> str:
    """Give ids as the statements take them."""
    return msgspec.json.encode(list(found)).decode()


def run_ids(rows: Sequence[tuple[Any, ...]]) -> list[str]:
    """Give the ids of rows that have nothing else."""
    return sorted(run_id for (run_id,) in rows)


class Place(msgspec.Struct, omit_defaults=True):
    """Where a page ended.

    Attributes:
        until: when it was begun: events that came later are left alone.
        horizon: from when on a live run about the subject may wait for events about it; None for never.
        event: the last of them that was looked at.
        todo: runs whose emitted events come next, each with source and id of the last that was looked at.
        run_id: in the walk through the copies, the run that was looked at last; None before that walk.
    """

    until: AtPlace = -1
    horizon: AtPlace | None = None
    event: EventAt = (0, "", "")
    todo: list[tuple[TextPlace, TextPlace, TextPlace]] = []
    run_id: TextPlace | None = None


def place_of(after: str) -> Place:
    """Give the place that a page told as the next.

    Raises:
        msgspec.MsgspecError: it is none.
    """
    found: Place = _read(after, Place) if after else Place()
    return found


def event_place_of(after: str) -> EventAt:
    """Give the place of an event, or of a notice, that a page told as the next.

    Raises:
        msgspec.MsgspecError: it is none.
    """
    found: EventAt = _read(after, EventAt) if after else (0, "", "")
    return found


def _read(after: str, kind: Any) -> Any:
    try:
        return msgspec.json.decode(after, type=kind)
    except (RecursionError, UnicodeError) as error:
        raise msgspec.DecodeError(f"a place is none: {error}") from error


@dataclass
class _Found:
    """What a page has found so far."""

    looked: int = 0
    runs: int = 0
    events: int = 0
    copies: int = 0
    deliveries: set[str] = field(default_factory=set)
    kept: dict[str, Kept] = field(default_factory=dict)
    kept_events: int = 0

    def keep(self, run: Ended, why: Needed) -> None:
        self.kept.setdefault(run.run_id, Kept(run.run_id, run.workflow, run.state, why))

    def told(self, place: Place | None) -> SubjectPruned:
        return SubjectPruned(
            self.looked,
            self.runs,
            self.events,
            len(self.deliveries),
            self.copies,
            list(self.kept.values()),
            self.kept_events,
            None if place is None else msgspec.json.encode(place).decode(),
        )


def prune(do: Do, about: str, now: Millis, place: Place, limit: int, *, is_dry: bool) -> SubjectPruned:
    """Prune one page; *place* is changed."""
    found = _Found()
    if place.until < 0:
        ((oldest, place.horizon),) = do("prune_subject_horizon", subject=about)
        place.until = now
        if oldest is None:
            return found.told(None)
    if place.run_id is not None:
        is_last = _copies(do, about, place, limit, found, is_dry=is_dry)
        return found.told(None if is_last else place)
    is_last = False
    while found.looked < limit and not is_last:
        page, is_last = _next(do, about, place, limit - found.looked)
        found.looked += len(page)
        runs = [run_id for _, source, event_id in page for run_id in _runs_of(do, source, event_id)]
        place.todo = [(run_id, "", "") for run_id in runs] + place.todo
        is_last = is_last and not place.todo
        free = _prune_runs(do, runs, now, found, is_dry=is_dry)
        for event in sorted(page, key=lambda one: one[1:]):
            _prune_event(do, event, free, place.horizon, found, is_dry=is_dry)
    if is_last:
        place.run_id = ""
    return found.told(place)


def _next(do: Do, about: str, place: Place, limit: int) -> tuple[list[tuple[Any, ...]], bool]:
    """Give the next events, and whether there are no more about the subject."""
    if place.todo:
        run_id, source, event_id = place.todo.pop(0)
        page = do(
            "prune_look_emitted",
            run_id=run_id,
            family=f"run/{run_id}",
            after_source=source,
            after_id=event_id,
            limit=limit,
        )
        if len(page) == limit:
            place.todo.insert(0, (run_id, *page[-1][1:]))
        return page, False
    at, source, event_id = place.event
    span: dict[str, Any] = {"after_at": at, "after_source": source, "after_id": event_id, "limit": limit}
    page = do("prune_look_subject", subject=about, until=place.until, **span)
    place.event = page[-1] if page else place.event
    return page, len(page) < limit


def _runs_of(do: Do, source: str, event_id: str) -> list[str]:
    return run_ids(do("prune_runs_of", source=source, id=event_id))


# --- what there is about it -------------------------------------------------------------------------


def _prune_runs(do: Do, wanted: list[str], now: Millis, found: _Found, *, is_dry: bool) -> set[str]:
    """Prune runs; give those that nobody needs."""
    if not wanted:
        return set()
    locked = to_values(Ended, do("prune_lock_runs", ids=as_list(wanted)))
    over = [run.run_id for run in locked if need(run) is None]
    free = set(run_ids(do("prune_free_runs", ids=as_list(over))))
    for run in locked:
        if run.run_id not in free:
            found.keep(run, need(run) or Needed.FAMILY)
    full = run_ids(do("prune_full_runs", ids=as_list(free), told=ERROR))
    found.runs += len(full)
    if full and not is_dry:
        for name in (*_TEXTS, *VALUES):
            do(name, ids=as_list(full), now=now, told=ERROR)
        for run_id in full:
            begin = f"ntc_{run_id[4:]}"  # as `add_notices` makes their ids
            do("prune_notice_texts", begin=f"{begin}_", end=f"{begin}`", told=ERROR)
    return free


def _prune_event(
    do: Do, event: tuple[Any, ...], free: set[str], horizon: Millis | None, found: _Found, *, is_dry: bool
) -> None:
    """Prune an event whose runs are over, and its requests in any case: no run needs those."""
    at, source, event_id = event
    _prune_deliveries(do, source, event_id, found, is_dry=is_dry)
    if not is_dry:
        # A replay locks its event as well: it comes before, and is seen below, or after, and is refused.
        do("prune_lock_event", source=source, id=event_id)
    if not do("prune_has_payload", source=source, id=event_id):
        return
    waiting = to_values(Ended, do("prune_told_of", source=source, id=event_id))
    for run in waiting:
        found.keep(run, Needed.WAITS)
    is_awaited = bool(waiting) or (horizon is not None and at >= horizon)
    if is_awaited or not free.issuperset(_runs_of(do, source, event_id)):
        found.kept_events += 1
        return
    found.events += 1
    if not is_dry:
        do("prune_event_payload", source=source, id=event_id)


def _prune_deliveries(do: Do, source: str, event_id: str, found: _Found, *, is_dry: bool) -> None:
    """Prune the requests that brought an event, whole; they stay counted."""
    delivery_ids = run_ids(do("prune_deliveries_of", source=source, id=event_id))
    found.deliveries.update(delivery_ids)
    for delivery_id in delivery_ids if not is_dry else ():
        for part, of, its_id, at in do("prune_parts_of", delivery_id=delivery_id):
            if do("prune_delivery", delivery_id=delivery_id, part=part):
                do("prune_count_delivery", source=of, event_id=its_id, at=at)


# --- copies ---------------------------------------------------------------------------------------------


def _copies(do: Do, about: str, place: Place, limit: int, found: _Found, *, is_dry: bool) -> bool:
    """Prune what waits of runs about something else took; give whether no run is left."""
    page = to_values(Ended, do("prune_look_runs", after=place.run_id, before="run`", limit=limit))
    if not page:
        return True
    found.looked += len(page)
    place.run_id = page[-1].run_id
    rows = do("prune_taken_of", ids=as_list(run.run_id for run in page), subject=about)
    taken = [(row, text) for *row, output in rows if (text := _without_payload(output, about)) is not None]
    wanted = sorted({str(row[0]) for row, _ in taken})
    locked = to_values(Ended, do("prune_lock_runs", ids=as_list(wanted))) if wanted else []
    over = {run.run_id for run in locked if need(run) is None}
    for run in locked:
        if run.run_id not in over:
            found.keep(run, Needed.TAKEN)
    for (run_id, generation, name, item, ordinal), text in taken:
        if run_id in over:
            found.copies += 1
            if not is_dry:
                key = {"generation": generation, "step_name": name, "item": item, "ordinal": ordinal}
                do("prune_taken", run_id=run_id, output=text, **key)
    if over and not is_dry:
        do("prune_fence", ids=as_list(sorted(over)))
    return len(page) < limit


def _without_payload(output: str, about: str) -> str | None:
    """Give the outcome of a wait without the payload of its event, if that is about the subject."""
    try:
        label, event = awaiting.taken_of(output)
    except msgspec.MsgspecError:
        return None  # edited by hand; the run itself says so, if it is ever asked
    if event.subject != about or event.payload is None:
        return None
    return awaiting.taken_text(label, msgspec.structs.replace(event, payload=None))
