"""Accepting, by a process that may have been evicted meanwhile: its next registration is waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceward.core import errors, failpoints
from onceward.core.ports import Accept, Accepted

if TYPE_CHECKING:
    from onceward.runtime.worker import Worker

REJOIN_S_MAX = 5
"""How long an accept waits for an evicted process to register anew, before its sender is told."""


async def accept_registered(worker: Worker, accept: Accept) -> tuple[Accepted, str, float]:
    """Store an event with its runs; give what became of it, as which process, and since when.

    Raises:
        StoreUnavailable: nothing was stored; the sender may send it again.
    """
    give_up_at = worker.loop.time() + REJOIN_S_MAX
    while True:
        if worker.is_draining:
            raise errors.StoreUnavailable(
                "This process is stopping.", means="Nothing was stored.", todo="Send it again."
            )
        if failpoints.is_armed():
            failpoints.hit("accept.before_insert")
        holder, asked_at = worker.process_id, worker.elapsed_s()
        try:
            return await worker.committer.accept(accept), holder, asked_at
        except errors.LeaseLost as error:
            # Nothing of it was written, so it may be tried again as the next registration.
            if not await worker.has_rejoined(give_up_at - worker.loop.time()):
                raise errors.StoreUnavailable(
                    f"{error.what} It could not register anew within {REJOIN_S_MAX} s.",
                    means="Nothing was stored.",
                    todo="Send it again.",
                ) from error
