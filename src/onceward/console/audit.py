"""What the console itself writes into the audit: what is done to no run, to many, or by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

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


async def entry_of(app: App, request_id: str) -> AuditRow | None:
    """Give the entry of a request that was done before, or None."""
    worker = app.worker
    entry: AuditRow | None = await worker.read(worker.store.audit_of_request, request_id)
    return entry
