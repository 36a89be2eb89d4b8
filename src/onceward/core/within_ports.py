"""What a store says on a connection of the user's; part of its protocol in ``ports``."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from onceward.core.model import Millis, OutboxRow, StepRow

T = TypeVar("T")


class Ask(msgspec.Struct, frozen=True):
    """One statement for a connection of the user's, with named ``:parameters``."""

    sql: str
    values: Mapping[str, Any] = msgspec.field(default_factory=dict)


Script = Generator[Ask, Sequence[Sequence[Any]], T]
"""Statements one after the other, each answered with its rows: for drivers that block and that do not."""


class Opening(msgspec.Struct, frozen=True):
    """What a transaction of the user's begins with.

    Attributes:
        process_id: of this process.
        mark: drawn; tells this transaction from any other on its connection.
        idle_ms: how long the server bears it when the client stands still.
        insists: whether the user wants it where the database could be damaged.
    """

    process_id: str
    mark: str
    idle_ms: Millis
    insists: bool = False


class Within(Protocol):
    """What a store says on a connection of the user's; it only gives the words.

    Raises:
        TransactionMisuse: from each: that connection does not lead to this store.
    """

    @property
    def dialect(self) -> str:
        """Give ``sqlite`` or ``postgres``."""
        ...

    def opened(self, opening: Opening) -> Script[None]:
        """Give what comes first in a step's transaction."""
        ...

    def seal(self, run_id: str, generation: int, fence: int, step: StepRow, mark: str) -> Script[bool]:
        """Give what comes last: the checkpoint. False when the run or the step is not to be had any more."""
        ...

    def checked(self, process_id: str) -> Script[None]:
        """Give what looks whether the connection leads to this store."""
        ...

    def post(self, row: OutboxRow) -> Script[None]:
        """Give what writes an event for the worker to take in after the commit."""
        ...

    def is_posted(self, outbox_id: str) -> Script[bool]:
        """Give what looks whether such a row is there for this transaction."""
        ...
