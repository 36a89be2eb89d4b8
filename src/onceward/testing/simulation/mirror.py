"""What the store held after the last commit, kept beside it so that looking costs nothing.

After each commit only the rows of the runs that it was about are read again and judged; now and
then, and at the end, everything is, and must be what the mirror says: a commit that changed a run
it was not about would show there.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable

from onceward.testing import invariants
from onceward.testing.facts import Row, Tables, Violation
from onceward.testing.history import TABLES as HISTORY_TABLES
from onceward.testing.history import History

ALL_OF_RUN = ("step", "attempt", "audit")
"""Tables with several rows of one run."""

_RUN_AND_PLACE = (
    "select r.*, '|', q.* from onceward_run r "
    "left join onceward_queue q on q.namespace = r.namespace and q.run_id = r.run_id "
    "where r.namespace = 'default' and r.run_id = ?"
)
NOTHING: list[Row] = []


_names: dict[str, tuple[str, ...]] = {}
"""The columns of each table, which every world has."""


def _columns(connection: sqlite3.Connection, table: str) -> tuple[str, ...]:
    names = _names.get(table)
    if names is None:
        rows = connection.execute(f"pragma table_info(onceward_{table})")
        names = _names[table] = tuple([row[1] for row in rows])
    return names


class RunRows:
    """The rows of one run."""

    __slots__ = ("attempt", "audit", "history", "place", "run", "step", "steps_by_key")

    def __init__(self) -> None:
        self.run: Row = {}
        self.place: Row | None = None
        self.step: list[Row] = []
        self.attempt: list[Row] = []
        self.audit: list[Row] = []
        self.steps_by_key: dict[tuple[int, str], Row] = {}
        self.history = History()


class Mirror:
    """A copy of the rows, run by run.

    Args:
        connection: the database that all processes share.
        has_keys: whether there are runs with keys, whose tables are then read at each look.
        has_waits: likewise, runs that wait for events.
    """

    def __init__(
        self, connection: sqlite3.Connection, *, has_keys: bool = False, has_waits: bool = False
    ) -> None:
        self._connection = connection
        self._has_waits = has_waits
        self._has_keys = has_keys
        self.runs: dict[str, RunRows] = {}
        self.events: dict[tuple[str, str], Row] = {}
        self.processes: dict[str, Row] = {}
        self.committers: dict[str, Row] = {}
        self._keys: Tables = {"holder": [], "waiter": []}
        self._joined: list[Row] = []
        self._names = {
            table: _columns(connection, table)
            for table in ("run", "queue", "event", "delivery", "process", "committer", *ALL_OF_RUN)
        }
        self._statements = {
            table: f"select * from onceward_{table} where namespace = 'default' and run_id = ?"  # noqa: S608
            for table in ALL_OF_RUN
        }

    # --- reading again ---------------------------------------------------------------------------

    def refresh_run(self, run_id: str, tables: Collection[str] = ALL_OF_RUN) -> RunRows | None:
        """Read one run's rows again; None when it does not exist.

        Args:
            run_id: which.
            tables: of the tables with rows of runs, those that the commit can have touched.
        """
        found = self._connection.execute(_RUN_AND_PLACE, (run_id,)).fetchone()
        if found is None:
            return None
        rows = self.runs.get(run_id)
        if rows is None:
            rows, tables = RunRows(), ALL_OF_RUN
            self.runs[run_id] = rows
        width = len(self._names["run"])
        rows.run = dict(zip(self._names["run"], found[:width], strict=True))
        place = found[width + 1 :]
        rows.place = None if place[0] is None else dict(zip(self._names["queue"], place, strict=True))
        for table in tables:
            names = self._names[table]
            cursor = self._connection.execute(self._statements[table], (run_id,))
            setattr(rows, table, [dict(zip(names, row, strict=True)) for row in cursor])
        if "step" in tables:
            rows.steps_by_key = {(row["generation"], key_text(row)): row for row in rows.step}
        return rows

    def refresh_event(self, source: str, event_id: str) -> Row | None:
        """Read one event again."""
        names = self._names["event"]
        found = self._connection.execute(
            "select * from onceward_event where namespace = 'default' and source = ? and id = ?",
            (source, event_id),
        ).fetchone()
        if found is None:
            return None
        row = self.events[source, event_id] = dict(zip(names, found, strict=True))
        return row

    def refresh_processes(self) -> None:
        """Read the registered processes and their committers again."""
        for table, kept in (("process", self.processes), ("committer", self.committers)):
            kept.clear()
            names = self._names[table]
            for found in self._connection.execute(f"select * from onceward_{table}"):  # noqa: S608
                row = dict(zip(names, found, strict=True))
                kept[row["process_id"]] = row

    def originals(self, source: str, event_id: str) -> dict[str, str]:
        """Give the original runs of an event, workflow to run id, as stored."""
        return dict(
            self._connection.execute(
                "select workflow, run_id from onceward_run where namespace = 'default' "
                "and source = ? and event_id = ? and replay_id = ''",
                (source, event_id),
            )
        )

    def key_tables(self) -> Tables:
        """Give who holds keys and who waits for them, as stored."""
        tables: Tables = {"holder": [], "waiter": []}
        for table, found in tables.items() if self._has_keys else ():
            names = _columns(self._connection, table)
            cursor = self._connection.execute(f"select * from onceward_{table}")  # noqa: S608
            found += [dict(zip(names, row, strict=True)) for row in cursor]
        return tables

    def joined(self) -> list[Row]:
        """Give the records of runs that called for a key which another run holds, as stored."""
        if not self._has_keys:
            return []
        names = _columns(self._connection, "skipped")
        cursor = self._connection.execute("select * from onceward_skipped where parent_run_id is not null")
        return [dict(zip(names, row, strict=True)) for row in cursor]

    def in_line(self) -> set[str]:
        """Give the runs that hold a key, wait for one, or for who holds one; they are read for the judging, too."""
        if not self._has_keys:
            return set()
        self._keys, self._joined = self.key_tables(), self.joined()
        runs = {row["run_id"] for rows in self._keys.values() for row in rows}
        return runs | {row["parent_run_id"] for row in self._joined}

    # --- judging ------------------------------------------------------------------------------------

    def check_runs(self, run_ids: Iterable[str]) -> list[Violation]:
        """Judge some runs, after they and who is in line were read again, by the rules for every store.

        What their rows name (parents, children, events) is shown to the rules beside them, but
        only what is said about the runs themselves counts: the others' relatives are not shown.
        """
        wanted = {run_id: rows for run_id in run_ids if (rows := self.runs.get(run_id)) is not None}
        if not wanted:
            return []
        found: list[Violation] = []
        near = dict(wanted)
        tables: Tables = {table: [] for table in invariants.TABLES} | self._keys
        for row in (*tables["holder"], *tables["waiter"]):
            if row["run_id"] in self.runs:
                near.setdefault(row["run_id"], self.runs[row["run_id"]])
        for row in self._joined:
            if row["parent_run_id"] in wanted:
                tables["skipped"].append(row)
                near.setdefault(row["holder_run_id"], self.runs[row["holder_run_id"]])
                if (event := self.refresh_event(row["source"], row["event_id"])) is not None:
                    tables["event"].append(event)
        for rows in wanted.values():
            run = rows.run
            for other in _relatives(rows):
                if other not in near and (beside := self.runs.get(other)) is not None:
                    near[other] = beside
            key = (run["source"], run["event_id"])
            event = self.events.get(key) or self.refresh_event(*key)
            if event is not None and event not in tables["event"]:
                tables["event"].append(event)
            history: Tables = dict.fromkeys(HISTORY_TABLES, NOTHING)
            history["run"], history["step"] = [run], rows.step
            history["attempt"], history["audit"] = rows.attempt, rows.audit
            found += rows.history.observe_rows(history)
        for rows in near.values():
            tables["run"].append(rows.run)
            if rows.place is not None:
                tables["queue"].append(rows.place)
            tables["step"] += rows.step
            tables["attempt"] += rows.attempt
            tables["audit"] += rows.audit
        if self._has_waits:
            names = _columns(self._connection, "wait")
            tables["wait"] = [
                wait
                for row in self._connection.execute("select * from onceward_wait")
                if (wait := dict(zip(names, row, strict=True)))["run_id"] in wanted
            ]
        tables["process"] = list(self.processes.values())
        tables["committer"] = list(self.committers.values())
        for violation in invariants.check_rows(tables):
            if violation.subject in wanted or violation.subject not in near:
                found.append(violation)
        return found

    def differences(self, tables: Tables) -> list[str]:
        """Give how a dump of everything differs from the mirror."""
        wrong = []
        for table, columns in _IDENTITY.items():
            ours: list[Row]
            if table == "run":
                ours = [rows.run for rows in self.runs.values()]
            elif table == "queue":
                ours = [rows.place for rows in self.runs.values() if rows.place is not None]
            else:
                ours = [row for rows in self.runs.values() for row in getattr(rows, table)]
            mine = {tuple(row[column] for column in columns): row for row in ours}
            theirs = {tuple(row[column] for column in columns): row for row in tables[table]}
            wrong += [
                f"{table} {key} became {theirs.get(key)} in a commit that was not about it"
                for key in sorted(mine.keys() | theirs.keys())
                if mine.get(key) != theirs.get(key)
            ]
        return wrong


def _relatives(rows: RunRows) -> list[str]:
    run = rows.run
    named = [row["child_run_id"] for row in rows.step if row["child_run_id"] is not None]
    if run["source"].startswith("run/"):
        named.append(run["source"].removeprefix("run/"))
    return named + [other for other in (run["parent_run_id"], run["replay_of"]) if other is not None]


_IDENTITY = {
    "run": ("run_id",),
    "queue": ("run_id",),
    "step": ("run_id", "generation", "name", "item", "ordinal"),
    "attempt": ("run_id", "generation", "attempt"),
    "audit": ("run_id", "audit_id"),
}


def key_text(row: Row) -> str:
    """Give a record's key as people and bodies write it."""
    item = f"[{row['item']}]" if row["item"] else ""
    ordinal = f" #{row['ordinal']}" if row["ordinal"] > 1 else ""
    return f"{row['name']}{item}{ordinal}"
