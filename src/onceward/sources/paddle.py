"""Paddle Billing: ``Paddle-Signature: ts=<seconds>;h1=<hex>[;h1=<hex>…]`` over ``ts:body``.

The id is the body's ``event_id``; ``notification_id`` is new when an event is replayed.
"""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar

from onceward.core.arrival import UNVERIFIED, Incoming, Outcome, Verified
from onceward.core.errors import SignatureInvalid
from onceward.core.messages import HttpRequest, HttpResponse
from onceward.sources.base import identifier, parse_object, subject_or_none
from onceward.sources.parts.fields import iso_or_none
from onceward.sources.parts.replies import EMPTY_200, when_taken
from onceward.sources.signing import hex_hmac, matching_secret, sole_header, time_and_signatures, unix_ms
from onceward.sources.timed import TimedSource

HEADER = "Paddle-Signature"


class Paddle(TimedSource):
    """Notifications of Paddle Billing.

    Args:
        name: see `Source`.
        secrets: the notification destination's secret keys (``pdl_ntfset_…``), used as they are.
        insecure: see `Source`.
        tolerance: how far the signed time may lie from now, before or after. Paddle's own libraries
            allow five seconds, which refuses good deliveries when a clock is off.

    The subject is the id of the entity (``data.id``). Order is not kept: compare ``occurred_at``.
    """

    kind: ClassVar[str] = "paddle"
    docs_url: ClassVar[str] = "https://developer.paddle.com/webhooks/signature-verification"
    docs_date: ClassVar[str] = "2026-10-31"
    retry_horizon: ClassVar[timedelta | None] = timedelta(days=3)
    reply_deadline: ClassVar[timedelta | None] = timedelta(seconds=5)

    def verify(self, request: HttpRequest, now_ms: int) -> Verified:
        """Check one of the ``h1`` signatures, then the age; other parts are ignored."""
        if self.insecure:
            return UNVERIFIED
        header = sole_header(request, HEADER)
        if b"," in header:
            raise SignatureInvalid(f"two {HEADER} headers that something joined")
        parts = map(bytes.strip, header.split(b";"))
        timestamp, signatures = time_and_signatures(
            parts, header=HEADER, time_field=b"ts", signature_field=b"h1"
        )
        sent_at_ms = unix_ms(timestamp)
        index = matching_secret(self.secrets, b"%b:%b" % (timestamp, request.body), signatures)
        self.check_age(sent_at_ms, now_ms)
        return Verified(index, sent_at_ms)

    def normalize(self, request: HttpRequest) -> list[Incoming]:
        """Give the one event of the body."""
        body = parse_object(request.body)
        data = body.get("data")
        return [
            Incoming(
                id=identifier(body.get("event_id"), 'the field "event_id"'),
                type=identifier(body.get("event_type"), 'the field "event_type"'),
                payload=body,
                payload_is_body=True,
                subject=subject_or_none(data.get("id")) if isinstance(data, dict) else None,
                occurred_at_ms=iso_or_none(body.get("occurred_at")),
            )
        ]

    def respond(self, outcome: Outcome) -> HttpResponse | None:
        """Give the 200 that Paddle asks for."""
        return when_taken(outcome, EMPTY_200)

    def sign(
        self,
        body: bytes,
        now_ms: int,
        *,
        event_id: str = "",
        event_type: str = "",
        secret_index: int = 0,
        url: str = "",
    ) -> dict[str, str]:
        """Give the headers of a Paddle delivery; id and type stand in the body."""
        seconds = b"%d" % (now_ms // 1000)
        signature = hex_hmac(self.signing_key(secret_index), b"%b:%b" % (seconds, body))
        return {
            "Content-Type": "application/json",
            HEADER: f"ts={seconds.decode()};h1={signature.decode()}",
        }
