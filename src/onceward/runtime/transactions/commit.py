"""One try of a transactional step: begin, the body, the checkpoint, COMMIT.

A driver that blocks has all of it in one thread, since connections may belong to theirs; one that
does not has it in the run's task. What must stay true: the fence is checked last; what comes from
outside (a time-out, a cancellation) ends a try or comes too late, and is never left open; a commit
of which nobody knows is looked up (RULINGS 1, 2, 5).
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import threading
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from onceward.authoring.current import Frame
from onceward.authoring.made import not_awaited
from onceward.authoring.options import Database
from onceward.core import errors, failpoints
from onceward.core.model import Millis, OutboxRow, StepRow
from onceward.core.ports import Ask, Opening, Script
from onceward.core.states import StepState
from onceward.runtime.functions import FunctionFacts
from onceward.runtime.records import one_line
from onceward.runtime.threads import NotBegun, call_on
from onceward.runtime.transactions.lending import lend, lend_async
from onceward.runtime.transactions.links import (
    AsyncLink,
    Link,
    check_dialect,
    check_idle,
    is_closed,
    is_closed_inside,
    play,
    play_async,
)
from onceward.runtime.transactions.marker import TABLE, Found, Marker
from onceward.runtime.transactions.recognise import names_of

if TYPE_CHECKING:
    from onceward.runtime.execution import Execution
    from onceward.runtime.worker import Worker

_log = logging.getLogger("onceward.run")

KIND = "transaction"

IDLE_MS_MAX = 2**31 - 1
"""PostgreSQL takes no longer time-out."""


LOOKS_MAX = 3
"""How often a transaction in another database begins anew in one try, to look for a marker."""


class InDoubt(Exception):
    """A COMMIT was sent and not answered well; the cause says what came instead."""


class NotSealed(Exception):
    """The run is no longer ours, or the step has an outcome; the transaction was rolled back."""


class TransactionTry:
    """One try of one transactional step; called like its body.

    Args:
        execution: the run.
        frame: of the body.
        function: the body; it takes the connection first.
        facts: how to call it.
        database: where.
        begun: when the step began.
        kind: of its record: ``transaction``, or ``undo`` where it undoes one.
    """

    def __init__(
        self,
        execution: Execution,
        frame: Frame,
        function: Callable[..., Any],
        facts: FunctionFacts,
        database: Database,
        begun: Millis,
        kind: str = KIND,
    ) -> None:
        self._execution = execution
        self._worker = execution.worker
        self._frame = frame
        self._function = function
        self._facts = facts
        self._begun = begun
        self._kind = kind
        self._what = f"The transaction {str(frame.key)!r}"
        self._database = self._worker.transactions.database(database, self._what)
        self._words = self._worker.transactions.words
        self._marker: Marker | None = None
        self._row: StepRow | None = None  # what is committed; from then on nothing is given up
        self._is_in_window = False
        self._is_abandoned = False
        self._cut: asyncio.CancelledError | None = None  # it came too late to give up
        self._opening = Opening(
            self._worker.process_id,
            self._worker.ids.hex(12),
            min(max(self._worker.settings.lease_ms // 2, 1), IDLE_MS_MAX),
            self._database.insists,
        )

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Give the body's result, committed.

        Raises:
            BaseException: what the body raised, or what kept it from being committed; it was rolled back.
            Suspended: the run is no longer this process's.
        """
        try:
            return await self._committed(args, kwargs)
        except BaseException as error:
            if self._cut is not None and not self._execution.stopping:
                raise self._cut from error
            if _is_refused_end(error):
                raise self._tried_to_end() from error
            raise

    async def _committed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        execution = self._execution
        run = self._in_loop if self._facts.is_async else self._in_thread
        missed, cause = 0, None
        while True:
            try:
                value = await run(args, kwargs)
            except NotBegun:
                await execution.durable()
            except Found as found:
                self._tell_committed(cause)
                return self._found(found)
            except (InDoubt, NotSealed) as error:
                cause = error.__cause__ if isinstance(error, InDoubt) else None
                if not self._database.has_marker:
                    return await self._looked_up(cause)
                missed += 1
                if missed == LOOKS_MAX:
                    raise cause or error from error
                self._frame.is_over = False  # the marker tells, at the beginning of the next transaction
                self._frame.accepts.clear()
            else:
                return self._noted(value)
            finally:
                self._leave()

    def _leave(self) -> None:
        """Let the next transaction of the run commit."""
        if self._is_in_window:
            self._is_in_window = False
            self._execution.window.release()

    def _noted(self, value: Any) -> Any:
        """Note in memory, or save where the marker is not the checkpoint, that it is committed."""
        assert self._row is not None
        if self._database.has_marker:
            self._save(self._row.output)
        else:
            self._execution.sealed(self._row)
            self._worker.transactions.sharing.alone()
        if self._frame.accepts:
            self._worker.outbox.look_soon()
        return value

    def _found(self, found: Found) -> Any:
        self._save(found.result)
        return None if found.result is None else self._facts.result.decode(found.result)

    def _save(self, output: str | None) -> None:
        execution, tries = self._execution, self._frame.try_number
        execution.save(
            execution.row(
                self._frame.key, self._kind, StepState.DONE, self._begun, tries=tries, output=output
            )
        )

    async def _looked_up(self, error: BaseException | None) -> Any:
        """Give what the store has of the step after all, or raise why it has nothing."""
        execution, worker = self._execution, self._worker
        record: StepRow | None = await worker.insist(
            worker.read, worker.store.settled, execution.run_id, execution.generation, self._frame.key
        )
        if record is not None and record.state is StepState.DONE:
            self._tell_committed(error)
            execution.sealed(record)
            if self._frame.accepts:
                worker.outbox.look_soon()
            return execution.answer(record, self._facts.result)
        if error is not None:
            raise error
        execution.stop("lost")
        raise errors.Suspended("the run leaves memory; let this exception pass")

    def _tell_committed(self, error: BaseException | None) -> None:
        """Log what a commit raised that was one all the same: nobody else gets it."""
        if error is not None:
            run, line = self._execution.run, self._worker.redaction.text(one_line(error))
            what = f"{self._what[0].lower()}{self._what[1:]}"
            _log.warning(
                "run %s of %s: %s is committed, and raised: %s", run.run_id, run.workflow, what, line
            )

    async def _through(self, job: asyncio.Task[Any]) -> Any:
        """Wait for what may be given up until it commits, and not from then on."""
        while True:
            try:
                return await asyncio.shield(job)
            except asyncio.CancelledError as cut:
                if job.done():
                    return job.result()
                if not self._is_in_window:
                    self._is_abandoned = True
                    job.cancel()
                    raise
                self._cut = cut

    async def _enter(self, output: str) -> StepRow:
        """Take the turn to commit, if there still is one; gives the checkpoint."""
        execution = self._execution
        await execution.window.acquire()
        try:
            if self._is_abandoned:
                raise NotSealed
            execution.check_usable()
            if self._database.has_marker:
                await execution.confirmed()
                self._refuse_posts()
            self._frame.is_over = self._is_in_window = True
            self._row = execution.sealing(
                self._frame.key, self._kind, self._begun, self._frame.try_number, output
            )
        except BaseException:
            execution.window.release()
            raise
        return self._row

    def _encoded(self, value: Any) -> tuple[str, Any]:
        """Give the result as text and as live code gets it.

        Raises:
            NotAwaited: the body forgot to await something.
            NotStorable: the result cannot be stored.
        """
        made, key = self._frame.made, str(self._frame.key)
        if made is not None and (forgotten := made.take_forgotten(self._execution.loop)):
            raise not_awaited(forgotten, f"the body of step {key!r}")
        if self._kind != KIND:
            value = None  # nobody asks for what an undo returns
        limit = self._worker.settings.value_bytes_max
        return self._facts.result.round_trip(value, what=f"The result of step {key!r}", limit_bytes=limit)

    def _posts(self) -> list[OutboxRow]:
        run = self._execution.run
        parent = (run.run_id, run.generation, run.depth)
        return [self._worker.outbox.row_of(accept, parent) for accept in self._frame.accepts]

    # --- what is said --------------------------------------------------------------------------

    def _choose_words(self, link: Link | AsyncLink) -> None:
        """Choose by where the connection leads: to the store, or to another database with a marker."""
        execution = self._execution
        if not self._database.has_marker:
            check_dialect(link, self._words.dialect)
            return
        whose = self._worker.transactions.markers_namespace
        self._marker = Marker(link.dialect, whose, execution.run_id, execution.generation, self._frame.key)

    def _needs_table(self) -> bool:
        """Say, once for each place, whether the table of markers may have to be made."""
        known = self._worker.transactions.with_table
        is_new = self._marker is not None and self._database not in known
        if is_new:
            known.append(self._database)
        return is_new

    def _opened(self) -> Script[None]:
        return (self._marker or self._words).opened(self._opening)

    def _sealing(self, row: StepRow) -> Script[bool]:
        execution, mark = self._execution, self._opening.mark
        if self._marker is not None:
            return self._marker.seal(row, mark, self._worker.now_ms())
        return self._words.seal(execution.run_id, execution.generation, execution.run.fence, row, mark)

    def _refuse_posts(self) -> None:
        if self._frame.accepts:
            raise errors.TransactionMisuse(
                f"The body of {self._what[0].lower()}{self._what[1:]} emits or starts something.",
                means="It is in another database than the store, which cannot commit together with it.",
                todo="Use ctx.step.emit or ctx.step.start after it.",
            )

    # --- a driver that blocks ------------------------------------------------------------------

    async def _in_thread(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        threads, may_begin = self._worker.step_threads, self._execution.may_begin
        return await self._through(
            self._execution.loop.create_task(
                threads.run(self._block, (args, kwargs), {}, may_begin=may_begin)
            )
        )

    def _block(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with lend(self._database.connect, self._what) as link:
            check_idle(link, self._what)
            self._choose_words(link)
            if self._needs_table():
                with contextlib.suppress(Exception):  # another was quicker, or the look for a marker tells
                    link.begin()
                    play(link, _one(TABLE))
                    link.commit()
                with contextlib.suppress(Exception):
                    link.rollback()
            with contextlib.nullcontext() if self._marker else self._worker.store.alone():
                if not self._execution.may_begin():
                    raise NotBegun
                try:
                    link.begin()  # half begun it is open as well, and Django's connections outlive this
                    return self._fill(link, args, kwargs)
                except BaseException:
                    with contextlib.suppress(Exception):
                        link.rollback()
                    raise

    def _fill(self, link: Link, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        execution = self._execution
        play(link, self._opened())
        try:
            value = self._function(link.given, *args, **kwargs)
        except Exception as error:
            if is_closed_inside(link):  # so that it is not taken for the database's, and tried again
                raise self._closed() from error
            raise
        self._check_not_closed(link)
        if inspect.isawaitable(value):
            raise self._must_be_async(value)
        link.flush()
        if failpoints.is_armed():
            failpoints.hit("step.after_body", str(self._frame.key))
        text, value = self._encoded(value)
        row = asyncio.run_coroutine_threadsafe(self._enter(text), execution.loop).result()
        for post in self._posts():
            play(link, self._words.post(post))
        try:
            is_sealed = play(link, self._sealing(row))
        except Exception as error:
            raise self._ended_or(error) from error
        if not is_sealed:
            raise NotSealed
        failpoints.hit("transaction.before_commit", str(self._frame.key))
        try:
            link.commit()
            failpoints.hit("transaction.after_commit", str(self._frame.key))
        except Exception as error:
            raise InDoubt from error
        return value

    # --- a driver that does not ------------------------------------------------------------------

    async def _in_loop(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        async with (
            self._worker.transactions.turn(),
            lend_async(self._database.connect, self._what) as link,
        ):
            check_idle(link, self._what)
            self._choose_words(link)
            if self._needs_table():
                with contextlib.suppress(Exception):
                    await link.begin()
                    await play_async(link, _one(TABLE))
                    await link.commit()
                with contextlib.suppress(Exception):
                    await link.rollback()
            async with contextlib.nullcontext() if self._marker else _alone(self._worker):
                if not await self._worker.read(self._execution.may_begin):
                    raise NotBegun
                await link.begin()
                try:
                    await play_async(link, self._opened())
                    value = await self._function(link.given, *args, **kwargs)
                    self._check_not_closed(link)
                    await link.flush()
                    if failpoints.is_armed():
                        failpoints.hit("step.after_body", str(self._frame.key))
                    text, value = self._encoded(value)
                    await self._through(self._execution.loop.create_task(self._commit(link, text)))
                except BaseException:
                    with contextlib.suppress(Exception):
                        await link.rollback()
                    raise
                return value

    async def _commit(self, link: AsyncLink, text: str) -> None:
        row = await self._enter(text)
        for post in self._posts():
            await play_async(link, self._words.post(post))
        try:
            is_sealed = await play_async(link, self._sealing(row))
        except Exception as error:
            raise self._ended_or(error) from error
        if not is_sealed:
            raise NotSealed
        failpoints.hit("transaction.before_commit", str(self._frame.key))
        try:
            await link.commit()
            failpoints.hit("transaction.after_commit", str(self._frame.key))
        except Exception as error:
            raise InDoubt from error

    # --- what is refused -----------------------------------------------------------------------

    def _check_not_closed(self, link: Link | AsyncLink) -> None:
        if is_closed(link):
            raise self._closed()

    def _closed(self) -> errors.TransactionMisuse:
        return errors.TransactionMisuse(
            f"The body of {self._what[0].lower()}{self._what[1:]} closed its connection.",
            means="Nothing of it was committed, save what the body committed itself.",
            todo="Leave the connection to Onceward, which commits, and closes it or gives it back.",
        )

    def _ended_or(self, error: Exception) -> Exception:
        """Give the error of a body that ended its transaction, or what it was that went wrong."""
        is_no_savepoint = "no such savepoint: onceward" in str(error)
        if not is_no_savepoint and not isinstance(error, errors.TransactionMisuse):
            return error
        return errors.TransactionMisuse(
            f"The body of {self._what[0].lower()}{self._what[1:]} committed or rolled back by itself.",
            means="What it committed stays, and no checkpoint says so; what came after is rolled back.",
            todo="Leave the end of the transaction to Onceward: return to commit, raise to roll back.",
        )

    def _tried_to_end(self) -> errors.TransactionMisuse:
        return errors.TransactionMisuse(
            f"The body of {self._what[0].lower()}{self._what[1:]} called commit() or rollback(), which psycopg refused.",
            means="The transaction is Onceward's, and commits together with the checkpoint; it was rolled back.",
            todo="Leave the end of the transaction to Onceward: return to commit, raise to roll back.",
        )

    def _must_be_async(self, value: Any) -> errors.TransactionMisuse:
        if inspect.iscoroutine(value):
            value.close()
        return errors.TransactionMisuse(
            f"{self._what} has a plain function around an async one.",
            means="It was rolled back.",
            todo="Give the async function itself, or one that is async def.",
        )


def _one(sql: str) -> Script[None]:
    yield Ask(sql)


@contextlib.asynccontextmanager
async def _alone(worker: Worker) -> AsyncIterator[None]:
    """Keep this process's writers away, by a thread that has their lock for as long as it takes."""
    store = worker.store
    if store.kind != "sqlite":
        yield
        return
    entered: asyncio.Future[None] = worker.loop.create_future()
    is_over = threading.Event()

    def settle(error: BaseException | None) -> None:
        if entered.done():
            return
        if error is None:
            entered.set_result(None)
        else:
            entered.set_exception(error)

    def hold() -> None:
        try:
            with store.alone():
                if call_on(worker.loop, settle, None):
                    is_over.wait()
        except errors.OncewardError as error:
            call_on(worker.loop, settle, error)

    threading.Thread(target=hold, name="onceward-alone", daemon=True).start()
    try:
        await entered
        yield
    finally:
        is_over.set()


def _is_refused_end(error: BaseException) -> bool:
    """Say whether psycopg refused a body that wanted to end the transaction; another try would only do it again."""
    return "psycopg.ProgrammingError" in names_of(error) and "within a Transaction context" in str(error)
