"""What a store says on connections of the user's: the words only, for drivers that block and that do not."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from onceward.core.errors import StoreUnavailable
from onceward.core.model import Millis, OutboxRow, StepRow
from onceward.core.shown import class_name

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


class FileShared(StoreUnavailable):
    """A SQLite file that another process uses, with a SQLite that could damage it; no transaction was begun."""


def is_shared(error: str | None) -> bool:
    """Say whether what is saved of a step's error is that another process uses the store's file."""
    try:
        return error is not None and msgspec.json.decode(error, type=_Kind).type == class_name(FileShared)
    except msgspec.DecodeError:  # a damaged record is told of elsewhere
        return False


class _Kind(msgspec.Struct):
    type: str = ""


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
        """Give what comes first in a step's transaction.

        Raises:
            FileShared: from the script: it cannot begin beside the processes that there are.
        """
        ...

    def refusal(self, process_id: str) -> FileShared | None:
        """Look whether a transaction of this process's would be refused now, and why; blocks."""
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
