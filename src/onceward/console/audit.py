"""What the console itself writes into the audit: what is done to no run, to many, or by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from onceward.console.views import BulkReply
from onceward.core.model import AuditRow

if TYPE_CHECKING:
    from onceward.app import App


async def note(
    app: App, verb: str, actor: str, detail: str, *, run_id: str = "", request_id: str | None = None
) -> None:
    """Note that somebody did something.

    Args:
        app: open.
        verb: what.
        actor: who.
        detail: to what, or how it ended.
        run_id: of the run that it was done to, if it was one.
        request_id: by which a second of the same is known.
    """
    worker = app.worker
    row = AuditRow(str(worker.ids.uuid7()), worker.now_ms(), run_id, verb, actor, detail, request_id)
    await worker.read(worker.store.add_audit, row)


def said(detail: str) -> str:
    """Give the detail of an entry as people read it: that of a bulk action is the whole reply, as JSON."""
    try:
        reply = msgspec.json.decode(detail, type=BulkReply)
    except (msgspec.MsgspecError, UnicodeError):  # half a surrogate pair is text, too
        return detail
    told = f"{reply.done} of {reply.matched} done, {reply.refused} refused"
    return "; ".join([f"interrupted, {told}" if reply.is_interrupted else told, *reply.reasons])


async def entry_of(app: App, request_id: str) -> AuditRow | None:
    """Give the entry of a request that was done before, or None."""
    worker = app.worker
    entry: AuditRow | None = await worker.read(worker.store.audit_of_request, request_id)
    return entry
