"""Between the receiver and the app: a verified delivery becomes rows."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from onceward.core import arrival, errors, failpoints, ids, json_plain
from onceward.core.arrival import AcceptedEvent, Incoming, Verified
from onceward.core.messages import HttpRequest
from onceward.core.model import DeliveryRow, EventRow
from onceward.core.ports import Accept
from onceward.sources.base import Source
from onceward.web.receiver import Limits, Receiver

if TYPE_CHECKING:
    from onceward.app import App

KEPT_HEADERS = (
    "content-type",
    "user-agent",
    "x-github-event",
    "x-github-delivery",
    "x-github-hook-id",
    "webhook-id",
)
"""Headers of a delivery that are kept for people; signatures and credentials are not among them."""


class AppIntake:
    """Accepts deliveries into one app."""

    def __init__(self, app: App) -> None:
        self._app = app

    @property
    def sources(self) -> Mapping[str, Source]:
        """Give the app's sources."""
        return self._app.sources

    def now_ms(self) -> int:
        """Give the store's time."""
        return self._app.worker.now_ms()

    async def healthy(self) -> bool:
        """Say whether the store answers."""
        try:
            worker = self._app.worker
            await worker.read(worker.store.look, worker.process_id, [])
        except errors.OncewardError:
            return False
        return not worker.is_draining

    async def accept(
        self, source: str, request: HttpRequest, incoming: list[Incoming], verified: Verified
    ) -> arrival.Accepted:
        """Store each event with its runs and this delivery; return when all are durable."""
        try:
            worker = self._app.worker
        except errors.ConfigError as error:
            raise errors.StoreUnavailable("The app is not open yet.", todo="Send it again later.") from error
        now = worker.now_ms()
        hashed = ids.content_hash(request.body)
        kept = _kept(request)
        accepts = []
        for one in incoming:
            event = EventRow(
                source=source,
                id=one.id,
                type=one.type,
                payload=self._payload(one, request),
                received_at=now,
                subject=one.subject,
                occurred_at=one.occurred_at_ms,
                content_hash=hashed if len(incoming) == 1 else None,
            )
            delivery = DeliveryRow(
                delivery_id=worker.ids.hex(12),
                source=source,
                event_id=one.id,
                received_at=now,
                content_hash=hashed,
                secret_index=verified.secret_index,
                request=kept,
                body=None if one.payload_is_body else request.body,
            )
            accepts.append(Accept(event, worker.runs_for(event, version=one.version), [delivery]))
        if len(accepts) == 1:
            found = [await worker.accept(accepts[0])]
        else:
            found = list(await asyncio.gather(*(worker.accept(accept) for accept in accepts)))
        failpoints.hit("accept.before_reply")
        return arrival.Accepted(
            [
                AcceptedEvent(one.id, accepted.is_duplicate, list(accepted.answers().values()))
                for one, accepted in zip(incoming, found, strict=True)
            ]
        )

    def _payload(self, one: Incoming, request: HttpRequest) -> str:
        if one.payload_is_body:
            return request.body.decode()
        try:
            return json_plain.encode_plain(
                one.payload, what="the payload", limit_bytes=self._app.settings.body_bytes_max
            )
        except errors.NotStorable as error:
            raise errors.BodyMalformed(error.what) from error


def _kept(request: HttpRequest) -> str:
    headers = {name: value for name in KEPT_HEADERS if (value := request.header(name)) is not None}
    return msgspec.json.encode({"method": request.method, "path": request.path, "headers": headers}).decode()


def receiver_for(app: App) -> Receiver:
    """Give the receiver of *app*; its lifespan opens and closes the app."""
    return Receiver(
        AppIntake(app),
        startup=app.open,
        shutdown=app.close,
        limits=Limits(body_bytes_max=app.settings.body_bytes_max),
    )
