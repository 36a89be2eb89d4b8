"""What prunes, as both stores do it: the statements of ``retention.sql``, a page in a transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from onceward.core import failpoints, ids
from onceward.core.model import Millis
from onceward.core.retention import (
    BATCH_MAX,
    SLACK_MS,
    Due,
    Ended,
    Pruned,
    Rules,
    SubjectPruned,
    What,
    due,
)
from onceward.stores import subjects
from onceward.stores.rows import to_values
from onceward.stores.subjects import VALUES, Do, as_list, event_place_of, run_ids

T = TypeVar("T")

_NEVER: Millis = -1
_ROWS = ("prune_steps", "prune_attempts", "prune_promises", "prune_offers", "prune_runs")


class StoredRetention:
    """The part of a store that implements `onceward.core.ports.Prunes`."""

    def _transact(self, work: Callable[[Do], T]) -> T:
        """Do *work* in one transaction of its own."""
        raise NotImplementedError

    def prune(
        self,
        what: What,
        rules: Rules,
        now: Millis,
        *,
        after: str = "",
        limit: int = BATCH_MAX,
        is_dry: bool = False,
    ) -> Pruned:
        """Prune one page, in one transaction; see the protocol."""
        work = {
            What.RUNS: _runs,
            What.EVENTS: _events,
            What.IDENTITY: _events,
            What.DELIVERIES: _deliveries,
            What.UNPARSED: _unparsed,
            What.NOTICES: _notices,
        }[what]

        def page(do: Do) -> Pruned:
            found = work(do, what, rules, now, after, limit, is_dry)
            failpoints.hit("prune.before_commit")
            return found

        found = self._transact(page)
        failpoints.hit("prune.after_commit")
        return found

    def prune_subject(
        self, subject: str, now: Millis, *, after: str = "", limit: int = BATCH_MAX, is_dry: bool = False
    ) -> SubjectPruned:
        """Prune one page of what is stored about a subject; see the protocol."""

        def page(do: Do) -> SubjectPruned:
            # Read anew each time: the page changes it, and a transaction may be done again.
            place = subjects.place_of(after)
            found = subjects.prune(do, subject, now, place, limit, is_dry=is_dry)
            failpoints.hit("prune.before_commit")
            return found

        found = self._transact(page)
        failpoints.hit("prune.after_commit")
        return found


def _id_before(at: Millis, prefix: str) -> str:
    """Give what is above every id that was drawn before a time, and below those after it."""
    digits = ids.run_id(max(0, at), bytes(10)).removeprefix(ids.RUN_ID_PREFIX)
    return prefix + digits[:10]


# --- runs ---------------------------------------------------------------------------------------------


def _runs(do: Do, _what: What, rules: Rules, now: Millis, after: str, limit: int, is_dry: bool) -> Pruned:
    shortest = rules.shortest_ms
    if shortest is None:
        return Pruned()
    before = _id_before(now - shortest, ids.RUN_ID_PREFIX)
    page = to_values(Ended, do("prune_look_runs", after=after, before=before, limit=limit))
    following = page[-1].run_id if len(page) == limit else None
    wanted = [run.run_id for run in page if due(rules, run, now) is not None]
    if not wanted:
        return Pruned(len(page), next=following)
    locked = to_values(Ended, do("prune_lock_runs", ids=as_list(wanted)))
    doomed = {run.run_id: due(rules, run, now) for run in locked}
    free = run_ids(do("prune_free_runs", ids=as_list(list(doomed))))
    values = [run_id for run_id in free if doomed[run_id] is Due.VALUES]
    rows = run_ids(do("prune_idle_runs", ids=as_list([one for one in free if doomed[one] is Due.ROWS])))
    if is_dry:
        # What would lose its values first would go in the next round, unless a key remembers it.
        also = [run for run in locked if run.run_id in values and due(rules, _stripped(run), now)]
        return Pruned(len(page), len(values), len(rows) + len(also), following)
    for name in VALUES if values else ():
        do(name, ids=as_list(values), now=now)
    for name in _ROWS if rows else ():
        do(name, ids=as_list(rows))
    return Pruned(len(page), len(values), len(rows), following)


def _stripped(run: Ended) -> Ended:
    return msgspec.structs.replace(run, pruned_at=0)


# --- events -------------------------------------------------------------------------------------------


def _events(do: Do, what: What, rules: Rules, now: Millis, after: str, limit: int, is_dry: bool) -> Pruned:
    is_identity = what is What.IDENTITY
    lengths = (rules.identity,) if is_identity else (rules.shortest_ms, rules.alone)
    known = [length for length in lengths if length is not None]
    if not known:
        return Pruned()
    before = now - min(known)
    ((oldest,),) = do("prune_horizon")
    if oldest is not None:
        before = min(before, oldest - SLACK_MS)
    at, source, event_id = event_place_of(after)
    start: dict[str, str | int] = {
        "before": before,
        "after_at": at,
        "after_source": source,
        "after_id": event_id,
    }
    page = do("prune_look_events", **start, limit=limit)
    if not page:
        return Pruned()
    last = page[-1]
    span = {**start, "last_at": last[0], "last_source": last[1], "last_id": last[2]}
    do("prune_lock_events", **span)
    alone_before = _NEVER if rules.alone is None else now - rules.alone
    name = "prune_gone_events" if is_identity else "prune_free_events"
    found = do(name, **span) if is_identity else do(name, **span, alone_before=alone_before)
    writes = ("prune_surplus", "prune_skipped", "prune_event") if is_identity else ("prune_event_payload",)
    for source, event_id in found if not is_dry else ():
        for write in writes:
            do(write, source=source, id=event_id)
    following = msgspec.json.encode(last).decode() if len(page) == limit else None
    count = len(found)
    return Pruned(len(page), 0 if is_identity else count, count if is_identity else 0, following)


# --- deliveries ---------------------------------------------------------------------------------------


def _deliveries(
    do: Do, _what: What, rules: Rules, now: Millis, after: str, limit: int, is_dry: bool
) -> Pruned:
    if rules.deliveries is None:
        return Pruned()
    before = _id_before(now - rules.deliveries, ids.DELIVERY_ID_PREFIX)
    page = do("prune_look_deliveries", after=after, before=before, limit=limit)
    # A delivery whose other parts are in the next page waits for it, so that it goes whole.
    last = page[-1][0] if len(page) == limit else None
    whole = [row for row in page if row[0] != last] or page
    gone = 0
    for delivery_id, part, source, event_id, at in sorted(whole, key=lambda row: row[2:4]):
        if is_dry:
            gone += 1
        elif do("prune_delivery", delivery_id=delivery_id, part=part):
            do("prune_count_delivery", source=source, event_id=event_id, at=at)
            gone += 1
    return Pruned(len(page), 0, gone, None if last is None else whole[-1][0])


def _unparsed(do: Do, _what: What, rules: Rules, now: Millis, after: str, limit: int, is_dry: bool) -> Pruned:
    if rules.unparsed is None:
        return Pruned()
    before = now - rules.unparsed
    bound = _id_before(before, ids.DELIVERY_ID_PREFIX)
    page = do("prune_look_unparsed", after=after, before=bound, limit=limit)
    gone = [delivery_id for delivery_id, last_at in page if last_at < before]
    if gone and not is_dry:
        do("prune_unparsed", ids=as_list(gone), last_before=before)
    return Pruned(len(page), 0, len(gone), page[-1][0] if len(page) == limit else None)


def _notices(do: Do, _what: What, rules: Rules, now: Millis, after: str, limit: int, is_dry: bool) -> Pruned:
    if rules.notices is None:
        return Pruned()
    at, notice_id, address_id = event_place_of(after)
    start: dict[str, str | int] = {"after_at": at, "after_id": notice_id, "after_address": address_id}
    page = do("prune_look_notices", **start, before=now - rules.notices, limit=limit)
    gone = 0
    for _, notice_id, address_id, ended_at in page:
        if ended_at is not None:
            gone += is_dry or bool(do("prune_notice", notice_id=notice_id, address_id=address_id))
    following = msgspec.json.encode(page[-1][:3]).decode() if len(page) == limit else None
    return Pruned(len(page), 0, gone, following)
