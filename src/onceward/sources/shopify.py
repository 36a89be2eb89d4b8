"""Shopify: ``X-Shopify-Hmac-SHA256``, base64 over the body, with the app's client secret.

One change reaches every subscription to it, so an event is identified by ``X-Shopify-Event-Id``
together with its topic and shop. ``X-Shopify-Webhook-Id`` names the subscription's delivery and is
no event's id. All of these stand outside the signature, and no time is signed.

Shopify's newer Events come with headers of their own, without ``X-`` (some with the older ones beside
them), and are told apart by their signature header. Each belongs to one subscription and its handle, and
is identified by ``Shopify-Webhook-Id``, which stays when it is sent again.
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
from onceward.sources.parts.fields import first_at, iso_or_none, text_or_none
from onceward.sources.parts.replies import EMPTY_200, when_taken
from onceward.sources.signing import base64_hmac, matching_secret, sole_header

HEADER = "X-Shopify-Hmac-SHA256"
EVENT_ID_HEADER = "X-Shopify-Event-Id"
TOPIC_HEADER = "X-Shopify-Topic"
SHOP_HEADER = "X-Shopify-Shop-Domain"
TRIGGERED_HEADER = "X-Shopify-Triggered-At"
EVENTS_HEADER = "Shopify-Hmac-Sha256"


class Shopify(Source):
    """Webhooks of a Shopify app or shop, of any number of shops.

    Args:
        name: see `Source`.
        secrets: the app's client secret; after a rotation Shopify signs with the old one for a while.
        insecure: see `Source`.
        shop: what `sign` says as the shop's domain.

    The id is a JSON array of event id, topic and shop. The type is the topic (``orders/create``),
    the subject the ``id`` of the object, exact however long. Of Events the id is made of
    ``Shopify-Webhook-Id``, the type is topic and action (``Product/update``), the subject the changed object's
    global id.
    """

    kind: ClassVar[str] = "shopify"
    docs_url: ClassVar[str] = "https://shopify.dev/docs/apps/build/webhooks/subscribe/https"
    docs_date: ClassVar[str] = "2026-11-30"
    retry_horizon: ClassVar[timedelta | None] = timedelta(hours=4)
    retry_docs: ClassVar[str] = "https://shopify.dev/changelog/updates-to-webhook-retry-mechanism"
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
        given = sole_header(request, EVENTS_HEADER if _is_of_events(request) else HEADER)
        return Verified(matching_secret(self.secrets, request.body, [given], encoding="base64"))

    def normalize(self, request: HttpRequest) -> list[Incoming]:
        """Give the one event of the delivery."""
        if _is_of_events(request):
            return [_from_events(request)]
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


def _is_of_events(request: HttpRequest) -> bool:
    return bool(request.header_values(EVENTS_HEADER))


def _from_events(request: HttpRequest) -> Incoming:
    body = parse_object(request.body)
    topic = identifier(_said(request, "Shopify-Topic") or body.get("topic"), "the topic")
    action = identifier(_said(request, "Shopify-Action") or body.get("action"), "the action")
    handle = _said(request, "Shopify-Handle") or text_or_none(body.get("handle"))
    shop = _said(request, "Shopify-Shop-Domain")
    changed = _said(request, "Shopify-Resource-Id")
    variables = body.get("query_variables")
    if changed is None and isinstance(variables, dict):
        changed = text_or_none(variables.get(f"{topic[:1].lower()}{topic[1:]}Id"))
    webhook_id, event_id = _said(request, "Shopify-Webhook-Id"), _said(request, "Shopify-Event-Id")
    triggered_at = request.header("Shopify-Triggered-At")
    event_type = identifier(f"{topic}/{action}", "the topic with its action")
    if webhook_id is not None:
        found = msgspec.json.encode((webhook_id, event_type, shop)).decode()
    elif event_id is not None:
        # One event may reach several subscriptions, and be about several objects.
        found = derived_id(event_id, event_type, shop, handle, changed)
    else:
        found = derived_id(event_type, shop, handle, triggered_at, content_hash(request.body))
    return Incoming(
        id=identifier(found, "the webhook id with topic and shop"),
        type=event_type,
        payload=body,
        payload_is_body=True,
        subject=subject_or_none(changed),
        occurred_at_ms=iso_or_none(triggered_at),
        id_is_signed=False,
        id_is_derived=webhook_id is None,
    )


def _said(request: HttpRequest, name: str) -> str | None:
    """Give a header that may be missing, as clean text."""
    return sole_text_header(request, name) if request.header_values(name) else None
