"""Zendesk: ``X-Zendesk-Webhook-Signature: <base64>`` over the time, ISO 8601, and the body.

The body of a webhook that a trigger or automation calls is whatever its author wrote, or empty.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from onceward.core.arrival import UNVERIFIED, Incoming, Verified
from onceward.core.errors import BodyMalformed
from onceward.core.messages import HttpRequest
from onceward.sources.base import (
    derived_id,
    identifier,
    parse_json,
    sole_text_header,
    subject_or_none,
)
from onceward.sources.parts.fields import iso_or_none
from onceward.sources.parts.forms import content_type
from onceward.sources.parts.shape import malformed
from onceward.sources.signing import base64_hmac, iso_ms, matching_secret, sole_header
from onceward.sources.timed import TimedSource

HEADER = "X-Zendesk-Webhook-Signature"
TIME_HEADER = "X-Zendesk-Webhook-Signature-Timestamp"
INVOCATION_HEADER = "X-Zendesk-Webhook-Invocation-Id"
EVENT_PREFIX = "zen:event-type:"
INVOKED = "invoked"
"""The type of a delivery whose body says none."""


class Zendesk(TimedSource):
    """Deliveries of a Zendesk webhook: of its own events, and of triggers and automations.

    Args:
        name: see `Source`.
        secrets: the webhook's signing secrets, used as the text they are.
        insecure: see `Source`.
        tolerance: how far the signed time may lie from now, before or after.

    Of an event that Zendesk makes itself, id, type (``zen:event-type:ticket.created``), subject and
    time stand in the body. Of a trigger's call the id is the header with the invocation's id, which
    is not signed; the type is the body's ``type`` if its author gave it one, else ``invoked``; the
    payload is the JSON value, the text, or null when there is no body.
    """

    kind: ClassVar[str] = "zendesk"
    docs_url: ClassVar[str] = "https://developer.zendesk.com/documentation/webhooks/verifying"
    docs_date: ClassVar[str] = "2026-10-31"
    reply_deadline: ClassVar[timedelta | None] = timedelta(seconds=10)

    def verify(self, request: HttpRequest, now_ms: int) -> Verified:
        """Check the signature, then the age."""
        if self.insecure:
            return UNVERIFIED
        given = sole_header(request, HEADER)
        sent_at = sole_header(request, TIME_HEADER)
        index = matching_secret(self.secrets, sent_at + request.body, [given], encoding="base64")
        sent_at_ms = iso_ms(sent_at)
        self.check_age(sent_at_ms, now_ms)
        return Verified(index, sent_at_ms)

    def normalize(self, request: HttpRequest) -> list[Incoming]:
        """Give the one event of the delivery."""
        payload, is_json = _payload(request)
        body = payload if isinstance(payload, dict) else {}
        said_type = body.get("type")
        is_own = "zendesk_event_version" in body or (
            isinstance(said_type, str) and said_type.startswith(EVENT_PREFIX)
        )
        if is_own:
            event_id = identifier(body.get("id"), 'the field "id"')
            is_derived = False
        else:
            is_derived = not request.header_values(INVOCATION_HEADER)
            event_id = (
                derived_id("zendesk", payload) if is_derived else sole_text_header(request, INVOCATION_HEADER)
            )
        return [
            Incoming(
                id=event_id,
                type=identifier(said_type, 'the field "type"')
                if is_own
                else subject_or_none(said_type) or INVOKED,
                payload=payload,
                payload_is_body=is_json,
                subject=subject_or_none(body.get("subject")),
                occurred_at_ms=iso_or_none(body.get("time")),
                id_is_signed=is_own or is_derived,
                id_is_derived=is_derived,
            )
        ]

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
        """Give the headers of a Zendesk delivery; *event_id* is the invocation's id."""
        moment = datetime.fromtimestamp(now_ms / 1000, UTC)
        sent_at = moment.isoformat(timespec="seconds").replace("+00:00", "Z")
        signature = base64_hmac(self.signing_key(secret_index), sent_at.encode() + body)
        headers = {
            "Content-Type": "application/json; charset=utf-8",
            TIME_HEADER: sent_at,
            HEADER: signature.decode(),
        }
        return headers | ({INVOCATION_HEADER: event_id} if event_id else {})


def _payload(request: HttpRequest) -> tuple[Any, bool]:
    """Give the body's value, and whether the body is that value's JSON."""
    if not request.body.strip():
        return None, False
    try:
        return parse_json(request.body), True
    except BodyMalformed:
        if content_type(request) in ("", "application/json"):
            raise
    try:
        return request.body.decode("utf-8"), False
    except UnicodeDecodeError as error:
        raise malformed("the body is neither JSON nor text in UTF-8") from error
