"""The pages that make an event, and that end a promise: who would hear of it first, then a form, then once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from onceward.console.port import Completion, Console, Emit
from onceward.console.views import RunDetail, StepView, WorkflowView
from onceward.core.errors import ConfigError, StateConflict
from onceward.core.triggers import OWN, Trigger
from onceward.web.dashboard import curl, filters
from onceward.web.dashboard.forms import Form, json_of, posted, request_id_of
from onceward.web.dashboard.pages import path_id
from onceward.web.dashboard.render import Renderer, moved

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

EMIT_FIELDS = ("type", "source", "subject")


class Making:
    """The pages of what an operator makes by hand.

    Args:
        console: makes it.
        renderer: makes pages.
    """

    def __init__(self, console: Console, renderer: Renderer) -> None:
        self._console = console
        self._renderer = renderer

    # --- events ----------------------------------------------------------------------------------

    async def ask_emit(self, request: Request) -> Response:
        """Ask for a type; with one, say who would hear of it and ask for the rest."""
        given = filters.given(request.query_params, EMIT_FIELDS)
        workflows = await self._console.workflows()
        kind, source = given.get("type"), given.get("source")
        return self._renderer.page(
            request,
            "emit.html",
            {
                "given": given,
                "types": _types(workflows),
                "sources": sorted(
                    {trigger.source for _, trigger in _triggers(workflows) if trigger.source != OWN}
                ),
                "hears": None if kind is None else _hearing(workflows, source or f"emit/{kind}", kind),
                "curl": None if kind is None or self._renderer.api is None else curl.emit(given),
            },
        )

    async def emit(self, request: Request) -> Response:
        """Make the event, and show it with what became of it."""
        form, actor = await posted(request, self._renderer.who)
        made = await self._console.emit(emit_of(form, actor))
        detail = await self._console.event(made.event.source, made.event.id)
        return self._renderer.page(
            request, "event.html", {"detail": detail, "event": detail.event, "made": made}
        )

    # --- promises --------------------------------------------------------------------------------

    async def ask_complete(self, request: Request) -> Response:
        """Ask how a promise is to end."""
        given = filters.given(request.query_params, ("promise",))
        detail = await self._console.run(path_id(request, "run_id"))
        step = _promise(detail, given.get("promise"))
        return self._renderer.page(
            request,
            "complete.html",
            {
                "detail": detail,
                "run": detail.run,
                "step": step,
                "curl": None
                if self._renderer.api is None
                else curl.verb(detail.run.run_id, "complete", {"promise": step.label, "value": None}),
            },
        )

    async def complete(self, request: Request) -> Response:
        """End it, and show the run."""
        run_id = path_id(request, "run_id")
        form, actor = await posted(request, self._renderer.who)
        reply = await self._console.complete(run_id, completion_of(form, actor))
        return moved(request, f"runs/{reply.run_id}?did=complete&effect={reply.effect}")


def emit_of(form: Form, actor: str) -> Emit:
    """Give the event that a form asks for.

    Raises:
        ConfigError: it has no request id, or its payload is not JSON.
    """
    payload = json_of(form.get("payload"), "payload")
    return Emit(
        type=form.get("type"),
        actor=actor,
        payload=None if payload is msgspec.UNSET else payload,
        id=form.get("id") or None,
        subject=form.get("subject") or None,
        source=form.get("source") or None,
        request_id=request_id_of(form),
    )


def completion_of(form: Form, actor: str) -> Completion:
    """Give the end of a promise that a form asks for.

    Raises:
        ConfigError: it has no request id, its value is not JSON, or it fails without a reason.
    """
    value = json_of(form.get("value"), "value")
    is_failing = form.get("how") == "fail"
    if is_failing and not form.get("reason"):
        raise ConfigError(
            "A promise was to fail without a reason.",
            means="Nothing was done.",
            todo="Go back and say why: the run is told.",
        )
    return Completion(
        actor=actor,
        promise=form.get("promise") or None,
        value=None if is_failing or value is msgspec.UNSET else value,
        reason=form.get("reason") if is_failing else None,
        request_id=request_id_of(form),
    )


def _promise(detail: RunDetail, label: str | None) -> StepView:
    """Give the step whose promise is meant, which is open.

    Raises:
        StateConflict: there is none.
    """
    made = [step for step in detail.steps if step.promise is not None and label in (None, step.label)]
    open_ones = [step for step in made if step.promise is not None and step.promise.state == "open"]
    if not open_ones or detail.run.ended_at is not None:
        told = f"it is {made[0].promise.state}" if made and made[0].promise is not None else "there is none"
        raise StateConflict(
            f"No promise of this run can be completed: {told}.",
            means="Nothing was done.",
            todo="Look at what the run waits for.",
        )
    return open_ones[0]


def _triggers(workflows: Sequence[WorkflowView]) -> list[tuple[str, Trigger]]:
    return [
        (view.name, Trigger.from_data(data))
        for view in workflows
        for data in view.triggers
        if isinstance(data, Mapping) and {"source", "type"} <= set(data)
    ]


def _types(workflows: Sequence[WorkflowView]) -> list[str]:
    return sorted({trigger.type for _, trigger in _triggers(workflows) if not trigger.type.endswith("*")})


def _hearing(workflows: Sequence[WorkflowView], source: str, kind: str) -> list[str]:
    """Give the workflows that would start a run of such an event, by their triggers."""
    return sorted({name for name, trigger in _triggers(workflows) if trigger.matches(source, kind)})
