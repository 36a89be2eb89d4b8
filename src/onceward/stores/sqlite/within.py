"""What the SQLite store says on a connection of the user's, in the user's transaction."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from onceward.core import errors
from onceward.core.model import OutboxRow, StepRow
from onceward.core.ports import Ask, Opening, Script
from onceward.core.within_ports import FileShared

SAFE_FROM = (3, 51, 3)
"""Before this version two processes that write and checkpoint at one instant can damage the file."""

_SEALED = (
    "name", "item", "ordinal", "seq", "kind", "state", "attempt", "tries", "started_at", "ended_at", "output",
)  # fmt: skip


def is_safe_beside_others(version: str) -> bool:
    """Say whether several processes may write to one file with such an SQLite, e.g. ``"3.51.3"``."""
    return tuple(int(part) for part in version.split(".")) >= SAFE_FROM


class SqliteWithin:
    """The words for one namespace in one file.

    Args:
        sql: the named statements of ``within_sqlite.sql``.
        namespace: the wall; part of every key.
        path: the store's file, or ``:memory:``.
        is_free: says of a process that it is dead.
        answer: reads from the store, beside any transaction.
    """

    dialect = "sqlite"

    def __init__(
        self,
        sql: Mapping[str, str],
        namespace: str,
        path: str,
        is_free: Callable[[str], bool],
        answer: Callable[[Ask], Sequence[Sequence[Any]]],
    ) -> None:
        self._sql = sql
        self._namespace = namespace
        self._path = path
        self._is_free = is_free
        self._answer = answer

    def checked(self, process_id: str) -> Script[None]:
        """Look whether the connection has the store's file."""
        del process_id  # one file is one store
        rows = yield Ask(self._sql["file"])
        file = rows[0][0] if rows else ""
        if not file or not os.path.exists(self._path) or not os.path.samefile(file, self._path):
            raise errors.TransactionMisuse(
                f"The connection has the file {file or ':memory:'}, and the store is {self._path}.",
                means="Two files cannot commit together; nothing was written.",
                todo="Connect to the store's file, or let transactions there leave a marker: "
                "app.transactions(…, marker=True).",
            )

    def opened(self, opening: Opening) -> Script[None]:
        """Look whether this is the store's file and whether it is safe to write here, and mark the place."""
        yield from self.checked(opening.process_id)
        if not opening.insists:
            yield from self._refuse_beside_others(opening.process_id)
        yield Ask(self._sql["mark"])

    def _refuse_beside_others(self, process_id: str) -> Script[None]:
        (version,) = (yield Ask(self._sql["version"]))[0]
        if is_safe_beside_others(version):
            return
        rows = yield Ask(self._sql["others"], {"process_id": process_id})
        others = [other for (other,) in rows if not self._is_free(other)]
        if others:
            subject = "Another process uses" if len(others) == 1 else f"{len(others)} other processes use"
            raise FileShared(
                f"{subject} {self._path} with SQLite {version}.",
                means="Before 3.51.3 a file in WAL mode can be damaged when several processes write and one "
                "copies the log; so no transactional step begins until one process is left.",
                todo="Run one process, use a newer SQLite or PostgreSQL, or take the risk: "
                "app.transactions(…, insist=True).",
            )

    def refusal(self, process_id: str) -> FileShared | None:
        """Look whether a transaction of this process's would be refused now, and why; blocks."""
        script = self._refuse_beside_others(process_id)
        try:
            ask = next(script)
            while True:
                ask = script.send(self._answer(ask))
        except StopIteration:
            return None
        except FileShared as refusal:
            return refusal

    def seal(self, run_id: str, generation: int, fence: int, step: StepRow, mark: str) -> Script[bool]:
        """Save the checkpoint if the run's fence is still that and the step has no outcome."""
        del mark  # the savepoint is one
        yield Ask(self._sql["unmark"])
        values = {name: getattr(step, name) for name in _SEALED}
        place = {"namespace": self._namespace, "run_id": run_id, "generation": generation, "fence": fence}
        # A plain text: drivers do not all take an enumeration for one.
        rows = yield Ask(self._sql["seal"], {**values, **place, "state": str(step.state.value)})
        yield Ask(self._sql["cleared"], {"namespace": self._namespace, "run_id": run_id})
        return len(rows) == 1

    def is_posted(self, outbox_id: str) -> Script[bool]:
        """Look whether such a row is there for this transaction."""
        rows = yield Ask(self._sql["is_posted"], {"namespace": self._namespace, "outbox_id": outbox_id})
        return len(rows) == 1

    def post(self, row: OutboxRow) -> Script[None]:
        """Write an event for the worker to take in."""
        yield Ask(self._sql["no_copying"])
        yield Ask(self._sql["post"], {"namespace": self._namespace, **msgspec.structs.asdict(row)})
