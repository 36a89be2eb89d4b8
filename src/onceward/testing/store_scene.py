"""What checks of stores are written with: a factory, processes, rows with sensible defaults.

A check arranges in a few lines, so the builders here know what a sound row looks like: a run
that ends has a time of its end, a failed step has an error. ``check_invariants`` holds for what
they make.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from onceward.core import failpoints
from onceward.core.model import (
    AttemptRow,
    AuditRow,
    DeliveryRow,
    EventRow,
    Millis,
    NewRun,
    ProcessRow,
    RunRow,
    StepRow,
    WorkflowRow,
)
from onceward.core.ports import (
    Accept,
    Accepted,
    Advance,
    Batch,
    BatchResult,
    Claim,
    RunMove,
    Steer,
    Store,
)
from onceward.core.states import TERMINAL, RunState, StepState

START: Millis = 1_750_000_000_000
"""The time at which every check begins."""

NEVER: Millis = START + 100 * 366 * 86_400_000
"""When a run is due that only a wake-up brings back."""

LEASE_MS = 30_000
WORKFLOWS = ("fulfil", "invoice", "notify")
TOGETHER_SECONDS = 60.0
"""How long a check's threads may take before it fails."""

T = TypeVar("T")
_numbers = itertools.count(1)


class StoreFactory(Protocol):
    """One empty database and as many stores on it as a check wants.

    ``now`` is the time that the stores and the check's rows have; a check sets it forward.
    """

    now: Millis

    def make(self, namespace: str = "default") -> Store:
        """Give a store that is not open yet; closed by the factory in the end."""
        ...

    def open(self, namespace: str = "default") -> Store:
        """Give an open store; the first one migrates."""
        ...

    def execute(self, statement: str) -> None:
        """Run SQL past the store, ``{t}`` standing for the prefix of the tables: damage, by hand."""
        ...

    def another(self) -> StoreFactory:
        """Give a factory on another empty database of the same kind; closed with this one."""
        ...

    def run_script(self) -> None:
        """Make the schema as a person does who runs what ``onceward migrate --sql`` prints."""
        ...

    def schema(self) -> str:
        """Give the whole schema as text that is equal for equal schemas."""
        ...


class Planted(Exception):
    """What an armed failpoint raises."""


@contextlib.contextmanager
def failing_at(name: str, *, hit: int = 1) -> Iterator[None]:
    """Raise ``Planted`` when the failpoint is passed for the *hit*-th time."""
    count = itertools.count(1)

    def hook(passed: str, _detail: str) -> None:
        if passed == name and next(count) == hit:
            raise Planted(name)

    failpoints.arm(hook)
    try:
        yield
    finally:
        failpoints.arm(None)


def raised(kind: type[BaseException], action: Callable[[], object]) -> BaseException:
    """Give what *action* raises, which must be a *kind*."""
    try:
        value = action()
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was expected, but the call gave {value!r}")


def together(*actions: Callable[[], T]) -> list[T]:
    """Run the actions in threads that begin at one instant; give their values in order."""
    barrier = threading.Barrier(len(actions))
    values: list[Any] = [None] * len(actions)
    failures: list[BaseException] = []

    def work(index: int, action: Callable[[], T]) -> None:
        try:
            barrier.wait(TOGETHER_SECONDS)
            values[index] = action()
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            failures.append(error)
            barrier.abort()

    threads = [
        threading.Thread(target=work, args=(index, action), daemon=True)
        for index, action in enumerate(actions)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TOGETHER_SECONDS)
        assert not thread.is_alive(), f"a thread of the check hangs after {TOGETHER_SECONDS} s"
    for failure in failures:
        if not isinstance(failure, threading.BrokenBarrierError):
            raise failure
    return values


def new_id(prefix: str) -> str:
    """Give an id that no other call gives; later ones sort behind earlier ones."""
    return f"{prefix}{next(_numbers):08d}"


# --- rows -----------------------------------------------------------------------------------------


def event(event_id: str = "evt_1", *, at: Millis = START, **changes: Any) -> EventRow:
    """Give an event."""
    values = {"source": "stripe", "type": "paid", "payload": '{"order": 7}', "subject": "order-7"}
    return EventRow(id=event_id, received_at=at, **{**values, **changes})


def new_run(workflow: str = "fulfil", *, at: Millis = START, **changes: Any) -> NewRun:
    """Give a run to be made, with an id of its own at each call."""
    return NewRun(**{"run_id": new_id("run_"), "workflow": workflow, "created_at": at, **changes})


def delivery(of: EventRow, **changes: Any) -> DeliveryRow:
    """Give a delivery of an event, with an id of its own at each call."""
    values = {
        "delivery_id": new_id("del_"),
        "source": of.source,
        "event_id": of.id,
        "received_at": of.received_at,
        "content_hash": "hash-1",
        "secret_index": 0,
        "request": '{"method": "POST"}',
    }
    return DeliveryRow(**{**values, **changes})


