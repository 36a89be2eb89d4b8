"""What consoles give of pruning."""

from __future__ import annotations

import msgspec


class KeptView(msgspec.Struct, frozen=True, kw_only=True):
    """A run that keeps what it has about a subject.

    Attributes:
        why: ``live``: it is not over. ``problem``: it failed, and nobody dismissed it. ``family``: its parent
            may still ask for its result, or a run that it started is not over. ``waits``: it was told of an
            event about the subject. ``taken``: it is about something else, is not over, and has such an event.
        todo: what would let it go.
    """

    run_id: str
    workflow: str
    state: str
    why: str
    todo: str


class SubjectView(msgspec.Struct, frozen=True, kw_only=True):
    """What one page of pruning took, or would take, of what is about a subject.

    Attributes:
        runs: how many lose results, inputs, outputs of steps and errors.
        events: how many lose their payload.
        deliveries: how many requests go.
        copies: how many waits of runs about something else lose their copy of an event.
        kept: runs that need what they have.
        kept_events: how many events keep their payload for a run that is not over.
    """

    runs: int
    events: int
    deliveries: int
    copies: int
    kept: list[KeptView]
    kept_events: int


class PruneReply(msgspec.Struct, frozen=True, kw_only=True):
    """What one page of pruning did, or would do.

    Attributes:
        what: runs, events, deliveries, unparsed, notices, identity or subject; None where nothing is to be
            pruned.
        looked: how many rows it looked at.
        values: how many of them lose their values.
        rows: how many of them go whole.
        subject: what is about the subject, where that was asked for.
        next: what to pass as ``after`` to go on; None at the end.
    """

    is_dry_run: bool
    what: str | None = None
    looked: int = 0
    values: int = 0
    rows: int = 0
    subject: SubjectView | None = None
    next: str | None = None
