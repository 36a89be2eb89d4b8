"""What operators do to runs from outside: one transaction each, guarded by what they saw.

Every function works inside a transaction that its caller began.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from onceward.core import errors
from onceward.core.model import AuditRow, EventRow, NewRun, StepKey, StepRow
from onceward.core.ports import Accept, Accepted, RunMove, Steer
from onceward.stores.postgres_rows import (
    WakeColumns,
    attempt_columns,
    is_off_queue,
    is_suspect,
    step_columns,
)
from onceward.stores.postgres_session import Session
from onceward.stores.postgres_statements import (
    Parameter,
    Statement,
    encode_rows,
    parameter,
    parameters,
    text_array,
)


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
        """Write an operator's action; False when the run changed since it was read."""
        run_id, move = steer.run_id, steer.move
        mine = parameters(run_id=run_id)
        self._do(session, "stop_owner", **mine)
        touched = {run_id} if move.wakes_run_id is None else {run_id, move.wakes_run_id}
        self._do(session, "lock_queue", run_ids=text_array(sorted(touched)))
        steered = self._do(session, "steer_run", **mine, **_steered(steer))
        if not steered:
            return False
        ((fence,),) = steered
        if is_off_queue(move.state):
            self._do(session, "leave_queue", run_ids=text_array([run_id]))
        else:
            # Without a time it is due at once: an owner with the old fence could not go on anyway.
            due_at = move.now if move.due_at is None else move.due_at
            place = parameters(due_at=due_at, is_suspect=is_suspect(move.crashes))
            self._do(session, "requeue", **mine, **place)
        if steer.reopen:
            generation = parameter(steer.expected_generation)
            self._do(session, "reopen", **mine, generation=generation, keys=_keys(steer.reopen))
        self._save_steps(session, run_id, fence, move.generation, steer.copies)
        self._follow_up(session, run_id, fence, move)
        self._insert_audit(session, steer.audit)
        return True

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
        """
        (run,) = accept.runs
        event = accept.event
        key = _replay_key(event, run)
        if not self._do(session, "has_event", **key):
            raise errors.NotFound(
                f"There is no event {event.id!r} of source {event.source!r}.",
                means="Nothing can be replayed; nothing was written.",
                todo="Look for the event in this namespace.",
            )
        if not self._do(session, "insert_replay", **key, **_replayed(run)):
            ((run_id,),) = self._do(session, "replayed", **key)
            # The same run again is this very call, whose reply was lost.
            return Accepted(run_id != run.run_id, False, {run.workflow: run_id}), False
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
    )


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
    )
