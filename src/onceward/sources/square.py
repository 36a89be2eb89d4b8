"""Square: ``x-square-hmacsha256-signature: <base64>`` over the notification URL and the body.

The older SHA-1 header that Square sends beside it is never looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import ClassVar

from onceward.core.arrival import UNVERIFIED, Incoming, Verified
from onceward.core.errors import SignatureInvalid
from onceward.core.messages import HttpRequest
from onceward.sources.base import Source, identifier, parse_object, subject_or_none
from onceward.sources.parts.called_url import called_urls, checked_public_url
from onceward.sources.parts.fields import iso_or_none
from onceward.sources.signing import base64_hmac, matching_secret, sole_header

HEADER = "x-square-hmacsha256-signature"


class Square(Source):
    """Events of a Square webhook subscription.

    Args:
        name: see `Source`.
        secrets: the subscription's signature keys, used as they are.
        insecure: see `Source`.
        public_url: the address as it is registered with Square, or its scheme and host. Without it
            the address that the receiver saw is used, which behind a proxy is often another.

    The subject is the id of the object (``data.id``).
    """

    kind: ClassVar[str] = "square"
    docs_url: ClassVar[str] = "https://developer.squareup.com/docs/webhooks/step3validate"
    docs_date: ClassVar[str] = "2026-10-31"
    # Another of its pages says 48 hours.
    retry_horizon: ClassVar[timedelta | None] = timedelta(hours=72)
    retry_docs: ClassVar[str] = "https://developer.squareup.com/docs/webhooks/troubleshooting"
    reply_deadline: ClassVar[timedelta | None] = timedelta(seconds=10)

    def __init__(
        self,
        *,
        name: str | None = None,
        secrets: str | Sequence[str] = (),
        insecure: bool = False,
        public_url: str | None = None,
    ) -> None:
        super().__init__(name=name, secrets=secrets, insecure=insecure)
        self.public_url = checked_public_url(public_url, source=self.name)

    def verify(self, request: HttpRequest, now_ms: int) -> Verified:
        """Check the signature; Square signs no time, so *now_ms* is not used."""
        if self.insecure:
            return UNVERIFIED
        given = sole_header(request, HEADER)
        refusal = SignatureInvalid("no address was called")
        for url in called_urls(request, self.public_url):
            try:
                return Verified(matching_secret(self.secrets, url + request.body, [given], encoding="base64"))
            except SignatureInvalid as error:
                refusal = error
        raise refusal

    def normalize(self, request: HttpRequest) -> list[Incoming]:
        """Give the one event of the body."""
        body = parse_object(request.body)
        data = body.get("data")
        return [
            Incoming(
                id=identifier(body.get("event_id"), 'the field "event_id"'),
                type=identifier(body.get("type"), 'the field "type"'),
                payload=body,
                payload_is_body=True,
                subject=subject_or_none(data.get("id")) if isinstance(data, dict) else None,
                occurred_at_ms=iso_or_none(body.get("created_at")),
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
        """Give the headers of a Square delivery to *url*, or to ``public_url`` when it is empty."""
        called = (url or self.public_url or "").encode()
        signature = base64_hmac(self.signing_key(secret_index), called + body)
        return {"Content-Type": "application/json", HEADER: signature.decode()}
