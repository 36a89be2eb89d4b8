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
            raise clash(row.bulk_id)

    async def take(self) -> bool:
        """Say in the store that it begins here; False where somebody is at it."""
        worker = self._app.worker
        now = worker.now_ms()
        self.row = msgspec.structs.replace(self.row, begun_at=now, told_at=now)
        return bool(await worker.read(worker.store.take_bulk, self.row))

    async def chosen(self) -> list[str] | None:
        """Give the runs that were chosen when it first began; None where it comes to that only now."""
        worker = self._app.worker
        text: str | None = await worker.read(worker.store.bulk_runs, self.row.bulk_id)
        return None if text is None else msgspec.json.decode(text, type=list[str])

    async def choose(self, run_ids: Sequence[str]) -> bool:
        """Say in the store which runs it is about; False where somebody else has it by now."""
        worker, row = self._app.worker, self.row
        text = msgspec.json.encode(run_ids).decode()
        return bool(await worker.read(worker.store.choose_bulk, row.bulk_id, row.teller, text))

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
    teller = app.worker.ids.hex(12)
    asked_for = asked_hash(query, action, run_ids)
    return Telling(app, BulkRow(bulk_id, teller, 0, 0, False, action.actor, asked_for, _text(reply)))


def asked_hash(query: RunQuery, action: Action, run_ids: Sequence[str] | None) -> str:
    """Give what a bulk action asks for, so that the same is known again, whoever asks."""
    # Not the times: "of the last hour" is another hour at the second click.
    same = msgspec.structs.replace(query, since=None, until=None, after=None, limit=1)
    what = msgspec.structs.replace(action, actor="", request_id=None)
    return ids.content_hash(msgspec.json.encode([what, same, run_ids]))


def clash(bulk_id: str) -> IdClash:
    """Give the error for a request id that asked for another bulk action."""
    return IdClash(
        f"The request id {shown(bulk_id)} was used for another bulk action.",
        means="Nothing was done.",
        todo="Use a new one for each.",
    )


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


async def ended_before(app: App, bulk_id: str, verb: str | None = None) -> BulkReply | None:
    """Give how a bulk action of this id ended, if one did, from the audit.

    Raises:
        StateConflict: the id was that of something done to one run.
        IdClash: it was that of another *verb*.
    """
    entry = await audit.entry_of(app, bulk_id)
    if entry is None:
        return None
    if not entry.verb.startswith(BULK_VERB) or entry.detail is None:
        raise asked.other_request(bulk_id, entry)
    if verb not in (None, entry.verb.removeprefix(f"{BULK_VERB} ")):
        raise clash(bulk_id)
    return msgspec.json.decode(entry.detail, type=BulkReply)


def _text(reply: BulkReply) -> str:
    return msgspec.json.encode(reply).decode()
