"""What operators do to runs from outside: one transaction each, guarded by what they saw.

Every function works inside a transaction that its caller began.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from onceward.core import errors
from onceward.core.claims import Holder, is_free
from onceward.core.model import AuditRow, EventRow, KeyClaim, Millis, NewRun, StepKey, StepRow
from onceward.core.ports import Accept, Accepted, RunMove, Steer
from onceward.core.retention import refuse_without_payload
from onceward.core.states import TERMINAL, RunState
from onceward.stores.postgres.rows import (
    HolderColumns,
    KeyColumns,
    WakeColumns,
    attempt_columns,
    freed_columns,
    is_off_queue,
    is_suspect,
    step_columns,
)
from onceward.stores.postgres.session import Session
from onceward.stores.postgres.statements import (
    Parameter,
    Statement,
    encode_rows,
    parameter,
    parameters,
    text_array,
)


class Changed(Exception):
    """A step was saved since the run was looked at; the transaction is to be rolled back."""


class PostgresOperators:
    """What transactions of operators write.

    Args:
        statements: those of ``postgres.sql``.
        namespace: the wall; part of every key.
    """

    def __init__(self, statements: Mapping[str, Statement], namespace: str) -> None:
        self._statements = statements
        self._namespace = namespace.encode()

    def _do(self, session: Session, name: str, **values: Parameter) -> list[tuple[Any, ...]]:
        return session.execute(self._statements[name].bind({"namespace": self._namespace, **values}))

    def steer(self, session: Session, steer: Steer) -> bool:
        """Write an operator's action; False when the run changed since it was read.

        Raises:
            Changed: a step of it was saved since; the transaction must be rolled back.
        """
        run_id, move = steer.run_id, steer.move
        mine = parameters(run_id=run_id)
        self._do(session, "stop_owner", **mine)
        keys = _keys_of(steer)
        if keys:
            self._do(session, "lock_keys", keys=encode_rows(keys))
        touched = {run_id} if move.wakes_run_id is None else {run_id, move.wakes_run_id}
        locked = text_array(sorted(touched))
        if move.key is not None and move.state in TERMINAL:
            self._do(session, "lock_queue_joined", run_ids=locked, ended=text_array([run_id]))
        else:
            self._do(session, "lock_queue", run_ids=locked)
        steered = self._do(session, "steer_run", **mine, **_steered(steer))
        if not steered:
            self._drop_unclaimed(session, keys)  # the transaction is committed all the same
            return False
        ((fence,),) = steered
        if steer.expected_sum is not None:
            # Now the run's row is ours: who still saves a step of it, by a batch or in a transaction of
            # the user's, comes after us and has the old fence.
            generation = parameter(steer.expected_generation)
            ((found,),) = self._do(session, "sum_of_seq", **mine, generation=generation)
            if found != steer.expected_sum:
                raise Changed
        if move.state in TERMINAL or move.generation != steer.expected_generation:
            self._do(session, "end_waits", holders=encode_rows([HolderColumns(run_id, fence)]))
        if steer.claim is not None:
            self._reclaim(session, run_id, steer.claim, move.now)
        if move.key is not None and move.state is RunState.CANCELLING:
            self._do(session, "unreplace", **mine, **parameters(workflow=move.key[0], key=move.key[1]))
        if is_off_queue(move.state):
            self._do(session, "leave_queue", run_ids=text_array([run_id]))
        else:
            # Without a time it is due at once: an owner with the old fence could not go on anyway.
            due_at = move.now if move.due_at is None else move.due_at
            place = parameters(due_at=due_at, is_suspect=is_suspect(move.crashes))
            self._do(session, "requeue", **mine, **place)
        if steer.reopen:
            place = parameters(generation=steer.expected_generation, now=move.now)
            self._do(session, "reopen", **mine, **place, keys=_keys(steer.reopen))
        self._save_steps(session, run_id, fence, move.generation, steer.copies)
        self._follow_up(session, run_id, fence, move)
        self._drop_unclaimed(session, keys)
        if move.problem_at is not None:
            self._do(session, "add_notices", ids=encode_rows([run_id]))
        self._insert_audit(session, steer.audit)
        return True

    def _drop_unclaimed(self, session: Session, keys: Sequence[KeyColumns]) -> None:
        """Take out the rows that only locked keys."""
        if keys:
            self._do(session, "drop_unclaimed", keys=encode_rows(keys))

    def _reclaim(self, session: Session, run_id: str, claim: KeyClaim, now: Millis) -> None:
        """Let a run that is to run again hold its key, whose row is locked.

        Raises:
            KeyTaken: another run holds it.
        """
        place = parameters(workflow=claim.workflow, key=claim.key)
        for holder_id, claimed_at, payload_hash, state, once, window_ms in self._do(
            session, "holder_of", **place
        ):
            if holder_id == run_id:
                return
            state = None if state is None else RunState(state)
            holder = Holder(holder_id, claimed_at, payload_hash, state, once, window_ms)
            if not is_free(claim.once, claim.window_ms, "reject", holder, now):
                raise errors.KeyTaken(claim.workflow, claim.key, holder_id)
        held = parameters(
            run_id=run_id,
            once=claim.once,
            window_ms=claim.window_ms,
            claimed_at=now,
            payload_hash=claim.payload_hash,
        )
        self._do(session, "hold_key", **place, **held)

    def _save_steps(
        self, session: Session, run_id: str, fence: int, generation: int, steps: Sequence[StepRow]
    ) -> None:
        if steps:
            columns = step_columns(run_id, fence, generation, steps)
            self._do(session, "save_steps", steps=encode_rows(columns))

    def _follow_up(self, session: Session, run_id: str, fence: int, move: RunMove) -> None:
        if move.log is not None:
            self._do(
                session, "log_attempts", attempts=encode_rows([attempt_columns(run_id, fence, move.log)])
            )
        if move.wakes_run_id is not None:
            wake = WakeColumns(move.wakes_run_id, move.now, run_id, fence)
            self._do(session, "wake", wakes=encode_rows([wake]))
        freed = freed_columns(run_id, fence, move)
        if freed is not None:
            self._do(session, "free_keys", freed=encode_rows([freed]))

    def _insert_audit(self, session: Session, audit: AuditRow) -> None:
        self._do(session, "insert_audit", **parameters(**msgspec.structs.asdict(audit)))

    def has_audit(self, session: Session, audit: AuditRow) -> bool:
        """Say whether an action is committed: its audit entry is part of it."""
        found = self._do(session, "audited", **parameters(run_id=audit.run_id, audit_id=audit.audit_id))
        return bool(found)

    def replay(
        self, session: Session, accept: Accept, copies: Sequence[StepRow], audit: AuditRow
    ) -> tuple[Accepted, bool]:
        """Write a new run of an existing event, or find the one of the same request.

        Returns:
            What to tell the operator, and whether anything was written.

        Raises:
            NotFound: there is no such event.
            KeyTaken: another run holds the key that it claims.
        """
        (run,) = accept.runs
        event = accept.event
        key = _replay_key(event, run)
        found = self._do(session, "has_event", **key)
        if not found:
            raise errors.NotFound(
                f"There is no event {event.id!r} of source {event.source!r}.",
                means="Nothing can be replayed; nothing was written.",
                todo="Look for the event in this namespace.",
            )
        if not self._do(session, "insert_replay", **key, **_replayed(run)):
            ((run_id,),) = self._do(session, "replayed", **key)
            # The same run again is this very call, whose reply was lost.
            return Accepted(run_id != run.run_id, False, {run.workflow: run_id}), False
        refuse_without_payload(event, run, has_payload=bool(found[0][0]))
        if run.key is not None and run.once is not None:
            self._do(session, "lock_keys", keys=encode_rows([KeyColumns(run.workflow, run.key)]))
            claim = KeyClaim(run.workflow, run.key, run.once, run.payload_hash, run.window_ms)
            self._reclaim(session, run.run_id, claim, run.created_at)
        self._save_steps(session, run.run_id, 0, 1, copies)
        self._insert_audit(session, audit)
        return Accepted(False, False, {run.workflow: run.run_id}), True


def _steered(steer: Steer) -> dict[str, Parameter]:
    move = steer.move
    return parameters(
        expected_state=steer.expected_state,
        expected_generation=steer.expected_generation,
        expected_fence=steer.expected_fence,
        state=move.state,
        generation=move.generation,
        attempt=move.attempt,
        failures=move.failures,
        crashes=move.crashes,
        deadline_at=move.deadline_at,
        started_at=move.started_at,
        ended_at=move.ended_at,
        output=move.output,
        error=move.error,
        reason=move.reason,
        problem_at=move.problem_at,
        dismissed_at=move.dismissed_at,
        warning=move.warning,
        key=None if steer.claim is None else steer.claim.key,
    )


def _keys_of(steer: Steer) -> list[KeyColumns]:
    """Give the keys that an action claims, gives free, or whose holder it cancels."""
    keys = set() if steer.move.key is None else {KeyColumns(*steer.move.key)}
    if steer.claim is not None:
        keys.add(KeyColumns(steer.claim.workflow, steer.claim.key))
    return sorted(keys)


def _keys(keys: Sequence[StepKey]) -> bytes:
    return encode_rows([{"name": key.name, "item": key.item, "ordinal": key.ordinal} for key in keys])


def _replay_key(event: EventRow, run: NewRun) -> dict[str, Parameter]:
    return parameters(source=event.source, event_id=event.id, workflow=run.workflow, replay_id=run.replay_id)


def _replayed(run: NewRun) -> dict[str, Parameter]:
    return parameters(
        run_id=run.run_id,
        created_at=run.created_at,
        deadline_at=run.deadline_at,
        replay_of=run.replay_of,
        parent_run_id=run.parent_run_id,
        parent_generation=run.parent_generation,
        is_called=int(run.is_called),
        depth=run.depth,
        input=run.input,
        is_stale=int(run.is_stale),
        key=run.key,
    )
