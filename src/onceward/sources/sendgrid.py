"""SendGrid's signed event webhook: ECDSA (P-256, SHA-256) over timestamp and body.

The body ends in CR LF, which is signed too; whatever strips it breaks the signature.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, ClassVar

from onceward.core.arrival import UNVERIFIED, Incoming, Verified
from onceward.core.duration import Duration
from onceward.core.errors import BodyMalformed, SignatureInvalid
from onceward.core.messages import HttpRequest
from onceward.sources.base import derived_id, identifier, parse_json, subject_or_none
from onceward.sources.parts.asymmetric import canonical_base64, public_key, verifies
from onceward.sources.parts.fields import first_at, seconds_ms
from onceward.sources.parts.private_keys import key_at, signature_of
from onceward.sources.parts.secret import secrets_from
from onceward.sources.signing import sole_header, unix_ms
from onceward.sources.timed import TimedSource

HEADER = "X-Twilio-Email-Event-Webhook-Signature"
TIMESTAMP_HEADER = "X-Twilio-Email-Event-Webhook-Timestamp"


class SendGrid(TimedSource):
    """Events of one SendGrid event webhook; a delivery is a list of them.

    Args:
        name: see `Source`.
        secrets: the webhook's verification key (the public key, as SendGrid shows it).
        insecure: see `Source`.
        tolerance: see `TimedSource`; by default the signed time is not compared with now: SendGrid
            tries for a day and does not say whether it signs anew each time.
        private_keys: for tests, PEM keys with which `sign` plays SendGrid, in the order of *secrets*.

    The id is ``sg_event_id``, the type ``event`` (``delivered``, ``bounce``), the subject the
    message (``sg_message_id``), else the address.
    """

    kind: ClassVar[str] = "sendgrid"
    docs_url: ClassVar[str] = (
        "https://www.twilio.com/docs/sendgrid/for-developers/tracking-events/"
        "getting-started-event-webhook-security-features"
    )
    docs_date: ClassVar[str] = "2026-11-29"
    retry_horizon: ClassVar[timedelta | None] = timedelta(hours=24)
    reply_deadline: ClassVar[timedelta | None] = timedelta(seconds=10)
    is_batching: ClassVar[bool] = True
    tolerance_default: ClassVar[timedelta | None] = None

    def __init__(
        self,
        *,
        name: str | None = None,
        secrets: str | Sequence[str] = (),
        insecure: bool = False,
        tolerance: Duration | None = None,
        private_keys: str | Sequence[str] = (),
    ) -> None:
        super().__init__(name=name, secrets=secrets, insecure=insecure, tolerance=tolerance)
        self._keys = [
            public_key(secret.key.decode("utf-8"), "ecdsa-p256-sha256", source=self.name)
            for secret in self.secrets
        ]
        self._private_keys = secrets_from(private_keys, source=self.name)

    def verify(self, request: HttpRequest, now_ms: int) -> Verified:
        """Check the signature, then the age where a tolerance is set."""
        if self.insecure:
            return UNVERIFIED
        signature = canonical_base64(sole_header(request, HEADER))
        if signature is None:
            raise SignatureInvalid(f"{HEADER} is not base64")
        timestamp = sole_header(request, TIMESTAMP_HEADER)
        sent_at_ms = unix_ms(timestamp)
        message = timestamp + request.body
        for index, key in enumerate(self._keys):
            if verifies(key, message, signature, "ecdsa-p256-sha256"):
                self.check_age(sent_at_ms, now_ms)
                return Verified(index, sent_at_ms)
        raise SignatureInvalid(f"no signature matches, {len(self._keys)} public keys tried")

    def normalize(self, request: HttpRequest) -> list[Incoming]:
        """Give every event of the list, in its order."""
        items = parse_json(request.body)
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise BodyMalformed(
                "The body is no list of events.",
                means="The delivery was genuine but cannot be understood; nothing was stored.",
                todo="Point SendGrid's event webhook here, not its inbound parse.",
            )
        return [_event(item) for item in items]

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
        """Give the headers of a SendGrid delivery; takes a private key, see the class."""
        seconds = b"%d" % (now_ms // 1000)
        key = key_at(self._private_keys, secret_index, source=self.name)
        return {
            "Content-Type": "application/json;charset=utf-8",
            HEADER: base64.b64encode(signature_of(key, seconds + body)).decode(),
            TIMESTAMP_HEADER: seconds.decode(),
        }


def _event(item: dict[str, Any]) -> Incoming:
    has_id = item.get("sg_event_id") is not None
    return Incoming(
        id=identifier(item["sg_event_id"], 'the field "sg_event_id"') if has_id else derived_id(item),
        type=identifier(item.get("event"), 'the field "event"'),
        payload=item,
        subject=subject_or_none(first_at(item, "sg_message_id", "email")),
        occurred_at_ms=seconds_ms(item.get("timestamp")),
        id_is_derived=not has_id,
    )
