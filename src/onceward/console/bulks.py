"""How far a bulk action has come: told to the store by whoever is at it, read from there by anybody."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import msgspec

from onceward.console import audit
from onceward.console.port import RunQuery
from onceward.console.views import BulkReply
from onceward.core import asked, ids
from onceward.core.bulks import SILENT_MS, TELL_MS, BulkRow
from onceward.core.errors import IdClash, NotFound, StateConflict, StoreError
from onceward.core.shown import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onceward.app import App
    from onceward.console.port import Action

BULK_VERB = "bulk"


class Telling:
    """One bulk action, as this process is at it.

    Args:
        app: open.
        row: as it was begun.

    Attributes:
        row: as it was last told.
        reply: how far it has come.
    """

    def __init__(self, app: App, row: BulkRow) -> None:
        self._app = app
        self.row = row
        self.reply = msgspec.json.decode(row.reply, type=BulkReply)

    async def check_same(self) -> None:
        """Refuse a request id that asked for something else.

        Raises:
            IdClash: it did.
        """
        worker, row = self._app.worker, self.row
        known: BulkRow | None = await worker.read(worker.store.bulk, row.bulk_id)
        if known is not None and known.asked != row.asked:
            raise IdClash(
                f"The request id {shown(row.bulk_id)} was used for another bulk action.",
                means="Nothing was done.",
                todo="Use a new one for each.",
            )

    async def take(self) -> bool:
        """Say in the store that it begins here; False where somebody is at it."""
        worker = self._app.worker
        now = worker.now_ms()
        self.row = msgspec.structs.replace(self.row, begun_at=now, told_at=now)
        return bool(await worker.read(worker.store.take_bulk, self.row))

    async def go_on(self) -> None:
        """Tell the store now and then; for ever."""
        while True:
            await asyncio.sleep(TELL_MS / 1_000)
            # Away for a moment: the next time tells it as well, and a long silence is one.
            with contextlib.suppress(StoreError):
                await self.tell(self.reply)

    async def tell(self, reply: BulkReply) -> None:
        """Tell the store how far it has come."""
        worker = self._app.worker
        self.row = msgspec.structs.replace(
            self.row, told_at=worker.now_ms(), is_over=reply.is_over, reply=_text(reply)
        )
        await worker.read(worker.store.tell_bulk, self.row)


def begun(app: App, bulk_id: str, query: RunQuery, action: Action, run_ids: Sequence[str] | None) -> Telling:
    """Give a bulk action that is about to begin."""
    reply = BulkReply(
        bulk_id=bulk_id, verb=action.verb, is_dry_run=False, matched=0, is_over=False, actor=action.actor
    )
    # Not the times: "of the last hour" is another hour at the second click.
    same = msgspec.structs.replace(query, since=None, until=None, after=None, limit=1)
    text = msgspec.json.encode([action.verb, action.answer, same, run_ids])
    teller = app.worker.ids.hex(12)
    row = BulkRow(bulk_id, teller, 0, 0, False, action.actor, ids.content_hash(text), _text(reply))
    return Telling(app, row)


async def how_far(app: App, bulk_id: str) -> BulkReply:
    """Give how far a bulk action has come, or how it ended, whichever process is at it.

    Raises:
        NotFound: there is none of that id, or it ended long ago.
    """
    worker = app.worker
    row: BulkRow | None = await worker.read(worker.store.bulk, bulk_id)
    if row is None:
        ended = None
        with contextlib.suppress(StateConflict):  # of a request that was none
            ended = await ended_before(app, bulk_id)
        if ended is None:
            raise NotFound(
                f"There is no bulk action {shown(bulk_id)}.",
                means="It was never begun.",
                todo="Begin it; the same request id does no run twice.",
            )
        return ended
    reply = msgspec.json.decode(row.reply, type=BulkReply)
    if not row.is_over and row.told_at < worker.now_ms() - SILENT_MS:
        return interrupted(reply, "whoever was at it has not been heard of since")
    return reply


def interrupted(reply: BulkReply, why: str) -> BulkReply:
    """Give how a bulk action stands of which nothing more happens, though it was not through."""
    told = f"Interrupted after {reply.done + reply.refused} of {reply.matched}: {why}."
    return msgspec.structs.replace(reply, reasons=[*reply.reasons, told], is_over=True, is_interrupted=True)


async def ended_before(app: App, bulk_id: str) -> BulkReply | None:
    """Give how a bulk action of this id ended, if one did, from the audit.

    Raises:
        StateConflict: the id was another request's.
    """
    entry = await audit.entry_of(app, bulk_id)
    if entry is None:
        return None
    if not entry.verb.startswith(BULK_VERB) or entry.detail is None:
        raise asked.other_request(bulk_id, entry)
    return msgspec.json.decode(entry.detail, type=BulkReply)


def _text(reply: BulkReply) -> str:
    return msgspec.json.encode(reply).decode()
