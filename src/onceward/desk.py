"""What handles ask of the open app: rows, ends, and the verbs that steer a run.

A verb reads the run, lets the table of states and verbs decide, and commits under the guard that
nothing changed meanwhile; if something did, it reads again. So the same verb twice, or two verbs
at once from two processes, end as if one had come after the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import msgspec

from onceward.authoring.current import frame_var
from onceward.authoring.step import Step
from onceward.authoring.workflow import Workflow
from onceward.core import asked, errors, ids, json_plain, unknown
from onceward.core import steer as steering
from onceward.core.asked import LIMIT_MAX
from onceward.core.choice import NOTHING_KEPT
from onceward.core.codec import Codec
from onceward.core.duration import show
from onceward.core.model import AuditRow, EventRow, KeyClaim, Millis, NewRun, RunRow, Skip, StepKey, StepRow
from onceward.core.plan import detail_of, replayed_of
from onceward.core.ports import Accept, RunFilter, Store
from onceward.core.retention import refuse_pruned
from onceward.core.rules import ACTIVE, EVER, WINDOW
from onceward.core.shown import shown
from onceward.core.states import RunState, Verb
from onceward.core.steer import Reply
from onceward.core.texts import checked_name
from onceward.core.unknown import Question
from onceward.planning import Anew, Planner, check_consent, input_of
from onceward.runtime.functions import facts_of
from onceward.runtime.journal import CONFIRMED_S
from onceward.runtime.judging import KeyUntold, Reading, as_seen, key_at
from onceward.runtime.unknown import known_results, refuse_misfit
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
        steps: its decorated steps, by name; None for a name that several have.
        worker: gives the worker of the open app, or raises.
    """

    def __init__(
        self,
        workflows: Mapping[str, Workflow[..., Any]],
        steps: Mapping[str, Step[..., Any] | None],
        worker: Callable[[], Worker],
    ) -> None:
        self.workflows = workflows
        self._steps = steps
        self._worker = worker
        self.planner = Planner(self)

    def now_ms(self) -> Millis:
        """Give the store's time."""
        return self._worker().now_ms()

    @property
    def namespace(self) -> str:
        """Give the namespace that the app serves."""
        return self._worker().settings.namespace

    @property
    def value_bytes_max(self) -> int:
        """Give how large a payload may be."""
        return self._worker().settings.value_bytes_max

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

    async def started(self, run_id: str, workflow: str, source: str, event_id: str) -> tuple[str, bool]:
        """Give the run of a start that a step's body asked for, and whether it is the one that was meant.

        Args:
            run_id: the id that its run was to have.
            workflow: of which workflow.
            source: of the event that starts it.
            event_id: of the event that starts it.

        Raises:
            NotFound: the event is not stored: the step is not saved.
            KeyTaken: another run holds its key, and the workflow rejects it.
        """
        if await self.ask("run", run_id) is not None:
            return run_id, True
        where = RunFilter(workflow=workflow, source=source, event_id=event_id, limit=LIMIT_MAX)
        for row in await self.ask("runs", where):
            if not row.replay_id:
                return row.run_id, False  # its id= was used before
        for skipped in await self.ask("skipped", source, event_id):
            if skipped.workflow != workflow:
                continue
            holder_run_id = skipped.holder_run_id or ""
            if skipped.reason is not Skip.RETURNED:
                raise errors.KeyTaken(skipped.workflow, skipped.key or "", holder_run_id)
            return holder_run_id, False
        raise errors.NotFound(
            f"Run {run_id} does not exist: the step whose body starts it is not saved.",
            means="What a body starts begins with the checkpoint of its step, or not at all.",
            todo="Ask after the step; to wait for a run in a workflow, write ctx.step.call.",
        )

    async def ended(self, run_id: str, timeout_ms: Millis | None) -> RunRow:
        """Give the run when it has ended.

        Raises:
            NotFound: no such run in this namespace.
            TimeoutError: it did not end in time; it goes on.
        """
        refuse_in_transaction("the wait for a run's end")
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
            await worker.routing.learn()

    # --- steering ----------------------------------------------------------------------------

    async def answer(
        self,
        run_id: str,
        word: str,
        *,
        step: str | None,
        result: Any,
        actor: str,
        request_id: str | None = None,
    ) -> Reply:
        """Say what a held run waits for.

        Raises:
            StateConflict: the run is not held, or for another reason than the answer is about.
            ConfigError: there is no such answer, or it does not say about which step, or what the step gave.
            NotStorable: the result is none of the step.
        """
        asked.checked_text(word, "answer")
        if step is not None:
            asked.checked_text(step, "name of a step")
        is_known = word in (*unknown.TO_QUESTION, *unknown.TO_OTHER_HOLDS)
        if result is not asked.UNSET and is_known and word != unknown.HAPPENED:
            raise errors.ConfigError(
                f"The answer {shown(word)} has a result.",
                means="Only a step that took effect has one. Nothing was changed.",
                todo="Answer 'happened', or leave result= out.",
            )
        return await self.steer(
            Verb.ANSWER, run_id, actor=actor, answer=word, step=step, result=result, request_id=request_id
        )

    async def questions(self, run_id: str) -> list[Question]:
        """Give what a person is asked about a held run.

        Raises:
            NotFound: no such run in this namespace.
        """
        run = await self.run_row(run_id)
        if run.state is not RunState.HELD:
            return []
        return list(unknown.open_questions(run, await self.ask("steps", run_id)).values())

    def _result_of(self, run: RunRow, about: StepRow) -> Codec | None:
        """Give how the result of a step is stored; None where this process has not got its code."""
        found = known_results.get(self._worker(), {}).get((run.workflow, about.name))
        step = self._steps.get(about.name.removesuffix(unknown.OUTCOME if about.kind == "undo" else ""))
        if found is None and step is not None and unknown.has_result(about):
            found = facts_of(step.function).result
        return found

    def _result_text(self, run: RunRow, about: StepRow, result: Any) -> str:
        """Give the JSON of a result that was answered, judged by the step's own annotation if it is known.

        Where it is not known, the run judges it: it is held again if the result is none of the step.

        Raises:
            ConfigError: the step may give something, and it is not said what.
            NotStorable: it is none of the step.
        """
        step = str(about.key)
        if result is asked.UNSET:
            if unknown.has_result(about):
                raise errors.ConfigError(
                    f"The answer does not say what step {step.removesuffix(unknown.OUTCOME)!r} gave.",
                    means="The run would go on with null in its place. Nothing was changed.",
                    todo="Give its result as well, as JSON; null, or None in Python, if the step gives nothing.",
                )
            result = None
        what = f"The result of step {step!r}"
        limit_bytes = self.value_bytes_max
        found = self._result_of(run, about) if unknown.has_result(about) else None
        if found is None:
            return json_plain.encode_plain(result, what=what, limit_bytes=limit_bytes)
        try:
            plain = json_plain.encode_plain(result, what=what, limit_bytes=limit_bytes)
        except errors.ValueTooLarge:
            raise
        except errors.NotStorable:  # no JSON, but what the step itself would return
            return found.encode(result, what=what, limit_bytes=limit_bytes)
        refuse_misfit(found, result, step, run.run_id)
        return found.encode(found.decode(plain, what=what), what=what, limit_bytes=limit_bytes)

    async def steer(
        self,
        verb: Verb,
        run_id: str,
        *,
        actor: str,
        answer: str = "",
        step: str | None = None,
        result: Any = None,
        restart: Anew | None = None,
        request_id: str | None = None,
        why: str | None = None,
    ) -> Reply:
        """Read, decide, commit if nothing changed meanwhile; again if it did.

        Args:
            verb: what is asked.
            run_id: of which run.
            actor: who asks.
            answer: of an answer.
            step: which step an answer is about.
            result: of a step that happened; `asked.UNSET` where nobody says it.
            restart: what is to be kept, and who agreed to what happens again. Without it everything runs
                again and nobody is asked.
            request_id: of a request that is done once: the audit has one entry of each, and who asks
                again is told that it is done.
            why: for the audit, of what nobody asked for by hand.

        Raises:
            StateConflict: the verb does not apply, or the request was another one.
        """
        refuse_in_transaction(f"the {verb.value} of a run")
        worker = self._worker()
        asked.checked_text(answer, "answer")
        asked.checked_actor(actor)
        first: RunRow | None = None
        wanted, known = None, 0
        while True:
            run = await self.run_row(run_id)
            if request_id is not None and await self._is_done(request_id, verb, run_id):
                return steering.done_before(run)
            first = first or run
            if verb in (Verb.RETRY, Verb.RESTART):
                refuse_pruned(run, verb.value)
            reply = steering.joined(verb, first, run) if restart is None else None
            if restart is not None:
                reply = await self.planner.joined(restart, first, run)
            if reply is not None:
                # By this very request, if it came twice at once.
                if request_id is not None and await self._is_done(request_id, verb, run_id):
                    return steering.done_before(run)
                if not reply.is_done_before:
                    # Asked again, it would find nobody to join, and do it a second time.
                    told = reply.text if restart is None else restart.detail
                    asked_by = request_id if restart is None else restart.consent.request_id
                    if asked_by is not None:
                        await self._note(verb, run_id, actor, told, request_id)
                return reply
            agreed = ([], None, None) if restart is None else await self.planner.agreed(restart, run)
            if agreed is None:
                continue
            copies, seq, detail = agreed
            steps = await self.ask("steps", run_id) if verb in (Verb.RETRY, Verb.ANSWER) else []
            audits = await self.ask("audits", run_id) if verb is Verb.ANSWER else []
            about = text = None
            is_judged = True
            if verb is Verb.ANSWER:
                if wanted is not None and steering.is_answered(audits[known:], wanted):
                    return steering.join(run, f"answered: {answer}")
                known = len(audits)
            if verb is Verb.ANSWER and run.state is RunState.HELD:
                about = unknown.asked_about(run, steps, answer, step)
                if about is not None and answer == unknown.HAPPENED:
                    text = self._result_text(run, about, result)
                    is_judged = not unknown.has_result(about) or self._result_of(run, about) is not None
            decision = steering.decide(
                verb,
                run,
                now=worker.now_ms(),
                actor=actor,
                audit_id=str(worker.ids.uuid7()),
                steps=steps,
                failed=await self.failed_steps(run) if verb is Verb.RETRY else (),
                answer=answer,
                detail=detail if why is None else why,
                about=about,
                result=text,
                deadline_ms=worker.routes.deadline_ms(run.workflow),
                was_cancelling=_was_cancelling(audits),
                claim=await self.claim(verb, run, answer),
                copies=copies,
                expected_sum=seq,
            )
            if not is_judged:
                said = (
                    f"{decision.reply.text}; the type of its result is not known here, so the run compares it"
                )
                decision = dataclasses.replace(decision, reply=dataclasses.replace(decision.reply, text=said))
            if decision.steer is None:
                if request_id is not None:
                    await self._note(verb, run_id, actor, decision.reply.text, request_id)
                return decision.reply
            if request_id is not None:
                decision.steer.audit = msgspec.structs.replace(decision.steer.audit, request_id=request_id)
            wanted = None if about is None else decision.steer.audit.detail
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

    async def _note(
        self, verb: Verb, run_id: str, actor: str, detail: str | None, request_id: str | None
    ) -> None:
        """Keep in the audit that a request was answered which changed nothing, so that it stays so."""
        worker = self._worker()
        audit_id = str(worker.ids.uuid7())
        row = AuditRow(audit_id, worker.now_ms(), run_id, verb.value, actor, detail, request_id)
        await worker.read(worker.store.add_audit, row)

    async def _is_done(self, request_id: str, verb: Verb, run_id: str) -> bool:
        """Say whether a request has its entry in the audit.

        Raises:
            StateConflict: the entry is of another action.
        """
        entry: AuditRow | None = await self.ask("audit_of_request", request_id)
        if entry is not None and (entry.verb, entry.run_id) != (verb.value, run_id):
            raise asked.other_request(request_id, entry)
        return entry is not None

    async def failed_steps(self, run: RunRow) -> list[StepKey]:
        """Give the steps whose failures ended the run's last attempt; those of earlier ones stay."""
        for attempt in await self.ask("attempts", run.run_id):
            is_last = (attempt.generation, attempt.attempt) == (run.generation, run.attempt)
            if is_last and attempt.failed_steps:
                return [StepKey(*key) for key in msgspec.json.decode(attempt.failed_steps)]
        return []

    async def was_cancelling(self, run: RunRow) -> bool:
        """Say whether a held run was being cancelled: nothing but a restart takes that back."""
        return _was_cancelling(await self.ask("audits", run.run_id))

    async def steer_child(self, run_id: str, verb: str, actor: str = PARENT, why: str | None = None) -> None:
        """Do the same to a called run as to its parent, or what another asks, where that applies."""
        with contextlib.suppress(errors.StateConflict, errors.NotFound):
            await self.steer(Verb(verb), run_id, actor=actor, why=why)

    async def claim(self, verb: Verb, run: RunRow, answer: str) -> KeyClaim | None:
        """Give the key that a run must hold to run again (RULINGS 14).

        What holds its key for ever or for a time may run again on a person's word; of what is active
        there is one. A run that was held because its key could not be told needs it in any case.

        Raises:
            StateConflict: its key still cannot be told.
        """
        rules = self._worker().routes.of(run.workflow).rules
        is_asked = verb in (Verb.RETRY, Verb.RESTART) or (verb is Verb.ANSWER and answer != unknown.FAIL)
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
        self,
        run_id: str,
        wanted: Anew,
        payload: Any,
        actor: str,
    ) -> tuple[str, bool]:
        """Make a new run of the same event; give its id, and whether the request made it before.

        Raises:
            NotFound: no such run in this namespace.
            ConfigError: the run has no such step.
            StateConflict: the plan is no longer that of the replay, or the request was another.
        """
        refuse_in_transaction("the replay of a run")
        worker = self._worker()
        asked.checked_actor(actor)
        choice, consent = wanted.choice, wanted.consent
        request_id, is_done = consent.request_id, False
        if request_id is not None:
            entry: AuditRow | None = await self.ask("audit_of_request", request_id)
            is_ours = entry is None or (entry.verb == Verb.REPLAY and replayed_of(entry.detail) == run_id)
            if entry is not None and not is_ours:
                raise asked.other_request(request_id, entry)
            is_done = entry is not None
        old = await self.run_row(run_id)
        event: EventRow | None = await self.ask("event", old.source, old.event_id)
        if event is None:
            raise errors.StoreDamaged(f"Run {run_id} has no event.")
        given = input_of(payload, worker.settings.value_bytes_max)
        if given is None or choice != NOTHING_KEPT:
            refuse_pruned(old, "replay")
        copies: list[StepRow] = []
        if consent.plan is not None or not consent.is_given or not choice.is_all:
            rows: list[StepRow] = await self.ask("steps", run_id)
            plan, copies = await self.planner.planned(Verb.REPLAY, old, rows, choice, given)
            if not is_done:  # who asks again gets the run that was made, whatever became of the old one since
                check_consent(consent, plan)
        now = worker.now_ms()
        replay_input = old.input if given is None else given
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
        detail = detail_of(choice, wanted.token, request_id, replay_of=run_id)
        audit_id = str(worker.ids.uuid7())
        audit = AuditRow(audit_id, now, run.run_id, Verb.REPLAY.value, actor, detail, request_id)
        replaying = functools.partial(worker.store.replay, Accept(event, [run]), copies, audit)
        try:
            accepted = await worker.read(replaying)
        except errors.ReplyLost:
            accepted = await worker.read(replaying)  # the replay's id finds the run, if it was written
        worker.hint()
        found = accepted.runs[old.workflow]
        return found, found != run.run_id


def _was_cancelling(audits: Sequence[AuditRow]) -> bool:
    """Say whether a held run was being cancelled: nothing but a restart takes that back."""
    verbs = [row.verb for row in audits]
    return [verb for verb in verbs if verb in (Verb.CANCEL, Verb.RESTART)][-1:] == [Verb.CANCEL]


def refuse_in_transaction(what: str) -> None:
    """Refuse what would wait for the worker while a transaction keeps it from writing (RULINGS 9).

    Raises:
        TransactionMisuse: called in the body of a transaction.
    """
    frame = frame_var.get()
    if frame is not None and frame.is_transaction:
        raise errors.TransactionMisuse(
            f"The body of transaction {str(frame.key)!r} asks for {what}.",
            means="The worker may not be able to write before the transaction is over, and each would wait for the other.",
            todo="Do it in the workflow, after the transaction.",
        )


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
