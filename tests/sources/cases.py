"""Genuine deliveries of every kind of source, signed here with the standard library by the sender's
documented formula, never with a source's own ``sign``."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Sequence
from typing import Any

from onceward.core.messages import HttpRequest
from onceward.sources import Source, create, kinds
from onceward.testing.source_suite import Example, SourceCase
from tests.sources.signed_cases import has_examples, signed_case

SECRET = "a secret of 32 characters and two"
OTHER = "another secret, as long as that is"
NOW_S = 1_780_000_000
NOW_MS = NOW_S * 1000
ISO_NOW = "2026-05-28T20:26:40Z"
ISO_SOON = "2026-05-28T20:27:10Z"
URL = "https://shop.example.com/hooks/trello"

Signer = Callable[[bytes, int], dict[str, str]]


def raw_mac(message: bytes, algorithm: str = "sha256", secret: str = SECRET) -> bytes:
    return hmac.new(secret.encode(), message, getattr(hashlib, algorithm)).digest()


def hex_mac(message: bytes, algorithm: str = "sha256", secret: str = SECRET) -> str:
    return raw_mac(message, algorithm, secret).hex()


def b64_mac(message: bytes, algorithm: str = "sha256", secret: str = SECRET) -> str:
    return base64.b64encode(raw_mac(message, algorithm, secret)).decode()


def dumped(value: Any) -> bytes:
    # As senders write it: slashes, characters beyond ASCII and numbers beyond 2**53 included.
    return json.dumps(
        value | {"note": "é/\u2028", "big": 2**60} if isinstance(value, dict) else value
    ).encode()


def maker(kind: str, **options: Any) -> Callable[[Sequence[str]], Source]:
    def make(secrets: Sequence[str]) -> Source:
        trust = {"secrets": list(secrets)} if secrets else {"insecure": True}
        return create(kind, **trust, **options)

    return make


def case(
    kind: str,
    bodies: Sequence[Any],
    sign: Signer,
    *,
    again: Callable[[Any], Any] | None = None,
    headers: Sequence[dict[str, str]] = ({}, {}),
    url: str = "",
    options: dict[str, Any] | None = None,
    **facts: Any,
) -> SourceCase:
    """Give a case of JSON bodies; *again* changes a body as the sender does at its next attempt."""
    examples = []
    for number, value in enumerate(bodies):
        body, extra = dumped(value), headers[number % len(headers)]
        second = dumped(value if again is None else again(value))
        first, repeated = (
            HttpRequest.of(
                raw,
                {"Content-Type": "application/json", **extra, **sign(raw, at_s)},
                url=url,
                received_at_ms=at_s * 1000,
            )
            for raw, at_s in ((body, NOW_S), (second, NOW_S + 30))
        )
        examples.append(Example(first, NOW_MS, repeated))
    return SourceCase(maker(kind, **(options or {})), SECRET, OTHER, tuple(examples), **facts)


def plain(header: str, *, algorithm: str = "sha256", encode: Any = hex_mac, prefix: str = "") -> Signer:
    return lambda body, at_s: {header: prefix + encode(body, algorithm)}


def iso(at_s: int) -> str:
    return {NOW_S: ISO_NOW, NOW_S + 30: ISO_SOON}[at_s]


def stripe(body: bytes, at_s: int) -> dict[str, str]:
    return {"Stripe-Signature": f"t={at_s},v1={hex_mac(b'%d.%b' % (at_s, body))},v0=00"}


def buildkite(body: bytes, at_s: int) -> dict[str, str]:
    mac = hex_mac(b"%d.%b" % (at_s, body))
    return {
        "X-Buildkite-Signature": f"timestamp={at_s},signature={mac}",
        "X-Buildkite-Event": "build.finished",
    }


def calendly(body: bytes, at_s: int) -> dict[str, str]:
    return {"Calendly-Webhook-Signature": f"t={at_s},v1={hex_mac(b'%d.%b' % (at_s, body))}"}


def box(body: bytes, at_s: int) -> dict[str, str]:
    stamp = iso(at_s)
    return {
        "BOX-DELIVERY-ID": f"delivery-{at_s}",
        "BOX-DELIVERY-TIMESTAMP": stamp,
        "BOX-SIGNATURE-ALGORITHM": "HmacSHA256",
        "BOX-SIGNATURE-VERSION": "1",
        "BOX-SIGNATURE-PRIMARY": b64_mac(body + stamp.encode()),
        "BOX-SIGNATURE-SECONDARY": b64_mac(body + stamp.encode(), secret="the second of Box's keys"),
    }


def twitch(body: bytes, at_s: int) -> dict[str, str]:
    # Twitch's times have nanoseconds; the id is the event's and stays.
    message_id = f"id-{hashlib.sha256(body).hexdigest()[:8]}"
    stamp = iso(at_s).replace("Z", ".634234626Z")
    mac = hex_mac(message_id.encode() + stamp.encode() + body)
    return {
        "Twitch-Eventsub-Message-Id": message_id,
        "Twitch-Eventsub-Message-Timestamp": stamp,
        "Twitch-Eventsub-Message-Type": "notification",
        "Twitch-Eventsub-Message-Signature": f"sha256={mac}",
    }


def circleci(body: bytes, at_s: int) -> dict[str, str]:
    return {
        "circleci-signature": f"v1={hex_mac(body)},v2=0011,v3=2233",
        "circleci-event-type": "job-completed",
    }


def pagerduty(body: bytes, at_s: int) -> dict[str, str]:
    return {"X-PagerDuty-Signature": f"v1={hex_mac(body, secret='an older one')},v1={hex_mac(body)}"}


def docusign(body: bytes, at_s: int) -> dict[str, str]:
    return {
        "X-Authorization-Digest": "HMACSHA256",
        "X-DocuSign-Signature-1": b64_mac(body, secret="a key that is not ours"),
        "X-DocuSign-Signature-2": b64_mac(body),
    }


def changed(path: str, value: Any) -> Callable[[Any], Any]:
    """Give a function that sets one member, as a sender does between attempts."""

    def change(body: Any) -> Any:
        copy = json.loads(json.dumps(body))
        *parents, last = path.split("/")
        place = copy
        for one in parents:
            place = place[int(one)] if one.isdigit() else place[one]
        place[last] = value
        return copy

    return change


def line(number: int) -> dict[str, Any]:
    return {
        "destination": "U8e742f61d673b39c7fff3cecb7536ef0",
        "events": [
            {
                "type": "message",
                "webhookEventId": f"01FZ74A0TDDPYRVKNK77XKC3Z{number}",
                "deliveryContext": {"isRedelivery": False},
                "timestamp": NOW_MS,
                "source": {"type": "user", "userId": "U4af4980629"},
                "message": {"id": "444573844083572737", "type": "text", "text": "hi"},
            }
        ],
    }


def token_case(kind: str, bodies: Sequence[Any], headers: dict[str, str], **facts: Any) -> SourceCase:
    return case(kind, bodies, lambda body, at_s: headers, covers_body=False, **facts)


CLOUD = [
    {
        "specversion": "1.0",
        "id": f"A-{number}",
        "source": "/orders",
        "type": "order.paid",
        "data": {"n": number},
    }
    for number in range(2)
]

CASES: dict[str, SourceCase] = {
    "stripe": case(
        "stripe",
        [
            {"id": f"evt_{n}", "type": "invoice.paid", "created": NOW_S, "data": {"object": {"id": "in_1"}}}
            for n in "ab"
        ],
        stripe,
    ),
    "github": case(
        "github",
        [{"action": "opened", "repository": {"full_name": "acme/shop"}}, {"action": "closed"}],
        plain("X-Hub-Signature-256", prefix="sha256="),
        headers=[{"X-GitHub-Event": "issues", "X-GitHub-Delivery": f"72d3162e-cc78-{n}"} for n in "ab"],
    ),
    "hmac": case(
        "hmac",
        [{"id": n, "type": "packed"} for n in "ab"],
        plain("X-Signature"),
        options={"name": "warehouse", "header": "X-Signature", "id_from": "/id", "type_from": "/type"},
    ),
    "generic": case(
        "generic",
        [{"event": {"id": n, "kind": "packed"}, "attempt": 1} for n in "ab"],
        lambda body, at_s: {
            "X-Time": str(at_s * 1000),
            "X-Sign": b64_mac(b"v2:%d000:%b" % (at_s, body), "sha512"),
        },
        again=changed("attempt", 2),
        options={
            "name": "warehouse",
            "signature": {
                "header": "X-Sign",
                "algorithm": "sha512",
                "encoding": "base64",
                "template": "v2:{timestamp}:{body}",
            },
            "timestamp": {"place": "header:X-Time", "unit": "ms", "tolerance": "2m"},
            "id": "derived",
            "id_ignore": ["/attempt"],
            "type": "/event/kind",
        },
    ),
    "cloudevents": token_case(
        "cloudevents",
        CLOUD,
        {"Content-Type": "application/cloudevents+json", "Authorization": f"Bearer {SECRET}"},
    ),
    "box": case(
        "box",
        [{"type": "webhook_event", "id": n, "trigger": "FILE.UPLOADED", "source": {"id": "9"}} for n in "ab"],
        box,
    ),
    "buildkite": case(
        "buildkite",
        [
            {"event": "build.finished", "build": {"id": n, "state": "passed", "finished_at": ISO_NOW}}
            for n in "ab"
        ],
        buildkite,
    ),
    "calendly": case(
        "calendly",
        [
            {
                "event": "invitee.created",
                "created_at": ISO_NOW,
                "payload": {"uri": f"https://api.calendly.com/{n}"},
            }
            for n in "ab"
        ],
        calendly,
    ),
    "circleci": case(
        "circleci",
        [{"id": n, "type": "job-completed", "happened_at": ISO_NOW, "job": {"id": "j"}} for n in "ab"],
        circleci,
    ),
    "coinbase_commerce": case(
        "coinbase_commerce",
        [
            {"attempt_number": 1, "event": {"id": n, "type": "charge:created", "data": {"code": "C"}}}
            for n in "ab"
        ],
        plain("X-CC-Webhook-Signature"),
        again=changed("attempt_number", 2),
    ),
    "docusign": case(
        "docusign",
        [
            {
                "event": "envelope-completed",
                "retryCount": 0,
                "generatedDateTime": ISO_NOW,
                "data": {"accountId": "acc", "envelopeId": n},
            }
            for n in "ab"
        ],
        docusign,
        again=changed("retryCount", 1),
    ),
    "dropbox": case(
        "dropbox",
        [{"list_folder": {"accounts": ["dbid:AAA", "dbid:BBB"]}, "delta": {"users": [1, 2]}}],
        plain("X-Dropbox-Signature"),
        is_lasting=False,
    ),
    "gitea": case(
        "gitea",
        [{"action": "opened", "repository": {"full_name": "acme/shop"}}, {"ref": "refs/heads/main"}],
        plain("X-Gitea-Signature"),
        headers=[{"X-Gitea-Event": "issues", "X-Gitea-Delivery": f"f6266f16-{n}"} for n in "ab"],
    ),
    "gocardless": case(
        "gocardless",
        [
            {
                "events": [
                    {
                        "id": f"EV{n}{m}",
                        "resource_type": "payments",
                        "action": "paid",
                        "links": {"payment": "PM1"},
                    }
                    for m in "xyz"
                ]
            }
            for n in "ab"
        ],
        plain("Webhook-Signature"),
    ),
    "intercom": case(
        "intercom",
        [
            {"id": f"notif_{n}", "topic": "user.created", "created_at": NOW_S, "delivery_attempts": 1}
            for n in "ab"
        ],
        plain("X-Hub-Signature", algorithm="sha1", prefix="sha1="),
        again=changed("delivery_attempts", 2),
    ),
    "lemon_squeezy": case(
        "lemon_squeezy",
        [
            {
                "meta": {"event_name": "order_created"},
                "data": {
                    "type": "orders",
                    "id": n,
                    "attributes": {"updated_at": "2026-05-28T20:26:40.000000Z"},
                },
            }
            for n in "12"
        ],
        plain("X-Signature"),
        headers=[{"X-Event-Name": "order_created"}],
    ),
    "line": case(
        "line",
        [line(1), line(2)],
        plain("x-line-signature", encode=b64_mac),
        again=changed("events/0/deliveryContext", {"isRedelivery": True}),
    ),
    "mollie": case(
        "mollie",
        [
            {"resource": "event", "id": f"event_{n}", "type": "payment-link.paid", "entityId": "pl_1"}
            for n in "ab"
        ],
        plain("X-Mollie-Signature", prefix="sha256="),
    ),
    "mollie_classic": SourceCase(
        maker("mollie_classic"),
        "",
        "",
        (
            Example(
                HttpRequest.of(b"id=tr_d0b0E3EA3v", {"Content-Type": "application/x-www-form-urlencoded"}),
                NOW_MS,
            ),
        ),
        is_checked=False,
        is_lasting=False,
    ),
    "pagerduty": case(
        "pagerduty",
        [{"event": {"id": n, "event_type": "incident.triggered", "data": {"id": "PGR0VU2"}}} for n in "ab"],
        pagerduty,
    ),
    "postmark": SourceCase(
        maker("postmark"),
        f"hook:{SECRET}",
        f"hook:{OTHER}",
        tuple(
            Example(
                HttpRequest.of(
                    dumped({"RecordType": "Bounce", "ID": n, "MessageID": "m", "BouncedAt": ISO_NOW}),
                    {"Authorization": f"Basic {base64.b64encode(f'hook:{SECRET}'.encode()).decode()}"},
                ),
                NOW_MS,
            )
            for n in (1, 2)
        ),
        covers_body=False,
    ),
    "razorpay": case(
        "razorpay",
        [
            {"event": "payment.captured", "created_at": NOW_S, "payload": {"payment": {"entity": {"id": n}}}}
            for n in "ab"
        ],
        plain("X-Razorpay-Signature"),
        headers=[{"X-Razorpay-Event-Id": f"LC6Sd4{n}"} for n in "ab"],
    ),
    "trello": case(
        "trello",
        [{"action": {"id": n, "type": "updateCard", "date": ISO_NOW}, "model": {"id": "b"}} for n in "ab"],
        lambda body, at_s: {"X-Trello-Webhook": b64_mac(body + URL.encode(), "sha1")},
        url=URL,
    ),
    "twitch": case(
        "twitch",
        [{"subscription": {"id": "s", "type": "channel.follow"}, "event": {"user_id": n}} for n in "ab"],
        twitch,
    ),
    "typeform": case(
        "typeform",
        [
            {"event_id": n, "event_type": "form_response", "form_response": {"form_id": "lT4Z3j"}}
            for n in "ab"
        ],
        plain("Typeform-Signature", encode=b64_mac, prefix="sha256="),
    ),
    "vercel": case(
        "vercel",
        [{"id": n, "type": "deployment.created", "createdAt": NOW_MS, "payload": {}} for n in "ab"],
        plain("x-vercel-signature", algorithm="sha1"),
    ),
    "woocommerce": case(
        "woocommerce",
        [{"id": n, "status": "processing", "date_modified_gmt": "2026-05-28T20:26:40"} for n in (1, 2)],
        lambda body, at_s: {"X-WC-Webhook-Signature": b64_mac(body), "X-WC-Webhook-Delivery-ID": f"d{at_s}"},
        headers=[{"X-WC-Webhook-Topic": "order.updated", "X-WC-Webhook-Source": "https://shop.example/"}],
    ),
    "xero": case(
        "xero",
        [
            {
                "events": [
                    {
                        "resourceId": f"{n}{m}",
                        "eventDateUtc": "2026-05-28T20:26:40.123",
                        "eventType": "UPDATE",
                        "eventCategory": "INVOICE",
                        "tenantId": "t",
                    }
                    for m in "xy"
                ],
                "firstEventSequence": 1,
            }
            for n in "ab"
        ],
        plain("x-xero-signature", encode=b64_mac),
    ),
}

CASES |= {kind: signed_case(kind) for kind in kinds() if kind not in CASES and has_examples(kind)}
