"""The pages that do something: first the plan and a form, then, once, the deed.

Each form holds a request id that was drawn with it, so that a double click, a reload and a lost
reply do it once. What an action would do is asked of the console before anything is done.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from onceward.console.port import Action, Console
from onceward.console.views import RunDetail, StepView
from onceward.core.errors import ConfigError, StateConflict
from onceward.core.states import Effect, Verb
from onceward.web.dashboard import curl, filters
from onceward.web.dashboard.forms import Form, actor_of, json_of, posted, request_id_of
from onceward.web.dashboard.pages import path_id, verb_of
from onceward.web.dashboard.questions import asked_of
from onceward.web.dashboard.render import Renderer, moved

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

MEANS = {
    Verb.RETRY: "Begins the next attempt of the same generation. Saved results are kept; the failure that ended the last attempt is opened again.",
    Verb.RESTART: "Begins a new generation. What is not kept runs again, with new idempotency keys: what was charged is charged again.",
    Verb.REPLAY: "Makes a new run of the same event, beside this one, which does not change. What is not kept runs again there, with new idempotency keys: what was charged is charged again.",
    Verb.CANCEL: "Ends the run from outside. Its clean-up steps still run.",
    Verb.ANSWER: "Lets the held run go on, or gives it up.",
    Verb.DISMISS: "Takes the run off the list of open problems. Nothing else changes.",
}
DANGEROUS = frozenset({Verb.RESTART, Verb.REPLAY, Verb.CANCEL})
PLANNED = frozenset({Verb.RETRY, Verb.RESTART, Verb.REPLAY, Verb.ANSWER})
CHOOSING = frozenset({Verb.RESTART, Verb.REPLAY})


@dataclass(frozen=True)
class Kept:
    """What is kept of what is saved: what was saved before *from_step*, or all but *drop*."""

    from_step: str | None
    drop: list[str]


@dataclass(frozen=True)
class ShownPlan:
    """What an action would do, or why nobody can say."""

    value: Any = None
    token: str = ""
    missing: str = ""


class Actions:
    """Every page that acts on one run, and redelivery.

    Args:
        console: acts.
        renderer: makes pages.
    """

    def __init__(self, console: Console, renderer: Renderer) -> None:
        self._console = console
        self._renderer = renderer

    async def ask(self, request: Request) -> Response:
        """Show what an action would do, with the form that does it."""
        verb = verb_of(request)
        given = filters.given(request.query_params, ("step", "from_step", "drop"))
        drop = [label for label in request.query_params.getlist("drop") if label]
        detail = await self._console.run(path_id(request, "run_id"))
        view = next((view for view in detail.verbs if view.verb == verb), None)
        if view is None or not view.is_allowed:
            raise StateConflict(
                f"{verb} does not apply: {view.reply if view else 'the run does not offer it'}.",
                todo=view.hint if view else "",
            )
        choice = Kept(given.get("from_step"), drop)
        asking = [one for one in detail.steps if one.question is not None]
        step = given.get("step")
        question = next((one for one in asking if one.label == step), asking[0] if asking else None)
        actor = actor_of(self._renderer.who(request))
        plans = await self._plans(detail.run.run_id, verb, choice, actor, question)
        return self._form(request, detail, verb, question, choice, plans)

    async def act(self, request: Request) -> Response:
        """Do it, and show the run."""
        verb = verb_of(request)
        run_id = path_id(request, "run_id")
        form, actor = await posted(request, self._renderer.who)
        reply = await self._console.act(run_id, await self._with_payload(run_id, action(verb, form, actor)))
        effect = reply.effect if reply.effect in set(Effect) else Effect.NOTHING
        return moved(request, f"runs/{reply.run_id}?did={verb}&effect={effect.replace(' ', '+')}")

    async def _with_payload(self, run_id: str, asked: Action) -> Action:
        """Give a replay with the token of its plan with the payload that was typed below the plan that was shown."""
        if asked.plan is None or asked.payload is msgspec.UNSET:
            return asked
        shown = await self._plan(run_id, msgspec.structs.replace(asked, payload=msgspec.UNSET, plan=None))
        if shown.token != asked.plan:
            return asked  # refused, with what has changed since
        typed = await self._plan(run_id, msgspec.structs.replace(asked, plan=None))
        return msgspec.structs.replace(asked, plan=typed.token)

    async def redeliver(self, request: Request) -> Response:
        """Feed a stored request in again, and say what became of it."""
        delivery_id = path_id(request, "delivery_id")
        _, actor = await posted(request, self._renderer.who)
        became = await self._console.redeliver(delivery_id, actor=actor)
        view = await self._console.delivery(delivery_id)
        return self._renderer.page(
            request,
            "delivery.html",
            {"view": view, "curl": curl.delivery(view, self._renderer.address()), "became": dict(became)},
        )

    def _form(
        self,
        request: Request,
        detail: RunDetail,
        verb: Verb,
        question: StepView | None,
        choice: Kept,
        plans: list[tuple[str, ShownPlan]],
    ) -> Response:
        plan = plans[0][1] if plans else None
        is_planned = plan is not None and not plan.missing
        return self._renderer.page(
            request,
            "act.html",
            {
                "detail": detail,
                "run": detail.run,
                "verb": verb,
                "means": MEANS[verb],
                "is_dangerous": verb in DANGEROUS,
                "plan": plan,
                "plans": plans,
                "choice": choice,
                "can_begin_at": verb is Verb.REPLAY or (verb is Verb.RESTART and is_planned),
                "can_drop": verb in CHOOSING and is_planned,
                "question": question,
                "asked": asked_of(question),
                "curl": self._curl(detail.run.run_id, verb, choice),
            },
        )

    def _curl(self, run_id: str, verb: Verb, choice: Kept) -> str | None:
        if self._renderer.api is None:
            return None
        body: dict[str, Any] = {"from_step": choice.from_step, "drop": choice.drop}
        return curl.verb(run_id, verb, {name: value for name, value in body.items() if value})

    async def _plans(
        self, run_id: str, verb: Verb, choice: Kept, actor: str, question: StepView | None
    ) -> list[tuple[str, ShownPlan]]:
        """Give the plan of an action; of an answer that of each word that can be said."""
        if verb not in PLANNED:
            return []
        asked = Action(verb=verb, actor=actor, from_step=choice.from_step, drop=choice.drop or None)
        if verb is not Verb.ANSWER:
            return [("", await self._plan(run_id, asked))]
        step = None if question is None else question.label
        return [
            (word, await self._plan(run_id, msgspec.structs.replace(asked, answer=word, step=step)))
            for word, _ in asked_of(question).answers
        ]

    async def _plan(self, run_id: str, asked: Action) -> ShownPlan:
        try:
            value = msgspec.to_builtins(await self._console.plan(run_id, asked))
        except (ConfigError, StateConflict) as error:
            return ShownPlan(missing=error.what)
        is_wanted = isinstance(value, dict) and value.get("needs_consent", True)
        return ShownPlan(value, str(value.get("token") or "") if is_wanted else "")


def action(verb: Verb, form: Form, actor: str) -> Action:
    """Give the action that a form asks for.

    Raises:
        ConfigError: it has no request id, or a value in it is not JSON.
    """
    return Action(
        verb=verb,
        actor=actor,
        request_id=request_id_of(form),
        answer=form.get("answer") or None if verb is Verb.ANSWER else None,
        result=json_of(form.get("result"), "result"),
        step=form.get("step") or None,
        from_step=form.get("from_step") or None,
        payload=json_of(form.get("payload"), "payload"),
        drop=[label for label in form.all("drop") if label] or None,
        plan=form.get("plan") or None,
    )
