"""The look: once a poll, what is due, what woke, who died, and whether memory and store agree.

One query a poll when nothing happens. In between it is brought forward by hints and by the time at
which the next run is due. A look only ever leads to one claim: what a claim could not take (no slot
is free, or it may have killed its holder) waits for the next poll, or the two would chase each
other as fast as the store answers. One that took all there was is followed by a look, for the time at
which the next is due.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from onceward.core import errors
from onceward.core.model import Millis
from onceward.core.nouns import counted
from onceward.core.takeover import CRASH_LIMIT
from onceward.runtime.outage import Outage
from onceward.runtime.threads import call_on

if TYPE_CHECKING:
    from onceward.runtime.worker import Worker

_log = logging.getLogger("onceward.worker")

KNOWN_DEAD: Millis = 0
"""The lease of a process whose lock file is free."""


class Looking:
    """The looks of one worker."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._stir = asyncio.Event()  # wakes the loop: to look, or to wait for another time
        self._is_wanted = False
        self._is_time_claimed = False  # the claim under way is for a run whose time had come
        self._is_look_claimed = False  # it is for what a look found
        self._has_taken = False  # it, or one that it followed at once, took some
        self._next_due: Millis | None = None
        self._took_over_at: Millis = 0
        self._outage = Outage(_log, "the store is away", "the store is back")
        # What may be strays, by run id and fence -> the batches begun when they were seen.
        self._strays: dict[tuple[str, int], int] = {}

    def hint(self) -> None:
        """Ask for a look soon."""
        self._is_wanted = True
        self._stir.set()

    def due_at(self, at: Millis) -> None:
        """Hear that something will be due then."""
        if self._next_due is None or at < self._next_due:
            self._next_due = at
            self._stir.set()

    def claimed(self, *, took_some: bool, is_last: bool) -> None:
        """Hear that a claim is over; look for the time of the next run, if nobody else finds it out.

        Args:
            took_some: it took some runs.
            is_last: no other follows as soon as a slot is free.
        """
        self._has_taken |= took_some
        if not is_last:
            return
        is_wanted = self._is_time_claimed or (self._is_look_claimed and self._has_taken)
        self._is_time_claimed = self._is_look_claimed = self._has_taken = False
        if is_wanted:
            self.hint()

    async def forever(self) -> None:
        """Poll, jittered; sooner when something is due or a hint comes."""
        worker, loop = self._worker, self._worker.loop
        next_at = loop.time()
        while True:
            pause_s = max(0.0, next_at - loop.time())
            if self._next_due is not None:
                pause_s = min(pause_s, max(0, self._next_due - worker.now_ms()) / 1000)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stir.wait(), pause_s)
            if worker.is_draining:
                return  # a cancellation that came with a hint is lost in `wait_for`
            self._stir.clear()
            if self._next_due is not None and self._next_due <= worker.now_ms():
                self._next_due = None
                self._is_time_claimed = True
                worker.claiming.claim_due()
            if not self._is_wanted and loop.time() < next_at:
                continue
            self._is_wanted = False
            next_at = loop.time() + worker.settings.poll_ms / 1000 * (0.75 + 0.5 * worker.ids.draw())
            process_id = worker.process_id
            try:
                await self._look()
            except errors.LeaseLost:
                worker.evicted(process_id)
            except (errors.StoreUnavailable, errors.ReplyLost) as error:
                self._outage.failed(error)
            except Exception:  # noqa: BLE001 - whatever it is, the next look must come (B086)
                _log.exception("the look at the store failed; the next one comes in a poll")
            else:
                self._outage.worked()

    async def _look(self) -> None:
        worker = self._worker
        look = await worker.read(
            worker.store.look, worker.process_id, worker.names, worker.noticing.address_ids
        )
        now = worker.now_ms()
        if look.next_due is not None:
            if look.next_due <= now:
                self._is_look_claimed = True
                worker.claiming.claim_due()
            else:
                self.due_at(look.next_due)
        is_ended = look.oldest_lease is not None and look.oldest_lease < now
        if is_ended and look.oldest_lease != KNOWN_DEAD and worker.may_judge():
            await worker.ask_time()  # by a clock that was set, a lease may only look ended
            now = worker.now_ms()
            is_ended = look.oldest_lease is not None and look.oldest_lease < now
        # Now and then without a sign, for runs of a process whose row somebody deleted (B013).
        is_time = not 0 <= now - self._took_over_at < worker.settings.lease_ms
        if look.registrations != worker.routes.registrations:
            await worker.routing.learn()
        if look.oldest_lease == KNOWN_DEAD or ((is_ended or is_time) and worker.may_judge()):
            await worker.read(self.take_over)
        if look.woken:
            parents = [worker.executions[run_id] for run_id in look.woken if run_id in worker.executions]
            await worker.children.look(parents)
            worker.matching.look(look.woken)
        if worker.matching.is_owed:
            await worker.read(worker.matching.pay)
        if look.has_outbox:
            await worker.outbox.take_in()
        await worker.noticing.look(look.notice_due)
        await worker.transactions.sharing.look()
        if look.replaced:
            await worker.keys.make_room(look.replaced)
        if look.owned < len(worker.executions):
            await self._drop_lost()
        if look.owned > len(worker.executions) + worker.expected():
            await self._adopt()
        worker.suspects.want()

    async def _drop_lost(self) -> None:
        """Stop runs that an operator took away from us in another process."""
        worker = self._worker
        candidates = list(worker.executions.values())
        owned = await worker.read(worker.store.owned, worker.process_id)
        for execution in candidates:
            if execution.run_id not in owned:
                execution.stop("lost")

    async def _adopt(self) -> None:
        """Give back runs that are ours in the store and not in memory: claims that we never heard of.

        A run counts as one when every batch that was begun before it was first seen so is settled, the
        claim is still the same, and it has not come to memory since.
        """
        worker = self._worker
        owned = await worker.read(worker.store.owned, worker.process_id)
        batches, settled = worker.committer.batches, worker.committer.settled
        seen, self._strays = self._strays, {}
        strays = []
        for run_id, (_, fence) in owned.items():
            if worker.is_here(run_id):
                continue
            if settled >= seen.get((run_id, fence), batches + 1):
                strays.append(run_id)
            else:
                self._strays[run_id, fence] = seen.get((run_id, fence), batches)
        if strays:
            _log.warning("giving %d runs back whose claim was lost", len(strays))
            await self.give_back(strays)

    def came(self, run_id: str, fence: int) -> None:
        """Hear that a claimed run came to memory."""
        self._strays.pop((run_id, fence), None)

    async def give_back(self, run_ids: list[str]) -> None:
        """Make runs due again that are ours and not in memory."""
        worker = self._worker
        await worker.read(worker.store.give_back, worker.process_id, run_ids, worker.now_ms())
        worker.claiming.claim_due()

    def take_over(self) -> None:
        """Free the runs of dead processes; blocks."""
        worker = self._worker
        self._took_over_at = worker.now_ms()
        try:
            taken = worker.store.take_over(worker.now_ms(), crash_limit=CRASH_LIMIT, skip=worker.process_id)
        except errors.ReplyLost:
            _log.warning("the reply to a takeover was lost; the next look tells what became of it")
            call_on(worker.loop, worker.hint)
            return
        except errors.StoreUnavailable:
            raise
        except Exception:  # noqa: BLE001 - whatever it is, the next look takes over
            _log.exception("a takeover failed")
            return
        if taken.processes:
            worker.matching.owe(taken.leased_until)
            worker.matching.pay()
            names = ", ".join(taken.processes)
            if taken.released:
                runs = counted(taken.released, "run")
                _log.warning("took over %s of a process that died or lost its lease: %s", runs, names)
            else:  # nothing to be told of at night
                _log.info("a process that had no runs died or lost its lease: %s", names)
        for run_id in taken.held:
            _log.error(
                "run %s is held: it was lost with its process too often without progress",
                run_id,
                extra={"run_id": run_id},
            )
        if taken.released:
            call_on(worker.loop, worker.claiming.claim_due)
