"""Shopify: ``X-Shopify-Hmac-SHA256``, base64 over the body, with the app's client secret.

One change reaches every subscription to it, so an event is identified by ``X-Shopify-Event-Id``
together with its topic and shop. ``X-Shopify-Webhook-Id`` names the subscription's delivery and is
no event's id. All of these stand outside the signature, and no time is signed.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import ClassVar

import msgspec

from onceward.core.arrival import UNVERIFIED, Incoming, Outcome, Verified
from onceward.core.ids import content_hash
from onceward.core.messages import HttpRequest, HttpResponse
from onceward.sources.base import (
    Source,
    derived_id,
    identifier,
    parse_object,
    sole_text_header,
    subject_or_none,
)
from onceward.sources.parts.fields import first_at, iso_or_none
from onceward.sources.parts.replies import EMPTY_200, when_taken
from onceward.sources.signing import base64_hmac, matching_secret, sole_header

HEADER = "X-Shopify-Hmac-SHA256"
EVENT_ID_HEADER = "X-Shopify-Event-Id"
TOPIC_HEADER = "X-Shopify-Topic"
SHOP_HEADER = "X-Shopify-Shop-Domain"
TRIGGERED_HEADER = "X-Shopify-Triggered-At"


class Shopify(Source):
    """Webhooks of a Shopify app or shop, of any number of shops.

    Args:
        name: see `Source`.
        secrets: the app's client secret; after a rotation Shopify signs with the old one for a while.
        insecure: see `Source`.
        shop: what `sign` says as the shop's domain.

    The id is a JSON array of event id, topic and shop. The type is the topic (``orders/create``),
    the subject the ``id`` of the object, exact however long.
    """

    kind: ClassVar[str] = "shopify"
    docs_url: ClassVar[str] = "https://shopify.dev/docs/apps/build/webhooks/subscribe/https"
    docs_date: ClassVar[str] = "2026-11-29"
    retry_horizon: ClassVar[timedelta | None] = timedelta(hours=4)
    reply_deadline: ClassVar[timedelta | None] = timedelta(seconds=5)

    def __init__(
        self,
        *,
        name: str | None = None,
        secrets: str | Sequence[str] = (),
        insecure: bool = False,
        shop: str = "example.myshopify.com",
    ) -> None:
        super().__init__(name=name, secrets=secrets, insecure=insecure)
        self.shop = shop

    def verify(self, request: HttpRequest, now_ms: int) -> Verified:
        """Check the signature; Shopify signs no time, so *now_ms* is not used."""
        if self.insecure:
            return UNVERIFIED
        given = sole_header(request, HEADER)
        return Verified(matching_secret(self.secrets, request.body, [given], encoding="base64"))

    def normalize(self, request: HttpRequest) -> list[Incoming]:
        """Give the one event of the delivery."""
        topic = sole_text_header(request, TOPIC_HEADER)
        # Proxies strip headers, and the id of an event does without its shop.
        shop = sole_text_header(request, SHOP_HEADER) if request.header_values(SHOP_HEADER) else None
        body = parse_object(request.body)
        has_id = bool(request.header_values(EVENT_ID_HEADER))
        triggered_at = request.header(TRIGGERED_HEADER)
        if has_id:
            parts = (sole_text_header(request, EVENT_ID_HEADER), topic, shop)
            event_id = identifier(msgspec.json.encode(parts).decode(), "the event id with topic and shop")
        else:
            event_id = derived_id(topic, shop, triggered_at, content_hash(request.body))
        occurred_at_ms = iso_or_none(triggered_at)
        if occurred_at_ms is None:
            occurred_at_ms = iso_or_none(first_at(body, "updated_at", "created_at"))
        return [
            Incoming(
                id=event_id,
                type=topic,
                payload=body,
                payload_is_body=True,
                subject=subject_or_none(first_at(body, "id", "admin_graphql_api_id")),
                occurred_at_ms=occurred_at_ms,
                id_is_signed=False,
                id_is_derived=not has_id,
            )
        ]

    def respond(self, outcome: Outcome) -> HttpResponse | None:
        """Give an empty 200, which is what Shopify's documentation asks for."""
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
        """Give the headers of a Shopify delivery; *event_id* is the event's own, without its scope."""
        signature = base64_hmac(self.signing_key(secret_index), body)
        return {
            "Content-Type": "application/json",
            TOPIC_HEADER: event_type,
            SHOP_HEADER: self.shop,
            EVENT_ID_HEADER: event_id,
            HEADER: signature.decode(),
        }
