"""Zoom: ``x-zm-signature: v0=<hex>`` over ``v0:timestamp:body``.

Zoom checks the address by asking for the HMAC of a token, when it is set up and every three days.
To answer anyone would be to sign whatever a stranger likes, so the question must verify first.
Attempts are signed anew, and events have no id.
"""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar

from onceward.core.arrival import UNVERIFIED, Incoming, Outcome, Verified
from onceward.core.errors import BodyMalformed
from onceward.core.messages import HttpRequest, HttpResponse
from onceward.sources.base import derived_id, identifier, parse_object, subject_or_none
from onceward.sources.parts.fields import at, first_at, millis_or_none
from onceward.sources.parts.replies import EMPTY_200, challenge_or_none, json_reply, when_taken
from onceward.sources.signing import header_after, hex_hmac, matching_secret, sole_header, unix_ms
from onceward.sources.timed import TimedSource

HEADER = "x-zm-signature"
TIMESTAMP_HEADER = "x-zm-request-timestamp"
VALIDATION = "endpoint.url_validation"


class Zoom(TimedSource):
    """Events of one Zoom app.

    Args:
        name: see `Source`.
        secrets: the app's secret token.
        insecure: see `Source`; Zoom's question cannot be answered then.
        tolerance: see `TimedSource`; Zoom states none, five minutes by default.

    The type is ``event``, the subject the object's ``uuid`` or ``id``. The id is derived from event,
    ``event_ts`` and payload.
    """

    kind: ClassVar[str] = "zoom"
    docs_url: ClassVar[str] = "https://developers.zoom.us/docs/api/webhooks"
    docs_date: ClassVar[str] = "2026-11-29"
    # After 5, 20 and 60 minutes.
    retry_horizon: ClassVar[timedelta | None] = timedelta(minutes=85)
    retry_docs: ClassVar[str] = "https://developers.zoom.us/blog/webhook-delays"
    reply_deadline: ClassVar[timedelta | None] = timedelta(seconds=3)

    def verify(self, request: HttpRequest, now_ms: int) -> Verified:
        """Check the signature, then the age."""
        if self.insecure:
            return UNVERIFIED
        given = header_after(request, HEADER, b"v0=")
        timestamp = sole_header(request, TIMESTAMP_HEADER)
        sent_at_ms = unix_ms(timestamp)
        message = b"v0:%b:%b" % (timestamp, request.body)
        index = matching_secret(self.secrets, message, [given])
        self.check_age(sent_at_ms, now_ms)
        return Verified(index, sent_at_ms)

    def handshake(self, request: HttpRequest, now_ms: int) -> HttpResponse | None:
        """Answer ``endpoint.url_validation`` with the HMAC by the secret that signed the question."""
        if self.insecure or VALIDATION.encode() not in request.body:
            return None
        try:
            body = parse_object(request.body)
        except BodyMalformed:
            return None  # normalize says so
        token = challenge_or_none(at(body, "payload", "plainToken"))
        if body.get("event") != VALIDATION or token is None:
            return None
        index = self.verify(request, now_ms).secret_index
        assert index is not None  # not insecure
        encrypted = hex_hmac(self.secrets[index].key, token.encode("utf-8", "replace"))
        return json_reply({"plainToken": token, "encryptedToken": encrypted.decode()})

    def normalize(self, request: HttpRequest) -> list[Incoming]:
        """Give the one event of the delivery."""
        body = parse_object(request.body)
        event_type = identifier(body.get("event"), 'the field "event"')
        payload = body.get("payload")
        return [
            Incoming(
                id=derived_id(event_type, body.get("event_ts"), payload),
                type=event_type,
                payload=body,
                payload_is_body=True,
                subject=subject_or_none(first_at(at(payload, "object"), "uuid", "id")),
                occurred_at_ms=millis_or_none(body.get("event_ts")),
                id_is_derived=True,
            )
        ]

    def respond(self, outcome: Outcome) -> HttpResponse | None:
        """Give an empty 200; Zoom takes 200 and 204."""
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
        """Give the headers of a Zoom delivery; the type stands in the body."""
        seconds = b"%d" % (now_ms // 1000)
        signature = hex_hmac(self.signing_key(secret_index), b"v0:%b:%b" % (seconds, body))
        return {
            "Content-Type": "application/json; charset=utf-8",
            TIMESTAMP_HEADER: seconds.decode(),
            HEADER: f"v0={signature.decode()}",
        }
