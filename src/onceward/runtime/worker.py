"""The worker: takes in runs that became its own, keeps them in memory until they are over, and stops cleanly.

One a process. Its parts: claiming fills the slots, the committer makes everything durable, executions run code, the
heartbeat keeps the lease, the look finds what is due, what woke and who died. The store is asked
once a poll when nothing happens; inside a process wake-ups are futures and never the database.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import os
import socket
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from onceward.authoring.workflow import Workflow
from onceward.core import errors, failpoints
from onceward.core.counters import Counters
from onceward.core.ids import IdSource
from onceward.core.model import EventRow, Millis, ProcessRow, RunRow, StepRow
from onceward.core.ports import Accept, Accepted, Claimed, RunMove, Store
from onceward.core.redact import Redaction
from onceward.core.settings import Settings
from onceward.core.states import TERMINAL
from onceward.runtime.accepting import accept_registered
from onceward.runtime.children import Children, no_steering
from onceward.runtime.claimed import claimed_row, hold_unreadable, is_fresh
from onceward.runtime.claiming import Claiming
from onceward.runtime.commits import ThreadWriter, Writer
from onceward.runtime.committer import Committer
from onceward.runtime.confirming import Confirming
from onceward.runtime.ends import Ends
from onceward.runtime.execution import Execution
from onceward.runtime.heartbeat import Heartbeat
from onceward.runtime.keys import Keys
from onceward.runtime.lease import Leased
from onceward.runtime.looking import Looking
from onceward.runtime.matching import Matching
from onceward.runtime.noticing import Noticing
from onceward.runtime.pruning import Pruning
from onceward.runtime.routes import Routes
from onceward.runtime.routing import Routing
from onceward.runtime.rush import Rush
from onceward.runtime.suspects import Suspects
from onceward.runtime.threads import Threads
from onceward.runtime.tracing import tracer_found
from onceward.runtime.transactions.outbox import Outbox, Transactions

_log = logging.getLogger("onceward.worker")

WRITE_S_MAX = 2.0
"""How long the store may keep a write waiting until this process says that it cannot take deliveries."""

UNWIND_S_MAX = 5
"""How long code may take to unwind when this process stops; then its lease decides."""

INSIST_S = 0.2
"""A pause before a question that has to be answered is asked again."""


class Worker(Leased):
    """Carries runs to their end in one process.

    Args:
        store: open and migrated.
        settings: concurrency, lease, poll, linger and limits.
        workflows: what this process registers, by name.
        runs: whether it runs them too, or only accepts and steers.
        now_ms: the store's time.
        ids: draws ids and random numbers.
        writer: what makes commits; a thread by default.
        reads: runs a blocking read away from the event loop.
        elapsed_s: a clock that only grows, in seconds; for ages that must not hang on the store's time.
        cpu_s: the CPU time that this process has used, in seconds.
        beats: whether a heartbeat thread keeps the lease; the simulation beats by itself.
    """

    def __init__(
        self,
        store: Store,
        settings: Settings,
        workflows: dict[str, Workflow[..., Any]],
        *,
        now_ms: Callable[[], Millis],
        ids: IdSource,
        runs: bool = True,
        writer: Writer | None = None,
        reads: Callable[..., Any] | None = None,
        beats: bool = True,
        version: str = "",
        elapsed_s: Callable[[], float] = time.monotonic,
        cpu_s: Callable[[], float] = time.process_time,
        refresh_clock: Callable[[], bool] = lambda: False,
    ) -> None:
        self.store = store
        self.settings = settings
        self.workflows = workflows if runs else {}
        self._registered = workflows
        self.now_ms = now_ms
        self.elapsed_s = elapsed_s
        self.ids = ids
        self.loop = asyncio.get_running_loop()
        self.context = contextvars.Context()  # of the engine's own timers; see `own_timers`
        self.process_id = ""
        self.lease_until: Millis = 0
        self._renewed_at: Millis = 0
        self._judges_from: Millis = 0
        self.is_draining = self.is_closing = False
        self.executions: dict[str, Execution] = {}
        self.arriving: set[str] = set()  # runs that are ours and whose records are being read
        self.routes, self.routing = Routes(workflows), Routing(self)
        self.step_threads = Threads(settings.threads, "onceward-step")
        self.workflow_threads = Threads(settings.concurrency, "onceward-workflow")
        self.matching, self.confirming = Matching(self), Confirming(self)
        self.counters, self.tracer = Counters(), tracer_found()
        self.redaction = Redaction((settings.redact or "").split())
        self.rush, self.claiming = Rush(self, cpu_s), Claiming(self)
        self.committer = Committer(
            store,
            writer or ThreadWriter(self.loop),
            batch_ids=lambda: ids.hex(8),
            draw=ids.draw,
            elapsed_s=elapsed_s,
            claims=self.claiming.claims,
            claimed=self._claimed,
            routed=self.routing.settle,
            moved=self.routing.moved,
            evicted=self.evicted,
            arrived=self.matching.arrived,
            took=self.counters.batches.add,
            is_core_full=self.rush.is_core_full,
        )
        self._version = version
        self.refresh_clock = refresh_clock
        self._reads = reads or asyncio.to_thread
        self._heartbeat = Heartbeat(self) if beats else None
        self.names = tuple(sorted(self.workflows))
        self.suspects = Suspects(self.loop.time)
        self._solo: RunRow | None = None  # a suspect that waits until it is the only one
        self.looking = Looking(self)
        self._tasks: list[asyncio.Task[None]] = []
        self._loading: set[asyncio.Task[None]] = set()
        self._successors: dict[str, tuple[RunRow, EventRow, list[StepRow], str, float]] = {}
        self._unloaded = asyncio.Event()
        self.ends, self.pruning = Ends(self), Pruning(self)
        self.children, self.keys = Children(self), Keys(self)
        self.noticing = Noticing(self)
        self.outbox, self.transactions = Outbox(self, self.looking.hint), Transactions(self)
        self._lease_renewed = asyncio.Event()
        self._is_rejoining = False
        self._rejoined = asyncio.Event()
        self.steer_child: Callable[..., Coroutine[Any, Any, None]] = no_steering

    # --- life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Register, take over what the dead left, and begin to claim."""
        await self._join()
        await self.noticing.start()
        await self.read(self.looking.take_over)
        await self.routing.learn()
        if self._heartbeat is not None:
            self._heartbeat.start()
        self._tasks = [self.loop.create_task(self.looking.forever())]
        self.committer.claim()

    def abort(self) -> None:
        """Give up a start that failed: end the threads, write nothing."""
        self.is_draining = self.is_closing = True
        self.pruning.stop()
        for task in self._tasks:
            task.cancel()
        if self._heartbeat is not None:
            self._heartbeat.stop()
        self.committer.close()

    async def _join(self) -> None:
        now = self.now_ms()
        process_id = "p_" + self.ids.hex(10)
        lease_until = now + self.settings.lease_ms
        process = ProcessRow(
            process_id=process_id,
            epoch=1,
            instance=self.settings.instance,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=self._version,
            started_at=now,
            lease_until=lease_until,
        )
        rows = [workflow.to_row(now) for workflow in self._registered.values()]
        await self.read(self.matching.join, process, rows)
        self.process_id, self.lease_until, self._renewed_at = process_id, lease_until, now
        self.committer.process_id, self.committer.epoch = process_id, 1

    async def stop(self, grace_s: float) -> None:
        """Claim nothing more, let running steps finish for *grace_s* seconds, give the rest back.

        No attempt is charged (I29); the lease is kept until everything is given back.
        """
        self.is_draining = True
        self.pruning.stop()
        for task in self._tasks:
            task.cancel()
        for execution in list(self.executions.values()):
            execution.drain()
        await self._emptied(grace_s)
        for execution in list(self.executions.values()):
            execution.stop("release")
        await self._emptied(UNWIND_S_MAX if self.is_heard else WRITE_S_MAX)
        self.is_closing = True
        if self._heartbeat is not None:
            await self.read(self._heartbeat.stop, WRITE_S_MAX)
        try:
            if not self.is_heard:  # whoever asks us to stop does not wait for one more time-out
                raise errors.StoreUnavailable("The store takes no writes.")
            async with asyncio.timeout(UNWIND_S_MAX):
                await self.read(self.store.leave, self.process_id, self.now_ms())
        except (errors.StoreError, TimeoutError) as error:
            _log.warning("this process could not sign off, its lease runs out by itself: %s", error)
        self.committer.close()
        self.step_threads.close()
        self.workflow_threads.close()
        self.noticing.close()
        self.ends.close()

    @property
    def is_heard(self) -> bool:
        """Whether the store takes what is written: nothing has waited long, the last renewal went well.

        A store that is read-only or locked by someone else answers every question meanwhile.
        """
        beats = 0.0 if self._heartbeat is None else self._heartbeat.waits_s
        return max(beats, self.committer.waits_s) < WRITE_S_MAX

    def is_cut_down(self) -> bool:
        """Say whether this process stops, or its event loop cancels every task without asking."""
        return self.is_closing or any(task.cancelling() for task in self._tasks)

    async def _emptied(self, within_s: float) -> None:
        """Return when no run is in memory or being loaded, or the time is over."""
        deadline = self.loop.time() + within_s
        while (self.executions or self._loading) and (left := deadline - self.loop.time()) > 0:
            self._unloaded.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._unloaded.wait(), left)

    async def ask_time(self) -> None:
        """Renew the lease, and learn the store's time with it, before others are judged by it."""
        if self._heartbeat is not None:
            await self.read(self._heartbeat.beat)

    async def read(self, function: Callable[..., Any], *args: Any) -> Any:
        """Make a blocking call of the store away from the event loop."""
        return await self._reads(function, *args)

    # --- accepting -------------------------------------------------------------------------------

    async def accept(self, accept: Accept) -> Accepted:
        """Store one event; see `accept_all`."""
        return (await self.accept_all((accept,)))[0]

    async def accept_all(self, accepts: Sequence[Accept]) -> list[Accepted]:
        """Store events with their runs in one transaction, and start those that were written as ours.

        Where this process was evicted, it waits a while for the new registration.

        Raises:
            StoreUnavailable: nothing was stored; the sender may send it again.
        """
        is_delivery = bool(accepts[0].deliveries and self.names)  # of which some may begin here
        self.rush.came(is_delivery)
        try:
            answers, holder, sent_at = await accept_registered(self, accepts)
        finally:
            self.rush.went(is_delivery)
            for accept in accepts:
                self.claiming.unreserve(accept.runs)
        again = []
        for place, accept in enumerate(accepts):
            accepted = answers[place]
            if accepted.is_duplicate and accept.deliveries:
                again.append(accepted)
            for run in accept.runs:
                if accepted.runs.get(run.workflow) != run.run_id:
                    continue
                if run.is_claimed:
                    self._begin(claimed_row(run, accept.event), accept.event, [], holder, sent_at)
                elif run.clash == "replace":
                    self.hint()  # somebody may have to make room
                else:
                    self.claiming.claim_due()
        # Not before all of them have begun: this asks the store, and may fail.
        for accepted in again:
            await self.keys.redelivered(accepted)
        return answers

    async def has_rejoined(self, within_s: float) -> bool:
        """Say whether this process is registered, if need be after waiting for it."""
        if not self._is_rejoining:
            return within_s > 0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._rejoined.wait()
        return not self._is_rejoining

    # --- taking in -------------------------------------------------------------------------------

    def hint(self) -> None:
        """Say that something may be due, or may have woken: another process said so."""
        self.looking.hint()
        self.claiming.claim_due()

    def expected(self) -> int:
        """Give how many runs may be ours in the store and are still on their way to memory."""
        return self.claiming.expected + len(self._loading) + (self._solo is not None)

    def _claimed(self, claimed: list[Claimed] | None) -> None:
        """Hear what became of the claims: the runs, or None when the store did not answer."""
        self.claiming.answered(claimed)
        rest = []
        for row in claimed or ():
            if is_fresh(row.run):
                self._begin(row.run, row.event, [], self.process_id, self.committer.sent_at)
            else:
                rest.append(row)
        if rest:
            self.claiming.keep(len(rest))
            self.arriving.update(row.run.run_id for row in rest)
            self.spawn(self._load(rest, self.process_id, self.committer.sent_at))

    async def _load(self, claimed: list[Claimed], holder: str, claimed_at: float) -> None:
        """Read the histories of claimed runs with one query and go on with them."""
        run_ids = [row.run.run_id for row in claimed]
        try:
            try:
                if failpoints.is_armed():
                    failpoints.hit("load.after_claim")
                histories = await self.matching.histories(run_ids)
            finally:
                self.claiming.kept(len(claimed))
            for row in claimed:
                history = histories.get(row.run.run_id)
                if history is None:
                    hold_unreadable(self, row.run)
                    continue
                if row.run.generation > 1:
                    await self.children.cancel_older(row.run)
                self._begin(row.run, row.event, history, holder, claimed_at)
        finally:
            self.arriving.difference_update(run_ids)
            for run_id in run_ids:
                if run_id not in self.executions and not self._is_solo(run_id):
                    self.cleared(run_id)

    def _begin(
        self, run: RunRow, event: EventRow, history: list[StepRow], holder: str, confirmed_at: float
    ) -> None:
        """Go on with a run that *holder* owned then: this process, unless it was evicted meanwhile."""
        workflow = self.workflows.get(run.workflow)
        is_ours = holder == self.process_id and not self._is_rejoining and not self.is_closing
        if workflow is None or not is_ours:
            return
        older = self.executions.get(run.run_id)
        if older is not None:
            # It was taken from us and is ours again, while its code of before still runs. Claims that were
            # read one after the other may come in the other order.
            standing = self._successors.get(run.run_id)
            if run.fence >= (older.run if standing is None else standing[0]).fence:
                self._successors[run.run_id] = (run, event, history, holder, confirmed_at)
                older.stop("lost")
            return
        if self.suspects.must_wait(run):
            self._solo = run
            return
        execution = Execution(self, run, event, workflow, history, confirmed_at)
        self.executions[run.run_id] = execution
        self.looking.came(run.run_id, run.fence)
        execution.begin()
        if self.is_draining:
            execution.drain()

    def is_here(self, run_id: str) -> bool:
        """Say whether a run is in memory, or about to be."""
        return run_id in self.executions or run_id in self.arriving or self._is_solo(run_id)

    def _is_solo(self, run_id: str) -> bool:
        return self._solo is not None and self._solo.run_id == run_id

    def cleared(self, run_id: str) -> None:
        """Hear that a run made a checkpoint or does not go on here; the next suspect may come."""
        if not self.suspects.over(run_id):
            return
        if self._solo is not None and not self.suspects.must_wait(self._solo):
            # By way of the store: meanwhile it may have been cancelled, or restarted.
            self.suspects.over(self._solo.run_id)
            self.spawn(self.looking.give_back([self._solo.run_id]))
            self._solo = None
        self.claiming.claim_due()

    def unloaded(self, execution: Execution) -> None:
        """Hear that a run left memory; its slot is free."""
        run = execution.run
        self.claiming.left(execution.is_ending)
        if self.executions.get(run.run_id) is execution:
            del self.executions[run.run_id]
        successor = self._successors.pop(run.run_id, None)
        if successor is not None:
            execution.withdraw()
            self._begin(*successor)
        self._unloaded.set()
        if run.run_id not in self.executions and run.run_id not in self.arriving:
            self.cleared(run.run_id)
        if execution.stopping == "lost":
            self.claiming.claim_due()
        elif run.state in TERMINAL:
            self._tell(run)
        if self.claiming.has_backlog:
            self.committer.claim()

    def _tell(self, run: RunRow) -> None:
        self.ends.tell(run)
        if run.key is not None:
            self.children.ended(run)
            self.claiming.claim_due()  # who waited for its key is due
        if run.is_called and run.parent_run_id is not None:
            parent = self.executions.get(run.parent_run_id)
            if parent is not None:
                parent.child_ended(run)
            else:
                self.claiming.claim_due()

    # --- children and operators ------------------------------------------------------------------

    async def insist(self, function: Callable[..., Coroutine[Any, Any, Any]], *args: Any) -> Any:
        """Ask the store again and again while it is away: what follows cannot do without."""
        while True:
            try:
                return await function(*args)
            except (errors.StoreUnavailable, errors.ReplyLost):
                if self.is_closing:
                    raise
                await asyncio.sleep(INSIST_S)

    def steered(self, run_id: str, move: RunMove) -> None:
        """Hear that an operator changed a run: if it is in memory, its holder is no longer we."""
        execution = self.executions.get(run_id)
        if execution is not None:
            execution.stop("lost")
        if move.due_at is not None or move.key is not None:
            self.claiming.claim_due()
        self.children.steered(run_id, move)

    def promise_ended(self, run_id: str) -> None:
        """Hear that a promise of a run was completed here."""
        self.matching.look([run_id])
        self.claiming.claim_due()

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run something of the worker's own in a task; stopping waits for it."""
        task = self.loop.create_task(coroutine)
        self._loading.add(task)
        task.add_done_callback(self._loaded)

    def _loaded(self, task: asyncio.Task[None]) -> None:
        self._loading.discard(task)
        self._unloaded.set()
        error = None if task.cancelled() else task.exception()
        if error is not None and not self.is_closing:
            _log.error("a task of the worker failed", exc_info=error)

    # --- lease -----------------------------------------------------------------------------------

    def evicted(self, process_id: str) -> None:
        """Hear that a registration of this process was ended: others have taken over.

        Drop every run and register anew, unless that has happened already and this is an echo.
        """
        if process_id != self.process_id or self._is_rejoining or self.is_closing:
            return
        self._is_rejoining = True
        self._rejoined.clear()
        self._successors.clear()
        if self._solo is not None:
            self.suspects.over(self._solo.run_id)
            self._solo = None
        _log.error(
            "process %s lost its lease; it drops %d runs and starts afresh", process_id, len(self.executions)
        )
        for execution in list(self.executions.values()):
            execution.stop("lost")
        self.spawn(self._rejoin())

    async def _rejoin(self) -> None:
        while not self.is_closing:
            try:
                await self._join()
                break
            except errors.StoreError as error:
                _log.warning("this process could not register anew, trying again: %s", error)
                await asyncio.sleep(0.5)
        self._is_rejoining = False
        self._rejoined.set()
        self.renewed(self.lease_until)
        self.claiming.claim_due()