def accept(
    event_id: str = "evt_1",
    *workflows: str,
    is_claimed: bool = False,
    at: Millis = START,
    **changes: Any,
) -> Accept:
    """Give the accept of an event that starts a run of each workflow."""
    fact = event(event_id, at=at, **changes)
    runs = [new_run(name, at=at, is_claimed=is_claimed) for name in workflows or ("fulfil",)]
    return Accept(fact, runs)


def step(
    name: str = "charge", *, seq: int = 1, state: str = "done", at: Millis = START, **changes: Any
) -> StepRow:
    """Give a checkpoint whose columns fit its state."""
    values: dict[str, Any] = {"item": "", "ordinal": 1, "kind": "run", "attempt": 1, "started_at": at}
    if state != "open":
        values["ended_at"] = at
    if state == "done":
        values["output"] = '{"ok": true}'
    if state == "failed":
        values["error"] = '{"type": "Declined"}'
    return StepRow(name=name, seq=seq, state=StepState(state), **{**values, **changes})


def move(
    run: RunRow, state: RunState, *, now: Millis, due_at: Millis | None = None, **changes: Any
) -> RunMove:
    """Give the move of a run into a state, its columns as that state wants them."""
    values: dict[str, Any] = {
        "generation": run.generation,
        "attempt": run.attempt,
        "failures": run.failures,
        "crashes": run.crashes,
        "deadline_at": run.deadline_at,
        "started_at": run.started_at,
    }
    if state in TERMINAL:
        values["ended_at"] = now
    if state is RunState.COMPLETED:
        values["output"] = '{"receipt": 1}'
    if state is RunState.FAILED:
        values.update(error='{"type": "Declined"}', problem_at=now)
    if state is RunState.HELD:
        values.update(reason="a person must look", problem_at=now)
    return RunMove(state=state, now=now, due_at=due_at, **{**values, **changes})


def waiting(run: RunRow, *, now: Millis) -> RunMove:
    """Give the move of a run that only a wake-up brings back."""
    return move(run, RunState.WAITING, now=now, due_at=NEVER, reason="waits for a called run")


def attempt_log(run: RunRow, outcome: str, *, now: Millis, **changes: Any) -> AttemptRow:
    """Give the record of a run's present attempt, which ends."""
    values = {"started_at": run.started_at, "ended_at": now}
    return AttemptRow(
        generation=run.generation, attempt=run.attempt, outcome=outcome, **{**values, **changes}
    )


def audit(run_id: str, verb: str, *, at: Millis = START, **changes: Any) -> AuditRow:
    """Give the record of an operator's action."""
    return AuditRow(
        **{"audit_id": new_id("aud_"), "at": at, "run_id": run_id, "verb": verb, "actor": "ada", **changes}
    )


def steer(run: RunRow, verb: str, becomes: RunMove, **changes: Any) -> Steer:
    """Give an operator's action on a run as it was read."""
    return Steer(
        run_id=run.run_id,
        expected_state=run.state,
        expected_generation=run.generation,
        expected_fence=run.fence,
        move=becomes,
        audit=audit(run.run_id, verb, at=becomes.now),
        **changes,
    )


def retried(run: RunRow, *, now: Millis, **changes: Any) -> Steer:
    """Give the retry of a failed run: the next attempt of the same generation, due now."""
    log = attempt_log(run, "retried", now=now)
    becomes = move(run, RunState.QUEUED, now=now, due_at=now, attempt=run.attempt + 1, log=log)
    return steer(run, "retry", becomes, **changes)


def restarted(run: RunRow, *, now: Millis, **changes: Any) -> Steer:
    """Give the restart of a run: a new generation, due now."""
    becomes = move(
        run,
        RunState.QUEUED,
        now=now,
        due_at=now,
        generation=run.generation + 1,
        attempt=1,
        crashes=0,
        failures=0,
    )
    return steer(run, "restart", becomes, **changes)


# --- processes --------------------------------------------------------------------------------------


