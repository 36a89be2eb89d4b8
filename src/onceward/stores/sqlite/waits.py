"""The SQLite store's verbs for waits and promises."""

from __future__ import annotations

from collections.abc import Sequence

from onceward.core.model import Millis, Offer, PromiseRow, RunRow, WaitRow
from onceward.core.ports import EventPlace, Settled
from onceward.core.states import PromiseState
from onceward.stores.rows import to_value
from onceward.stores.sqlite.reads import SqliteReads
from onceward.stores.sqlite.wait_rows import waits_at
from onceward.stores.sqlite.writes import json_list


class SqliteWaits(SqliteReads):
    """Waits and promises of one namespace."""

    def waits_for(self, places: Sequence[EventPlace]) -> list[WaitRow]:
        """Give the open waits at these places."""
        with self._connections.reading() as connection:
            return waits_at(connection, self._sql, self.namespace, places)

    def offer(self, offers: Sequence[Offer], now: Millis) -> None:
        """Tell runs of events that fit their waits, and wake them; again is the same."""
        sql, namespace = self._sql, self.namespace
        with self._connections.writing() as connection:
            connection.executemany(
                sql["insert_offer"], [(namespace, one.run_id, one.source, one.event_id) for one in offers]
            )
            run_ids = dict.fromkeys(one.run_id for one in offers)
            connection.executemany(sql["wake"], [(namespace, run_id, now) for run_id in run_ids])

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
