"""The PostgreSQL store's verbs for waits and promises."""

from __future__ import annotations

from collections.abc import Sequence

from onceward.core.model import EventRow, Millis, Offer, PromiseRow, RunRow, WaitRow
from onceward.core.ports import Awaited, EventPlace, Settled
from onceward.core.states import PromiseState
from onceward.stores.postgres.connection import Link
from onceward.stores.postgres.reads import PostgresReads
from onceward.stores.postgres.session import Session
from onceward.stores.postgres.statements import encode_rows, parameter, parameters, text_array
from onceward.stores.rows import to_value, to_values


class PostgresWaits(PostgresReads):
    """Waits and promises of one namespace."""

    @property
    def _controller(self) -> Link:
        """Give the link of what is neither a batch nor a read."""
        raise NotImplementedError

    def _tell(self, session: Session, process_id: str) -> None:
        """Tell the processes other than *process_id* that there is something to do."""
        raise NotImplementedError

    def waits_for(self, places: Sequence[EventPlace]) -> list[WaitRow]:
        """Give the open waits at these places."""
        if not places:
            return []
        call = self._call("waits_for", places=encode_rows(places))
        return to_values(WaitRow, self._reader.run(lambda session: session.execute(call)))

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
        run_ids = text_array(sorted({one.run_id for one in offers}))

        def work(session: Session) -> None:
            with session.transaction():
                session.execute(self._call("insert_offers", offers=encode_rows(offers)))
                session.execute(self._call("lock_queue", run_ids=run_ids))
                session.execute(self._call("wake_runs", run_ids=run_ids, now=parameter(now)))
            self._tell(session, "")

        self._controller.run(work)

    def offers(self, run_ids: Sequence[str]) -> dict[str, list[EventRow]]:
        """Give the events that runs were told of and have not taken, oldest first."""
        found: dict[str, list[EventRow]] = {}
        for row in self._read_lists("offers", run_ids=run_ids):
            found.setdefault(row[0], []).append(to_value(EventRow, row[1:]))
        return found

    def promises(self, token_hashes: Sequence[str]) -> dict[str, PromiseRow]:
        """Give promises by the hashes of their tokens."""
        rows = to_values(PromiseRow, self._read_lists("promises", hashes=token_hashes))
        return {row.token_hash: row for row in rows}

    def settle(self, token_hash: str, state: PromiseState, output: str | None, now: Millis) -> Settled | None:
        """End a promise if it is open, and wake its run; None where there is no such promise."""
        call = self._call(
            "settle_promise", **parameters(token_hash=token_hash, state=state, output=output, now=now)
        )

        asked = 0

        def work(session: Session) -> Settled | None:
            nonlocal asked
            asked += 1
            with session.transaction():
                settled = session.execute(call)
                if settled and state is not PromiseState.EXPIRED:  # by the run itself
                    run_ids = text_array([settled[0][0]])
                    session.execute(self._call("lock_queue", run_ids=run_ids))
                    session.execute(self._call("wake_runs", run_ids=run_ids, now=parameter(now)))
                rows = session.execute(self._call("promises", hashes=text_array([token_hash])))
                if not rows:
                    return None
                promise = to_value(PromiseRow, rows[0])
                runs = session.execute(self._call("states", run_ids=text_array([promise.run_id])))
            if settled:
                self._tell(session, "")
            # The reply to the first time may have been lost; it is told from others by its millisecond.
            ended = promise.state, promise.output, promise.ended_at
            is_done = bool(settled) or (asked > 1 and ended == (state, output, now))
            return Settled(is_done, promise, to_value(RunRow, runs[0]))

        return self._controller.run(work)
