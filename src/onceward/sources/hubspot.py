"""HubSpot v3: ``X-HubSpot-Signature-v3: <base64>`` over method, address, body and time.

The older versions v1 and v2 are plain hashes without a time; they are never looked at.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, ClassVar

from onceward.core.arrival import UNVERIFIED, Incoming, Verified
from onceward.core.duration import Duration
from onceward.core.errors import SignatureInvalid
from onceward.core.messages import HttpRequest
from onceward.sources.base import derived_id, identifier, parse_json, subject_or_none
from onceward.sources.parts.called_url import called_urls, checked_public_url
from onceward.sources.parts.fields import millis_or_none
from onceward.sources.parts.shape import object_of
from onceward.sources.signing import base64_hmac, matching_secret, sole_header, unix_ms
from onceward.sources.timed import TimedSource

HEADER = "X-HubSpot-Signature-v3"
TIME_HEADER = "X-HubSpot-Request-Timestamp"
ACTION = "action"
"""The type of a delivery that is no list of events: a workflow's call, a card's request."""

# The percent-encodings that HubSpot's page says are decoded before signing, and no others.
_DECODED = {
    b"%3a": b":",
    b"%2f": b"/",
    b"%3f": b"?",
    b"%40": b"@",
    b"%21": b"!",
    b"%24": b"$",
    b"%27": b"'",
    b"%28": b"(",
    b"%29": b")",
    b"%2a": b"*",
    b"%2c": b",",
    b"%3b": b";",
}
_ENCODED = re.compile(b"|".join(_DECODED), re.IGNORECASE)


class HubSpot(TimedSource):
    """Events of a HubSpot app's subscriptions, up to a hundred in a delivery.

    Args:
        name: see `Source`.
        secrets: the app's client secret; list old and new while you change it.
        insecure: see `Source`.
        public_url: the address as the app has it, or its scheme and host. Without it the address that
            the receiver saw is used, which behind a proxy is often another.
        tolerance: how far the signed time may lie from now, before or after.

    HubSpot does not promise that ``eventId`` is unique, so an event's id is derived from it, the
    subscription, the account, the object and the time. ``attemptNumber`` is left out of id and
    payload. The type is ``subscriptionType`` (``contact.creation``), the subject ``objectId``.
    """

    kind: ClassVar[str] = "hubspot"
    docs_url: ClassVar[str] = (
        "https://developers.hubspot.com/docs/apps/developer-platform/build-apps/authentication/request-validation"
    )
    docs_date: ClassVar[str] = "2026-10-31"
    # A workflow's call; subscriptions are tried ten times within a day.
    retry_horizon: ClassVar[timedelta | None] = timedelta(days=3)
    retry_docs: ClassVar[str] = "https://legacydocs.hubspot.com/docs/methods/workflows/webhook_information"
    reply_deadline: ClassVar[timedelta | None] = timedelta(seconds=5)
    is_batching: ClassVar[bool] = True

    def __init__(
        self,
        *,
        name: str | None = None,
        secrets: str | Sequence[str] = (),
        insecure: bool = False,
        public_url: str | None = None,
        tolerance: Duration | None = None,
    ) -> None:
        super().__init__(name=name, secrets=secrets, insecure=insecure, tolerance=tolerance)
        self.public_url = checked_public_url(public_url, source=self.name)

    def verify(self, request: HttpRequest, now_ms: int) -> Verified:
        """Check the signature of version 3, then the age."""
        if self.insecure:
            return UNVERIFIED
        given = sole_header(request, HEADER)
        sent_at = sole_header(request, TIME_HEADER)
        sent_at_ms = unix_ms(sent_at, "ms")
        refusal = SignatureInvalid("no address was called")
        for url in called_urls(request, self.public_url):
            message = _signed_text(request.method, url, request.body, sent_at)
            try:
                index = matching_secret(self.secrets, message, [given], encoding="base64")
            except SignatureInvalid as error:
                refusal = error
                continue
            self.check_age(sent_at_ms, now_ms)
            return Verified(index, sent_at_ms)
        raise refusal

    def normalize(self, request: HttpRequest) -> list[Incoming]:
        """Give the events of the list, or the one of any other body."""
        body = parse_json(request.body)
        if isinstance(body, list):
            return [_event(entry) for entry in body]
        return [_event(body) if isinstance(body, dict) and "subscriptionType" in body else _action(body)]

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
        """Give the headers of a delivery to *url*, or to ``public_url`` when it is empty."""
        called = (url or self.public_url or "").encode()
        sent_at = b"%d" % now_ms
        signature = base64_hmac(self.signing_key(secret_index), _signed_text("POST", called, body, sent_at))
        return {
            "Content-Type": "application/json",
            TIME_HEADER: sent_at.decode(),
            HEADER: signature.decode(),
        }


def _signed_text(method: str, url: bytes, body: bytes, sent_at: bytes) -> bytes:
    decoded = _ENCODED.sub(lambda found: _DECODED[found[0].lower()], url)
    return method.encode("utf-8", "replace") + decoded + body + sent_at


def _event(found: object) -> Incoming:
    entry = object_of(found, "an event of the list")
    payload: dict[str, Any] = {name: value for name, value in entry.items() if name != "attemptNumber"}
    event_type = identifier(entry.get("subscriptionType"), 'the field "subscriptionType"')
    names = ("eventId", "subscriptionId", "portalId", "appId", "occurredAt", "objectId")
    has_id = entry.get("eventId") is not None
    return Incoming(
        id=derived_id("hubspot", event_type, [entry.get(name) for name in names] if has_id else payload),
        type=event_type,
        payload=payload,
        subject=subject_or_none(entry.get("objectId")),
        occurred_at_ms=millis_or_none(entry.get("occurredAt")),
        id_is_derived=True,
    )


def _action(body: Any) -> Incoming:
    callback_id = body.get("callbackId") if isinstance(body, dict) else None
    subject = body.get("objectId", body.get("vid")) if isinstance(body, dict) else None
    return Incoming(
        id=derived_id("hubspot", ACTION, body if callback_id is None else callback_id),
        type=ACTION,
        payload=body,
        payload_is_body=True,
        subject=subject_or_none(subject),
        id_is_derived=True,
    )
