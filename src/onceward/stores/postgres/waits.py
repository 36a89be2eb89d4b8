"""The PostgreSQL store's verbs for waits and promises."""

from __future__ import annotations

from collections.abc import Sequence

from onceward.core.model import Millis, Offer, PromiseRow, RunRow, WaitRow
from onceward.core.ports import EventPlace, Settled
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
