"""How far a bulk action has come, as a store keeps it, so that every process can tell.

Whoever is at it tells now and then; who has not told for `SILENT_MS` is taken to be gone, and the same
request goes on in another process. Which runs it is about is written before the first is touched, since
what is done to runs changes what a filter finds: replays are runs, and what was retried has not failed any
more. What was done to each run is in the store by then, under a request of its own, so that nothing is done
twice even where the silent one comes back.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from onceward.core.model import Millis

TELL_MS: Millis = 1_000
"""Between two times that it is told how far a bulk action has come."""

SILENT_MS: Millis = 15_000
"""After so long without a word nobody is at it any more."""

KEPT_MS: Millis = 30 * 86_400_000
"""How long it can be asked how a bulk action went; the audit keeps its end for longer."""


class BulkRow(msgspec.Struct, frozen=True, gc=False):
    """A bulk action.

    Attributes:
        bulk_id: the request's id.
        teller: drawn by whoever is at it.
        begun_at: when.
        told_at: when it was last told how far it has come.
        is_over: whether the teller is through, or gave up.
        actor: who asked.
        asked: hash of what was asked.
        reply: JSON text: how far it has come.
    """

    bulk_id: str
    teller: str
    begun_at: Millis
    told_at: Millis
    is_over: bool
    actor: str
    asked: str
    reply: str


class KeepsBulks(Protocol):
    """The part of a store that keeps how far bulk actions have come; see `onceward.core.ports.Store`."""

    def bulk(self, bulk_id: str) -> BulkRow | None:
        """Give one, or None."""
        ...

    def take_bulk(self, row: BulkRow) -> bool:
        """Write that it begins, or begins again where nobody is at it; False where somebody is."""
        ...

    def bulk_runs(self, bulk_id: str) -> str | None:
        """Give the runs of one as they were chosen, or None where they were not yet."""
        ...

    def choose_bulk(self, bulk_id: str, teller: str, runs: str) -> bool:
        """Write which runs it is about, once, before any is touched; False where another teller has taken it."""
        ...

    def tell_bulk(self, row: BulkRow) -> bool:
        """Write how far it has come; False where another teller has taken it."""
        ...
