"""A console that answers what a test tells it to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

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
from onceward.console.views import BulkReply
from onceward.core.errors import ConfigError, NotFound, OncewardError


class StubConsole:
    """One run, one event, one delivery and so on, as views; what is asked of it is noted."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[tuple[str, Any]] = []
        self.acted: list[tuple[str, Action]] = []
        self.refuses: OncewardError | None = None
        self.step = asyncio.Event()
        self._watchers: set[asyncio.Queue[None]] = set()

    def change(self) -> None:
        """Say that something may have changed; called in the server's loop."""
        for watcher in self._watchers:
            watcher.put_nowait(None)

    def _give(self, name: str, *question: Any) -> Any:
        self.asked.append((name, question))
        if self.refuses is not None:
            raise self.refuses
        return self.answers[name]

    async def overview(self, *, window_ms: int = 3_600_000) -> Any:
        return self._give("overview", window_ms)

    async def counts(self) -> Any:
        return self._give("counts")

    async def runs(self, query: RunQuery) -> Any:
        return self._give("runs", query)

    async def run(self, run_id: str, generation: int | None = None) -> Any:
        return self._give("run", run_id, generation)

    async def events(self, query: EventQuery) -> Any:
        return self._give("events", query)

    async def event(self, source: str, event_id: str) -> Any:
        return self._give("event", source, event_id)

    async def deliveries(self, query: DeliveryQuery) -> Any:
        return self._give("deliveries", query)

    async def delivery(self, delivery_id: str) -> Any:
        return self._give("delivery", delivery_id)

    async def redeliver(self, delivery_id: str, *, actor: str) -> Any:
        return self._give("redeliver", delivery_id, actor)

    async def emit(self, emit: Emit) -> Any:
        return self._give("emit", emit)

    async def complete(self, run_id: str, completion: Completion) -> Any:
        return self._give("complete", run_id, completion)

    async def prune(self, asked: Prune) -> Any:
        return self._give("prune", asked)

    async def export(self, query: ExportQuery) -> Any:
        return self._give("export", query)

    async def sources(self) -> Any:
        return self._give("sources")

    async def refusals(self, source: str | None = None) -> Any:
        return self._give("refusals", source)

    async def workers(self) -> Any:
        return self._give("workers")

    async def notices(self) -> Any:
        return self._give("notices")

    async def workflows(self) -> Any:
        return self._give("workflows")

    async def audit(self, *, after: str | None = None, limit: int = 50) -> Any:
        return self._give("audit", after, limit)

    async def plan(self, run_id: str, action: Action) -> Any:
        if "plan" not in self.answers:
            raise ConfigError("This console makes no plans.")
        return self._give("plan", run_id, action)

    async def act(self, run_id: str, action: Action) -> Any:
        self.acted.append((run_id, action))
        return self._give("act", run_id, action)

    async def bulk(
        self,
        query: RunQuery,
        action: Action,
        *,
        dry_run: bool,
        progress: Callable[[BulkReply], object] | None = None,
        run_ids: Sequence[str] | None = None,
    ) -> BulkReply:
        reply: BulkReply = self._give("bulk", query, action, dry_run)
        if dry_run:
            return reply
        for done in range(reply.matched + 1):
            if progress is not None:
                progress(msgspec.structs.replace(reply, is_dry_run=False, done=done, is_over=False))
            await self.step.wait()
        return msgspec.structs.replace(reply, is_dry_run=False, done=reply.matched)

    async def bulk_progress(self, bulk_id: str) -> BulkReply:
        raise NotFound(f"There is no bulk action {bulk_id!r}.")

    async def changed(self) -> AsyncIterator[None]:
        watcher: asyncio.Queue[None] = asyncio.Queue()
        self._watchers.add(watcher)
        try:
            while True:
                await watcher.get()
                yield
        finally:
            self._watchers.discard(watcher)
