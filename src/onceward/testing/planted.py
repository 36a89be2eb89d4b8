"""Bugs to plant into a simulated process, as data: each must be found, or the simulation is blind.

A bug is planted by replacing a method of one object or a part of a statement that a store has
loaded, never by changing source text. Each says what it takes out and which promise that breaks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from onceward.core import errors
from onceward.core.model import EventRow, NewRun, RunRow, StepRow
from onceward.core.ports import Accept, Accepted, Advance, Awaited, Batch, BatchResult, Steer, TakenOver
from onceward.core.states import StepState

if TYPE_CHECKING:
    from onceward.testing.simulation.process import Process

Plant = Callable[["Process"], None]


@dataclass(frozen=True)
class Bug:
    """One planted bug.

    Attributes:
        sentence: what it takes out, and the promise that shows it.
        store: plants it into a process that has its store and no worker yet.
        worker: plants it into a process that has its worker.
        is_of_waits: it shows in worlds of runs that wait for events.
        first_seed: the first world to look for it in: one that shows it, as long as worlds are what they are.
    """

    sentence: str
    store: Plant | None = None
    worker: Plant | None = None
    is_of_waits: bool = False
    first_seed: int = 0


# --- how to plant ---------------------------------------------------------------------------------------


def _statement(name: str, old: str, new: str) -> Plant:
    """Replace a part of a loaded statement."""

    def plant(process: Process) -> None:
        sql: Any = process.database._sql
        assert old in sql[name], f"the statement {name} has no {old!r} any more"
        sql[name] = sql[name].replace(old, new)

    return plant


def _all(*plants: Plant) -> Plant:
    """Plant several at once."""

    def plant(process: Process) -> None:
        for one in plants:
            one(process)

    return plant


def _method(name: str, wrapped: Callable[[Process, Callable[..., Any]], Callable[..., Any]]) -> Plant:
    """Replace a method of the store by another that knows the first."""

    def plant(process: Process) -> None:
        setattr(process.database, name, wrapped(process, getattr(process.database, name)))

    return plant


def _batches(change: Callable[[Process, Batch], Batch]) -> Plant:
    """Change every batch on its way to the store."""

    def wrapped(process: Process, apply: Callable[..., Any]) -> Callable[..., Any]:
        return lambda process_id, epoch, batch: apply(process_id, epoch, change(process, batch))

    return _method("apply", wrapped)


def _records(keep: Callable[[StepRow], bool]) -> Plant:
    """Drop records on their way to the store."""

    def change(_process: Process, batch: Batch) -> Batch:
        advances = [
            msgspec.structs.replace(advance, steps=[step for step in advance.steps if keep(step)])
            for advance in batch.advances
        ]
        return msgspec.structs.replace(batch, advances=advances)

    return _batches(change)


def _histories(change: Callable[[list[StepRow]], list[StepRow]]) -> Plant:
    """Change what is read of a run that is loaded."""

    def wrapped(_process: Process, histories: Callable[..., Any]) -> Callable[..., Any]:
        def changed(run_ids: Sequence[str]) -> dict[str, list[StepRow]]:
            return {run_id: change(rows) for run_id, rows in histories(run_ids).items()}

        return changed

    return _method("histories", wrapped)


# --- fences and guards ----------------------------------------------------------------------------------


def _with_present_fence(process: Process, batch: Batch) -> Batch:
    def present(advance: Advance) -> Advance:
        row = process.database.run(advance.run_id)
        return advance if row is None else msgspec.structs.replace(advance, fence=row.fence)

    return msgspec.structs.replace(batch, advances=[present(advance) for advance in batch.advances])


_OPEN_GUARD = _all(
    _statement(
        "guard", "update onceward_committer set last_batch = ?", "insert into onceward_committer (last_batch"
    ),
    _statement(
        "guard",
        " where namespace = ? and process_id = ? and epoch = ?",
        ", namespace, process_id, epoch) values (?, ?, ?, ?) "
        "on conflict (namespace, process_id) do update set last_batch = excluded.last_batch",
    ),
)


def _says_held(_process: Process, apply: Callable[..., Any]) -> Callable[..., Any]:
    def changed(*args: Any) -> BatchResult:
        result: BatchResult = apply(*args)
        return msgspec.structs.replace(result, held=[True] * len(result.held))

    return changed


def _says_done_when_evicted(_process: Process, apply: Callable[..., Any]) -> Callable[..., Any]:
    def changed(process_id: str, epoch: int, batch: Batch) -> BatchResult:
        try:
            result: BatchResult = apply(process_id, epoch, batch)
        except errors.LeaseLost:
            accepted = [
                Accepted(False, False, {run.workflow: run.run_id for run in accept.runs})
                for accept in batch.accepts
            ]
            return BatchResult(accepted, [True] * len(batch.advances), [])
        return result

    return changed


# --- identity and replies -------------------------------------------------------------------------------


def _drop_identity(process: Process) -> None:
    process.world.connection.execute("drop index if exists onceward_run_identity")


def _ack_before_commit(process: Process) -> None:
    assert process.worker is not None
    committer = process.worker.committer
    accept_later = committer.accept

    def accept(accepts: Sequence[Accept]) -> Any:
        accept_later(accepts)
        answered: Any = process.world.loop.create_future()
        found = [
            Accepted(False, False, {run.workflow: run.run_id for run in accept.runs}) for accept in accepts
        ]
        answered.set_result((found, committer.sent_at))
        return answered

    committer.accept = accept  # type: ignore[method-assign]


# --- runs -------------------------------------------------------------------------------------------------


def _emit_at_once(process: Process) -> None:
    assert process.worker is not None
    worker = process.worker
    runs_for = worker.routing.runs_for

    def emit(event: EventRow, *, parent: RunRow | None = None, **more: Any) -> list[NewRun]:
        runs = runs_for(event, parent=parent, **more)
        if parent is None:
            return runs
        drawn = msgspec.structs.replace(event, source="emit/news", id=worker.ids.hex(8))
        worker.committer.accept([Accept(drawn, runs)])
        return []

    worker.routing.runs_for = emit  # type: ignore[method-assign]


def _opens_every_failure(process: Process, steer: Callable[..., Any]) -> Callable[..., Any]:
    def changed(action: Steer) -> Any:
        if action.audit.verb == "retry":
            rows = process.database.steps(action.run_id)
            failed = [row.key for row in rows if row.state is StepState.FAILED]
            action = msgspec.structs.replace(action, reopen=failed)
        return steer(action)

    return changed


def _without_deadlines(rows: list[StepRow]) -> list[StepRow]:
    return [
        msgspec.structs.replace(row, wake_at=None)
        if row.kind == "sleep" and row.state is StepState.OPEN
        else row
        for row in rows
    ]


def _wakes_earlier(rows: list[StepRow]) -> list[StepRow]:
    return [
        row if row.wake_at is None else msgspec.structs.replace(row, wake_at=row.wake_at - 500)
        for row in rows
    ]


def _by_name(rows: list[StepRow]) -> list[StepRow]:
    numbers = [row.seq for row in rows]
    ordered = sorted(rows, key=lambda row: row.key)
    return [msgspec.structs.replace(row, seq=seq) for row, seq in zip(ordered, numbers, strict=True)]


def _bodies_do_not_wait(process: Process) -> None:
    assert process.worker is not None
    committer = process.worker.committer
    add_later = committer.add

    def add(pending: Any) -> None:
        pending.is_durable = True
        add_later(pending)

    committer.add = add  # type: ignore[method-assign]


def _lease_is_not_asked(process: Process) -> None:
    assert process.worker is not None
    process.worker.has_lease = lambda: True  # type: ignore[method-assign]


def _ownership_never_ages(process: Process) -> None:
    assert process.worker is not None
    process.worker.elapsed_s = lambda: 0.0


# --- waits ------------------------------------------------------------------------------------------------

STALE_MS = 150
"""How old what a run sees is, when it looks for its event too early."""


def _looks_too_early(process: Process, awaited: Callable[..., Any]) -> Callable[..., Any]:
    def changed(where: Awaited) -> list[EventRow]:
        assert process.worker is not None
        until = process.worker.now_ms() - STALE_MS
        until = until if where.until is None else min(until, where.until)
        found: list[EventRow] = awaited(msgspec.structs.replace(where, until=until))
        return found

    return changed


def _looks_for_no_waits(_process: Process, apply: Callable[..., Any]) -> Callable[..., Any]:
    def changed(*args: Any) -> BatchResult:
        result: BatchResult = apply(*args)
        return msgspec.structs.replace(result, waits=[])

    return changed


def _pays_no_debt(process: Process) -> None:
    assert process.worker is not None
    process.worker.matching.owe = lambda leased_until: None  # type: ignore[method-assign]  # noqa: ARG005


DOUBTFUL_BUGS: dict[str, Bug] = {
    "started-not-durable": Bug(
        "That a try begins is not saved before its body does (RULINGS 7).",
        _records(
            lambda step: step.begun is None or step.state is not StepState.OPEN or '"is_asked"' in step.begun
        ),
    ),
    "answer-lost": Bug(
        "What a person answered is not kept: a step that took effect is tried again (RULINGS 7).",
        _histories(
            lambda rows: [
                msgspec.structs.replace(row, begun=None) if row.begun and '"answer"' in row.begun else row
                for row in rows
            ]
        ),
        first_seed=1,
    ),
    "undo-not-marked": Bug(
        "That the undoing of a run began is not saved: code that ends otherwise is followed (RULINGS 20).",
        _records(lambda step: step.name != "undo everything"),
        first_seed=8,
    ),
    "undo-skips-doubt": Bug(
        "What a step of unknown outcome did is not undone (RULINGS 22).",
        _histories(
            lambda rows: [
                msgspec.structs.replace(row, begun=None) if row.state is StepState.CANCELLED else row
                for row in rows
            ]
        ),
        first_seed=43,
    ),
}
"""Bugs that show in worlds of unknown outcomes, by name."""

BUGS: dict[str, Bug] = {
    "no-fence": Bug(
        "Writes are accepted whatever their fence (I5).", _batches(_with_present_fence), first_seed=1
    ),
    "no-guard": Bug("Batches of an evicted process are accepted (I5).", _OPEN_GUARD),
    "zombie-writes": Bug(
        "A takeover neither shuts the old holder out nor raises the fence (I5).",
        _all(_OPEN_GUARD, _statement("lose_run", "fence = fence + 1, ", "")),
    ),
    "no-unique": Bug(
        "The unique constraints on events and on original runs are gone (I1).",
        _all(
            _drop_identity,
            _statement(
                "insert_event",
                "on conflict do nothing",
                "on conflict (namespace, source, id) do update set received_at = received_at",
            ),
        ),
    ),
    "no-durable-attempt": Bug(
        "A lost holder is counted neither as an attempt nor as a crash (I15, I16).",
        _statement("lose_run", "attempt = ?4, crashes = ?5, ", ""),
        first_seed=1,
    ),
    "ack-before-commit": Bug("A delivery is answered before its commit (I6).", worker=_ack_before_commit),
    "wake-lost": Bug(
        "The end of a called run does not wake its parent (I12).",
        _statement("wake", "woken = 1, due_at = min(due_at, ?3)", "woken = iif(?3, woken, woken)"),
    ),
    "double-emit": Bug(
        "An emit in a body is stored at once, under an id drawn anew, not with its step (I10).",
        worker=_emit_at_once,
        first_seed=2,
    ),
    "tries-not-saved": Bug(
        "A failed try is not saved before the next (I15).",
        _records(lambda step: not (step.kind == "run" and step.state is StepState.OPEN and step.tries > 0)),
    ),
    "reopen-caught-failures": Bug(
        "A retry opens every failure, also those that the workflow caught (RULINGS 19).",
        _method("steer", _opens_every_failure),
        first_seed=438,
    ),
    "deadline-moves": Bug(
        "A sleep's deadline is reckoned anew whenever the run is loaded (I14).",
        _histories(_without_deadlines),
    ),
    "cancel-forgets": Bug(
        "A run that is being cancelled is claimed as an ordinary one (I17).",
        _statement(
            "claim_runs", "case state when 'cancelling' then 'cancelling' else 'running' end", "'running'"
        ),
    ),
    "cut-not-saved": Bug(
        "That the code cut a step off is not saved (RULINGS 17).",
        _records(lambda step: step.state is not StepState.CUT),
        first_seed=39,
    ),
    "order-forgotten": Bug(
        "Saved outcomes are handed out by name, not as they were saved (RULINGS 17).",
        _histories(_by_name),
        first_seed=4,
    ),
    "resolve-lies": Bug(
        "A lost reply counts as a commit that happened (I6, I7).",
        _method("resolve", lambda _process, _resolve: lambda *_: True),
        first_seed=6,
    ),
    "refused-counts-as-saved": Bug(
        "A commit that the fence refused counts as made (I5).", _method("apply", _says_held), first_seed=1
    ),
    "evicted-not-told": Bug(
        "A process that was evicted takes its commits for made (I5, I6).",
        _method("apply", _says_done_when_evicted),
    ),
    "not-durable": Bug(
        "A body begins before earlier checkpoints are durable (RULINGS 5).", worker=_bodies_do_not_wait
    ),
    "lease-not-asked": Bug(
        "A body begins after the lease has ended, and on an old answer (F04).",
        worker=_all(_lease_is_not_asked, _ownership_never_ages),
        first_seed=10,
    ),
    "ownership-never-ages": Bug(
        "A body begins on an answer of the store that is as old as it may be (I17).",
        worker=_ownership_never_ages,
        first_seed=35,
    ),
    "suspects-together": Bug(
        "Runs that may have killed their holders are claimed like all others (I16).",
        _statement("due", "is_suspect = ?3", "(is_suspect = ?3 or ?3 = 0)"),
        first_seed=2,
    ),
    "drain-charges": Bug(
        "A process that stops charges its runs an attempt (I29).",
        _statement("put_back", "set state = 'queued'", "set attempt = attempt + 1, state = 'queued'"),
        first_seed=9,
    ),
    "drain-forgets": Bug(
        "A process that stops leaves its runs as they are (I8).",
        _statement("put_back_queue", "process_id = null", "process_id = iif(?3, process_id, null)"),
        first_seed=9,
    ),
    "claim-not-exclusive": Bug(
        "A run is claimed whether somebody has it or not (I5).",
        _statement("due", "process_id is null and ", ""),
    ),
    "steer-unguarded": Bug(
        "An operator's action is committed whatever happened since it was decided (I17).",
        _statement(
            "steer_run",
            "and state = ?3 and generation = ?4 and fence = ?5",
            "and ?3 <> '' and ?4 > 0 and ?5 >= 0",
        ),
        first_seed=2,
    ),
    "strays-stay": Bug(
        "A run whose claim was never heard of is not given back (I8).",
        _statement("give_back", "where namespace = ?1", "where namespace = ?1 and ?4 < 0"),
        first_seed=17,
    ),
    "no-takeover": Bug(
        "Nobody takes over what a dead process had (I8).",
        _method("take_over", lambda _process, _take_over: lambda *_, **__: TakenOver((), 0, ())),
    ),
    "early-wake": Bug(
        "A sleep that is loaded from the store is over a little early (I14).",
        _histories(_wakes_earlier),
    ),
    "wait-looks-before-commit": Bug(
        "A run looks for its event before its wait is durable: what it sees is a little old (I12).",
        _method("awaited", _looks_too_early),
        is_of_waits=True,
        first_seed=4,
    ),
    "nobody-looks": Bug(
        "Who stores an event does not look who waits for it (I12).",
        _method("apply", _looks_for_no_waits),
        is_of_waits=True,
    ),
    "looks-of-the-dead": Bug(
        "A process that dies between a commit and its look leaves that look to nobody (I12).",
        worker=_pays_no_debt,
        is_of_waits=True,
        first_seed=19,
    ),
}
"""Every planted bug by name."""
