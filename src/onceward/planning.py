"""Plans of verbs, and the restarts that ask for one; the desk's part that looks before it leaps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from onceward.core import errors, ids, json_plain, unknown
from onceward.core import steer as steering
from onceward.core.choice import NOTHING_KEPT, Choice, copies_of, kept_rows
from onceward.core.model import RunRow, StepKey, StepRow
from onceward.core.plan import Fate, Plan, check_acknowledged, detail_of, make_plan, told_of
from onceward.core.shown import listed, shown
from onceward.core.states import TABLE, Effect, RunState, Verb
from onceward.core.steer import Reply
from onceward.core.texts import checked_id

if TYPE_CHECKING:
    from onceward.desk import Desk

PlannedVerb: TypeAlias = Literal["retry", "restart", "replay", "answer", "resume"]
"""What can be planned; ``resume`` is another word for the answer "retry" of a held run."""

_VERBS: dict[str, Verb] = {
    "retry": Verb.RETRY,
    "restart": Verb.RESTART,
    "replay": Verb.REPLAY,
    "answer": Verb.ANSWER,
    "resume": Verb.ANSWER,
}


@dataclass(frozen=True)
class Consent:
    """What comes with a restart or a replay beside the choice.

    Attributes:
        plan: the plan that the caller looked at, or its token.
        is_given: a script that looks at none and means it.
        request_id: makes a restart or a replay itself idempotent.
    """

    plan: Plan | str | None = None
    is_given: bool = False
    request_id: str | None = None


@dataclass(frozen=True)
class Anew:
    """A restart or a replay as it was asked for."""

    choice: Choice = NOTHING_KEPT
    consent: Consent = Consent()

    @property
    def token(self) -> str | None:
        """Give the token of the plan that was looked at."""
        plan = self.consent.plan
        return plan.token if isinstance(plan, Plan) else plan

    @property
    def detail(self) -> str | None:
        """Give what the audit keeps of a restart."""
        return detail_of(self.choice, self.token, self.consent.request_id)


@dataclass(frozen=True)
class Answered:
    """What a held run would be answered.

    Attributes:
        word: as `RunHandle.answer` takes it; None where it is not said.
        step: which step it is about.
    """

    word: str | None = None
    step: str | None = None


NOT_ANSWERED = Answered()


def checked_verb(verb: str) -> Verb:
    """Give the verb of that name, if it can be planned.

    Raises:
        ConfigError: there is none.
    """
    if isinstance(verb, str) and verb in _VERBS:
        return _VERBS[verb]
    raise errors.ConfigError(
        f"There is no plan for {shown(verb)}.",
        means="Nothing was done.",
        todo=f"Plans are of: {', '.join(_VERBS)}.",
    )


def choice_with(plan: Plan | str | None, choice: Choice) -> Choice:
    """Give the choice of a verb: that of the plan, where one is given.

    Raises:
        ConfigError: another was made beside it.
    """
    if not isinstance(plan, Plan) or plan.choice == choice:
        return choice
    if choice == NOTHING_KEPT:
        return plan.choice
    raise errors.ConfigError(
        "The plan says what is kept, and from_step=, keep= or drop= say something else.",
        means="Nothing was changed.",
        todo="Leave them out, or make a plan of what they say.",
    )


def anew_of(choice: Choice, plan: Plan | str | None, request_id: str | None, *, is_given: bool) -> Anew:
    """Give a restart or a replay as it was asked for.

    Raises:
        ConfigError: *request_id* cannot be kept, or *choice* is not that of *plan*.
    """
    if request_id is not None:
        checked_id(request_id)
    return Anew(choice_with(plan, choice), Consent(plan, is_given, request_id))


def check_consent(consent: Consent, plan: Plan) -> None:
    """Refuse a restart or a replay that nobody agreed to as it is now.

    Raises:
        PlanNeeded: it does something outside again, and nobody said that it may.
        StateConflict: the plan that was looked at is no longer that of it.
        ConfigError: it is no plan.
    """
    if consent.plan is not None:
        check_acknowledged(consent.plan, plan)
    elif plan.needs_consent and not consent.is_given:
        raise errors.PlanNeeded(plan)


def input_of(payload: Any, limit_bytes: int) -> str | None:
    """Give what a replay puts in place of its event's payload, as JSON text.

    Raises:
        NotStorable: it is more than JSON's own types.
    """
    if payload is None:
        return None
    return json_plain.encode_payload(payload, what="The payload of a replay", limit_bytes=limit_bytes)


class Planner:
    """Makes plans, for a desk.

    Args:
        desk: what reads the run.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def plan(
        self, run_id: str, verb: Verb, choice: Choice, payload: Any, answer: Answered = NOT_ANSWERED
    ) -> Plan:
        """Give the plan of a verb.

        Raises:
            NotFound: no such run in this namespace.
            StateConflict: the verb, or the answer, does not apply to the run as it stands.
            ConfigError: a choice that the verb does not have, or a step that the run does not have.
        """
        if answer != NOT_ANSWERED and verb is not Verb.ANSWER:
            raise errors.ConfigError(
                f"A {verb} has no answer= and no step=.",
                means="They are for what a held run is answered.",
                todo='Plan an "answer" instead.',
            )
        if verb not in (Verb.RESTART, Verb.REPLAY) and choice != NOTHING_KEPT:
            raise errors.ConfigError(
                f"A {verb} keeps what is saved; from_step=, keep= and drop= are not for it.",
                means="Any other choice makes a new generation or a new run.",
                todo='Plan a "restart" or a "replay" instead.',
            )
        if payload is not None and verb is not Verb.REPLAY:
            raise errors.ConfigError(
                f"A {verb} has no payload=.",
                means="The run keeps the payload of its event.",
                todo='Plan a "replay" instead.',
            )
        run = await self._desk.run_row(run_id)
        text = input_of(payload, self._desk.value_bytes_max)
        rows = await self._desk.ask("steps", run_id)
        plan, _ = await self.planned(verb, run, rows, choice, text, answer)
        return plan

    async def planned(
        self,
        verb: Verb,
        run: RunRow,
        rows: list[StepRow],
        choice: Choice,
        replay_input: str | None = None,
        answer: Answered = NOT_ANSWERED,
    ) -> tuple[Plan, list[StepRow]]:
        """Give the plan of a verb for a run as it was read, and the records that would be copied."""
        desk = self._desk
        kept = kept_rows(run.run_id, rows, choice, is_for_replay=verb is Verb.REPLAY)
        reopened: set[StepKey] = set()
        now = desk.now_ms()
        about: StepRow | None = None
        if answer.word is not None and run.state is RunState.HELD:
            about = unknown.asked_about(run, rows, answer.word, answer.step)
        if verb is Verb.REPLAY:
            cell = TABLE[run.state, verb]
            reply = Reply(run.run_id, cell.effect, cell.reply, run.state, 1, 1)
        else:
            decision = steering.decide(
                verb,
                run,
                now=now,
                actor="",
                audit_id="",
                steps=rows,
                failed=await desk.failed_steps(run) if verb is Verb.RETRY else (),
                answer=answer.word or unknown.RETRY,
                about=about,
                was_cancelling=verb is Verb.ANSWER and await desk.was_cancelling(run),
                copies=kept,
            )
            reply = decision.reply
            reopened = set(decision.steer.reopen) if decision.steer is not None else set()
        warnings = _untold(run, rows, answer, about)
        if verb is Verb.ANSWER and answer.word is None:
            warnings += _refusal_of_resume(run, rows)
        if reply.effect not in (Effect.JOIN, Effect.NOTHING) and (
            held := await self._held_by(verb, run, answer.word or unknown.RETRY)
        ):
            warnings.append(f"Its key is held by run {held}: it is refused as long as that is so.")
        plan = make_plan(
            verb,
            run,
            rows,
            reply=reply,
            reopened=reopened,
            kept={row.key for row in kept},
            children=await desk.ask("children", run.run_id),
            choice=choice,
            now=now,
            namespace=desk.namespace,
            input_hash=None if replay_input is None else ids.content_hash(replay_input),
            warnings=warnings,
            fates={} if about is None or answer.word is None else {about.key: _fate_of(about, answer.word)},
        )
        return plan, copies_of(run, kept)

    async def _held_by(self, verb: Verb, run: RunRow, answer: str) -> str | None:
        """Give the run that holds the key which the run must have to run again."""
        try:
            claim = await self._desk.claim(verb, run, answer)
        except errors.StateConflict:
            return None  # the verb itself says why
        if claim is None:
            return None
        holder: str | None = await self._desk.ask("holder", claim.workflow, claim.key)
        return None if holder == run.run_id else holder

    # --- restarts --------------------------------------------------------------------------------

    async def joined(self, restart: Anew, first: RunRow, run: RunRow) -> Reply | None:
        """Give the reply of a restart that was made already, by this request or by another at once.

        Raises:
            StateConflict: another restart came first, which keeps something else.
        """
        request_id = restart.consent.request_id
        is_overtaken = run.generation > first.generation
        if request_id is None and not is_overtaken:
            return None
        audits = await self._desk.ask("audits", run.run_id)
        restarts = [told_of(row.detail) for row in audits if row.verb == Verb.RESTART]
        of_request = [choice for asked_by, choice in restarts if request_id and asked_by == request_id]
        if of_request:
            if of_request[0] != restart.choice:
                raise errors.StateConflict(
                    f"The request {shown(request_id)} restarted run {run.run_id} before, with another choice.",
                    means="The first stays as it is; nothing was changed.",
                    todo="Use another request_id for another restart.",
                )
        elif not is_overtaken:
            return None
        elif not restarts or restarts[-1][1] != restart.choice:
            raise errors.StateConflict(
                f"Another restart of run {run.run_id} came first, which keeps something else.",
                means="This one would begin on its heels; nothing was changed.",
                todo="Look at what the run does now, and make a new plan.",
            )
        stands = run.state, run.generation, run.attempt
        return Reply(run.run_id, Effect.JOIN, "joined the restart", *stands, is_done_before=bool(of_request))

    async def agreed(self, restart: Anew, run: RunRow) -> tuple[list[StepRow], int | None, str | None] | None:
        """Give the records that a restart keeps, up to which record it knows, and what to note of it.

        None where another restart came between, of which *run* does not know.

        Raises:
            PlanNeeded: it does something outside again, and nobody said that it may.
            StateConflict: the plan that was looked at is no longer that of the restart.
            ConfigError: the run has no such step, or it is no plan.
        """
        consent = restart.consent
        detail = restart.detail
        if consent.is_given and consent.plan is None and restart.choice.is_all:
            # Whatever the run saves meanwhile runs again too, and records that cannot be read are no hindrance.
            return [], None, detail
        rows: list[StepRow] = await self._desk.ask("steps", run.run_id)
        try:
            plan, copies = await self.planned(Verb.RESTART, run, rows, restart.choice)
        except errors.ConfigError:  # a step that is to be kept is not there, perhaps only not any more
            if (await self._desk.run_row(run.run_id)).generation != run.generation:
                return None
            raise
        check_consent(consent, plan)
        return copies, sum(row.seq for row in rows), detail


