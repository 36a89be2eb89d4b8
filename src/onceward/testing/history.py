"""What must stay true from one moment to the next: records that stay, numbers that only grow.

A ``History`` is shown a store again and again, in a simulation after every operation, and says
what should not have changed. It remembers one look, so it costs as much as the store has rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from onceward.core.ports import Store
from onceward.core.states import TERMINAL
from onceward.testing.facts import Row, Tables, Violation

TABLES = ("event", "delivery", "run", "step", "attempt", "audit")

_KEYS: Mapping[str, tuple[str, ...]] = {
    "event": ("source", "id"),
    "delivery": ("source", "event_id", "delivery_id", "part"),
    "run": ("run_id",),
    "step": ("run_id", "generation", "name", "item", "ordinal"),
    "attempt": ("run_id", "generation", "attempt"),
    "audit": ("run_id", "audit_id"),
}

Key = tuple[Any, ...]
_Look = dict[str, dict[Key, Row]]


class History:
    """Compares every look at a store with the one before.

    The same store each time, or another one on the same database and namespace.
    """

    def __init__(self) -> None:
        self._before: _Look | None = None
        self._rows: Tables = {}
        self.looks = 0

    def observe(self, store: Store) -> list[Violation]:
        """Give what changed since the last look and should not have."""
        return self.observe_rows(store.dump(*TABLES))

    def observe_rows(self, tables: Tables) -> list[Violation]:
        """Give the same for rows; the tables are those of ``TABLES``."""
        now: _Look = {}
        for table in TABLES:
            rows = tables[table]
            if self._before is not None and rows is self._rows[table]:
                now[table] = self._before[table]  # not even read again
            else:
                now[table] = {tuple([row[column] for column in _KEYS[table]]): row for row in rows}
            self._rows[table] = rows
        before, self._before = self._before, now
        self.looks += 1
        if before is None:
            return []
        change = _Change(before, now)
        return [violation for rule in RULES for violation in rule(change)]


class _Change:
    """Two looks, one after the other."""

    def __init__(self, before: _Look, now: _Look) -> None:
        self.before = before
        self.now = now
        steered = now["audit"].keys() - before["audit"].keys()
        self.steered = {run_id for run_id, _ in steered}
        """Runs that an operator acted on between the looks."""

    def changed(self, table: str) -> Iterator[tuple[Key, Row, Row | None]]:
        """Give the rows that are not what they were, with what they are now."""
        now = self.now[table]
        if now is self.before[table]:
            return
        for key, row in self.before[table].items():
            after = now.get(key)
            if after is not row and after != row:
                yield key, row, after


Found = Iterator[Violation]


def _differences(before: Row, after: Row) -> str:
    return ", ".join(
        f"{column} from {before[column]!r} to {after[column]!r}"
        for column in before
        if before[column] != after[column]
    )


def _facts_stay(change: _Change) -> Found:
    for key, row, after in change.changed("event"):
        # Retention may prune a payload; the rest of an event is for ever (RULINGS 13).
        if after is None or any(after[c] != row[c] for c in row if c != "payload" or after[c] is not None):
            yield Violation("I6", " ".join(key), _what_happened("the event", row, after))
    for key, row, after in change.changed("delivery"):
        # Retention may prune what was sent; a body that differs from the event's is added later.
        if after is None or any(
            after[c] != row[c] for c in row if c not in ("body", "request") or None not in (row[c], after[c])
        ):
            yield Violation("I6", " ".join(key[:2]), _what_happened(f"delivery {key[2]}", row, after))


def _what_happened(what: str, row: Row, after: Row | None) -> str:
    return f"{what} is gone" if after is None else f"{what} changed {_differences(row, after)}"


def _logs_only_grow(change: _Change) -> Found:
    for table in ("attempt", "audit"):
        for key, row, after in change.changed(table):
            yield Violation("I9", key[0], _what_happened(f"a row of {table}", row, after))


def _outcomes_stay(change: _Change) -> Found:
    for key, row, after in change.changed("step"):
        run_id, generation = key[0], key[1]
        what = f"step {row['name']!r} of generation {generation}"
        if after is None:
            yield Violation("I4", run_id, f"{what} is gone")
            continue
        run, run_now = change.before["run"].get((run_id,)), change.now["run"].get((run_id,))
        if run is None or run_now is None:
            continue
        if generation < run["generation"]:
            yield Violation("I19", run_id, f"{what}, an older one, changed {_differences(row, after)}")
        elif row["state"] in ("failed", "cut"):
            # A failure that ended an attempt, and what it cut off, may run again in a later one
            # (RULINGS 19).
            if run_now["attempt"] == run["attempt"] and run_now["generation"] == run["generation"]:
                yield Violation("I4", run_id, f"{what} changed {_differences(row, after)}")
        elif row["state"] != "open":
            yield Violation("I4", run_id, f"{what} changed {_differences(row, after)}")


def _deadlines_stay(change: _Change) -> Found:
    for _, row, after in change.changed("step"):
        if row["kind"] != "sleep" or row["wake_at"] is None or after is None:
            continue
        # A sleep that is cancelled or cut off has no deadline any more.
        if after["state"] in ("open", "done") and after["wake_at"] != row["wake_at"]:
            yield Violation(
                "I14",
                row["run_id"],
                f"the deadline of sleep {row['name']!r} moved from {row['wake_at']} to {after['wake_at']}",
            )


def _numbers_only_grow(change: _Change) -> Found:
    for (run_id,), row, after in change.changed("run"):
        if after is None:
            yield Violation("I6", run_id, "the run is gone")
            continue
        if after["fence"] < row["fence"]:
            yield Violation("I5", run_id, f"its fence fell from {row['fence']} to {after['fence']}")
        life, life_now = (row["generation"], row["attempt"]), (after["generation"], after["attempt"])
        if life_now < life:
            yield Violation("I9", run_id, f"generation and attempt fell from {life} to {life_now}")


def _ends_are_ends(change: _Change) -> Found:
    for (run_id,), row, after in change.changed("run"):
        if after is None or run_id in change.steered:
            continue
        if row["state"] in TERMINAL:
            yield Violation(
                "I9",
                run_id,
                f"it was {row['state']} and changed without an operator: {_differences(row, after)}",
            )
        elif row["generation"] != after["generation"]:
            yield Violation(
                "I9",
                run_id,
                f"generation {after['generation']} began without an operator, after {row['generation']}",
            )


def _cancels_are_kept(change: _Change) -> Found:
    for (run_id,), row, after in change.changed("run"):
        if after is None or run_id in change.steered or row["state"] != "cancelling":
            continue
        if after["state"] not in ("cancelling", "cancelled", "held"):
            yield Violation("I17", run_id, f"it was being cancelled and is {after['state']}")


RULES: tuple[Callable[[_Change], Found], ...] = (
    _facts_stay,
    _logs_only_grow,
    _outcomes_stay,
    _deadlines_stay,
    _numbers_only_grow,
    _ends_are_ends,
    _cancels_are_kept,
)
"""Every rule; each looks at one promise and only at rows that changed."""
