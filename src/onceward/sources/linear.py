"""Linear: ``Linear-Signature``, hexadecimal over the body, which holds the time of sending."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar

from onceward.core.arrival import UNVERIFIED, Incoming, Outcome, Verified
from onceward.core.errors import BodyMalformed, SignatureInvalid
from onceward.core.messages import HttpRequest, HttpResponse
from onceward.sources.base import derived_id, identifier, parse_object, sole_text_header, subject_or_none
from onceward.sources.parts.fields import at, iso_or_none, millis_or_none, text_or_none
from onceward.sources.parts.replies import EMPTY_200, when_taken
from onceward.sources.signing import hex_hmac, matching_secret, sole_header
from onceward.sources.timed import TimedSource

HEADER = "Linear-Signature"
ID_HEADER = "Linear-Delivery"
EVENT_HEADER = "Linear-Event"
TIME_FIELD = "webhookTimestamp"


class Linear(TimedSource):
    """Deliveries of a Linear webhook.

    Args:
        name: see `Source`.
        secrets: the webhook's signing secret.
        insecure: see `Source`.
        tolerance: see `TimedSource`; one minute by default, as in Linear's own library.

    The id is ``Linear-Delivery``, or derived from the body without its time of sending. The type is
    ``type`` and ``action`` of the body with a dot (``Issue.create``), the subject the object's id.
    """

    kind: ClassVar[str] = "linear"
    docs_url: ClassVar[str] = "https://linear.app/developers/webhooks"
    docs_date: ClassVar[str] = "2026-11-29"
    # After a minute, an hour and six.
    retry_horizon: ClassVar[timedelta | None] = timedelta(hours=7, minutes=1)
    reply_deadline: ClassVar[timedelta | None] = timedelta(seconds=5)
    tolerance_default: ClassVar[timedelta | None] = timedelta(seconds=60)

    def verify(self, request: HttpRequest, now_ms: int) -> Verified:
        """Check the signature, then the age by ``webhookTimestamp`` of the body."""
        if self.insecure:
            return UNVERIFIED
        index = matching_secret(self.secrets, request.body, [sole_header(request, HEADER)])
        try:
            sent_at_ms = millis_or_none(parse_object(request.body).get(TIME_FIELD))
        except BodyMalformed:
            sent_at_ms = None
        if sent_at_ms is None:
            # Without its time a delivery could be sent again for ever; Linear always writes one.
            raise SignatureInvalid(f"the signature matches, and the body has no {TIME_FIELD}")
        self.check_age(sent_at_ms, now_ms)
        return Verified(index, sent_at_ms)

    def normalize(self, request: HttpRequest) -> list[Incoming]:
        """Give the one event of the delivery."""
        body = parse_object(request.body)
        has_id = bool(request.header_values(ID_HEADER))
        name = identifier(body.get("type"), 'the field "type"')
        action = text_or_none(body.get("action"))
        return [
            Incoming(
                id=sole_text_header(request, ID_HEADER)
                if has_id
                else derived_id({key: value for key, value in body.items() if key != TIME_FIELD}),
                type=identifier(f"{name}.{action}", 'the field "action"') if action else name,
                payload=body,
                payload_is_body=True,
                subject=_about(body),
                occurred_at_ms=iso_or_none(body.get("createdAt")),
                id_is_signed=not has_id,
                id_is_derived=not has_id,
            )
        ]

    def respond(self, outcome: Outcome) -> HttpResponse | None:
        """Give an empty 200; Linear takes no other status."""
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
        """Give the headers of a Linear delivery; its time must stand in the body already.

        `signed_request` puts it there.
        """
        headers = {
            "Content-Type": "application/json; charset=utf-8",
            EVENT_HEADER: event_type.partition(".")[0],
            HEADER: hex_hmac(self.signing_key(secret_index), body).decode(),
        }
        return headers | ({ID_HEADER: event_id} if event_id else {})

    def signed_request(
        self,
        body: bytes,
        now_ms: int,
        *,
        event_id: str = "",
        event_type: str = "",
        secret_index: int = 0,
        url: str = "",
    ) -> HttpRequest:
        """Give the request with ``webhookTimestamp`` of the body set to *now_ms*, then signed."""
        return super().signed_request(
            with_member(body, TIME_FIELD, now_ms),
            now_ms,
            event_id=event_id,
            event_type=event_type,
            secret_index=secret_index,
            url=url,
        )


def with_member(body: bytes, name: str, value: Any) -> bytes:
    """Give the JSON object *body* with one member set; anything else comes back as it is."""
    import msgspec

    try:
        return msgspec.json.encode(parse_object(body) | {name: value})
    except BodyMalformed:
        return body


def _about(body: dict[str, Any]) -> str | None:
    for name in ("data", "agentSession", "notification", "issueData", "oauthClient"):
        found = subject_or_none(at(body, name, "id"))
        if found is not None:
            return found
    return None
