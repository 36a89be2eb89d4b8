"""What a console does: one thing to one run, once for each request, and one thing to many."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from onceward.console import asking, audit, bulks
from onceward.console.bulks import Telling
from onceward.console.port import ACKNOWLEDGED, BULK_MAX, PAGE_MAX, Action, BulkQuery, RunQuery
from onceward.console.views import ActionReply, AgainView, BulkReply, RunSummary
from onceward.core import asked, ids
from onceward.core.choice import Choice, choice_of
from onceward.core.effects import StepEffect
from onceward.core.errors import (
    ConfigError,
    NotFound,
    OncewardError,
    PlanNeeded,
    StateConflict,
    StoreError,
)
from onceward.core.plan import Fate, Plan
from onceward.core.shown import shown
from onceward.core.states import Effect, RunState, Verb
from onceward.core.steer import Reply, cell_of
from onceward.core.texts import checked_id
from onceward.planning import Anew, Answered, anew_of, checked_verb

if TYPE_CHECKING:
    from onceward.app import App
    from onceward.console.local import LocalConsole

RESUME = "resume"
"""Another word for an answer with ``retry``."""

SAMPLE_MAX = 20
AGAIN_MAX = 20
REASONS_MAX = 5
AT_ONCE = 8
"""Runs that a bulk action acts on at once: an action on a run that another process has waits for it."""

LOOK_S = 0.5
"""Between two looks at how far another process has come."""

ANEW = (Verb.RESTART, Verb.REPLAY)
"""Verbs that run again what was done."""

RUNS_STEPS = (Verb.RETRY, *ANEW)
"""Verbs that run steps again, of which a dry run says which."""

AGAIN = "it would do something outside again, and its plan was not acknowledged"


class _UnderWay:
    """A bulk action that this process is at, and who follows it."""

    task: asyncio.Task[BulkReply]

    def __init__(self, asked_for: str) -> None:
        self.asked = asked_for
        self._followers: list[Callable[[BulkReply], object]] = []
        self._latest: BulkReply | None = None

    def tell(self, reply: BulkReply) -> None:
        self._latest = reply
        for follower in self._followers:
            follower(reply)

    def follow(self, follower: Callable[[BulkReply], object]) -> None:
        """Tell somebody from now on, and at once how far it is."""
        self._followers.append(follower)
        if self._latest is not None:
            follower(self._latest)


class Acting:
    """The acting half of `LocalConsole`.

    Args:
        app: open.
        console: finds the runs of a bulk action.
    """

    def __init__(self, app: App, console: LocalConsole) -> None:
        self._app = app
        self._console = console
        self._under_way: dict[str, _UnderWay] = {}

    # --- one -------------------------------------------------------------------------------------

    async def act(self, run_id: str, action: Action) -> ActionReply:
        """Do one thing to one run; with a request id, once."""
        verb, answer = checked(action)
        asked.checked_text(run_id, "run id")
        asked.checked_actor(action.actor)
        request_id = None if action.request_id is None else checked_id(action.request_id)
        if verb is Verb.REPLAY:
            return await self._replay(run_id, action, request_id)
        if verb is Verb.ANSWER:
            result = asked.UNSET if action.result is msgspec.UNSET else action.result
            answered = await self._app.desk.answer(
                run_id, answer, step=action.step, result=result, actor=action.actor, request_id=request_id
            )
            return _told(run_id, action, answered)
        restart = _anew(action, request_id) if verb is Verb.RESTART else None
        reply = await self._app.desk.steer(
            verb, run_id, actor=action.actor, restart=restart, request_id=request_id
        )
        return _told(run_id, action, reply)

    async def plan(self, run_id: str, action: Action) -> Plan:
        """Give what an action would do, and do nothing."""
        checked(action)
        payload = None if action.payload is msgspec.UNSET else action.payload
        run_id = asked.checked_text(run_id, "run id")
        answered = Answered(action.answer, action.step)
        return await self._app.desk.planner.plan(
            run_id, checked_verb(action.verb), _choice(action), payload, answered
        )

    async def _replay(self, run_id: str, action: Action, request_id: str | None) -> ActionReply:
        payload = None if action.payload is msgspec.UNSET else action.payload
        wanted = _anew(action, request_id)
        new_id, is_duplicate = await self._app.desk.replay(run_id, wanted, payload, action.actor)
        return ActionReply(
            run_id=new_id,
            verb=action.verb,
            effect=(Effect.JOIN if is_duplicate else Effect.NEW_RUN).value,
            text="replayed before, by the same request" if is_duplicate else "replayed as a new run",
            is_duplicate=is_duplicate,
        )

    async def redeliver(self, delivery_id: str, actor: str) -> Mapping[str, Any]:
        """Have a stored delivery read again, and note who asked."""
        asked.checked_actor(actor)
        accepted = await self._app.redeliver(asked.checked_text(delivery_id, "delivery id"))
        await audit.note(self._app, "redeliver", actor, delivery_id)
        return {"delivery_id": delivery_id, "events": msgspec.to_builtins(accepted.events)}

    # --- many ------------------------------------------------------------------------------------

    async def bulk(
        self,
        query: RunQuery,
        action: Action,
        *,
        dry_run: bool,
        progress: Callable[[BulkReply], object] | None = None,
        run_ids: Sequence[str] | None = None,
    ) -> BulkReply:
        """Do one thing to every run that a query finds, or to the runs that are named."""
        checked(action)
        asked.checked_actor(action.actor)
        if run_ids is not None:
            run_ids = _checked_run_ids(run_ids)
            if _without(query):
                raise ConfigError(
                    "Runs were named, and others to be left out.",
                    means="Nothing was changed.",
                    todo="Name only those that are meant.",
                )
        elif not is_narrowed(query):
            raise ConfigError(
                f"{action.verb} was asked of every run of the namespace.",
                means="A bulk action needs a filter. Nothing was changed.",
                todo="Filter by workflow, state, source, type, subject, error, problems or time.",
            )
        else:
            # Said at once, and not as the end of something that had begun.
            asked.checked_texts(tag=query.tag)
            await self._check_left_out(_without(query))
            asking.run_look(msgspec.structs.replace(query, after=None, limit=1))
        bulk_id = self._app.worker.ids.hex(12) if action.request_id is None else checked_id(action.request_id)
        if dry_run:
            return await self._dry(bulk_id, query, action, run_ids)
        telling = bulks.begun(self._app, bulk_id, query, action, run_ids)
        way = self._under_way.get(bulk_id)
        if way is None:
            way = self._under_way[bulk_id] = _UnderWay(telling.row.asked)
            way.task = asyncio.create_task(self._once(telling, query, action, run_ids, way.tell))
            way.task.add_done_callback(lambda _: self._under_way.pop(bulk_id, None))
        if way.asked != telling.row.asked:
            raise bulks.clash(bulk_id)
        if progress is not None:
            way.follow(progress)
        # Who asked may go away; what was begun goes on.
        return await asyncio.shield(way.task)

    async def _once(
        self,
        telling: Telling,
        query: RunQuery,
        action: Action,
        run_ids: Sequence[str] | None,
        progress: Callable[[BulkReply], object],
    ) -> BulkReply:
        """Do it, or follow whoever is at it and go on where they are not heard of any more."""
        bulk_id = telling.reply.bulk_id
        await telling.check_same()
        ended = await bulks.ended_before(self._app, bulk_id, action.verb)
        if ended is not None:
            return ended
        while not await telling.take():
            await telling.check_same()  # two that differ may have come at the same moment
            reply = await bulks.how_far(self._app, bulk_id)
            progress(reply)
            if reply.is_over and not reply.is_interrupted:
                return reply
            await asyncio.sleep(LOOK_S)
        ended = await bulks.ended_before(self._app, bulk_id, action.verb)
        if ended is not None:  # meanwhile, by another process
            await telling.tell(ended)
            return ended
        progress(telling.reply)
        going_on = asyncio.create_task(telling.go_on())
        try:
            chosen = await telling.chosen()
            if chosen is None:
                chosen = [run.run_id for run in await self._found(query, run_ids)]
                if not await telling.choose(chosen):
                    raise StateConflict(
                        f"The bulk action {shown(bulk_id)} has been taken over by another process.",
                        means="This one was silent for too long; it has touched no run.",
                        todo="Look how far that one has come.",
                    )
            return await self._all(telling, chosen, action, progress)
        except (OncewardError, asyncio.CancelledError) as error:
            why = error.what.removesuffix(".") if isinstance(error, OncewardError) else "the process stopped"
            # Where the store is away, silence says the same a little later.
            with contextlib.suppress(OncewardError):
                await telling.tell(bulks.interrupted(telling.reply, why))
            raise
        finally:
            going_on.cancel()

    async def _found(self, query: RunQuery, run_ids: Sequence[str] | None) -> list[RunSummary]:
        """Give the runs that are named, or that a query finds, oldest first, as many as a bulk action takes."""
        if run_ids is not None:
            return (await self._console.runs_by_id(run_ids))[::-1]
        found: list[RunSummary] = []
        after: str | None = None
        while len(found) < BULK_MAX:
            page = await self._console.runs(msgspec.structs.replace(query, after=after, limit=PAGE_MAX))
            found += page.items
            after = page.next
            if after is None:
                break
        left_out = set(_without(query))
        return [run for run in found[:BULK_MAX][::-1] if run.run_id not in left_out]

    async def _check_left_out(self, run_ids: Sequence[str]) -> None:
        """Refuse a slip of the pen: it would do to a run what somebody wanted to keep from it.

        Raises:
            ConfigError: there is no such run, or too many are named.
        """
        if not run_ids:
            return
        known = {run.run_id for run in await self._console.runs_by_id(_checked_run_ids(run_ids))}
        for run_id in run_ids:
            if run_id not in known:
                raise ConfigError(
                    f"There is no run {shown(run_id)}, which was to be left alone.",
                    means="Nothing was changed.",
                    todo="Name it in full, as the list of runs does.",
                )

    async def _dry(
        self, bulk_id: str, query: RunQuery, action: Action, run_ids: Sequence[str] | None
    ) -> BulkReply:
        verb, _ = checked(action)
        runs = await self._found(query, run_ids)
        refused = 0
        reasons: dict[str, None] = {}
        for run in runs:
            cell = cell_of(verb, RunState(run.state), is_undone=run.is_undone)
            if cell.effect is Effect.REFUSE:
                refused += 1
                reasons[cell.reply] = None
        plans = await self._plans(runs[:SAMPLE_MAX], action, reasons) if verb in RUNS_STEPS else []
        if verb is Verb.RESTART and action.plan is None:
            again = sum(plan.needs_consent for plan in plans)
            if again:
                reasons[f"{again} of the first {len(runs[:SAMPLE_MAX])}: {AGAIN}"] = None
        return BulkReply(
            bulk_id=bulk_id,
            verb=action.verb,
            is_dry_run=True,
            matched=len(runs),
            refused=refused,
            reasons=list(reasons)[:REASONS_MAX],
            sample=runs[:SAMPLE_MAX],
            again=_again(plans),
        )

    async def _plans(self, runs: list[RunSummary], action: Action, reasons: dict[str, None]) -> list[Plan]:
        """Give what would become of each of some runs; note why one cannot be planned for."""
        plans = []
        for run in runs:
            try:
                plans.append(await self.plan(run.run_id, action))
            except StoreError:
                raise
            except (StateConflict, NotFound):
                pass  # refused, which is counted elsewhere, or gone
            except OncewardError as error:  # such as a step that this run does not have
                reasons[_reason(error)] = None
        return plans

    async def _all(
        self,
        telling: Telling,
        run_ids: Sequence[str],
        action: Action,
        progress: Callable[[BulkReply], object],
    ) -> BulkReply:
        bulk_id = telling.reply.bulk_id
        done = refused = 0
        reasons: dict[str, None] = {}

        def reply(*, is_over: bool) -> BulkReply:
            return BulkReply(
                bulk_id=bulk_id,
                verb=action.verb,
                is_dry_run=False,
                matched=len(run_ids),
                done=done,
                refused=refused,
                reasons=list(reasons)[:REASONS_MAX],
                is_over=is_over,
                actor=action.actor,
            )

        async def one_after_the_other(waiting: list[str]) -> None:
            nonlocal done, refused
            while waiting:
                run_id = waiting.pop()
                # Each run's own request, so that whoever goes over them again does none twice.
                request_id = ids.content_hash(ids.composed(bulk_id, run_id))
                try:
                    await self.act(run_id, msgspec.structs.replace(action, request_id=request_id))
                    done += 1
                except StoreError:
                    raise
                except OncewardError as error:  # also a step that this run does not have
                    _ = self._app.worker  # raises where the app was closed meanwhile, which is no run's fault
                    refused += 1
                    reasons[_reason(error)] = None
                told(reply(is_over=False))

        def told(far: BulkReply) -> None:
            telling.reply = far
            progress(far)

        waiting = list(run_ids[::-1])
        told(reply(is_over=False))
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(AT_ONCE):
                    group.create_task(one_after_the_other(waiting))
        except* OncewardError as group_of_errors:
            # The store is away, most likely: what was done stays, and the same id goes on from there.
            raise group_of_errors.exceptions[0] from None
        over = reply(is_over=True)
        detail = msgspec.json.encode(over).decode()
        verb = f"{bulks.BULK_VERB} {action.verb}"
        await audit.note(self._app, verb, action.actor, detail, request_id=bulk_id)
        await telling.tell(over)
        told(over)
        return over


def _told(run_id: str, action: Action, reply: Reply) -> ActionReply:
    return ActionReply(
        run_id=run_id,
        verb=action.verb,
        effect=reply.effect.value,
        text=reply.text,
        state=reply.state.value,
        generation=reply.generation,
        attempt=reply.attempt,
        is_duplicate=reply.is_done_before,
    )


def checked(action: Action) -> tuple[Verb, str]:
    """Give the verb of an action, and the word of its answer.

    Raises:
        ConfigError: there is no such verb, or it is given what it does not take.
    """
    word = asked.checked_text(action.verb, "verb")
    verb = Verb.ANSWER if word == RESUME else next((verb for verb in Verb if verb.value == word), None)
    if verb is None:
        raise ConfigError(
            f"There is no verb {shown(word)}.",
            means="Nothing was changed.",
            todo=f"Verbs are: {', '.join(sorted([*Verb, RESUME]))}.",
        )
    given = {
        "answer": action.answer is not None,
        "result": action.result is not msgspec.UNSET,
        "step": action.step is not None,
        "from_step": action.from_step is not None,
        "payload": action.payload is not msgspec.UNSET,
        "keep": action.keep is not None,
        "drop": action.drop is not None,
        "plan": action.plan is not None,
    }
    taken = _TAKEN.get(word, frozenset())
    unfit = [name for name, is_given in given.items() if is_given and name not in taken]
    if unfit:
        raise ConfigError(
            f"{word} was asked with {', '.join(unfit)}.",
            means="It does not take that. Nothing was changed.",
            todo=f"It takes: {', '.join(sorted(taken)) or 'nothing'}.",
        )
    if word == RESUME:
        return verb, "retry"
    if verb is Verb.ANSWER and action.answer is None:
        raise ConfigError(
            "A held run was to be answered, without a word.",
            means="Nothing was changed.",
            todo="Answer 'retry' or 'fail'; where a step's outcome is asked for, 'happened' or 'did_not_happen'.",
        )
    return verb, action.answer or ""


_TAKEN = {
    Verb.ANSWER.value: frozenset({"answer", "result", "step"}),
    Verb.RESTART.value: frozenset({"from_step", "keep", "drop", "plan"}),
    Verb.REPLAY.value: frozenset({"from_step", "payload", "keep", "drop", "plan"}),
}
"""What each verb takes beside who asks."""


def _choice(action: Action) -> Choice:
    return choice_of(action.from_step, action.keep, action.drop)


def _anew(action: Action, request_id: str | None) -> Anew:
    is_given = action.plan == ACKNOWLEDGED
    token = None if is_given else action.plan
    # Only a restart demands a plan (RULINGS 20); whoever looks at that of a replay may give it.
    is_given = is_given or action.verb == Verb.REPLAY
    return anew_of(_choice(action), token, request_id, is_given=is_given)


def is_narrowed(query: RunQuery) -> bool:
    """Say whether a query leaves anything out."""
    blank = RunQuery()
    names = (name for name in RunQuery.__struct_fields__ if name not in ("after", "limit"))
    return any(getattr(query, name) != getattr(blank, name) for name in names)


def _without(query: RunQuery) -> list[str]:
    """Give the runs that are left out."""
    return query.without if isinstance(query, BulkQuery) else []


def _checked_run_ids(run_ids: Sequence[str]) -> list[str]:
    """Give the ids of runs, each once.

    Raises:
        ConfigError: there are none or too many of them, or one cannot be an id.
    """
    given = list(dict.fromkeys(asked.checked_text(run_id, "run id") for run_id in run_ids))
    if not 0 < len(given) <= PAGE_MAX:
        raise ConfigError(
            f"{len(given)} runs are named.",
            means="Nothing was changed.",
            todo=f"Name 1 to {PAGE_MAX}, or filter.",
        )
    return given


def _reason(error: OncewardError) -> str:
    """Give why a run was refused, without its id, so that many are one reason."""
    if isinstance(error, PlanNeeded):
        return AGAIN
    return error.what.rpartition("was refused: ")[2].removesuffix(".")


def _again(plans: Sequence[Plan]) -> list[AgainView]:
    """Give the steps that would run again, by name, those of most runs first."""
    runs: dict[tuple[str, bool], int] = {}
    for plan in plans:
        found = {
            (step.name, step.happens_again and step.effect is StepEffect.OUTSIDE)
            for step in plan.steps
            if step.fate in (Fate.RUNS_AGAIN, Fate.REOPENED)
        }
        for one in found:
            runs[one] = runs.get(one, 0) + 1
    most = sorted(runs.items(), key=lambda item: (-item[1], item[0]))[:AGAIN_MAX]
    return [AgainView(step=step, runs=count, is_outside=is_outside) for (step, is_outside), count in most]
