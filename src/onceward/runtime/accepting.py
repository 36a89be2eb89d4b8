"""Accepting: by a process that may have been evicted meanwhile, and of starts from outside any run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from onceward.authoring.workflow import Workflow
from onceward.core import errors, failpoints, ids, json_plain
from onceward.core.ids import RUN_ID_PREFIX
from onceward.core.model import EventRow, Millis, NewRun
from onceward.core.ports import Accept, Accepted
from onceward.core.texts import checked_id, checked_name, checked_subject
from onceward.runtime.committer import MAYBE_STORED, LeaseLostInDoubt
from onceward.runtime.tracing import traceparent

if TYPE_CHECKING:
    from onceward.runtime.worker import Worker

REJOIN_S_MAX = 5
"""How long an accept waits for an evicted process to register anew, before its sender is told."""


async def accept_registered(worker: Worker, accepts: Sequence[Accept]) -> tuple[list[Accepted], str, float]:
    """Store events with their runs in one transaction.

    Gives what became of each, as which process, and when that was sent.

    Raises:
        StoreUnavailable: it says whether anything may have been stored; the sender may send it again, as
            nothing is stored twice.
    """
    give_up_at = worker.loop.time() + REJOIN_S_MAX
    means = "Nothing was stored."
    while True:
        if worker.is_draining:
            raise errors.StoreUnavailable("This process is stopping.", means=means, todo="Send it again.")
        failpoints.hit("accept.before_insert")
        holder = worker.process_id
        try:
            answers, sent_at = await worker.committer.accept(accepts)
        except errors.LeaseLost as error:
            # It is tried again as the next registration: if it was written, it is found there.
            if isinstance(error, LeaseLostInDoubt):
                means = MAYBE_STORED
            if not await worker.has_rejoined(give_up_at - worker.loop.time()):
                raise errors.StoreUnavailable(
                    f"{error.what} It could not register anew within {REJOIN_S_MAX} s.",
                    means=means,
                    todo="Send it again.",
                ) from error
        except errors.StoreUnavailable as error:
            if means == MAYBE_STORED:  # at an earlier try, of which this one knows nothing
                raise errors.StoreUnavailable(error.what, means=means, todo=error.todo) from error
            raise
        else:
            # Where the reply to the first time was lost as well, it may be what made the runs.
            mine = [_as_first(*both) for both in zip(accepts, answers, strict=True)]
            return mine, holder, sent_at


def _as_first(accept: Accept, accepted: Accepted) -> Accepted:
    """Tell an accept that found the very runs that it was to make that it was the first."""
    made = accepted.runs | {row.workflow: row.run_id for row in accepted.skipped.values()}
    ours = {run.workflow: run.run_id for run in accept.runs}
    is_ours = accepted.is_duplicate and bool(ours) and made == ours
    return msgspec.structs.replace(accepted, is_duplicate=False) if is_ours else accepted


def emitted_event(
    worker: Worker,
    type_: str,
    payload: Any,
    *,
    id: str | None,  # noqa: A002 (the glossary's word)
    subject: str | None,
    occurred_at: Millis | None = None,
    source: str | None = None,
) -> EventRow:
    """Give the event of an emit from outside any run; *source* only where somebody stands in for one.

    Raises:
        ConfigError: the type, the id or the subject cannot be used.
        NotStorable: the payload is more than JSON's own types.
    """
    checked_name(type_, "event type")
    text = json_plain.encode_payload(
        payload, what=f"The payload of event {type_!r}", limit_bytes=worker.settings.value_bytes_max
    )
    return EventRow(
        source=f"emit/{type_}" if source is None else source,
        id=checked_id(id) if id is not None else worker.ids.event_id(),
        type=type_,
        payload=text,
        received_at=worker.now_ms(),
        subject=checked_subject(subject),
        occurred_at=occurred_at,
        content_hash=None if id is None else ids.content_hash(text),
        trace=traceparent(worker.tracer),
    )


def start_accept(
    worker: Worker, workflow: Workflow[..., Any], event_id: str | None, payload: str, content_hash: str | None
) -> Accept:
    """Give the commit that starts a run of *workflow* from outside any run."""
    now, route = worker.now_ms(), worker.routes.of(workflow.name)
    deadline_at = None if route.deadline_ms is None else now + route.deadline_ms
    run = NewRun(worker.ids.run_id(), workflow.name, created_at=now, deadline_at=deadline_at)
    event = EventRow(
        source=f"start/{workflow.name}",
        # One draw for both: in order of time, so that the index of events touches few pages.
        id=event_id if event_id is not None else run.run_id.removeprefix(RUN_ID_PREFIX),
        type=workflow.name,
        payload=payload,
        received_at=now,
        content_hash=content_hash,
        trace=traceparent(worker.tracer),
    )
    return Accept(event, [worker.keys.keyed(run, event, workflow)])
