"""The words for a database of the user's that is not the store: a row there says what was committed.

The row is the dedup and the fence: of two who commit the same step one finds it taken. The checkpoint
follows in the store, and a process that dies in between finds the row at its next go (RULINGS 30).
"""

from __future__ import annotations

from onceward.core import errors, ids
from onceward.core.model import Millis, StepKey, StepRow
from onceward.core.ports import Ask, Opening, Script

TABLE = (
    "create table if not exists onceward_marker (namespace text not null, run_id text not null, "
    "generation integer not null, step text not null, at bigint not null, result text, "
    "primary key (namespace, run_id, generation, step))"
)

_BEGIN = (
    "select set_config('idle_in_transaction_session_timeout', cast(:idle as text), true), "
    "set_config('onceward.transaction', cast(:mark as text), true)"
)
_LOOK = (
    "select result from onceward_marker where namespace = cast(:namespace as text) "
    "and run_id = cast(:run_id as text) and generation = cast(cast(:generation as text) as integer) "
    "and step = cast(:step as text)"
)
_LEAVE = (
    "insert into onceward_marker (namespace, run_id, generation, step, at, result) values "
    "(cast(:namespace as text), cast(:run_id as text), cast(cast(:generation as text) as integer), "
    "cast(:step as text), cast(cast(:at as text) as bigint), cast(:result as text)) "
    "on conflict do nothing returning 1"
)
_MARKED = "select coalesce(current_setting('onceward.transaction', true), '')"


class Found(Exception):
    """An earlier try was committed.

    Attributes:
        result: what its body gave, as JSON text.
    """

    def __init__(self, result: str | None) -> None:
        self.result = result


class Marker:
    """What is said on a connection to another database than the store's.

    Args:
        dialect: of that database.
        namespace: of the store.
        run_id: whose step it is.
        generation: of the run.
        key: which step.

    Raises:
        TransactionMisuse: it is neither PostgreSQL nor SQLite.
    """

    def __init__(self, dialect: str, namespace: str, run_id: str, generation: int, key: StepKey) -> None:
        if dialect not in ("postgres", "sqlite"):
            raise errors.TransactionMisuse(
                f"The connection is one to {dialect}.",
                means="No marker can be left there.",
                todo="Keep what a transactional step writes on PostgreSQL or SQLite.",
            )
        self.dialect = dialect
        self._values = {
            "namespace": namespace,
            "run_id": run_id,
            "generation": str(generation),
            "step": ids.composed(*key),
        }

    def opened(self, opening: Opening) -> Script[None]:
        """Begin, and look whether an earlier try was committed.

        Raises:
            Found: it was.
        """
        if self.dialect == "sqlite":
            yield Ask("savepoint onceward")
        else:
            yield Ask(_BEGIN, {"idle": f"{opening.idle_ms}ms", "mark": opening.mark})
        rows = yield Ask(_LOOK, self._values)
        if rows:
            raise Found(rows[0][0])

    def seal(self, step: StepRow, mark: str, at: Millis) -> Script[bool]:
        """Leave the marker; False when another left it first.

        Raises:
            TransactionMisuse: this is another transaction than the one that was opened.
        """
        if self.dialect == "sqlite":
            yield Ask("release onceward")
        elif (yield Ask(_MARKED))[0][0] != mark:
            raise errors.TransactionMisuse("The transaction was ended by its own body.")
        rows = yield Ask(_LEAVE, {**self._values, "at": str(at), "result": step.output})
        return len(rows) == 1
