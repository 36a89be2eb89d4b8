"""Bulk actions that go on while their asker looks on: one task for each request id.

How far those of other processes have come is asked of the store.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence

import msgspec

from onceward.console.bulks import asked_hash, clash
from onceward.console.port import Action, Console, RunQuery
from onceward.console.views import BulkReply
from onceward.core.access_errors import TooMany
from onceward.core.errors import NotFound, OncewardError

LOOK_S = 0.5
UNDER_WAY_MAX = 4
KEPT_MAX = 100
"""Bulk actions that are remembered after they are over."""

log = logging.getLogger("onceward.web")


class _Job:
    """One bulk action, and how far it has come."""

    def __init__(self, asked: str, reply: BulkReply) -> None:
        self.asked = asked
        self.reply = reply
        self.task: asyncio.Task[None] | None = None
        self.error: OncewardError | None = None
        self.has_begun = False
        self._moved = asyncio.Event()

    def tell(self, reply: BulkReply) -> None:
        """Note how far it has come."""
        self.reply = reply
        self.has_begun = True
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    def stop(self) -> None:
        """Note that nothing goes on any more, if that was not told."""
        if not self.reply.is_over:
            self.tell(
                msgspec.structs.replace(
                    self.reply, reasons=["The server stopped."], is_over=True, is_interrupted=True
                )
            )

    async def moved(self) -> None:
        """Wait until it has come further, or is over."""
        if self.task is None or self.task.done():
            return
        await self._moved.wait()


class Bulks:
    """The bulk actions of one server process.

    Args:
        console: does them.
        look_s: between two looks at how far another process has come.
    """

    def __init__(self, console: Console, *, look_s: float = LOOK_S) -> None:
        self._console = console
        self._look_s = look_s
        self._jobs: OrderedDict[str, _Job] = OrderedDict()

    async def begin(self, query: RunQuery, action: Action, run_ids: Sequence[str] | None = None) -> BulkReply:
        """Begin a bulk action, or join the one of the same request id.

        One that was interrupted goes on.

        Raises:
            IdClash: the same request id asked for something else, here or in another process.
            TooMany: too many are under way.
            OncewardError: it ended before anything was begun.
        """
        bulk_id = action.request_id or ""
        asked = asked_hash(query, action, run_ids)
        job = self._jobs.get(bulk_id)
        if job is not None:
            if job.asked != asked:
                raise clash(bulk_id)
            if not job.reply.is_interrupted:
                return job.reply
        under_way = [one for one in self._jobs.values() if not one.reply.is_over]
        if len(under_way) >= UNDER_WAY_MAX:
            raise TooMany("Too many bulk actions are under way.", wait_s=5, todo="Wait for one to end.")
        reply = BulkReply(bulk_id=bulk_id, verb=action.verb, is_dry_run=False, matched=0, is_over=False)
        job = self._jobs[bulk_id] = _Job(asked, reply)
        job.task = asyncio.create_task(self._run(job, query, action, run_ids))
        job.task.add_done_callback(lambda _: job.stop())
        while len(self._jobs) > KEPT_MAX + UNDER_WAY_MAX:
            over = next(name for name, one in self._jobs.items() if one.reply.is_over)
            del self._jobs[over]
        while not job.has_begun and not job.task.done():
            await job.moved()
        if job.error is not None and self._jobs.get(bulk_id) is job:
            del self._jobs[bulk_id]
        if job.error is not None:
            raise job.error
        return job.reply

    async def _run(self, job: _Job, query: RunQuery, action: Action, run_ids: Sequence[str] | None) -> None:
        def progress(reply: BulkReply) -> None:
            # That it is over is said at the end, when nothing can go wrong any more.
            job.tell(msgspec.structs.replace(reply, is_over=False))

        try:
            done = await self._console.bulk(query, action, dry_run=False, progress=progress, run_ids=run_ids)
            job.tell(msgspec.structs.replace(done, is_over=True))
        except OncewardError as error:
            job.error = None if job.has_begun else error
            reasons = [*job.reply.reasons, str(error)]
            job.tell(msgspec.structs.replace(job.reply, reasons=reasons, is_over=True, is_interrupted=True))
        except Exception:
            log.exception("a bulk action failed")
            reasons = [*job.reply.reasons, "The server failed; its log says more."]
            job.tell(msgspec.structs.replace(job.reply, reasons=reasons, is_over=True, is_interrupted=True))

    async def get(self, bulk_id: str) -> BulkReply:
        """Give how far a bulk action has come, whichever process is at it.

        Raises:
            NotFound: there is none of that id.
        """
        job = self._jobs.get(bulk_id)
        if job is not None and not job.reply.is_interrupted:
            return job.reply
        try:  # another process may have gone on with what stopped here
            return await self._console.bulk_progress(bulk_id)
        except NotFound:
            if job is None:
                raise
            return job.reply

    async def follow(self, bulk_id: str) -> AsyncIterator[BulkReply]:
        """Give how far a bulk action has come each time that it has come further, until it is over.

        Raises:
            NotFound: there is none of that id.
        """
        job = self._jobs.get(bulk_id)
        while job is None or job.reply.is_interrupted:
            reply = await self.get(bulk_id)
            yield reply
            if reply.is_over:
                return
            await asyncio.sleep(self._look_s)
        while True:
            reply = job.reply
            yield reply
            if reply.is_over:
                return
            if job.reply is reply:
                await job.moved()

    async def close(self) -> None:
        """Stop what is under way; what was not done can be asked for again."""
        tasks = [job.task for job in self._jobs.values() if job.task is not None and not job.task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
