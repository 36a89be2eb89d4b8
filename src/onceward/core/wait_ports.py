"""What a store must do for waits and promises; part of its protocol in ``ports``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from onceward.core.model import EventRow, Millis, Offer, PromiseRow, RunRow, WaitRow
from onceward.core.states import PromiseState


class EventPlace(msgspec.Struct, frozen=True, order=True):
    """Where waits look for an event, and an event for waits."""

    type: str
    subject: str  # empty for any


class Awaited(msgspec.Struct, frozen=True):
    """Which stored events may end a wait; oldest first, keyset paging by (received_at, source, id)."""

    place: EventPlace
    since: Millis
    until: Millis | None = None
    after: tuple[Millis, str, str] | None = None
    limit: int = 500


class Settled(msgspec.Struct, frozen=True):
    """What became of the wish to end a promise."""

    is_done: bool  # by this wish
    promise: PromiseRow
    run: RunRow


class WaitStore(Protocol):
    """The verbs of a `Store` about waits and promises."""

    def waits_for(self, places: Sequence[EventPlace]) -> list[WaitRow]:
        """Give the open waits at these places."""
        ...

    def awaited(self, where: Awaited) -> list[EventRow]:
        """Give stored events that may end a wait, oldest first."""
        ...

    def offer(self, offers: Sequence[Offer], now: Millis) -> None:
        """Tell runs of events that fit their waits, and wake them; again is the same."""
        ...

    def offers(self, run_ids: Sequence[str]) -> dict[str, list[EventRow]]:
        """Give the events that runs were told of and have not taken, oldest first."""
        ...

    def promises(self, token_hashes: Sequence[str]) -> dict[str, PromiseRow]:
        """Give promises by the hashes of their tokens."""
        ...

    def settle(self, token_hash: str, state: PromiseState, output: str | None, now: Millis) -> Settled | None:
        """End a promise if it is open, and wake its run; None where there is no such promise.

        Completed or failed it can be until it expires, while the generation that made it goes on;
        ``expired`` ends it in any case.
        """
        ...
