"""Events that came to be in transactions of the user's: written beside his rows, taken in after the commit.

Any process of the namespace takes them in, and two at once, or one that dies between taking in and
deleting, do no harm: an event's identity is unique (RULINGS 29).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from onceward.authoring.options import Database, StepOptions
from onceward.core import errors, failpoints, ids
from onceward.core.asked import clash
from onceward.core.ids import DELIVERY_ID_PREFIX
from onceward.core.model import DeliveryRow, EventRow, OutboxRow, Posted, RunRow
from onceward.core.ports import Accept, Within
from onceward.runtime.accepting import accept_registered
from onceward.runtime.threads import call_on
from onceward.runtime.transactions.links import (
    AsyncLink,
    Link,
    aborted,
    check_dialect,
    check_open,
    play,
    play_async,
)
from onceward.runtime.transactions.recognise import link_for_within
from onceward.runtime.transactions.sharing import Sharing

if TYPE_CHECKING:
    from onceward.runtime.worker import Worker

_log = logging.getLogger("onceward.worker")

TAKEN_MAX = 100
"""Events taken in at once."""

WRITTEN_MAX = 1_000
"""Ids under which something was written last, which are remembered to compare."""

LOOKS_S = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
"""When this process looks for an event that it wrote, where nothing tells it of the commit."""


class Transactions:
    """What transactions of the user's have in common in one worker.

    Args:
        worker: whose store they are about.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._words: Within | None = None
        self.default: Database | None = None  # what the app was told
        self.told: Sequence[Database] = ()  # all of it
        self.with_table: list[Database] = []  # where the table of markers was made, or was there
        self.sharing = Sharing(worker)

    @property
    def words(self) -> Within:
        """Give what the store says on a user's connection."""
        if self._words is None:
            self._words = self._worker.store.within()
        return self._words

    @property
    def markers_namespace(self) -> str:
        """Give the namespace that markers in other databases are kept under."""
        return self._worker.settings.namespace

    def turn(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Give what a transaction in the event loop is in: nothing, where they run side by side."""
        return contextlib.nullcontext()

    def keeps_start(self, options: StepOptions) -> bool:
        """Say whether that a try of a step begins is saved before it does.

        Of a transaction in another database only its marker says that it was committed. So that a run
        that is cancelled before it looks there again does not take it for undone, or for never begun.
        """
        database = options.database
        if database is None or options.undo is None:
            return options.keeps_start
        found = self._told_as(database)
        return found is not None and found.has_marker

    def database(self, database: Database, what: str) -> Database:
        """Give where a transaction is: its own place, or the app's.

        Raises:
            ConfigError: neither is told.
        """
        found = self._told_as(database)
        if found is None:
            raise errors.ConfigError(
                f"{what} has no database.",
                means="The app was not told how to get a connection.",
                todo="Write app.transactions(engine), with an engine, a pool or a function that connects.",
            )
        return found

    def _told_as(self, database: Database) -> Database | None:
        """Give a place with what the app was told of it, also where only what connects is named again."""
        if database.connect is None:
            return self.default
        if database in self.told:
            return database
        return next((one for one in self.told if one.connect == database.connect), database)


class Outbox:
    """The outbox as one worker sees it.

    Args:
        worker: what takes events in.
        look_soon: asks for a look at the store.
    """

    def __init__(self, worker: Worker, look_soon: Callable[[], None]) -> None:
        self._worker = worker
        self.look_soon = look_soon
        self._broken: set[str] = set()  # rows that cannot be taken in; each is told of once
        self._looks: list[asyncio.TimerHandle] = []
        self._is_taking = False
        # Of what was written under an id of the caller's: in which row, and the hash of its content.
        self._written: OrderedDict[tuple[str, str], tuple[str, str]] = OrderedDict()

    # --- writing -------------------------------------------------------------------------------

    def row_of(self, accept: Accept, parent: tuple[str, int, int] | None = None) -> OutboxRow:
        """Give the row of an event, or of a start."""
        event = accept.event
        run = accept.runs[0] if ids.is_start(event.source, event.id) else None
        posted = Posted(event, run, parent)
        body = msgspec.json.encode(posted).decode()
        return OutboxRow(str(self._worker.ids.uuid7()), self._worker.now_ms(), body)

    async def write(self, row: OutboxRow, event: EventRow, given: Any) -> None:
        """Write an event in the transaction that is open on the caller's connection.

        Raises:
            TransactionMisuse: no transaction is open there, it is aborted, or it does not lead to this store.
            IdClash: the transaction has written other content under its id.
        """
        link = link_for_within(given)
        with _in_plain_words():
            if not asyncio.iscoroutinefunction(link.execute):
                self._block(row, event, link)  # type: ignore[arg-type]  # it blocks
            else:
                await self._write(row, event, link)  # type: ignore[arg-type]
        self.expect()

    def write_blocking(self, row: OutboxRow, event: EventRow, given: Any) -> None:
        """Write an event from the caller's thread; see `write`.

        Raises:
            TransactionMisuse: likewise, or the connection does not block.
            IdClash: likewise.
        """
        link = link_for_within(given)
        if asyncio.iscoroutinefunction(link.execute):
            raise errors.TransactionMisuse(
                "app.sync was given an async connection as within=.",
                means="Nothing here can await it; nothing was written.",
                todo="Write `await app.emit(…, within=connection)`, or use a connection that blocks.",
            )
        with _in_plain_words():
            self._block(row, event, link)  # type: ignore[arg-type]
        call_on(self._worker.loop, self.expect)

    def _block(self, row: OutboxRow, event: EventRow, link: Link) -> None:
        words = self._worker.transactions.words
        check_dialect(link, words.dialect)
        check_open(link)
        play(link, words.checked(self._worker.process_id))
        other = self._other(event)
        if other is not None and play(link, words.is_posted(other)):
            raise clash(event.source, event.id)
        play(link, words.post(row))
        self._note(row, event)

    async def _write(self, row: OutboxRow, event: EventRow, link: AsyncLink) -> None:
        words = self._worker.transactions.words
        check_dialect(link, words.dialect)
        check_open(link)
        await play_async(link, words.checked(self._worker.process_id))
        other = self._other(event)
        if other is not None and await play_async(link, words.is_posted(other)):
            raise clash(event.source, event.id)
        await play_async(link, words.post(row))
        self._note(row, event)

    def _other(self, event: EventRow) -> str | None:
        """Give the row in which this process wrote other content under the event's id.

        It may be gone, or in a transaction that nobody else sees: what is open on the connection tells.
        """
        outbox_id, content_hash = self._written.get((event.source, event.id), (None, None))
        return None if content_hash == event.content_hash else outbox_id

    def _note(self, row: OutboxRow, event: EventRow) -> None:
        if event.content_hash is None:
            return  # its id was drawn
        self._written[event.source, event.id] = row.outbox_id, event.content_hash
        if len(self._written) > WRITTEN_MAX:
            with contextlib.suppress(KeyError):  # another thread was quicker
                self._written.popitem(last=False)

    def expect(self) -> None:
        """Look a few times soon: the transaction will be committed, and may not say so."""
        worker = self._worker
        for look in self._looks:
            look.cancel()
        self._looks = [
            worker.loop.call_later(delay_s, self.look_soon, context=worker.context) for delay_s in LOOKS_S
        ]

    # --- taking in -----------------------------------------------------------------------------

    async def take_in(self) -> None:
        """Make events, runs and keys of what is there.

        Raises:
            StoreUnavailable: the store cannot be asked; the next look tries again.
        """
        worker = self._worker
        if self._is_taking or worker.is_draining:
            return
        self._is_taking = True
        try:
            while True:
                limit = TAKEN_MAX + len(self._broken)
                found: list[OutboxRow] = await worker.read(worker.store.outbox, limit)
                rows = [row for row in found if row.outbox_id not in self._broken]
                if not rows:
                    return
                failpoints.hit("outbox.before_accept")
                taken = await asyncio.gather(*map(self._take, rows))
                failpoints.hit("outbox.after_accept")
                gone = [row.outbox_id for row, is_taken in zip(rows, taken, strict=True) if is_taken]
                if gone:
                    await worker.read(worker.store.forget_posted, gone)
                if len(gone) < len(rows) or len(found) < limit:
                    return
        finally:
            self._is_taking = False

    async def _take(self, row: OutboxRow) -> bool:
        """Take one event in; False where it has to stay."""
        try:
            posted = msgspec.json.decode(row.body, type=Posted)
            accept = self._accept_of(posted)
            accepted = await self._worker.accept(accept)
            if accepted.is_clash:
                await self._tell_of_clash(accept.event, row.outbox_id)
        except errors.StoreUnavailable:
            return False  # the next look tries again
        except (errors.OncewardError, msgspec.MsgspecError) as error:
            self._broken.add(row.outbox_id)
            _log.error(
                "the event %s of the outbox cannot be taken in and stays there: %s", row.outbox_id, error
            )
            return False
        return True

    def _accept_of(self, posted: Posted) -> Accept:
        worker, now = self._worker, self._worker.now_ms()
        event = msgspec.structs.replace(posted.event, received_at=now)
        if posted.run is None:
            parent = None
            if posted.parent is not None:
                run_id, generation, depth = posted.parent
                parent = RunRow(run_id, "", "", "", 0, generation=generation, depth=depth)
            return worker.routing.accept(event, parent=parent)
        run = posted.run
        deadline_at = None if run.deadline_at is None else run.deadline_at + now - run.created_at
        run = msgspec.structs.replace(run, created_at=now, deadline_at=deadline_at, is_claimed=False)
        return Accept(event, [worker.claiming.placed(run, worker.routes.of(run.workflow))])

    async def _tell_of_clash(self, event: EventRow, outbox_id: str) -> None:
        """Record that the id had other content: with the event, as of a provider's delivery.

        Once, also where two processes took it in at once: its id is that of the outbox's row.
        """
        _log.error(
            "event %r of %r was emitted within a transaction and exists with other content; the first stays",
            event.id,
            event.source,
        )
        text = event.payload or ""
        row = DeliveryRow(
            delivery_id=DELIVERY_ID_PREFIX + outbox_id,
            source=event.source,
            event_id=event.id,
            received_at=event.received_at,
            outcome="clash",
            content_hash=ids.content_hash(text),
            body=text.encode(),
        )
        await accept_registered(self._worker, [Accept(event, [], [row])])


@contextlib.contextmanager
def _in_plain_words() -> Iterator[None]:
    """Say of a transaction that is aborted that it is, whatever its driver says."""
    try:
        yield
    except Exception as error:
        told = aborted(error)
        if told is error:
            raise
        raise told from error
