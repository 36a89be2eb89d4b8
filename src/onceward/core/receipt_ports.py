"""What a store keeps of deliveries beside their events: proofs, what could not be read, what was refused.

A part of the `Store` of `ports`, apart so that each can be read in one sitting.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from onceward.core.arrival import LooseProof
from onceward.core.model import Millis, RefusalRow, UnparsedRow


class Receipts(Protocol):
    """The verbs about deliveries that are no events; each is one transaction."""

    def first_under(self, source: str, proof: LooseProof, now: Millis) -> str:
        """Give the hash of what came first under a signature, which is remembered now if it is new.

        What was remembered of signatures that are long refused for their age goes, a few at a time.
        """
        ...

    def keep_unparsed(self, row: UnparsedRow) -> None:
        """Keep a delivery that cannot be read, or count it where it is kept already."""
        ...

    def unparsed_delivery(self, delivery_id: str) -> UnparsedRow | None:
        """Give one unparsed delivery, or None."""
        ...

    def forget_unparsed(self, row: UnparsedRow) -> None:
        """Drop an unparsed delivery: it was read, and is kept with its events."""
        ...

    def add_refusals(self, rows: Sequence[RefusalRow]) -> None:
        """Add to the counts of refused deliveries; the newer samples stay."""
        ...

    def refusals(self, source: str | None) -> list[RefusalRow]:
        """Give the counts of refused deliveries, the latest first."""
        ...
