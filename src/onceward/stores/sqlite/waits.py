"""The SQLite store's verbs for waits and promises."""

from __future__ import annotations

from collections.abc import Sequence

from onceward.core.model import EventRow, Millis, Offer, PromiseRow, RunRow, WaitRow
from onceward.core.ports import Awaited, EventPlace, Settled
from onceward.core.states import PromiseState
from onceward.stores.rows import to_value, to_values
from onceward.stores.sqlite.reads import SqliteReads
from onceward.stores.sqlite.wait_rows import waits_at
from onceward.stores.sqlite.writes import json_list


class SqliteWaits(SqliteReads):
    """Waits and promises of one namespace."""

    def waits_for(self, places: Sequence[EventPlace]) -> list[WaitRow]:
        """Give the open waits at these places."""
        with self._connections.reading() as connection:
            return waits_at(connection, self._sql, self.namespace, places)

    def awaited(self, where: Awaited) -> list[EventRow]:
        """Give stored events that may end a wait, oldest first."""
        at, source, event_id = where.after or (None, "", "")
        return to_values(
            EventRow,
            self._read(
                "awaited_about" if where.place.subject else "awaited_any",
                subject=where.place.subject,
                type=where.place.type,
                since=where.since,
                until=where.until,
                after_at=at,
                after_source=source,
                after_id=event_id,
                limit=where.limit,
            ),
        )

    def offer(self, offers: Sequence[Offer], now: Millis) -> None:
        """Tell runs of events that fit their waits, and wake them; again is the same."""
        sql, namespace = self._sql, self.namespace
        with self._connections.writing() as connection:
            connection.executemany(
                sql["insert_offer"], [(namespace, one.run_id, one.source, one.event_id) for one in offers]
            )
            run_ids = dict.fromkeys(one.run_id for one in offers)
            connection.executemany(sql["wake"], [(namespace, run_id, now) for run_id in run_ids])

    def offers(self, run_ids: Sequence[str]) -> dict[str, list[EventRow]]:
        """Give the events that runs were told of and have not taken, oldest first."""
        found: dict[str, list[EventRow]] = {}
        for row in self._select("offers", json_list(run_ids)):
            found.setdefault(row[0], []).append(to_value(EventRow, row[1:]))
        return found

    def promises(self, token_hashes: Sequence[str]) -> dict[str, PromiseRow]:
        """Give promises by the hashes of their tokens."""
        rows = to_values(PromiseRow, self._select("promises", json_list(token_hashes)))
        return {row.token_hash: row for row in rows}

    def settle(self, token_hash: str, state: PromiseState, output: str | None, now: Millis) -> Settled | None:
        """End a promise if it is open, and wake its run; None where there is no such promise."""
        sql, namespace = self._sql, self.namespace
        with self._connections.writing() as connection:
            done = connection.execute(
                sql["settle_promise"], (namespace, token_hash, state, output, now)
            ).rowcount
            rows = connection.execute(sql["promises"], (namespace, json_list([token_hash]))).fetchall()
            if not rows:
                return None
            promise = to_value(PromiseRow, rows[0])
            if done and state is not PromiseState.EXPIRED:  # by the run itself
                connection.execute(sql["wake"], (namespace, promise.run_id, now))
            run = connection.execute(sql["states"], (namespace, json_list([promise.run_id]))).fetchone()
            return Settled(done == 1, promise, to_value(RunRow, run))
