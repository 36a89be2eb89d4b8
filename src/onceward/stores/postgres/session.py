"""One open connection to PostgreSQL, in pipeline mode over libpq.

It sends any number of statements in one go and reads what comes back, without psycopg's
adaptation: a batch is paid for per statement, not per value. Who may use a session, and when a
new one is opened, is the business of its link.
"""

from __future__ import annotations

import select
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar

import psycopg
from psycopg import pq
from psycopg.adapt import Transformer

from onceward.stores.postgres.statements import Call, Statement, statement

BEGIN = statement("begin", "begin")
COMMIT = statement("commit", "commit")
ROLLBACK = statement("rollback", "rollback")
BEGIN_SNAPSHOT = statement("begin_snapshot", "begin isolation level repeatable read read only")

Result = pq.abc.PGresult

T = TypeVar("T")
Carried: TypeAlias = Generator[None, None, T]
"""Work that yields whenever the server has to be waited for; who carries it decides how."""

_SYNC = b""
_OK = frozenset({pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK})


class Session:
    """One open connection.

    Args:
        connection: just opened, in autocommit mode.
        pins: what each transaction sets for itself; None where the session has it already.
        prepares: whether statements are prepared once; not where a pooler shares the connection.
        reply_ms: how long a reply may take before the connection counts as lost.
    """

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        *,
        pins: Statement | None,
        prepares: bool,
        reply_ms: float,
    ) -> None:
        self._connection = connection
        self._pgconn = connection.pgconn
        self._pgconn.nonblocking = 1
        self._pgconn.enter_pipeline_mode()
        self.reply_ms = reply_ms
        self._prepares = prepares
        self._preamble: list[Call] = [] if pins is None else [(pins, [])]
        # A pooler takes the server away at the end of a round, even in the middle of the next
        # (PgBouncer 1.18): the replies of the two then go astray.
        self._one_round_at_a_time = pins is not None
        self._prepared: set[bytes] = set()
        self._awaited: deque[bytes | None] = deque()  # a mark for each result: _SYNC, a key, None
        self._hints = 0  # rounds whose results nobody waits for
        self._is_clean = True
        self._transformer = Transformer(connection)
        self._readable = select.poll()
        self._readable.register(self._pgconn.socket, select.POLLIN)
        self._writable = select.poll()
        self._writable.register(self._pgconn.socket, select.POLLIN | select.POLLOUT)

    @property
    def is_usable(self) -> bool:
        """Whether the connection is alive, its replies are in step and no transaction is open."""
        if not self._is_clean or self._pgconn.status != pq.ConnStatus.OK:
            return False
        return self._hints > 0 or self._pgconn.transaction_status == pq.TransactionStatus.IDLE

    @property
    def backend_pid(self) -> int:
        """The server's process; made up where a pooler is in between."""
        return self._pgconn.backend_pid

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def rows(self, result: Result) -> list[tuple[Any, ...]]:
        """Give the rows of a result."""
        if result.ntuples == 0:
            return []
        self._transformer.set_pgresult(result)
        return self._transformer.load_rows(0, result.ntuples, tuple)

    # --- transactions --------------------------------------------------------------------------

    def execute(self, call: Call) -> list[tuple[Any, ...]]:
        """Run one statement, by itself or inside the open transaction, and give its rows."""
        return self.rows(self._round([*self._preamble, call])[-1])

    def execute_both(self, first: Call, second: Call) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        """Run two statements in one round trip and give the rows of each."""
        *_, a, b = self._round([*self._preamble, first, second])
        return self.rows(a), self.rows(b)

    def execute_named(self, call: Call) -> list[dict[str, Any]]:
        """Run one statement and give its rows by the names of their columns."""
        result = self._round([*self._preamble, call])[-1]
        names = [(result.fname(number) or b"").decode() for number in range(result.nfields)]
        return [dict(zip(names, row, strict=True)) for row in self.rows(result)]

    def transact(self, calls: Sequence[Call], after: Sequence[Call] = ()) -> list[Result]:
        """Run a transaction in one round trip and give the result of each statement.

        Args:
            calls: its statements.
            after: statements that are executed when it is committed, and see what others committed
                until then. An error in one of them says nothing about the commit.
        """
        return self.carry(self.transacting(calls, after))

    def transacting(self, calls: Sequence[Call], after: Sequence[Call] = ()) -> Carried[list[Result]]:
        """Do as `transact`, and yield whenever the server has to be waited for."""
        begin = [(BEGIN, []), *self._preamble]
        try:
            results = yield from self._rounding([*begin, *calls, (COMMIT, []), *after])
        except psycopg.Error:
            if self._must_roll_back():
                yield from self._rounding([(ROLLBACK, [])])
            raise
        end = len(begin) + len(calls)
        return results[len(begin) : end] + results[end + 1 :]

    def look(self, calls: Sequence[Call]) -> list[Result]:
        """Run statements outside any transaction, in one round trip, and give the result of each."""
        return self._round(calls) if calls else []

    def carry(self, work: Carried[T]) -> T:
        """Give what *work* gives, waiting for the server wherever it has to."""
        while True:
            try:
                next(work)
            except StopIteration as over:
                result: T = over.value
                return result
            self._wait()

    @property
    def fileno(self) -> int:
        """The connection's socket, for whoever waits for it in another way than `carry`."""
        return self._pgconn.socket

    def take_in(self) -> None:
        """Take in what the server has sent so far.

        Whoever does that goes on with the work before listening to the socket again: that has nothing
        more to say of what was taken in.
        """
        self._pgconn.consume_input()

    def is_free(self) -> bool:
        """Say whether the next statements can be sent at once."""
        if self._one_round_at_a_time and self._hints:
            try:
                self.take_in()
                next(self._reading_hints(), None)
            except psycopg.Error:
                self._is_clean = False
        return self._is_clean and not (self._one_round_at_a_time and self._hints)

    def is_sent(self) -> bool:
        """Say whether the server has taken everything that was sent."""
        return self._pgconn.flush() == 0

    def transact_slowly(self, calls: Sequence[Call], before_commit: Callable[[], None]) -> list[Result]:
        """Run a transaction whose COMMIT is a round trip of its own, after *before_commit*."""
        with self.transaction():
            results = self._round(calls)
            before_commit()
        return results

    @contextmanager
    def transaction(self, begin: Statement = BEGIN, *then: Statement) -> Iterator[None]:
        """Keep a transaction open for as many round trips as it needs; rolled back on any exception.

        Args:
            begin: what it begins with.
            then: what follows in the same round trip, such as its own settings.
        """
        self._round([(begin, []), *self._preamble, *((one, []) for one in then)])
        preamble, self._preamble = self._preamble, []
        try:
            yield
            self._round([(COMMIT, [])])
        except BaseException:
            self._roll_back()
            raise
        finally:
            self._preamble = preamble

    def hint(self, call: Call) -> None:
        """Send a statement that nobody waits for; should it fail, nothing is lost."""
        self._is_clean = False
        if self._one_round_at_a_time:
            self.carry(self._reading_hints())
        self._send([call])
        self._hints += 1
        self._is_clean = True

    def _must_roll_back(self) -> bool:
        return self._is_clean and self._pgconn.transaction_status != pq.TransactionStatus.IDLE

    def _roll_back(self) -> None:
        if self._must_roll_back():
            self._round([(ROLLBACK, [])])

    # --- pipelines -----------------------------------------------------------------------------

    def _round(self, calls: Sequence[Call]) -> list[Result]:
        """Send statements in one go and give their results, one each.

        Raises:
            psycopg.Error: the first that failed; the server skipped those after it.
        """
        return self.carry(self._rounding(calls))

    def _rounding(self, calls: Sequence[Call]) -> Carried[list[Result]]:
        """Do as `_round`, and yield whenever the server has to be waited for."""
        self._is_clean = False
        if self._one_round_at_a_time:
            yield from self._reading_hints()
        self._send(calls)
        yield from self._reading_hints()
        results = yield from self._reading()
        self._is_clean = True
        for result in results:
            if result.status not in _OK:
                raise psycopg.errors.error_from_result(result)
        return results

    def _reading_hints(self) -> Carried[None]:
        while self._hints:
            yield from self._reading()
            self._hints -= 1

    def _send(self, calls: Sequence[Call]) -> None:
        pgconn, awaited = self._pgconn, self._awaited
        for made, values in calls:
            if self._prepares and made.is_preparable:
                key = made.key
                if key not in self._prepared:
                    pgconn.send_prepare(key, made.sql)
                    self._prepared.add(key)
                    awaited.append(key)
                pgconn.send_query_prepared(key, values)
            else:
                pgconn.send_query_params(made.sql, values)
            awaited.append(None)
        pgconn.pipeline_sync()
        awaited.append(_SYNC)

    def _reading(self) -> Carried[list[Result]]:
        """Give the results up to the next end of a round, those of prepares left out if they went well."""
        results: list[Result] = []
        while True:
            result = yield from self._next_result()
            status = result.status
            if status == pq.ExecStatus.FATAL_ERROR and self._pgconn.status != pq.ConnStatus.OK:
                raise psycopg.errors.error_from_result(result)  # its farewell; no more will come
            mark = self._awaited.popleft()
            if mark is _SYNC and status == pq.ExecStatus.FATAL_ERROR:
                raise psycopg.errors.error_from_result(result)  # likewise, after the last reply
            if (mark is _SYNC) != (status == pq.ExecStatus.PIPELINE_SYNC):
                raise psycopg.OperationalError(f"the replies came out of step: {status}")
            if mark is _SYNC:
                return results
            if mark is None:
                results.append(result)
            elif status not in _OK:
                self._prepared.discard(mark)
                results.append(result)

    def _next_result(self) -> Carried[Result]:
        pgconn = self._pgconn
        for _ in range(4):  # a statement's results end with None, and so may a round
            while pgconn.is_busy():
                yield
            result = pgconn.get_result()
            if result is not None:
                return result
            if pgconn.status != pq.ConnStatus.OK:
                break
        raise psycopg.OperationalError(f"the connection was lost: {pgconn.get_error_message()}")

    def _wait(self) -> None:
        waiting = self._writable if self._pgconn.flush() else self._readable
        if not waiting.poll(self.reply_ms):
            raise psycopg.OperationalError(f"no reply within {self.reply_ms / 1000:g} s")
        self._pgconn.consume_input()
