"""Between the receiver and the app: a verified delivery becomes rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from onceward.core import arrival, errors, failpoints
from onceward.core.arrival import Incoming, LooseProof, Verified
from onceward.core.messages import HttpRequest
from onceward.runtime.tracing import receiving, safely
from onceward.sources.base import Source
from onceward.web.address import Proxies
from onceward.web.port import Limits
from onceward.web.promise_door import PromiseDoor
from onceward.web.receiver import Receiver

if TYPE_CHECKING:
    from onceward.app import App


class AppIntake:
    """Accepts deliveries into one app."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.sources: Mapping[str, Source] = app.sources
        """The app's sources; what is registered later is in it too."""

    def now_ms(self) -> int:
        """Give the store's time."""
        return self._app.now_ms

    async def healthy(self) -> bool:
        """Say whether the store answers, and takes what is written."""
        try:
            worker = self._app.worker
            await worker.read(worker.store.look, worker.process_id, [])
        except errors.OncewardError:
            return False
        return worker.is_heard and not worker.is_draining

    async def accept(
        self, source: str, request: HttpRequest, incoming: Sequence[Incoming], verified: Verified
    ) -> arrival.Accepted:
        """Store the events with their runs and this delivery; return when all are durable."""
        try:
            worker = self._app.worker
            tracer = worker.tracer
            if tracer is None:
                accepted = await self._app.arrivals.accept(source, request, incoming, verified, worker=worker)
            else:
                with receiving(tracer, source) as span:
                    accepted = await self._app.arrivals.accept(
                        source, request, incoming, verified, worker=worker
                    )
                    if span is not None:
                        safely(span.stored, accepted.outcome)
        except errors.ConfigError as error:
            raise _not_open() from error
        worker.counters.deliveries.add(source, accepted.outcome)
        if failpoints.is_armed():
            failpoints.hit("accept.before_reply")
        return accepted

    async def is_first_under(self, source: str, proof: LooseProof) -> bool:
        """Say whether nothing else came under a signature; it is remembered durably by then."""
        try:
            worker = self._app.worker
            first: str = await worker.read(worker.store.first_under, source, proof, worker.now_ms())
        except errors.ConfigError as error:
            raise _not_open() from error
        return first == proof.content_hash

    async def keep_unparsed(
        self, source: str, request: HttpRequest, verified: Verified, error: str, told_by: Sequence[str]
    ) -> None:
        """Keep a delivery that its source could not read; return when it is durable."""
        try:
            counters = self._app.worker.counters
            await self._app.arrivals.keep_unparsed(source, request, verified, error, told_by)
        except errors.ConfigError as closed:
            raise _not_open() from closed
        counters.deliveries.add(source, "unparsed")

    def refused(self, source: str, status: int, check: str, **more: Any) -> None:
        """Count a delivery that was refused."""
        try:
            now = self.now_ms()
        except errors.OncewardError:
            return  # no app, nothing to count for
        self._app.worker.counters.deliveries.add(source if source in self.sources else "", "refused")
        self._app.refused.note(source, status, check, now, **more)


def _not_open() -> errors.StoreUnavailable:
    return errors.StoreUnavailable("The app is not open.", todo="Send it again later.")


def receiver_for(app: App) -> Receiver:
    """Give the receiver of *app*; its lifespan opens and closes the app.

    Raises:
        ConfigError: the setting ``trusted_proxies`` cannot be read.
    """
    return Receiver(
        AppIntake(app),
        startup=app.open,
        shutdown=app.close,
        limits=Limits.of(app.settings.body_bytes_max),
        proxies=Proxies(app.settings.trusted_proxies),
        promises=PromiseDoor(app),
    )
