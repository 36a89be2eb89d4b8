"""Shopify: base64 over the body, and an id made of event, topic and shop."""

from __future__ import annotations

import pytest

from onceward.core.messages import HttpRequest
from onceward.sources import Shopify
from tests.sources.known import NOW_MS, base64_of, example, hex_of, malformed, refused, sole_event

OLD, NEW = "hush", "shpss_0123456789abcdef"
SOURCE = Shopify(secrets=[NEW, OLD])
BODY = example("shopify", "orders/create")
# The formula of the documentation: base64 of HMAC-SHA256 of the raw body with the client secret.
HEADERS = {
    "X-Shopify-Topic": "orders/create",
    "X-Shopify-Shop-Domain": "one.myshopify.com",
    "X-Shopify-Event-Id": "98880550-7158-44d4-b7cd-2c97c8a091b5",
    "X-Shopify-Webhook-Id": "b54557e4-bdd9-4b37-8a5f-bf7d70bcd043",
    "X-Shopify-Triggered-At": "2026-03-29T18:00:27.877041743Z",
    "X-Shopify-Hmac-SHA256": base64_of(OLD, BODY),
}


def request(body: bytes = BODY, **changed: str | None) -> HttpRequest:
    named = {f"X-Shopify-{name.replace('_', '-')}": value for name, value in changed.items()}
    return HttpRequest.of(body, {k: v for k, v in (HEADERS | named).items() if v is not None})


def test_a_delivery_verifies_with_the_position_of_its_secret() -> None:
    assert SOURCE.verify(request(), NOW_MS).secret_index == 1
    assert SOURCE.verify(request(Hmac_SHA256=base64_of(NEW, BODY)), NOW_MS).secret_index == 0


@pytest.mark.parametrize(
    "signature",
    [
        None,
        "",
        hex_of(NEW, BODY),
        base64_of(NEW, BODY).rstrip("="),
        base64_of(NEW, BODY, "sha1"),
        base64_of("other", BODY),
        "sha256=" + base64_of(NEW, BODY),
        "é\xff",
    ],
)
def test_another_signature_is_refused(signature: str | None) -> None:
    refused(SOURCE, request(Hmac_SHA256=signature))


def test_a_changed_body_is_refused() -> None:
    refused(SOURCE, request(BODY.replace(b"388.00", b"3.88")))
    refused(SOURCE, request(BODY + b"\n"))


def test_an_event_is_read_with_its_number_exact() -> None:
    incoming = sole_event(SOURCE, request())

    assert incoming.type == "orders/create"
    assert incoming.subject == "820982911946154508"
    assert incoming.payload["id"] == 820982911946154508
    assert incoming.occurred_at_ms == 1774807227877
    assert incoming.id == '["98880550-7158-44d4-b7cd-2c97c8a091b5","orders/create","one.myshopify.com"]'
    assert not incoming.id_is_signed


def test_subscriptions_share_an_event_and_topics_and_shops_do_not() -> None:
    event = sole_event(SOURCE, request())

    assert sole_event(SOURCE, request(Webhook_Id="another subscription")).id == event.id
    assert sole_event(SOURCE, request(Topic="orders/paid")).id != event.id
    assert sole_event(SOURCE, request(Shop_Domain="two.myshopify.com")).id != event.id


def test_without_an_event_id_it_is_derived_from_what_retries_keep() -> None:
    event = sole_event(SOURCE, request(Event_Id=None))

    assert event.id_is_derived
    assert sole_event(SOURCE, request(Event_Id=None, Webhook_Id="x")).id == event.id
    assert sole_event(SOURCE, request(Event_Id=None, Triggered_At="2026-03-29T18:00:28Z")).id != event.id


def test_the_time_of_the_body_stands_in() -> None:
    body = b'{"updated_at": "2026-11-29T13:00:00-05:00"}'
    assert sole_event(SOURCE, request(body, Triggered_At=None)).occurred_at_ms == 1795975200000


def test_a_delivery_without_a_topic_is_malformed_and_without_a_shop_is_not() -> None:
    malformed(SOURCE, request(Topic=None))
    malformed(SOURCE, request(Topic="x" * 256))
    malformed(SOURCE, request(Shop_Domain="x" * 256))
    assert sole_event(SOURCE, request(Shop_Domain=None)).id.endswith('"orders/create",null]')


def test_what_cannot_be_read_is_malformed() -> None:
    malformed(SOURCE, request(b"[]"))
    malformed(SOURCE, request(Event_Id="x" * 250))