def _fate_of(about: StepRow, word: str) -> Fate:
    """Give what becomes of the step that an answer is about."""
    is_settled = word == unknown.HAPPENED or about.name.endswith(unknown.OUTCOME)
    return Fate.KEPT if is_settled else Fate.RUNS_AGAIN


def _told_by(about: StepRow, word: str) -> str:
    """Give what an answer does with the step that it is about, in a sentence."""
    step = str(about.key)
    if about.name.endswith(unknown.OUTCOME):
        what = repr(step.removesuffix(unknown.OUTCOME))
        return f"{what} is undone." if word == unknown.HAPPENED else f"There is nothing of {what} to undo."
    if word == unknown.HAPPENED:
        gave = ", with the result of the answer" if unknown.has_result(about) else ""
        return f"{step!r} does not run again: it counts as done{gave}."
    return f"{step!r} runs again: what it did not do yet, outside, it does then."


def _refusal_of_resume(run: RunRow, rows: list[StepRow]) -> list[str]:
    """Give what the plan of a bare answer says where the answer "retry", a resume, would be refused."""
    if run.state is not RunState.HELD or not unknown.open_questions(run, rows):
        return []
    words = ", ".join(repr(word) for word in unknown.TO_QUESTION)
    return [f"A resume of it, the answer 'retry', is refused: it asks, and is answered one of {words}."]


def _untold(run: RunRow, rows: list[StepRow], answer: Answered, about: StepRow | None) -> list[str]:
    """Give what a plan says of the steps of which nobody knows whether they took effect."""
    if about is not None and answer.word is not None:
        left = unknown.still_asked(run, rows, unknown.answered(about, answer.word, None))
        stays = [f"The run stays held until {listed(left)} is answered, too."] if left else []
        return [_told_by(about, answer.word), *stays]
    untold = [asked.step for asked in unknown.open_questions(run, rows).values()]
    if not untold:
        return []
    if answer.word == unknown.FAIL:
        return [f"Nobody knows whether {listed(untold)} took effect; nothing is undone."]
    return [
        f"Nobody knows whether {listed(untold)} took effect: the answer 'happened' keeps it, "
        "anything else runs it again."
    ]
