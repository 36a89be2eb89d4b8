"""The console of another instance, over its REST API, with what the standard library has."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import SplitResult, quote, urlencode, urlsplit

import msgspec

from onceward.console.port import (
    Action,
    Completion,
    DeliveryQuery,
    Emit,
    EventQuery,
    ExportQuery,
    Prune,
    RunQuery,
)
from onceward.console.prune_views import PruneReply
from onceward.console.views import (
    ActionReply,
    AuditView,
    BulkReply,
    Counts,
    DeliveryView,
    EmitReply,
    EventDetail,
    EventSummary,
    ExportPage,
    NoticesView,
    Overview,
    Page,
    RefusalView,
    RunDetail,
    RunSummary,
    SourceView,
    WorkerView,
    WorkflowView,
)
from onceward.core import errors
from onceward.core.model import Millis
from onceward.core.shown import shown
from onceward.runtime.posting import cut_after
from onceward.version import __version__

PREFIX = "/api/v1"
SECONDS_MAX = 30.0
"""For how long nothing may come."""

WHOLE_SECONDS_MAX = 120.0
"""How long a whole reply may take."""

REPLY_BYTES_MAX = 256 * 1024 * 1024
TOLD_CHARS_MAX = 2_000
"""Of each part of an error that the other instance tells."""

CHANGES_S = 1.0
"""Between two looks at what may have changed."""

PROGRESS_S = 0.5
"""Between two looks at how far a bulk action has come."""

T = TypeVar("T")


class RemoteConsole:
    """Answers every question of `Console` by asking another instance.

    Args:
        url: where it is: ``https://hooks.example.com``, with or without ``/api/v1``.
        token: of an API user there; it says who acts. It goes nowhere else: redirects are not followed.
        whole_seconds: how long a whole reply may take.

    Raises:
        ConfigError: *url* is no http or https address, or has a password in it; from any method: the question or the token is
            refused.
        StoreUnavailable: from any method: the instance cannot be reached, or not its store.
    """

    def __init__(
        self, url: str, token: str | None = None, *, whole_seconds: float = WHOLE_SECONDS_MAX
    ) -> None:
        parts = _parts(url)
        if token is not None and not (token.isascii() and token.isprintable() and token.strip() == token):
            raise errors.ConfigError(
                "The token for the API holds characters that no token has.",
                means="Nothing was asked.",
                todo="Copy it again, without line ends.",
            )
        self._is_secure = parts.scheme == "https"
        self._host, self._port = parts.hostname or "", parts.port
        self._url = f"{parts.scheme}://{parts.netloc}"
        self._prefix = parts.path.rstrip("/").removesuffix(PREFIX) + PREFIX
        self._token = token
        self._whole_seconds = whole_seconds

    # --- looking ---------------------------------------------------------------------------------

    async def overview(self, *, window_ms: Millis = 3_600_000) -> Overview:
        """Give the first page."""
        return await self._get(Overview, "/overview", {"window_ms": window_ms})

    async def counts(self) -> Counts:
        """Give how many runs stand where."""
        return await self._get(Counts, "/counts")

    async def runs(self, query: RunQuery) -> Page[RunSummary]:
        """List runs, newest first."""
        return await self._get(Page[RunSummary], "/runs", _given(query))

    async def run(self, run_id: str, generation: int | None = None) -> RunDetail:
        """Give one run with its steps, attempts, audit, children and what can be done."""
        asked = {} if generation is None else {"generation": generation}
        return await self._get(RunDetail, f"/runs/{_part(run_id)}", asked)

    async def events(self, query: EventQuery) -> Page[EventSummary]:
        """List events, newest first."""
        return await self._get(Page[EventSummary], "/events", _given(query))

    async def event(self, source: str, event_id: str) -> EventDetail:
        """Give one event with its deliveries, runs and why some workflow has none."""
        # Not by its path: an id may be one that no path can end in.
        return await self._get(EventDetail, "/event", {"source": source, "id": event_id})

    async def deliveries(self, query: DeliveryQuery) -> Page[DeliveryView]:
        """List deliveries, newest first, without bodies."""
        return await self._get(Page[DeliveryView], "/deliveries", _given(query))

    async def delivery(self, delivery_id: str) -> DeliveryView:
        """Give one delivery with its raw request."""
        return await self._get(DeliveryView, f"/deliveries/{_part(delivery_id)}")

    async def sources(self) -> list[SourceView]:
        """List the sources with their refusals and clock skew."""
        return await self._get(list[SourceView], "/sources")

    async def refusals(self, source: str | None = None) -> list[RefusalView]:
        """List what was refused."""
        return await self._get(list[RefusalView], "/refusals", {} if source is None else {"source": source})

    async def workers(self) -> list[WorkerView]:
        """List the processes that are registered; ``is_here`` is the one that answers."""
        return await self._get(list[WorkerView], "/workers")

    async def notices(self) -> NoticesView:
        """Give the addresses that notices are sent to, and the latest notices."""
        return await self._get(NoticesView, "/notices")

    async def workflows(self) -> list[WorkflowView]:
        """List the registered workflows."""
        return await self._get(list[WorkflowView], "/workflows")

    async def audit(self, *, after: str | None = None, limit: int = 50) -> Page[AuditView]:
        """List what operators did, newest first."""
        asked: dict[str, Any] = {"limit": limit}
        return await self._get(
            Page[AuditView], "/audit", asked if after is None else asked | {"after": after}
        )

    async def changed(self) -> AsyncIterator[None]:
        """Yield once a second: whether anything changed is seen by asking."""
        while True:
            await asyncio.sleep(CHANGES_S)
            yield

    # --- acting ----------------------------------------------------------------------------------

    async def redeliver(self, delivery_id: str, *, actor: str) -> Mapping[str, Any]:  # noqa: ARG002 (the token says)
        """Feed a stored raw request in again; give what became of it."""
        return await self._post(dict[str, Any], f"/deliveries/{_part(delivery_id)}/redeliver", {})

    async def emit(self, emit: Emit) -> EmitReply:
        """Store an event; the actor is whom the token belongs to."""
        return await self._post(EmitReply, "/events", _set(emit))

    async def complete(self, run_id: str, completion: Completion) -> ActionReply:
        """End an open promise of a run; the actor is whom the token belongs to."""
        return await self._post(ActionReply, f"/runs/{_part(run_id)}/complete", _set(completion))

    async def prune(self, asked: Prune) -> PruneReply:
        """Prune one page; for admins."""
        return await self._post(PruneReply, "/prune", _set(asked))

    async def export(self, query: ExportQuery) -> ExportPage:
        """Give the stored rows of the next events, by the other instance's redaction; ``raw`` is for admins."""
        return await self._get(ExportPage, "/export", _given(query))

    async def plan(self, run_id: str, action: Action) -> Any:
        """Give the rerun plan of an action, and do nothing."""
        asked = {"verb": action.verb, **_fields(action)}
        asked.pop("request_id", None)
        return await self._post(Any, f"/runs/{_part(run_id)}/plan", asked)

    async def act(self, run_id: str, action: Action) -> ActionReply:
        """Do one thing to one run; the actor is whom the token belongs to."""
        path = f"/runs/{_part(run_id)}/{_part(action.verb)}"
        return await self._post(ActionReply, path, _fields(action))

    async def bulk(
        self,
        query: RunQuery,
        action: Action,
        *,
        dry_run: bool,
        progress: Callable[[BulkReply], object] | None = None,
        run_ids: Sequence[str] | None = None,
    ) -> BulkReply:
        """Do one thing to every run that a query finds, or to those that are named; follow it to its end."""
        bulk_id = action.request_id or secrets.token_hex(12)
        asked = _fields(action)
        asked.pop("request_id", None)
        body = {
            "query": _given(query),
            "action": {"verb": action.verb, **asked},
            "dry_run": dry_run,
            "request_id": bulk_id,
            **({} if run_ids is None else {"run_ids": list(run_ids)}),
        }
        reply = await self._post(BulkReply, "/runs/bulk", body)
        while not reply.is_over and not dry_run:
            if progress is not None:
                progress(reply)
            await asyncio.sleep(PROGRESS_S)
            try:
                reply = await self.bulk_progress(bulk_id)
            except errors.NotFound:
                # It ended before it was written that it began: by the same id it begins.
                reply = await self._post(BulkReply, "/runs/bulk", body)
        if progress is not None and not dry_run:
            progress(reply)
        return reply

    async def bulk_progress(self, bulk_id: str) -> BulkReply:
        """Give how far a bulk action has come, or how it ended."""
        return await self._get(BulkReply, f"/bulk/{_part(bulk_id)}")

    # --- the wire --------------------------------------------------------------------------------

    async def _get(self, reply: type[T], path: str, query: Mapping[str, Any] | None = None) -> T:
        texts = {
            name: str(value).lower() if isinstance(value, bool) else value
            for name, value in (query or {}).items()
        }
        target = f"{path}?{urlencode(texts)}" if texts else path
        return await asyncio.to_thread(self._exchange, reply, "GET", target, None)

    async def _post(self, reply: type[T], path: str, body: Mapping[str, Any]) -> T:
        return await asyncio.to_thread(self._exchange, reply, "POST", path, msgspec.json.encode(body))

    def _exchange(self, reply: type[T], method: str, target: str, body: bytes | None) -> T:
        connect = http.client.HTTPSConnection if self._is_secure else http.client.HTTPConnection
        connection = connect(self._host, self._port, timeout=SECONDS_MAX)
        headers = {"Accept": "application/json", "User-Agent": f"onceward/{__version__}"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            with cut_after(self._whole_seconds, connection):
                connection.request(method, self._prefix + target, body, headers)
                answer = connection.getresponse()
                status, told = answer.status, answer.read(REPLY_BYTES_MAX)
        except (OSError, http.client.HTTPException) as error:
            said = (str(error) or type(error).__name__)[:TOLD_CHARS_MAX]
            raise errors.StoreUnavailable(
                f"There is no reply from {self._url}: {said}.",
                means="It is not known whether what was asked was done.",
                todo="Look whether the instance runs, and ask again.",
            ) from error
        finally:
            connection.close()
        if status != http.client.OK:
            raise _error(status, told, self._url)
        try:
            return msgspec.json.decode(told, type=reply)
        except (msgspec.DecodeError, RecursionError) as error:
            raise _error(status, told, self._url) from error


def _parts(url: str) -> SplitResult:
    """Give the parts of the address of an API."""
    parts = None
    with contextlib.suppress(ValueError):
        split = urlsplit(url)
        if split.scheme in ("http", "https") and split.hostname and split.port != 0:
            split.hostname.encode("idna")  # what cannot be looked up is found here
            parts = split
    has_password = "@" in url  # not shown then
    if parts is None or has_password or not url.isascii() or not url.isprintable() or " " in url:
        raise errors.ConfigError(
            f"{'What was given' if has_password else shown(url)} is no address of an API.",
            means="It has a user or password in it; the token says who asks."
            if has_password
            else "Nothing was asked.",
            todo="Write that of the instance, e.g. https://hooks.example.com.",
        )
    return parts


def _part(text: str) -> str:
    return quote(text, safe="")


def _given(query: msgspec.Struct) -> dict[str, Any]:
    """Give the fields of a query that were set, for its parameters."""
    blank = type(query)()
    return {
        name: getattr(query, name)
        for name in query.__struct_fields__
        if getattr(query, name) != getattr(blank, name)
    }


def _set(asked: Emit | Completion | Prune) -> dict[str, Any]:
    """Give what was said beside the actor, whom the token says."""
    values = {name: getattr(asked, name) for name in asked.__struct_fields__ if name != "actor"}
    return {name: value for name, value in values.items() if value is not None}


def _fields(action: Action) -> dict[str, Any]:
    """Give what an action takes beside its verb and its actor, whom the token says."""
    values = {name: getattr(action, name) for name in Action.__struct_fields__}
    return {
        name: value
        for name, value in values.items()
        if name not in ("verb", "actor")
        and value is not msgspec.UNSET
        and (value is not None or name in ("payload", "result"))
    }


_CLASSES: dict[str, type[errors.OncewardError]] = {
    one.code: one
    for one in (
        errors.ConfigError,
        errors.NotFound,
        errors.StateConflict,
        errors.NotStorable,
        errors.BodyMalformed,
        errors.IdClash,
        errors.StoreUnavailable,
    )
}


def _error(status: int, told: bytes, url: str) -> errors.OncewardError:
    """Give the error that the other instance raised, by the problem that it told."""
    try:
        problem = msgspec.json.decode(told, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        problem = {}
    said = problem.get("what") or problem.get("detail") or f"{url} answered with status {status}."
    what, means, todo = (
        str(text or "")[:TOLD_CHARS_MAX] for text in (said, problem.get("means"), problem.get("todo"))
    )
    kind = _CLASSES.get(str(problem.get("code")))
    if kind is None:
        kind = {404: errors.NotFound, 409: errors.StateConflict, 503: errors.StoreUnavailable}.get(status)
    if status in (401, 403):
        kind = errors.ConfigError
        todo = todo or "Pass --token, or set ONCEWARD_TOKEN, with the token of a user who may do this."
    elif not problem:
        kind = errors.ConfigError if kind in (None, errors.NotFound) else kind
        what = f"{url} answers with status {status}, and not as the API of Onceward does."
        todo = "Compare the address with that of the instance; its API is below /api/v1."
    return (kind or errors.OncewardError)(what, means=means, todo=todo)