def test_the_reply_is_an_empty_200() -> None:
    for outcome in ("accepted", "duplicate"):
        answer = SOURCE.respond(outcome)
        assert answer is not None
        assert (answer.status, answer.body) == (200, b"")
    assert SOURCE.respond("refused") is SOURCE.respond("busy") is None


# --- Events ---------------------------------------------------------------------------------------

EVENTS_BODY = b"""{"topic":"Product","action":"update","handle":"product-updates","fields_changed":[
"product[id: 'gid://shopify/Product/123'].variants[id: 'gid://shopify/ProductVariant/456'].price"],
"query_variables":{"productId":"gid://shopify/Product/123","variantsId":"gid://shopify/ProductVariant/456"}}"""
EVENTS_HEADERS = {
    "Shopify-Topic": "Product",
    "Shopify-Action": "update",
    "Shopify-Handle": "product-updates",
    "Shopify-Shop-Domain": "one.myshopify.com",
    "Shopify-Event-Id": "98880550-7158-44d4-b7cd-2c97c8a091b5",
    "Shopify-Webhook-Id": "b54557e4-bdd9-4b37-8a5f-bf7d70bcd043",
    "Shopify-Triggered-At": "2026-03-29T18:00:27.877041743Z",
    "Shopify-Hmac-Sha256": base64_of(OLD, EVENTS_BODY),
}


def events_request(body: bytes = EVENTS_BODY, /, **changed: str | None) -> HttpRequest:
    named = {name.replace("_", "-"): value for name, value in changed.items()}
    return HttpRequest.of(body, {k: v for k, v in (EVENTS_HEADERS | named).items() if v is not None})


def test_events_verify_by_their_own_header_also_beside_the_older_one() -> None:
    assert SOURCE.verify(events_request(), NOW_MS).secret_index == 1
    both = events_request(X_Shopify_Hmac_SHA256=base64_of(OLD, EVENTS_BODY))
    assert SOURCE.verify(both, NOW_MS).secret_index == 1


@pytest.mark.parametrize(
    "candidate",
    [
        events_request(EVENTS_BODY + b" "),
        events_request(Shopify_Hmac_Sha256="x"),
        events_request(Shopify_Hmac_Sha256=""),
        events_request(Shopify_Hmac_Sha256="x", X_Shopify_Hmac_SHA256=base64_of(OLD, EVENTS_BODY)),
        events_request(Shopify_Hmac_Sha256=None),
        HttpRequest.of(EVENTS_BODY, [("Shopify-Hmac-Sha256", base64_of(OLD, EVENTS_BODY))] * 2),
    ],
)
def test_events_with_another_signature_are_refused(candidate: HttpRequest) -> None:
    refused(SOURCE, candidate)


def test_an_event_of_events_is_read() -> None:
    incoming = sole_event(SOURCE, events_request())

    assert incoming.type == "Product/update"
    assert incoming.subject == "gid://shopify/Product/123"
    assert incoming.occurred_at_ms == 1774807227877
    assert incoming.id == '["b54557e4-bdd9-4b37-8a5f-bf7d70bcd043","Product/update","one.myshopify.com"]'
    assert not incoming.id_is_signed
    named = events_request(
        Shopify_Topic=None, Shopify_Action=None, Shopify_Resource_Id="gid://shopify/Product/9"
    )
    assert sole_event(SOURCE, named).type == "Product/update"
    assert sole_event(SOURCE, named).subject == "gid://shopify/Product/9"


def test_events_without_a_delivery_id_are_told_apart_by_what_they_are_about() -> None:
    first = sole_event(SOURCE, events_request(Shopify_Webhook_Id=None))

    assert sole_event(SOURCE, events_request(Shopify_Webhook_Id=None)).id == first.id
    for other in (
        events_request(Shopify_Webhook_Id=None, Shopify_Handle="x"),
        events_request(Shopify_Webhook_Id=None, Shopify_Resource_Id="x"),
        events_request(Shopify_Webhook_Id=None, Shopify_Event_Id="x"),
    ):
        assert sole_event(SOURCE, other).id != first.id
    bare = events_request(Shopify_Webhook_Id=None, Shopify_Event_Id=None)
    assert sole_event(SOURCE, bare).id == sole_event(SOURCE, bare).id != first.id


def test_events_that_do_not_say_what_happened_are_malformed() -> None:
    malformed(SOURCE, events_request(b"{}", Shopify_Topic=None))
    malformed(SOURCE, events_request(b"{}", Shopify_Action=None))
    malformed(SOURCE, events_request(b"[]"))
    malformed(SOURCE, events_request(Shopify_Topic="x" * 250))
