"""The worker: claims due runs, keeps as many in memory as there are slots, and stops cleanly.

One a process. Its parts: the committer makes everything durable, executions run code, the
heartbeat keeps the lease, the look finds what is due, what woke and who died. The store is asked
once a poll when nothing happens; inside a process wake-ups are futures and never the database.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from onceward.authoring.workflow import Workflow
from onceward.core import errors, failpoints, json_plain
from onceward.core.ids import IdSource
from onceward.core.model import EventRow, Millis, NewRun, ProcessRow, RunRow, StepRow
from onceward.core.ports import Accept, Accepted, Claim, Claimed, RunMove, Store
from onceward.core.settings import Settings
from onceward.core.states import TERMINAL, RunState
from onceward.core.takeover import CRASH_LIMIT, SUSPECT_FROM
from onceward.runtime.committer import Committer, PendingAdvance, ThreadWriter, Writer
from onceward.runtime.ends import Ends
from onceward.runtime.execution import Execution
from onceward.runtime.heartbeat import Heartbeat
from onceward.runtime.routes import Routes
from onceward.runtime.threads import Threads

_log = logging.getLogger("onceward.worker")

DEPTH_MAX = 100
"""Runs that start runs that start runs: beyond this it is a loop (F50)."""

UNWIND_S_MAX = 5
"""How long code may take to unwind when this process stops; then its lease decides."""

INSIST_S = 0.2
"""A pause before a question that has to be answered is asked again."""

CLAIM_MAX = 100
"""Runs claimed by one batch; more would make everyone else's commit wait."""


