"""One thing done to many runs: first a dry run, then with progress that can be watched.

What goes on here is remembered, a bounded number of it; how far those of other processes have come is
asked of the store. The same request id does no run twice.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from onceward.console.bulks import asked_hash, clash
from onceward.console.port import ACKNOWLEDGED, PAGE_MAX, Action, Console, RunQuery
from onceward.console.views import BulkReply
from onceward.core.errors import ConfigError, IdClash, NotFound, OncewardError
from onceward.core.states import Verb
from onceward.web.dashboard import filters
from onceward.web.dashboard.actions import MEANS
from onceward.web.dashboard.forms import REQUEST_ID_CHARS_MAX, Form, actor_of, posted
from onceward.web.dashboard.pages import path_id
from onceward.web.dashboard.questions import ANSWERS, TO_ANY_HOLD
from onceward.web.dashboard.render import Renderer, moved

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

REMEMBERED_MAX = 100
OFFERED = (Verb.RETRY, Verb.ANSWER, Verb.CANCEL, Verb.DISMISS, Verb.REPLAY, Verb.RESTART)
_OWN_FIELDS = ("verb", "answer", "request_id", "csrf", "run", "chosen", "acknowledge")


@dataclass
class Progress:
    """How far one bulk action has come, and the error that ended it early."""

    reply: BulkReply
    actor: str | None = None
    asked: str = ""
    error: OncewardError | None = None
    task: asyncio.Task[None] | None = None

    @property
    def is_over(self) -> bool:
        """Say whether nothing more happens."""
        return self.reply.is_over if self.task is None else self.task.done()

    @property
    def has_stopped(self) -> bool:
        """Say whether it is over before it was through; the same request goes on, here or elsewhere."""
        return self.is_over and (self.error is not None or self.reply.is_interrupted)


class Bulk:
    """The pages of bulk actions.

    Args:
        console: acts.
        renderer: makes pages.
    """

    def __init__(self, console: Console, renderer: Renderer) -> None:
        self._console = console
        self._renderer = renderer
        self._known: OrderedDict[str, Progress] = OrderedDict()

    async def ask(self, request: Request) -> Response:
        """Show what would be done to which runs, without doing it; asked by an address or a form."""
        actor = actor_of(self._renderer.who(request))
        if request.method == "POST":
            form, _ = await posted(request, self._renderer.who)
        else:
            form = Form(list(request.query_params.multi_items()))
        verb, answer = _verb(form)
        chosen = _chosen(form)
        given = {} if chosen else filters.given(form.without(*_OWN_FIELDS), filters.RUN_FIELDS)
        given.pop("after", None)
        action = Action(verb=verb, actor=actor, answer=answer)
        query = filters.run_query(given, self._renderer.now())
        reply = await self._console.bulk(query, action, dry_run=True, run_ids=chosen or None)
        return self._renderer.page(
            request,
            "bulk_ask.html",
            {
                "verb": verb,
                "answer": answer,
                "means": ANSWERS.get(answer or "", "") if verb is Verb.ANSWER else MEANS[verb],
                "reply": reply,
                "filters": given,
                "chosen": chosen,
                "asks": verb is Verb.RESTART,
            },
        )

    async def begin(self, request: Request) -> Response:
        """Begin it, once for each request id, and show how far it is."""
        form, actor = await posted(request, self._renderer.who)
        verb, answer = _verb(form)
        chosen = _chosen(form)
        request_id = form.get("request_id")
        if not request_id.isalnum() or len(request_id) > REQUEST_ID_CHARS_MAX:
            raise ConfigError("The form has no request id.", todo="Send it from the page of the action.")
        plan = ACKNOWLEDGED if verb is Verb.RESTART and form.get("acknowledge") else None
        action = Action(verb=verb, actor=actor, request_id=request_id, answer=answer, plan=plan)
        given = {} if chosen else filters.given(form.without(*_OWN_FIELDS), filters.RUN_FIELDS)
        query = filters.run_query(given, self._renderer.now())
        asked = asked_hash(query, action, chosen or None)
        known = self._known.get(request_id)
        if known is not None and known.asked != asked:
            raise clash(request_id)
        if known is None or known.has_stopped:
            matched = len(chosen)
            progress = Progress(
                BulkReply(bulk_id=request_id, verb=verb, is_dry_run=False, matched=matched, is_over=False),
                actor,
                asked,
            )
            work = self._all(query, action, chosen or None, progress)
            progress.task = asyncio.get_running_loop().create_task(self._watched(work, progress))
            self._known[request_id] = progress
            while len(self._known) > REMEMBERED_MAX and next(iter(self._known.values())).is_over:
                self._known.popitem(last=False)
        return moved(request, f"bulk/{request_id}")

    async def progress(self, request: Request) -> Response:
        """Show how far it is."""
        bulk_id = path_id(request, "bulk_id")
        progress = self._known.get(bulk_id)
        # What is stored under an id that clashed is somebody else's.
        if progress is None or (progress.has_stopped and not isinstance(progress.error, IdClash)):
            try:
                reply = await self._console.bulk_progress(bulk_id)
                if progress is None or not reply.is_interrupted:
                    progress = Progress(reply, reply.actor)
            except NotFound as error:
                if progress is not None:
                    return self._shown(request, progress)
                # The process that was asked to begin it is perhaps just about to.
                page = self._renderer.page(request, "error.html", {"error": error, "status": 404}, status=404)
                page.headers["Refresh"] = "3"
                return page
        return self._shown(request, progress)

    def _shown(self, request: Request, progress: Progress) -> Response:
        return self._renderer.page(request, "bulk.html", {"progress": progress, "reply": progress.reply})

    async def _all(
        self, query: RunQuery, action: Action, chosen: Sequence[str] | None, progress: Progress
    ) -> None:
        def note(reply: BulkReply) -> None:
            progress.reply = msgspec.structs.replace(reply, is_over=False)

        progress.reply = await self._console.bulk(query, action, dry_run=False, progress=note, run_ids=chosen)

    async def _watched(self, work: Awaitable[None], progress: Progress) -> None:
        try:
            await work
        except* OncewardError as group:  # alone, or several at once
            progress.error = _first(group)
        finally:
            progress.reply = msgspec.structs.replace(progress.reply, is_over=True)


def _first(group: BaseExceptionGroup[OncewardError]) -> OncewardError:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


def _verb(form: Form) -> tuple[Verb, str | None]:
    text = form.get("verb")
    if text not in set(OFFERED):
        raise ConfigError(f"There is no bulk action {text[:100]!r}.", todo=f"There are {', '.join(OFFERED)}.")
    answer = form.get("answer") or "retry"
    if answer not in TO_ANY_HOLD:
        raise ConfigError(f"Many runs cannot be answered {answer[:100]!r}.", todo="Answer retry or fail.")
    return Verb(text), answer if text == Verb.ANSWER else None


def _chosen(form: Form) -> list[str]:
    chosen = list(dict.fromkeys(form.all("run")))
    if form.get("chosen") and not chosen:
        raise ConfigError("No run is chosen.", todo="Go back and tick some, or act on all that match.")
    if len(chosen) > PAGE_MAX:
        raise ConfigError(f"{len(chosen)} runs are chosen.", todo=f"Choose at most {PAGE_MAX}, or filter.")
    return chosen
