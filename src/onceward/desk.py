"""What handles ask of the open app: rows, ends, and the verbs that steer a run.

A verb reads the run, lets the table of states and verbs decide, and commits under the guard that
nothing changed meanwhile; if something did, it reads again. So the same verb twice, or two verbs
at once from two processes, end as if one had come after the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Container, Mapping
from typing import Any

import msgspec

from onceward.authoring.workflow import Workflow
from onceward.core import asked, errors, ids, json_plain
from onceward.core import steer as steering
from onceward.core.duration import show
from onceward.core.model import AuditRow, EventRow, KeyClaim, Millis, NewRun, RunRow, StepKey
from onceward.core.ports import Accept, Store
from onceward.core.rules import ACTIVE, EVER, WINDOW
from onceward.core.shown import shown
from onceward.core.states import RunState, StepState, Verb
from onceward.core.steer import Reply
from onceward.core.texts import checked_id, checked_name
from onceward.runtime.journal import CONFIRMED_S
from onceward.runtime.judging import KeyUntold, Reading, as_seen, key_at
from onceward.runtime.worker import Worker

HELD_BY_A_PROCESS = (RunState.RUNNING, RunState.CANCELLING)

PARENT = "parent"
"""Who cancels a called run together with its parent; the parent does not wait for its holder."""

ON_THE_WAY_S = 0.01
"""From the last look at the clock to the first line of a body."""

_HAS_ITS_KEY = frozenset({RunState.RUNNING, RunState.SLEEPING, RunState.WAITING, RunState.BACKOFF})
"""States in which nothing has to be asked: what has begun and not ended holds its key."""


class Desk:
    """Where questions and verbs about runs arrive.

    Args:
        workflows: the app's, by name.
        worker: gives the worker of the open app, or raises.
    """

    def __init__(self, workflows: Mapping[str, Workflow[..., Any]], worker: Callable[[], Worker]) -> None:
        self.workflows = workflows
        self._worker = worker

    async def ask(self, read: str, *args: Any) -> Any:
        """Give what a read of the store gives."""
        worker = self._worker()
        return await worker.read(getattr(worker.store, read), *args)

    async def run_row(self, run_id: str) -> RunRow:
        """Give what is stored of a run.

        Raises:
            NotFound: no such run in this namespace.
        """
        row: RunRow | None = await self.ask("run", run_id)
        if row is None:
            raise errors.NotFound(f"There is no run {shown(run_id)} in this namespace.")
        return row

    async def ended(self, run_id: str, timeout_ms: Millis | None) -> RunRow:
        """Give the run when it has ended.

        Raises:
            NotFound: no such run in this namespace.
            TimeoutError: it did not end in time; it goes on.
        """
        waiting = self._worker().ends.of(run_id)
        if timeout_ms is None:
            return await waiting
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await waiting
        except TimeoutError:
            raise TimeoutError(f"run {run_id} did not end within {show(timeout_ms)}; it goes on") from None

    async def forget_workflow(self, name: str) -> None:
        """Take a workflow's registration out of the store; see `forget`."""
        worker = self._worker()
        try:
            await worker.read(forget, worker.store, name, self.workflows)
        finally:
            worker.routes.learn(await worker.read(worker.store.workflows))

    # --- steering ----------------------------------------------------------------------------

    async def steer(
        self, verb: Verb, run_id: str, *, actor: str, answer: str = "", request_id: str | None = None
    ) -> Reply:
        """Read, decide, commit if nothing changed meanwhile; again if it did.

        With a request's id it is done once: the audit has one entry of each. Who asks again is told
        that it is done.

        Raises:
            StateConflict: the verb does not apply, or the request was another one.
        """
        worker = self._worker()
        asked.checked_text(answer, "answer")
        asked.checked_actor(actor)
        first: RunRow | None = None
        while True:
            run = await self.run_row(run_id)
            if request_id is not None and await self._is_done(request_id, verb, run_id):
                return steering.done_before(run)
            first = first or run
            reply = steering.joined(verb, first, run)
            if reply is not None:
                return reply
            steps = await self.ask("steps", run_id) if verb is Verb.RETRY else []
            decision = steering.decide(
                verb,
                run,
                now=worker.now_ms(),
                actor=actor,
                audit_id=str(worker.ids.uuid7()),
                steps=steps,
                failed=await self._failed_steps(run) if verb is Verb.RETRY else (),
                answer=answer,
                deadline_ms=worker.routes.deadline_ms(run.workflow),
                was_cancelling=verb is Verb.ANSWER and await self._was_cancelling(run),
                claim=await self._claim(verb, run, answer),
            )
            if decision.steer is None:
                if request_id is not None:
                    now, audit_id = worker.now_ms(), str(worker.ids.uuid7())
                    text = decision.reply.text
                    noted = AuditRow(audit_id, now, run_id, verb.value, actor, text, request_id)
                    await worker.read(worker.store.add_audit, noted)
                return decision.reply
            if request_id is not None:
                decision.steer.audit = msgspec.structs.replace(decision.steer.audit, request_id=request_id)
            try:
                is_done = await worker.read(worker.store.steer, decision.steer)
            except errors.ReplyLost:
                # The entry in the audit tells. Without one nothing was written, or not yet: then the
                # guard lets only one of the two through.
                audits = await self.ask("audits", run_id)
                is_done = any(row.audit_id == decision.steer.audit.audit_id for row in audits)
            if is_done:
                is_elsewhere = run.state in HELD_BY_A_PROCESS and run_id not in worker.executions
                worker.steered(run_id, decision.steer.move)
                if is_elsewhere and actor != PARENT:
                    # Nobody tells the process that has it; but by then it begins nothing any more.
                    await asyncio.sleep(CONFIRMED_S + ON_THE_WAY_S)
                return decision.reply

    async def _is_done(self, request_id: str, verb: Verb, run_id: str) -> bool:
        """Say whether a request has its entry in the audit.

        Raises:
            StateConflict: the entry is of another action.
        """
        entry: AuditRow | None = await self.ask("audit_of_request", request_id)
        if entry is not None and (entry.verb, entry.run_id) != (verb.value, run_id):
            raise errors.StateConflict(
                f"The request {shown(request_id)} was {entry.verb} of run {entry.run_id or '(none)'}.",
                means="One request is one action. Nothing was changed.",
                todo="Draw a new id for each request.",
            )
        return entry is not None

    async def _failed_steps(self, run: RunRow) -> list[StepKey]:
        """Give the steps whose failures ended the run's last attempt; those of earlier ones stay."""
        for attempt in await self.ask("attempts", run.run_id):
            is_last = (attempt.generation, attempt.attempt) == (run.generation, run.attempt)
            if is_last and attempt.failed_steps:
                return [StepKey(*key) for key in msgspec.json.decode(attempt.failed_steps)]
        return []

    async def _was_cancelling(self, run: RunRow) -> bool:
        """Say whether a held run was being cancelled: nothing but a restart takes that back."""
        verbs = [row.verb for row in await self.ask("audits", run.run_id)]
        return [verb for verb in verbs if verb in (Verb.CANCEL, Verb.RESTART)][-1:] == [Verb.CANCEL]

    async def steer_child(self, run_id: str, verb: str, actor: str = PARENT) -> None:
        """Do the same to a called run as to its parent, or what another asks, where that applies."""
        with contextlib.suppress(errors.StateConflict, errors.NotFound):
            await self.steer(Verb(verb), run_id, actor=actor)

    async def _claim(self, verb: Verb, run: RunRow, answer: str) -> KeyClaim | None:
        """Give the key that a run must hold to run again (RULINGS 14).

        What holds its key for ever or for a time may run again on a person's word; of what is active
        there is one. A run that was held because its key could not be told needs it in any case.

        Raises:
            StateConflict: its key still cannot be told.
        """
        rules = self._worker().routes.of(run.workflow).rules
        is_asked = verb in (Verb.RETRY, Verb.RESTART) or (verb is Verb.ANSWER and answer == "retry")
        is_bypassed = run.key is not None and (
            rules.once == EVER or (rules.once == WINDOW and run.state is not RunState.QUEUED)
        )
        if rules.key is None or not is_asked or is_bypassed or run.state in _HAS_ITS_KEY:
            return None
        event: EventRow | None = await self.ask("event", run.source, run.event_id)
        if event is None:
            raise errors.StoreDamaged(f"Run {run.run_id} has no event.")
        seen = as_seen(event, self.workflows.get(run.workflow))
        reading = Reading(seen, self._worker().settings.namespace)
        try:
            key = run.key or key_at(rules.key, reading)
        except KeyUntold as error:
            raise errors.StateConflict(
                f"Run {run.run_id} of {run.workflow!r} still has {error}.",
                means="It must not run without: another run may do the same work. Nothing was changed.",
                todo="Correct the key= of the workflow, or give the run up: answer('fail').",
            ) from error
        return KeyClaim(run.workflow, key, rules.once, reading.payload_hash, rules.window_ms)

    async def replay(
        self, run_id: str, from_step: str | None, payload: Any, request_id: str | None, actor: str
    ) -> tuple[str, bool]:
        """Make a new run of the same event; give its id, and whether the request made it before.

        Raises:
            NotFound: no such run in this namespace.
            ConfigError: the run has no such step.
        """
        worker = self._worker()
        asked.checked_actor(actor)
        if request_id is not None:
            checked_id(request_id)
        old = await self.run_row(run_id)
        event: EventRow | None = await self.ask("event", old.source, old.event_id)
        if event is None:
            raise errors.StoreDamaged(f"Run {run_id} has no event.")
        copies = [] if from_step is None else await self._kept_before(run_id, from_step)
        now = worker.now_ms()
        replay_input = old.input
        if payload is not None:
            replay_input = json_plain.encode_payload(
                payload, what="The payload of a replay", limit_bytes=worker.settings.value_bytes_max
            )
        rules = worker.routes.of(old.workflow).rules
        deadline_ms = worker.routes.deadline_ms(old.workflow)
        if deadline_ms is None and old.deadline_at is not None:
            deadline_ms = old.deadline_at - old.created_at
        run = NewRun(
            run_id=worker.ids.run_id(),
            workflow=old.workflow,
            created_at=now,
            deadline_at=None if deadline_ms is None else now + deadline_ms,
            replay_id=request_id or worker.ids.hex(12),
            replay_of=run_id,
            input=replay_input,
            is_stale=old.is_stale,
            key=old.key,
            once=rules.once if rules.key is not None and rules.once == ACTIVE else None,
            payload_hash=ids.content_hash(event.payload or ""),
        )
        audit = AuditRow(str(worker.ids.uuid7()), now, run.run_id, Verb.REPLAY.value, actor, run_id)
        replaying = functools.partial(worker.store.replay, Accept(event, [run]), copies, audit)
        try:
            accepted = await worker.read(replaying)
        except errors.ReplyLost:
            accepted = await worker.read(replaying)  # the replay's id finds the run, if it was written
        worker.hint()
        found = accepted.runs[old.workflow]
        return found, found != run.run_id

    async def _kept_before(self, run_id: str, from_step: str) -> list[Any]:
        """Give copies of the records that were saved before *from_step*'s."""
        asked.checked_text(from_step, "name of a step")
        rows = await self.ask("steps", run_id)
        first = next((row for row in rows if from_step in (row.name, str(row.key))), None)
        if first is None:
            known = ", ".join(repr(str(row.key)) for row in rows[:20]) or "none"
            raise errors.ConfigError(
                f"Run {run_id} has no step {shown(from_step)}.",
                means="There is nothing to replay from.",
                todo=f"Its saved steps are: {known}.",
            )
        origin = ids.composed(run_id, (await self.run_row(run_id)).generation)
        return [
            msgspec.structs.replace(row, origin=origin)
            for row in rows
            if row.seq < first.seq and row.state is StepState.DONE
        ]


def forget(store: Store, name: str, in_code: Container[str]) -> None:
    """Take a workflow's registration out of a store, so that events start no more runs of it.

    Args:
        store: open.
        name: of the workflow.
        in_code: those that the app's code has.

    Raises:
        ConfigError: the code has it.
        NotFound: the store does not have it.
    """
    if checked_name(name, "workflow") in in_code:
        raise errors.ConfigError(
            f"The workflow {name!r} is in the code of this app.",
            means="The next process that starts would register it again.",
            todo="Take it out of the code first, or only its on=, if nothing is to start it.",
        )
    if not store.forget_workflow(name):
        known = ", ".join(repr(row.name) for row in store.workflows()) or "none"
        raise errors.NotFound(
            f"The store has no workflow {name!r} in this namespace.",
            means="Nothing was changed; events start no run of it.",
            todo=f"It has: {known}.",
        )