class Worker:
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
        refresh_clock: Callable[[], None] = lambda: None,
    ) -> None:
        self.store = store
        self.settings = settings
        self.workflows = workflows if runs else {}
        self._registered = workflows
        self.now_ms = now_ms
        self.ids = ids
        self.loop = asyncio.get_running_loop()
        self.process_id = ""
        self.lease_until: Millis = 0
        self.is_draining = False
        self.is_closing = False
        self.executions: dict[str, Execution] = {}
        self.routes = Routes(store, workflows, now_ms)
        self.step_threads = Threads(settings.threads, "onceward-step")
        self.workflow_threads = Threads(settings.concurrency, "onceward-workflow")
        self.committer = Committer(
            store,
            writer or ThreadWriter(self.loop),
            batch_ids=lambda: ids.hex(8),
            draw=ids.draw,
            claims=self._claims,
            claimed=self._claimed,
            evicted=self.evicted,
        )
        self._version = version
        self.refresh_clock = refresh_clock
        self._reads = reads or _in_thread
        self._heartbeat = Heartbeat(self) if beats else None
        self._names = tuple(sorted(self.workflows))
        self._ending = 0  # runs in memory whose code is over
        self._reserved = 0  # slots promised to accepts and claims that are on their way
        self._is_claiming = False
        self._has_backlog = True
        self._suspect: str | None = None
        self._want_suspect = True
        self._next_due: Millis | None = None
        self._hint = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._loading: set[asyncio.Task[None]] = set()
        self._successors: dict[str, tuple[RunRow, EventRow, list[StepRow]]] = {}
        self._unloaded = asyncio.Event()
        self.ends = Ends(self)
        self._watchers: set[Execution] = set()
        self._lease_renewed = asyncio.Event()
        self._is_rejoining = False
        self._life = 1  # grows when this process is evicted: what it claimed before is not its own any more
        self.steer_child: Callable[[str, str], Coroutine[Any, Any, None]] = _no_steering

    # --- life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Register, take over what the dead left, and begin to claim."""
        await self._join()
        await self.read(self._take_over)
        await self.read(self.routes.refresh)
        if self._heartbeat is not None:
            self._heartbeat.start()
        self._tasks = [self.loop.create_task(self._look_forever())]
        self.committer.claim()

    async def _join(self) -> None:
        now = self.now_ms()
        self.process_id = "p_" + self.ids.hex(10)
        self.lease_until = now + self.settings.lease_ms
        process = ProcessRow(
            process_id=self.process_id,
            epoch=1,
            instance=self.settings.instance,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=self._version,
            started_at=now,
            lease_until=self.lease_until,
        )
        rows = [workflow.to_row(now) for workflow in self._registered.values()]
        await self.read(self.store.join, process, rows)
        self.committer.process_id, self.committer.epoch = self.process_id, 1

    async def stop(self, grace_s: float) -> None:
        """Claim nothing more, let running steps finish for *grace_s* seconds, give the rest back.

        No attempt is charged (I29); the lease is kept until everything is given back.
        """
        self.is_draining = True
        for task in self._tasks:
            task.cancel()
        for execution in list(self.executions.values()):
            execution.drain()
        await self._emptied(grace_s)
        for execution in list(self.executions.values()):
            execution.stop("release")
        await self._emptied(UNWIND_S_MAX)
        self.is_closing = True
        if self._heartbeat is not None:
            await self.read(self._heartbeat.stop)
        try:
            await self.read(self.store.leave, self.process_id, self.now_ms())
        except errors.StoreError as error:
            _log.warning("this process could not sign off, its lease runs out by itself: %s", error)
        self.committer.close()
        self.step_threads.close()
        self.workflow_threads.close()
        self.ends.close()

    async def _emptied(self, within_s: float) -> None:
        """Return when no run is in memory or being loaded, or the time is over."""
        deadline = self.loop.time() + within_s
        while (self.executions or self._loading) and (left := deadline - self.loop.time()) > 0:
            self._unloaded.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._unloaded.wait(), left)

    async def read(self, function: Callable[..., Any], *args: Any) -> Any:
        """Make a blocking call of the store away from the event loop."""
        return await self._reads(function, *args)

    # --- accepting -------------------------------------------------------------------------------

    def runs_for(self, source: str, type_: str, now: Millis, *, parent: RunRow | None = None) -> list[NewRun]:
        """Give a new run for every workflow that subscribed to such an event."""
        found = []
        for name, deadline_ms in self.routes.match(source, type_):
            found.append(
                NewRun(
                    run_id=self.ids.run_id(),
                    workflow=name,
                    created_at=now,
                    deadline_at=None if deadline_ms is None else now + deadline_ms,
                    parent_run_id=None if parent is None else parent.run_id,
                    parent_generation=None if parent is None else parent.generation,
                    depth=0 if parent is None else parent.depth + 1,
                    is_claimed=parent is None and self._reserve(name),
                )
            )
        return found

    def _reserve(self, workflow: str) -> bool:
        """Promise a slot to a run that is about to be accepted: start is claim."""
        if self.is_draining or workflow not in self.workflows or self._free() <= 0 or not self.process_id:
            return False
        self._reserved += 1
        return True

    def _free(self) -> int:
        """Give the free slots; a run whose end is on its way to the store needs none any more."""
        return self.settings.concurrency - len(self.executions) + self._ending - self._reserved

    def ending(self) -> None:
        """Hear that a run handed its end over, so that the claim of the next shares its commit."""
        self._ending += 1

    async def accept(self, accept: Accept) -> Accepted:
        """Store an event with its runs and start those that were written as ours.

        Raises:
            StoreUnavailable: nothing was stored; the sender may send it again.
        """
        if self.is_draining:
            self._unreserve(accept.runs)
            raise errors.StoreUnavailable(
                "This process is stopping.", means="Nothing was stored.", todo="Send it again."
            )
        if failpoints.is_armed():
            failpoints.hit("accept.before_insert")
        life = self._life
        try:
            accepted = await self.committer.accept(accept)
        except errors.LeaseLost as error:
            # Nothing of it was written. To the sender it is one of the faults that pass.
            self._unreserve(accept.runs)
            raise errors.StoreUnavailable(
                error.what, means="Nothing was stored.", todo="Send it again."
            ) from error
        except BaseException:
            self._unreserve(accept.runs)
            raise
        self._unreserve(accept.runs)
        for run in accept.runs:
            if accepted.runs.get(run.workflow) != run.run_id:
                continue
            if run.is_claimed:
                if life == self._life:
                    self._begin(_claimed_row(run, accept.event), accept.event, [])
            else:
                self.hint()
        return accepted

    def _unreserve(self, runs: Sequence[NewRun]) -> None:
        self._reserved -= sum(run.is_claimed for run in runs)

    def start_accept(
        self, workflow: Workflow[..., Any], event_id: str | None, payload: str, content_hash: str | None
    ) -> Accept:
        """Give the commit that starts a run of *workflow* from outside any run."""
        now = self.now_ms()
        deadline_ms = workflow.policies.deadline_ms
        run = NewRun(
            run_id=self.ids.run_id(),
            workflow=workflow.name,
            created_at=now,
            deadline_at=None if deadline_ms is None else now + deadline_ms,
            is_claimed=self._reserve(workflow.name),
        )
        event = EventRow(
            source=f"start/{workflow.name}",
            id=event_id if event_id is not None else self.ids.hex(12),
            type=workflow.name,
            payload=payload,
            received_at=now,
            content_hash=content_hash,
        )
        return Accept(event, [run])

    def emit_accept(
        self, execution: Execution, source: str, event_id: str, type_: str, payload: Any, subject: str | None
    ) -> Accept:
        """Give the commit of an event emitted inside a run, guarded by the run's fence."""
        self.check_depth(execution.run)
        now = self.now_ms()
        text = json_plain.encode_plain(
            payload, what=f"the payload of event {type_!r}", limit_bytes=self.settings.value_bytes_max
        )
        event = EventRow(
            source=source, id=event_id, type=type_, payload=text, received_at=now, subject=subject
        )
        runs = self.runs_for(source, type_, now, parent=execution.run)
        return Accept(event, runs, by_run=execution.run_id, by_fence=execution.run.fence)

    def check_depth(self, run: RunRow) -> None:
        """Refuse a chain of runs that starts itself for ever."""
        if run.depth >= DEPTH_MAX:
            raise errors.StepMisuse(
                f"Run {run.run_id} is {run.depth} starts deep.",
                means="Workflows that start or trigger each other in a circle would never end.",
                todo="Break the circle: do not emit the event that started the run.",
            )

    # --- claiming --------------------------------------------------------------------------------

    def hint(self) -> None:
        """Say that something may be due now."""
        self._hint.set()
        self._claim_soon()

    def _claim_soon(self) -> None:
        self._has_backlog = True
        if self._free() > 0:
            self.committer.claim()

    def due_at(self, at: Millis) -> None:
        """Say that something will be due then."""
        if self._next_due is None or at < self._next_due:
            self._next_due = at
            self._hint.set()

    def _claims(self) -> list[Claim]:
        """Give the claims that ride along with the next batch."""
        if self._is_claiming or self.is_draining or not self._has_backlog or not self._names:
            return []
        free = min(self._free(), CLAIM_MAX)
        if free <= 0:
            return []
        now, claims = self.now_ms(), []
        if self._want_suspect and self._suspect is None:
            # Runs that may have killed their holders come one at a time (RULINGS 6).
            claims.append(Claim(1, self._names, now, suspects=True))
            self._want_suspect = False
        self._claim_limit = free - len(claims)
        if self._claim_limit:
            claims.append(Claim(self._claim_limit, self._names, now))
        self._is_claiming, self._claim_life = True, self._life
        self._reserved += free
        self._claim_reserved = free
        return claims

    _claim_reserved = _claim_limit = _claim_life = 0

    def _claimed(self, claimed: list[Claimed] | None) -> None:
        """Hear what became of the claims: the runs, or None when the store did not answer."""
        self._is_claiming = False
        self._reserved -= self._claim_reserved
        self._claim_reserved = 0
        if claimed is None or self._claim_life != self._life:
            self._has_backlog = False  # the next look tells
            return
        # A claim that got all it asked for left some; one for a suspect alone asked for no others.
        others = sum(row.run.crashes < SUSPECT_FROM for row in claimed)
        self._has_backlog = others >= self._claim_limit
        if self._has_backlog:
            self.loop.call_soon(self.committer.claim)
        fresh = [row for row in claimed if row.run.started_at is not None and _is_fresh(row.run)]
        for row in fresh:
            self._begin(row.run, row.event, [])
        rest = [row for row in claimed if row not in fresh]
        if rest:
            self._reserved += len(rest)
            self.spawn(self._load(rest))

    async def _load(self, claimed: list[Claimed]) -> None:
        """Read the histories of claimed runs with one query and go on with them."""
        life = self._life
        try:
            if failpoints.is_armed():
                failpoints.hit("load.after_claim")
            run_ids = [row.run.run_id for row in claimed]
            histories = await self._insist(self.read, self.store.histories, run_ids)
        finally:
            self._reserved -= len(claimed)
        for row in claimed:
            history = histories.get(row.run.run_id)
            if history is None:
                self._hold_unreadable(row.run)
                continue
            if row.run.generation > 1:
                await self._insist(self._cancel_older_children, row.run)
            if life != self._life:
                return
            self._begin(row.run, row.event, history)

    def _hold_unreadable(self, run: RunRow) -> None:
        """Hold a run whose records cannot be read: damaged rows must not stop the others (F27)."""
        now = self.now_ms()
        pending = PendingAdvance(run.run_id, run.generation, run.fence, self.loop)
        pending.move = RunMove(
            state=RunState.HELD,
            generation=run.generation,
            attempt=run.attempt,
            failures=run.failures,
            crashes=run.crashes,
            deadline_at=run.deadline_at,
            started_at=run.started_at,
            reason="damaged: its saved steps cannot be read",
            problem_at=now,
            now=now,
        )
        self.committer.add(pending)
        _log.error("run %s of %s is held: its saved steps cannot be read", run.run_id, run.workflow)

    def _begin(self, run: RunRow, event: EventRow, history: list[StepRow]) -> None:
        workflow = self.workflows.get(run.workflow)
        if workflow is None or self.is_closing:
            return
        older = self.executions.get(run.run_id)
        if older is not None:
            # It was taken from us and is ours again, while its code of before still runs.
            self._successors[run.run_id] = (run, event, history)
            older.stop("lost")
            return
        if run.crashes >= SUSPECT_FROM and self._suspect is None:
            self._suspect = run.run_id
        execution = self.executions[run.run_id] = Execution(self, run, event, workflow, history)
        execution.begin()
        if self.is_draining:
            execution.drain()

    def unloaded(self, execution: Execution) -> None:
        """Hear that a run left memory; its slot is free."""
        run = execution.run
        self._ending -= execution.is_ending
        if self.executions.get(run.run_id) is execution:
            del self.executions[run.run_id]
        successor = self._successors.pop(run.run_id, None)
        if successor is not None:
            self._begin(*successor)
        self._unloaded.set()
        if self._suspect == run.run_id:
            self._suspect, self._want_suspect = None, True
            self.hint()
        if execution.stopping == "lost":
            self.hint()
        elif run.state in TERMINAL:
            self._tell(run)
        if self._has_backlog:
            self.committer.claim()

    def _tell(self, run: RunRow) -> None:
        self.ends.tell(run)
        if run.is_called and run.parent_run_id is not None:
            parent = self.executions.get(run.parent_run_id)
            if parent is not None:
                parent.child_ended(run)
            else:
                self.hint()

    # --- children --------------------------------------------------------------------------------

    def child_made(self, parent: Execution) -> None:
        """Hear that a run is about to start a child; look for it when it is durable."""
        pending = parent.operation().future
        pending.add_done_callback(lambda _: self.hint())

    def watch_child(self, parent: Execution, child_run_id: str) -> None:
        """Make sure that *parent* hears of a child that ended already, here or elsewhere."""
        if child_run_id not in self.executions and parent not in self._watchers:
            # One look for all the calls that one parent makes at once.
            self._watchers.add(parent)
            self.spawn(self._look_soon(parent))

    async def _look_soon(self, parent: Execution) -> None:
        await asyncio.sleep(0)
        self._watchers.discard(parent)
        await self._look_at_children([parent])

    async def _look_at_children(self, parents: list[Execution]) -> None:
        wanted = {run_id: parent for parent in parents for run_id in parent.open_children()}
        if not wanted:
            return
        # A child that ended before the parent was claimed wakes nobody any more, so a look that
        # fails must be made again.
        rows = await self._insist(self.read, self.store.states, list(wanted))
        for run_id, row in rows.items():
            if row.state in TERMINAL:
                wanted[run_id].child_ended(row)

    async def retry_child(self, run_id: str) -> None:
        """Retry a called run together with its parent."""
        await self._insist(self.steer_child, run_id, "retry")

    async def cancel_child(self, run_id: str) -> None:
        """Cancel a called run together with its parent."""
        await self._insist(self.steer_child, run_id, "cancel")

    async def _insist(self, function: Callable[..., Coroutine[Any, Any, Any]], *args: Any) -> Any:
        """Ask the store again and again while it is away: what follows cannot do without."""
        while True:
            try:
                return await function(*args)
            except (errors.StoreUnavailable, errors.ReplyLost):
                if self.is_closing:
                    raise
                await asyncio.sleep(INSIST_S)

    async def _cancel_older_children(self, run: RunRow) -> None:
        """Cancel what older generations called and did not finish (RULINGS 21)."""
        for child in await self.read(self.store.children, run.run_id):
            if child.is_called and child.parent_generation != run.generation and child.state not in TERMINAL:
                await self.steer_child(child.run_id, "cancel")

    def steered(self, run_id: str, move: RunMove) -> None:
        """Hear that an operator changed a run: if it is in memory, its holder is no longer we."""
        execution = self.executions.get(run_id)
        if execution is not None:
            execution.stop("lost")
        if move.due_at is not None:
            self.hint()
        if move.wakes_run_id is not None:
            parent = self.executions.get(move.wakes_run_id)
            if parent is not None:
                self.spawn(self._look_at_children([parent]))
            else:
                self.hint()

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

    # --- looking ---------------------------------------------------------------------------------

    async def _look_forever(self) -> None:
        """Poll, jittered; sooner when something is due or a hint comes."""
        settings = self.settings
        while True:
            pause = settings.poll_ms * (0.75 + 0.5 * self.ids.draw())
            if self._next_due is not None:
                pause = min(pause, max(0, self._next_due - self.now_ms()))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._hint.wait(), pause / 1000)
            self._hint.clear()
            if self._next_due is not None and self._next_due <= self.now_ms():
                self._next_due = None
                self._claim_soon()
                await asyncio.sleep(0)
                continue
            try:
                await self._look()
            except errors.StoreUnavailable as error:
                _log.warning("the store is away: %s", error.what)
            except errors.LeaseLost:
                self.evicted()
            except Exception:  # noqa: BLE001 - whatever it is, the next look must come (B086)
                _log.exception("the look at the store failed; the next one comes in a poll")

    async def _look(self) -> None:
        look = await self.read(self.store.look, self.process_id, self._names)
        now = self.now_ms()
        if look.next_due is not None:
            if look.next_due <= now:
                self._claim_soon()  # not a hint: with every slot taken, look would follow upon look
            else:
                self.due_at(look.next_due)
        is_dead = look.oldest_lease is not None and look.oldest_lease < now
        if is_dead or now - self._took_over_at >= self.settings.lease_ms:
            # Now and then without a sign, for runs of a process that was deleted by hand (B013).
            self._took_over_at = now
            await self.read(self._take_over)
        if look.woken:
            parents = [self.executions[run_id] for run_id in look.woken if run_id in self.executions]
            await self._look_at_children(parents)
        if look.owned < len(self.executions):
            await self._drop_lost()
        if look.owned > len(self.executions) + self._reserved + len(self._loading):
            await self._adopt()
        self._want_suspect = True

    async def _drop_lost(self) -> None:
        """Stop runs that an operator took away from us in another process."""
        candidates = list(self.executions.values())
        owned = await self.read(self.store.owned, self.process_id)
        for execution in candidates:
            if execution.run_id not in owned:
                execution.stop("lost")

    async def _adopt(self) -> None:
        """Go on with runs that are ours in the store and not in memory: a claim whose reply was lost."""
        owned = await self.read(self.store.owned, self.process_id)
        strays = [run_id for run_id in owned if run_id not in self.executions]
        self._strays, again = set(strays), [run_id for run_id in strays if run_id in self._strays]
        if again:
            await self.read(self.store.give_back, self.process_id, again, self.now_ms())
            self.hint()

    _took_over_at: Millis = 0
    _strays: set[str] = set()  # noqa: RUF012 - replaced, never changed

    def _take_over(self) -> None:
        try:
            taken = self.store.take_over(self.now_ms(), crash_limit=CRASH_LIMIT, skip=self.process_id)
        except errors.ReplyLost:
            _log.warning("the reply to a takeover was lost; the next look tells what became of it")
            self.loop.call_soon_threadsafe(self.hint)
            return
        except errors.StoreUnavailable:
            raise
        except Exception:  # noqa: BLE001 - whatever it is, the next look makes it again
            _log.exception("a takeover failed")
            return
        for process_id in taken.processes:
            _log.warning("took over %d runs of process %s, whose lease ended", taken.released, process_id)
        for run_id in taken.held:
            _log.error("run %s is held: it was lost with its process too often without progress", run_id)
        if taken.released:
            self.loop.call_soon_threadsafe(self.hint)

    # --- lease -----------------------------------------------------------------------------------

    def renewed(self, lease_until: Millis) -> None:
        """Hear from the heartbeat that the lease was renewed."""
        self.lease_until = lease_until
        self._lease_renewed.set()

    def has_lease(self) -> bool:
        """Say whether the lease stands for long enough to begin something."""
        return self.now_ms() <= self.lease_until - self.settings.lease_ms // 10

    async def may_start_steps(self) -> None:
        """Return while the lease stands; wait for its renewal when it nearly ends (F04)."""
        while not self.has_lease() and not self.is_closing:
            self._lease_renewed.clear()
            await self._lease_renewed.wait()

    def evicted(self) -> None:
        """Drop every run and register anew: others have taken over."""
        if self._is_rejoining or self.is_closing:
            return
        self._is_rejoining = True
        self._life += 1
        self._successors.clear()
        _log.error(
            "process %s lost its lease; it drops %d runs and starts afresh",
            self.process_id,
            len(self.executions),
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
        self.renewed(self.lease_until)
        self.hint()


async def _no_steering(run_id: str, verb: str) -> None:
    raise errors.ConfigError(f"{verb} of run {run_id} needs an app.")


async def _in_thread(function: Callable[..., Any], *args: Any) -> Any:
    return await asyncio.to_thread(function, *args)


def _claimed_row(run: NewRun, event: EventRow) -> RunRow:
    """Give the row of a run that was written as ours, without reading it back."""
    return RunRow(
        run_id=run.run_id,
        workflow=run.workflow,
        source=event.source,
        event_id=event.id,
        created_at=run.created_at,
        state=RunState.RUNNING,
        fence=1,
        started_at=run.created_at,
        deadline_at=run.deadline_at,
        replay_id=run.replay_id,
        parent_run_id=run.parent_run_id,
        parent_generation=run.parent_generation,
        is_called=run.is_called,
        depth=run.depth,
        input=run.input,
    )


def _is_fresh(run: RunRow) -> bool:
    """Say whether a claimed run was never claimed before, so that it has no history."""
    return run.fence == 1 and run.attempt == 1 and run.generation == 1 and run.replay_of is None
