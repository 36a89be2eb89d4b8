"""The pages that only look: each is one question to the console and one template.

An address with a filter that does not exist is refused by name; what cannot be answered is a page
that says what, what it means and what to do.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from onceward.console.port import Console, DeliveryQuery, EventQuery, RunQuery
from onceward.console.shaping import killed_behind
from onceward.console.views import EventSummary, RunDetail, RunSummary, StepView
from onceward.console.ways import way_of
from onceward.core.errors import ConfigError, NotFound, OncewardError
from onceward.core.glossary import WORDS
from onceward.core.states import TABLE, RunState, Verb
from onceward.web.dashboard import curl, filters, groups
from onceward.web.dashboard.plots import plots
from onceward.web.dashboard.questions import asked_of
from onceward.web.dashboard.render import Renderer, moved
from onceward.web.dashboard.timeline import Part, Window, timeline

Page = Callable[[Request], Awaitable[Response]]

WINDOWS = {"1h": 3_600_000, "6h": 21_600_000, "24h": 86_400_000, "7d": 604_800_000}
PROBLEMS_PAGE = 200
FOUND = 10
PROMISE_ENDED = {"completed": "the promise was completed", "failed": "the promise was failed"}
STATUSES_OF_USERS = {"config": 400}  # over HTTP a question that cannot be answered is the asker's
_ID = re.compile(r"[0-9a-zA-Z_-]{1,100}")


class Pages:
    """Every page that only looks.

    Args:
        console: answers.
        renderer: makes pages.
    """

    def __init__(self, console: Console, renderer: Renderer) -> None:
        self._console = console
        self._renderer = renderer

    async def overview(self, request: Request) -> Response:
        """Show what happens now: counts, rates, problems, workers."""
        given = filters.given(request.query_params, ("window",))
        name = given.get("window", "1h")
        if name not in WINDOWS:
            raise ConfigError(f"There is no window {name!r}.", todo=f"There are {', '.join(WINDOWS)}.")
        view = await self._console.overview(window_ms=WINDOWS[name])
        return self._renderer.page(
            request,
            "overview.html",
            {
                "view": view,
                "plots": plots(view.slots, view.slot_ms),
                "window": name,
                "windows": list(WINDOWS),
                "groups": groups.grouped(view.problems),
                "untold": (await self._console.notices()).untold,
                "states": list(RunState),
            },
        )

    async def runs(self, request: Request) -> Response:
        """List runs by filter."""
        given = filters.given(request.query_params, filters.RUN_FIELDS)
        page = await self._console.runs(filters.run_query(given, self._renderer.now()))
        workflows = await self._console.workflows()
        return self._renderer.page(
            request,
            "runs.html",
            {
                "page": page,
                "filters": given,
                "saved": filters.SAVED,
                "is_saved": any(given == saved for _, saved in filters.SAVED),
                "query_string": filters.query_string,
                "workflows": sorted(workflow.name for workflow in workflows),
                "states": list(RunState),
            },
        )

    async def run(self, request: Request) -> Response:
        """Show one run."""
        params = request.query_params
        given = filters.given(params, ("generation", "from", "to", "at", "did", "effect"))
        run_id = path_id(request, "run_id")
        detail = await self._console.run(run_id, number(given, "generation"))
        begin, end = number(given, "from"), number(given, "to")
        window = Window(begin, end) if begin is not None and end is not None else None
        line = timeline(detail, self._renderer.now(), window)
        part = Part.of(line.steps, number(given, "at"))
        return self._renderer.page(
            request,
            "run.html",
            {
                "detail": detail,
                "run": detail.run,
                "line": line,
                "part": part,
                "last_failed": last_failed(part),
                "way": way_of(detail.run) if detail.run.is_open_problem else None,
                "did": did(given.get("did"), given.get("effect")),
                "killed_behind": killed_behind(detail),
                "questions": [(step, asked_of(step)) for step in detail.steps if step.question is not None],
                "awaited": awaited(detail),
                "curls": curl.verbs(self._renderer.api, detail.run.run_id, detail.verbs),
                "query_string": filters.query_string,
            },
        )

    async def events(self, request: Request) -> Response:
        """List events by filter."""
        given = filters.given(request.query_params, filters.EVENT_FIELDS)
        page = await self._console.events(filters.event_query(given, self._renderer.now()))
        return self._renderer.page(
            request, "events.html", {"page": page, "filters": given, "query_string": filters.query_string}
        )

    async def event(self, request: Request) -> Response:
        """Show one event; its id can be any text, so it stands in the query."""
        given = filters.given(request.query_params, ("source", "id"))
        if "source" not in given or "id" not in given:
            raise ConfigError("An event is named by its source and its id.", todo="Add ?source=…&id=….")
        detail = await self._console.event(given["source"], given["id"])
        return self._renderer.page(
            request, "event.html", {"detail": detail, "event": detail.event, "made": None}
        )

    async def deliveries(self, request: Request) -> Response:
        """List deliveries by filter."""
        given = filters.given(request.query_params, filters.DELIVERY_FIELDS)
        page = await self._console.deliveries(filters.delivery_query(given, self._renderer.now()))
        return self._renderer.page(
            request,
            "deliveries.html",
            {
                "page": page,
                "filters": given,
                "outcomes": filters.OUTCOMES,
                "query_string": filters.query_string,
            },
        )

    async def delivery(self, request: Request) -> Response:
        """Show one delivery with its raw request."""
        filters.given(request.query_params, ())
        view = await self._console.delivery(path_id(request, "delivery_id"))
        return self._renderer.page(
            request,
            "delivery.html",
            {"view": view, "curl": curl.delivery(view, self._renderer.address()), "became": None},
        )

    async def dead(self, request: Request) -> Response:
        """Show what waits for a person, by kind, with the way out."""
        given = filters.given(request.query_params, ("after",))
        page = await self._console.runs(
            RunQuery(problems=True, limit=PROBLEMS_PAGE, after=given.get("after"))
        )
        unparsed = await self._console.deliveries(DeliveryQuery(outcome="unparsed", limit=filters.PAGE))
        return self._renderer.page(
            request,
            "dead.html",
            {
                "groups": groups.grouped(page.items),
                "page": page,
                "is_older": "after" in given,
                "counts": await self._console.counts(),
                "unparsed": unparsed.items,
                "query_string": filters.query_string,
            },
        )

    async def sources(self, request: Request) -> Response:
        """List sources, and what they refused."""
        filters.given(request.query_params, ())
        sources = await self._console.sources()
        known = {source.name for source in sources}
        others = [row for row in await self._console.refusals() if row.source not in known]
        return self._renderer.page(request, "sources.html", {"sources": sources, "others": others})

    async def workers(self, request: Request) -> Response:
        """List processes and their leases."""
        filters.given(request.query_params, ())
        return self._renderer.page(
            request,
            "workers.html",
            {"workers": await self._console.workers(), "notices": await self._console.notices()},
        )

    async def workflows(self, request: Request) -> Response:
        """List registered workflows."""
        filters.given(request.query_params, ())
        return self._renderer.page(request, "workflows.html", {"workflows": await self._console.workflows()})

    async def audit(self, request: Request) -> Response:
        """List who did what."""
        given = filters.given(request.query_params, ("after",))
        page = await self._console.audit(after=given.get("after"), limit=filters.PAGE)
        return self._renderer.page(
            request, "audit.html", {"page": page, "filters": given, "query_string": filters.query_string}
        )

    async def help(self, request: Request) -> Response:
        """Explain keys and words."""
        return self._renderer.page(request, "help.html", {"states": list(RunState), "words": WORDS})

    async def search(self, request: Request) -> Response:
        """Find by what identifies something: the id of a run, a delivery or an event, a key, a subject."""
        text = filters.given(request.query_params, ("q",)).get("q", "").strip()
        if not text:
            return moved(request, "runs")
        if _ID.fullmatch(text):
            for where, asked_for in (("runs", self._console.run), ("deliveries", self._console.delivery)):
                with contextlib.suppress(NotFound, ConfigError):  # it is the name of something else, then
                    await asked_for(text)
                    return moved(request, f"{where}/{text}")
        runs: dict[str, RunSummary] = {}
        for query in (RunQuery(key=text, limit=FOUND), RunQuery(subject=text, limit=FOUND)):
            runs |= {run.run_id: run for run in (await self._console.runs(query)).items}
        events: list[EventSummary] = []
        for asked in (EventQuery(id=text, limit=FOUND), EventQuery(subject=text, limit=FOUND)):
            events += [event for event in (await self._console.events(asked)).items if event not in events]
        return self._renderer.page(
            request, "search.html", {"q": text, "runs": list(runs.values()), "events": events}
        )


def guarded(renderer: Renderer, page: Page) -> Page:
    """Turn our errors into pages that say what, what it means and what to do."""

    @functools.wraps(page)
    async def answer(request: Request) -> Response:
        try:
            return await page(request)
        except OncewardError as error:
            status = STATUSES_OF_USERS.get(error.code, error.http_status)
            return renderer.page(request, "error.html", {"error": error, "status": status}, status=status)

    return answer


def path_id(request: Request, name: str) -> str:
    """Give an id out of the path.

    Raises:
        NotFound: it cannot be the id of anything.
    """
    text = str(request.path_params[name])
    if not _ID.fullmatch(text):
        raise NotFound(f"There is nothing with the id {text[:100]!r}.", todo="Copy the whole id.")
    return text


def number(given: filters.Given, name: str) -> int | None:
    """Give a whole number out of the query, or None.

    Raises:
        ConfigError: it is none.
    """
    text = given.get(name)
    if text is not None and not re.fullmatch(r"[0-9]{1,15}", text):
        raise ConfigError(f"{name} is {text[:100]!r}.", todo="Write a whole number.")
    return None if text is None else int(text)


def did(verb: str | None, effect: str | None) -> str | None:
    """Give what an action did, as the table of states and verbs says it; None for what it does not hold.

    The words come from the table and never from the address: a link cannot put words in our mouth.
    """
    if verb == "complete":
        return PROMISE_ENDED.get(effect or "")
    replies = (cell.reply for (_, known), cell in TABLE.items() if known == verb and cell.effect == effect)
    return next(replies, None)


def last_failed(part: Part) -> int | None:
    """Give the place of the last failed step among those that are shown; None where none of them failed."""
    places = [place for place, lane in enumerate(part.steps) if lane.step and lane.step.state == "failed"]
    return places[-1] if places else None


def awaited(detail: RunDetail) -> list[StepView]:
    """Give the steps that something from outside would end: open waits, and open promises."""
    if detail.run.ended_at is not None or detail.shown_generation != detail.run.generation:
        return []
    return [
        step
        for step in detail.steps
        if step.awaits or (step.promise is not None and step.promise.state == "open")
    ]


def verb_of(request: Request) -> Verb:
    """Give the verb out of the path.

    Raises:
        NotFound: there is no such verb.
    """
    text = str(request.path_params["verb"])
    if text not in set(Verb):
        raise NotFound(f"There is no action {text[:100]!r}.", todo=f"There are {', '.join(Verb)}.")
    return Verb(text)