class Process:
    """A registered process with a store of its own, and short ways to commit.

    Args:
        stores: the check's factory.
        process_id: unique in the namespace.
        store: to share another's instead.
    """

    def __init__(
        self,
        stores: StoreFactory,
        process_id: str = "p1",
        *,
        store: Store | None = None,
        namespace: str = "default",
        epoch: int = 1,
        instance: str | None = None,
        lease_ms: int = LEASE_MS,
    ) -> None:
        self.stores = stores
        self.store = store or stores.open(namespace)
        self.process_id = process_id
        self.epoch = epoch
        self.last_batch = ""
        row = ProcessRow(
            process_id, epoch, instance, "host-1", 4711, "0.1.0", stores.now, stores.now + lease_ms
        )
        self.store.join(row, [WorkflowRow(name, "[]", stores.now) for name in WORKFLOWS])

    def apply(
        self,
        *,
        accepts: Sequence[Accept] = (),
        advances: Sequence[Advance] = (),
        claims: Sequence[Claim] = (),
    ) -> BatchResult:
        """Commit one batch."""
        self.last_batch = new_id("batch_")
        batch = Batch(self.last_batch, list(accepts), list(advances), list(claims))
        return self.store.apply(self.process_id, self.epoch, batch)

    def accept(self, *accepts: Accept) -> list[Accepted]:
        """Commit accepts in one batch."""
        return self.apply(accepts=accepts).accepted

    def queue(self, event_id: str = "evt_1", workflow: str = "fulfil", **changes: Any) -> RunRow:
        """Accept an event; give its queued run."""
        return self._run_of(accept(event_id, workflow, at=self.stores.now, **changes))

    def start(self, event_id: str = "evt_1", workflow: str = "fulfil", **changes: Any) -> RunRow:
        """Accept an event whose run this process holds from the start; give the run."""
        return self._run_of(accept(event_id, workflow, is_claimed=True, at=self.stores.now, **changes))

    def _run_of(self, wanted: Accept) -> RunRow:
        (accepted,) = self.accept(wanted)
        (run_id,) = accepted.runs.values()
        return self.read(run_id)

    def read(self, run_id: str) -> RunRow:
        """Give a run, which must exist."""
        run = self.store.run(run_id)
        assert run is not None, f"there is no run {run_id}"
        return run

    def owned(self) -> dict[str, bool]:
        """Give the runs that this process owns, with whether something woke each."""
        return {run_id: found.is_woken for run_id, found in self.store.owned(self.process_id).items()}

    def claim(
        self, limit: int = 100, *, workflows: Sequence[str] = WORKFLOWS, suspects: bool = False
    ) -> list[RunRow]:
        """Claim due runs."""
        wish = Claim(limit, tuple(workflows), self.stores.now, suspects)
        return [claimed.run for claimed in self.apply(claims=[wish]).claimed]

    def save(
        self,
        run: RunRow,
        *steps: StepRow,
        accepts: Sequence[Accept] = (),
        becomes: RunMove | None = None,
    ) -> bool:
        """Commit checkpoints, emits, a move of a run; say whether its fence still held."""
        (held,) = self.apply(advances=[self.advance(run, *steps, accepts=accepts, becomes=becomes)]).held
        return held

    def advance(
        self,
        run: RunRow,
        *steps: StepRow,
        accepts: Sequence[Accept] = (),
        becomes: RunMove | None = None,
    ) -> Advance:
        """Give what ``save`` commits."""
        return Advance(run.run_id, run.generation, run.fence, list(steps), list(accepts), becomes)

    def move(self, run: RunRow, state: RunState, due_at: Millis | None = None, **changes: Any) -> RunRow:
        """Move a held run; give it as it is then."""
        assert self.save(run, becomes=move(run, state, now=self.stores.now, due_at=due_at, **changes))
        return self.read(run.run_id)

    def call(
        self, parent: RunRow, *, event_id: str | None = None, name: str = "pack", **changes: Any
    ) -> RunRow:
        """Let a run call a child that is queued; give the child."""
        child = Accept(
            event(
                event_id or f'[{parent.generation},"{name}","",1,1]',
                at=self.stores.now,
                source=f"run/{parent.run_id}",
                type="call",
            ),
            [
                new_run(
                    "invoice",
                    at=self.stores.now,
                    parent_run_id=parent.run_id,
                    parent_generation=parent.generation,
                    is_called=True,
                    depth=parent.depth + 1,
                )
            ],
        )
        run_id = child.runs[0].run_id
        record = step(name, kind="call", state="open", at=self.stores.now, child_run_id=run_id, **changes)
        assert self.save(parent, record, accepts=[child])
        return self.read(run_id)

    def wait(self, run: RunRow) -> RunRow:
        """Give up a run until something wakes it."""
        assert self.save(run, becomes=waiting(run, now=self.stores.now))
        return self.read(run.run_id)

    def next_due(self, workflows: Sequence[str] = WORKFLOWS) -> Millis | None:
        """Give when the next unowned run wants to be claimed."""
        return self.store.look(self.process_id, workflows).next_due

    def heartbeat(self) -> None:
        """Renew the lease."""
        self.store.heartbeat(self.process_id, self.epoch, self.stores.now + LEASE_MS)


def rows(store: Store, *tables: str) -> dict[str, list[dict[str, Any]]]:
    """Give a namespace's tables as stored, in one order, to compare before with after.

    Left out is what a refused batch may leave behind: the last batch that a process tried.
    """
    wanted = tables or ("event", "delivery", "run", "queue", "step", "attempt", "audit", "process")
    found = store.dump(*wanted)
    return {name: sorted(found[name], key=msgspec.json.encode) for name in wanted}


def queue_of(store: Store, run_id: str) -> dict[str, Any] | None:
    """Give a run's place in the queue, or None."""
    return next((row for row in store.dump("queue")["queue"] if row["run_id"] == run_id), None)
