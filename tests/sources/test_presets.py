"""The kinds that a scheme describes, against vectors that their senders or their libraries publish.

Where a sender publishes none, its deliveries in ``cases`` are signed with the standard library by its
documented formula; here stand those that come from elsewhere, and what is particular to a sender.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from onceward.core.arrival import Verified
from onceward.core.errors import BodyMalformed, ConfigError, SignatureInvalid
from onceward.core.messages import HttpRequest
from onceward.sources import create
from tests.sources.cases import ISO_NOW, NOW_MS, NOW_S, SECRET, b64_mac, hex_mac

# Box, test/integration_new/object/test_webhook.py of its Python library.
BOX_BODY = (
    b'{"type":"webhook_event","webhook":{"id":"1234567890"},"trigger":"FILE.UPLOADED",'
    b'"source":{"id":"1234567890","type":"file","name":"Test.txt"}}'
)
BOX_HEADERS = {
    "box-delivery-id": "f96bb54b-ee16-4fc5-aa65-8c2d9e5b546f",
    "box-delivery-timestamp": "2020-01-01T00:00:00-07:00",
    "box-signature-algorithm": "HmacSHA256",
    "box-signature-primary": "6TfeAW3A1PASkgboxxA5yqHNKOwFyMWuEXny/FPD5hI=",
    "box-signature-secondary": "v+1CD1Jdo3muIcbpv5lxxgPglOqMfsNHPV899xWYydo=",
    "box-signature-version": "1",
}
BOX_MS = 1_577_862_000_000
# GoCardless, tests/webhooks_test.py of its Python library.
GOCARDLESS_BODY = (
    b'{"events":[{"id":"EV00BD05S5VM2T","created_at":"2018-07-05T09:13:51.404Z","resource_type":'
    b'"subscriptions","action":"created","links":{"subscription":"SB0003JJQ2MR06"},"details":{"origin":'
    b'"api","cause":"subscription_created","description":"Subscription created via the API."},"metadata":'
    b'{}},{"id":"EV00BD05TB8K63","created_at":"2018-07-05T09:13:56.893Z","resource_type":"mandates",'
    b'"action":"created","links":{"mandate":"MD000AMA19XGEC"},"details":{"origin":"api","cause":'
    b'"mandate_created","description":"Mandate created via the API."},"metadata":{}}]}'
)
# PagerDuty, webhook_signature_test.go of its Go library.
PAGERDUTY_BODY = (
    b'{"event":{"id":"01BWDWL3NYY7LUFPZCC28QUCMK","event_type":"incident.priority_updated","resource_type":'
    b'"incident","occurred_at":"2021-04-26T17:36:27.458Z","agent":{"html_url":'
    b'"https://acme.pagerduty.com/users/PLH1HKV","id":"PLH1HKV","self":'
    b'"https://api.pagerduty.com/users/PLH1HKV","summary":"Tenex Engineer","type":"user_reference"},"client":'
    b'null,"data":{"id":"PGR0VU2","type":"incident","self":"https://api.pagerduty.com/incidents/PGR0VU2",'
    b'"html_url":"https://acme.pagerduty.com/incidents/PGR0VU2","number":2,"status":"triggered","title":'
    b'"A little bump in the road","service":{"html_url":"https://acme.pagerduty.com/services/PF9KMXH","id":'
    b'"PF9KMXH","self":"https://api.pagerduty.com/services/PF9KMXH","summary":"API Service","type":'
    b'"service_reference"},"assignees":[{"html_url":"https://acme.pagerduty.com/users/PTUXL6G","id":"PTUXL6G",'
    b'"self":"https://api.pagerduty.com/users/PTUXL6G","summary":"User 123","type":"user_reference"}],'
    b'"escalation_policy":{"html_url":"https://acme.pagerduty.com/escalation_policies/PUS0KTE","id":"PUS0KTE",'
    b'"self":"https://api.pagerduty.com/escalation_policies/PUS0KTE","summary":"Default","type":'
    b'"escalation_policy_reference"},"teams":[{"html_url":"https://acme.pagerduty.com/teams/PFCVPS0","id":'
    b'"PFCVPS0","self":"https://api.pagerduty.com/teams/PFCVPS0","summary":"Engineering","type":'
    b'"team_reference"}],"priority":{"html_url":"https://acme.pagerduty.com/account/incident_priorities","id":'
    b'"PSO75BM","self":"https://api.pagerduty.com/priorities/PSO75BM","summary":"P1","type":'
    b'"priority_reference"},"urgency":"high","conference_bridge":{"conference_number":1000,"conference_url":'
    b'"https://example.com"},"resolve_reason":null}}}'
)
# Coinbase Commerce, tests/test_webhook.py of its Python library.
COINBASE_BODY = (
    b'{"id":1,"scheduled_for":"2017-01-31T20:50:02Z","attempt_number":1,"event":{"id":'
    b'"24934862-d980-46cb-9402-43c81b0cdba6","type":"charge:created","api_version":"2018-03-22","created_at":'
    b'"2017-01-31T20:49:02Z","data":{"code":"66BEOV2A","name":"The Sovereign Individual","description":'
    b'"Mastering the Transition to the Information Age","hosted_url":'
    b'"https://commerce.coinbase.com/charges/66BEOV2A","created_at":"2017-01-31T20:49:02Z","expires_at":'
    b'"2017-01-31T21:04:02Z","timeline":[{"time":"2017-01-31T20:49:02Z","status":"NEW"}],"metadata":{},'
    b'"pricing_type":"no_price","payments":[],"addresses":{"bitcoin":"0000000000000000000000000000000000",'
    b'"ethereum":"0x0000000000000000000000000000000000000000","litecoin":"3000000000000000000000000000000000",'
    b'"bitcoincash":"bitcoincash:000000000000000000000000000000000000000000"}}}}'
)

VECTORS: dict[str, tuple[str, str, bytes, dict[str, str], int]] = {
    # name: kind, secret, body, headers, time in ms
    "box, both": ("box", "SamplePrimaryKey", BOX_BODY, BOX_HEADERS, BOX_MS),
    "box, the second key": ("box", "SampleSecondaryKey", BOX_BODY, BOX_HEADERS, BOX_MS),
    "gocardless": (
        "gocardless",
        "ED7D658C-D8EB-4941-948B-3973214F2D49",
        GOCARDLESS_BODY,
        {"Webhook-Signature": "2693754819d3e32d7e8fcb13c729631f316c6de8dc1cf634d6527f1c07276e7e"},
        0,
    ),
    "pagerduty": (
        "pagerduty",
        "lDQHScfUeXUKaQRNF+8XIiDKZ7XX3itBAYzwU0TARw8lJqRnkKl2iB1anSb0Z+IK",
        PAGERDUTY_BODY,
        {"X-PagerDuty-Signature": "v1=0c0b9495b893a39e70d1fea2fe11fbe0a825f88b9f67846f6cc07dd2bc5476cd"},
        0,
    ),
    "coinbase_commerce": (
        "coinbase_commerce",
        "30291a20-0bd1-4267-9b0f-e6e7b123c0bf",
        COINBASE_BODY,
        {"X-CC-Webhook-Signature": "8be7742c7d372f08a6a3224edadf18a22b65fa9e28f3f2de97376cdaa092590d"},
        0,
    ),
    # The documentation of LINE, "Verify webhook signature", and a test of its Python library.
    "line, documented": (
        "line",
        "8c570fa6dd201bb328f1c1eac23a96d8",
        b'{"destination":"U8e742f61d673b39c7fff3cecb7536ef0","events":[]}',
        {"x-line-signature": "GhRKmvmHys4Pi8DxkF4+EayaH0OqtJtaZxgTD9fMDLs="},
        0,
    ),
    "line, its library": (
        "line",
        "channel_secret",
        b"bodybodybodybody",
        {"X-Line-Signature": "/gg9a+LvFevTH1sd7XCQycD7tsWclCsInj7MhBHxN7k="},
        0,
    ),
    # A maintainer's examples, issue 29 of Razorpay's Node library.
    "razorpay, a and b": (
        "razorpay",
        "123456",
        b"{a:1, b:2}",
        {"X-Razorpay-Signature": "ee0a3edebeb4be41bafa3bc0a39069d7845a5c37760b863405049de80b5fe92d"},
        0,
    ),
    "razorpay, c and d": (
        "razorpay",
        "123456",
        b"{c:1, d:2}",
        {"X-Razorpay-Signature": "58fd9fac909b57d776606e9313e83a26a9e67a3488b9ca7259134e09f4badfb1"},
        0,
    ),
    # The documentation of CircleCI, "Outbound webhooks", "Validate webhooks".
    **{
        f"circleci, {body.decode()}": ("circleci", secret, body, {"circleci-signature": f"v1={mac}"}, 0)
        for body, secret, mac in (
            (b"hello world", "secret", "734cc62f32841568f45715aeb9f4d7891324e6d948e4c6c60c0621cdac48623a"),
            (b"lalala", "another-secret", "daa220016c8f29a8b214fbfc3671aeec2145cfb1e6790184ffb38b6d0425fa00"),
            (
                b"an-important-request-payload",
                "hunter123",
                "9be2242094a9a8c00c64306f382a7f9d691de910b4a266f67bd314ef18ac49fa",
            ),
            (b"foo", "secret", "773ba44693c7553d6ee20f61ea5d2757a9a4f4a44d2841ae4e95b52e4cd62db4"),
        )
    },
}


@pytest.mark.parametrize("name", VECTORS)
def test_a_published_signature_verifies(name: str) -> None:
    kind, secret, body, headers, now_ms = VECTORS[name]
    source = create(kind, secrets=["of no use", secret])

    assert source.verify(HttpRequest.of(body, headers), now_ms).secret_index == 1


@pytest.mark.parametrize("name", VECTORS)
def test_a_published_signature_is_refused_for_another_body_or_secret(name: str) -> None:
    kind, secret, body, headers, now_ms = VECTORS[name]

    for used, raw in ((secret, body + b"\n"), (secret + "x", body)):
        with pytest.raises(SignatureInvalid):
            create(kind, secrets=[used]).verify(HttpRequest.of(raw, headers), now_ms)


@pytest.mark.parametrize(
    ("changed", "now_ms"),
    [
        ({"box-signature-version": "2"}, BOX_MS),
        ({"box-signature-algorithm": "WrongAlgorithm"}, BOX_MS),
        ({}, BOX_MS + 601_000),
        ({}, BOX_MS - 601_000),
    ],
)
def test_box_refuses_what_its_library_refuses_and_the_future(changed: dict[str, str], now_ms: int) -> None:
    source = create("box", secrets=["SamplePrimaryKey", "SampleSecondaryKey"])

    with pytest.raises(SignatureInvalid):
        source.verify(HttpRequest.of(BOX_BODY, BOX_HEADERS | changed), now_ms)


def test_pagerduty_refuses_the_mismatch_of_its_library() -> None:
    wrong = "v1=7020c8a7ec668a9b7012bc3dd82e483394b038f4230acc6785efbf2a7d8bcaf5"
    source = create("pagerduty", secrets=[VECTORS["pagerduty"][1]])

    with pytest.raises(SignatureInvalid, match=r"no signature matches \(offered: 1"):
        source.verify(HttpRequest.of(PAGERDUTY_BODY, {"X-PagerDuty-Signature": wrong}), 0)


# What the library or the sample of the sender does: all but two compare texts. PagerDuty's and Gitea's,
# in Go, decode hexadecimal first.
SPELLINGS = {
    "box": "BOX-SIGNATURE-PRIMARY",
    "buildkite": "X-Buildkite-Signature",
    "calendly": "Calendly-Webhook-Signature",
    "circleci": "circleci-signature",
    "coinbase_commerce": "X-CC-Webhook-Signature",
    "docusign": "X-DocuSign-Signature-1",
    "dropbox": "X-Dropbox-Signature",
    "gitea": "X-Gitea-Signature",
    "gocardless": "Webhook-Signature",
    "intercom": "X-Hub-Signature",
    "lemon_squeezy": "X-Signature",
    "line": "x-line-signature",
    "mollie": "X-Mollie-Signature",
    "pagerduty": "X-PagerDuty-Signature",
    "razorpay": "X-Razorpay-Signature",
    "trello": "X-Trello-Webhook",
    "twitch": "Twitch-Eventsub-Message-Signature",
    "typeform": "Typeform-Signature",
    "vercel": "x-vercel-signature",
    "woocommerce": "X-WC-Webhook-Signature",
    "xero": "x-xero-signature",
}


@pytest.mark.parametrize("kind", SPELLINGS)
def test_a_signature_is_taken_in_the_spelling_that_the_library_of_the_sender_takes(kind: str) -> None:
    source = create(kind, secrets=[SECRET])
    url = "https://shop.example.com/hooks/x"
    headers = source.sign(BOX_BODY, NOW_MS, event_id="1", event_type="x", url=url)
    name = SPELLINGS[kind]
    digits = re.search(r"[0-9a-f]{40,}$", headers[name])
    others = (
        [headers[name].replace(digits[0], digits[0].upper())]
        if digits
        else [headers[name].rstrip("="), headers[name] + "="]
    )

    assert source.verify(HttpRequest.of(BOX_BODY, headers, url=url), NOW_MS).secret_index == 0
    for other in others:
        request = HttpRequest.of(BOX_BODY, headers | {name: other}, url=url)
        if kind in ("gitea", "pagerduty"):
            assert source.verify(request, NOW_MS).secret_index == 0
        else:
            with pytest.raises(SignatureInvalid):
                source.verify(request, NOW_MS)


# --- events ---------------------------------------------------------------------------------------


def facts(kind: str, body: bytes, headers: Any = (), **options: Any) -> list[tuple[Any, ...]]:
    trust = {"secrets": ["u:p"]} if kind != "mollie_classic" else {"insecure": True}
    source = create(kind, **trust, **options)
    return [
        (one.id, one.type, one.subject, one.occurred_at_ms)
        for one in source.normalize(HttpRequest.of(body, headers))
    ]


def test_events_of_published_bodies() -> None:
    assert facts("gocardless", GOCARDLESS_BODY) == [
        ("EV00BD05S5VM2T", "subscriptions.created", "SB0003JJQ2MR06", 1_530_782_031_404),
        ("EV00BD05TB8K63", "mandates.created", "MD000AMA19XGEC", 1_530_782_036_893),
    ]
    assert facts("pagerduty", PAGERDUTY_BODY) == [
        ("01BWDWL3NYY7LUFPZCC28QUCMK", "incident.priority_updated", "PGR0VU2", 1_619_458_587_458)
    ]
    assert facts("coinbase_commerce", COINBASE_BODY) == [
        ("24934862-d980-46cb-9402-43c81b0cdba6", "charge:created", "66BEOV2A", 1_485_895_742_000)
    ]
    assert facts("line", VECTORS["line, documented"][2]) == []


def test_box_and_razorpay_without_an_id_have_one_derived() -> None:
    box, razorpay = create("box", secrets=[SECRET]), create("razorpay", secrets=[SECRET])

    for source, body in ((box, BOX_BODY), (razorpay, b'{"event":"payment.captured"}')):
        [one] = source.normalize(HttpRequest.of(body))
        assert one.id_is_derived
        assert source.normalize(HttpRequest.of(body)) == [one]
    [given] = razorpay.normalize(HttpRequest.of(b'{"event":"e"}', {"X-Razorpay-Event-Id": "LC6"}))
    assert (given.id, given.id_is_derived, given.id_is_signed) == ("LC6", False, False)


def test_a_note_on_an_incident_is_about_the_incident() -> None:
    body = b'{"event":{"id":"e","event_type":"incident.annotated","data":{"incident":{"id":"PGR0VU2"},"id":"N1"}}}'

    assert facts("pagerduty", body) == [("e", "incident.annotated", "PGR0VU2", None)]


def test_line_keeps_the_id_and_tells_the_conversation() -> None:
    body = (
        b'{"destination":"xxx","events":[{"type":"message","timestamp":1625665242211,"source":{"type":"group",'
        b'"groupId":"Ca56","userId":"U80"},"webhookEventId":"01FZ74A0TDDPYRVKNK77XKC3ZR","deliveryContext":'
        b'{"isRedelivery":true}}]}'
    )

    assert facts("line", body) == [("01FZ74A0TDDPYRVKNK77XKC3ZR", "message", "Ca56", 1_625_665_242_211)]


def test_xero_may_send_nothing_and_is_answered_without_a_body() -> None:
    body = b'{ "events" : [], "lastEventSequence" : 0 , "firstEventSequence" : 0 , "entropy" : "S0m3r4Nd0mt3xt" }'
    source = create("xero", secrets=[SECRET])

    assert source.verify(HttpRequest.of(body, {"x-xero-signature": b64_mac(body)}), 0) == Verified(0)
    assert source.normalize(HttpRequest.of(body)) == []
    for outcome, status in (("accepted", 200), ("duplicate", 200), ("refused", 401)):
        reply = source.respond(outcome)  # type: ignore[arg-type]
        assert reply is not None
        assert (reply.status, reply.body, reply.headers) == (status, b"", ())


def test_every_link_of_gocardless_that_names_a_resource_is_a_subject() -> None:
    """By the links that gocardless_pro 3.22 knows of an event."""
    for link in ("outbound_payment", "scheme_identifier", "payer_authorisation", "organisation"):
        event = {"id": "EV1", "resource_type": f"{link}s", "action": "created", "links": {link: "OUT123"}}
        body = json.dumps({"events": [event], "meta": {"webhook_id": "WB123"}}).encode()
        assert facts("gocardless", body) == [("EV1", f"{link}s.created", "OUT123", None)]


def test_gocardless_is_told_498_of_a_bad_signature() -> None:
    reply = create("gocardless", secrets=[SECRET]).respond("refused")

    assert reply is not None
    assert reply.status == 498


def test_dropbox_tells_each_account_each_time() -> None:
    source = create("dropbox", secrets=[SECRET])
    body = b'{"list_folder": {"accounts": ["dbid:A", "dbid:B"]}, "delta": {"users": [1]}}'
    team = b'{"list_folder": {"teams": {"dbtid:T": ["dbmid:M"]}}}'

    first, later = (source.normalize(HttpRequest.of(body, received_at_ms=at)) for at in (1, 2))

    assert [(one.subject, one.type) for one in first] == [
        ("dbid:A", "list_folder.changed"),
        ("dbid:B", "list_folder.changed"),
    ]
    assert {one.id for one in first}.isdisjoint(one.id for one in later)
    assert len(source.normalize(HttpRequest.of(team))) == 1


def test_dropbox_is_answered_its_challenge_as_plain_text() -> None:
    source = create("dropbox", secrets=[SECRET])
    asked = HttpRequest.of(method="GET", url="https://shop.example/hooks/dropbox?challenge=<b>&x=1")

    answer = source.handshake(asked, 0)

    assert source.handshake_phase == "unverified"
    assert "GET" in source.methods
    assert answer is not None
    assert (answer.status, answer.body) == (200, b"<b>")
    assert dict(answer.headers) == {b"content-type": b"text/plain", b"x-content-type-options": b"nosniff"}
    assert source.handshake(HttpRequest.of(method="GET"), 0) is None


def test_twitch_is_answered_its_challenge_only_when_signed() -> None:
    source = create("twitch", secrets=[SECRET])
    body = (
        b'{"challenge":"pogchamp-kappa-360noscope-vohiyo","subscription":{"id":"s","type":"channel.follow"}}'
    )
    head = {
        "Twitch-Eventsub-Message-Id": "m",
        "Twitch-Eventsub-Message-Timestamp": ISO_NOW,
        "Twitch-Eventsub-Message-Type": "webhook_callback_verification",
        "Twitch-Eventsub-Message-Signature": f"sha256={hex_mac(b'm' + ISO_NOW.encode() + body)}",
    }
    request = HttpRequest.of(body, head)

    assert source.verify(request, NOW_MS) == Verified(0, NOW_MS)
    answer = source.handshake(request, NOW_MS)
    assert answer is not None
    assert answer.body == b"pogchamp-kappa-360noscope-vohiyo"
    assert source.handshake_phase == "verified"


def test_twitch_ids_are_signed_and_a_revocation_is_one() -> None:
    source = create("twitch", secrets=[SECRET])
    body = b'{"subscription":{"id":"s","type":"channel.follow","status":"authorization_revoked"}}'
    head = {"Twitch-Eventsub-Message-Id": "m", "Twitch-Eventsub-Message-Type": "revocation"}

    [one] = source.normalize(HttpRequest.of(body, head))

    assert (one.id, one.type, one.subject, one.id_is_signed) == ("m", "revocation", "s", True)


def test_intercom_asks_with_head_and_ping_and_the_ping_is_signed() -> None:
    source = create("intercom", secrets=[SECRET])
    ping = b'{"type":"notification_event","id":null,"topic":"ping","delivery_attempts":1}'
    signed = HttpRequest.of(ping, {"X-Hub-Signature": f"sha1={hex_mac(ping, 'sha1')}"})

    for request in (HttpRequest.of(method="HEAD"), signed):
        answer = source.handshake(request, 0)
        assert answer is not None
        assert answer.status == 200
    with pytest.raises(SignatureInvalid):
        source.handshake(HttpRequest.of(ping), 0)


def test_trello_signs_the_address_it_was_given() -> None:
    url = "https://shop.example.com/hooks/trello"
    body = b'{"action":{"id":"1"}}'
    head = {"X-Trello-Webhook": b64_mac(body + url.encode(), "sha1")}
    inside = HttpRequest.of(body, head, path="/hooks/trello", url="http://10.0.0.7:8000/hooks/trello")

    assert create("trello", secrets=[SECRET], public_url=url).verify(inside, 0) == Verified(0)
    assert create("trello", secrets=[SECRET], public_url="https://shop.example.com").verify(inside, 0)
    for source in (
        create("trello", secrets=[SECRET]),
        create("trello", secrets=[SECRET], public_url="https://other.example"),
    ):
        with pytest.raises(SignatureInvalid):
            source.verify(inside, 0)
    answer = create("trello", secrets=[SECRET]).handshake(HttpRequest.of(method="HEAD"), 0)
    assert answer is not None
    assert answer.status == 200


def test_woocommerce_takes_a_second_attempt_for_the_same_event_and_answers_its_ping() -> None:
    source = create("woocommerce", secrets=[SECRET])
    head = {"X-WC-Webhook-Topic": "order.updated", "X-WC-Webhook-Source": "https://shop.example/"}
    form = {"Content-Type": "application/x-www-form-urlencoded; charset=UTF-8"}

    one, again, other = (
        source.normalize(HttpRequest.of(body, head | {"X-WC-Webhook-Delivery-ID": delivery}))[0]
        for body, delivery in ((b'{"id":7}', "a"), (b'{"id":7}', "b"), (b'{"id":8}', "a"))
    )

    assert one.id == again.id != other.id
    assert (one.type, one.subject, one.id_is_derived) == ("order.updated", "7", True)
    assert source.handshake(HttpRequest.of(b"webhook_id=4", form), 0) is not None
    assert source.handshake(HttpRequest.of(b'{"webhook_id":4}'), 0) is None


def test_mollie_knows_its_two_kinds_apart() -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    classic = create("mollie_classic", insecure=True)

    first, later = (
        classic.normalize(HttpRequest.of(b"id=tr_d0b0E3EA3v", form, received_at_ms=at))[0] for at in (1, 2)
    )

    assert (first.subject, first.type, first.payload) == ("tr_d0b0E3EA3v", "changed", {"id": "tr_d0b0E3EA3v"})
    assert first.id != later.id  # the second call may be about the next change
    with pytest.raises(BodyMalformed):
        create("mollie", secrets=[SECRET]).normalize(HttpRequest.of(b"id=tr_d0b0E3EA3v", form))
    with pytest.raises(ConfigError, match=r"neither a signature nor a token(.|\n)*Pass insecure=True"):
        create("mollie_classic", secrets=[SECRET])


@pytest.mark.parametrize("prefix", ["sha256=", ""])
def test_mollie_signs_with_and_without_the_prefix(prefix: str) -> None:
    request = HttpRequest.of(b"{}", {"X-Mollie-Signature": prefix + hex_mac(b"{}")})

    assert create("mollie", secrets=[SECRET]).verify(request, 0) == Verified(0)


def test_postmark_passwords_may_have_colons() -> None:
    import base64

    source = create("postmark", secrets=["hook:a:b"])
    given = base64.b64encode(b"hook:a:b").decode()

    for text in (f"Basic {given}", f"basic {given}", f"Basic {given.rstrip('=')}"):
        assert source.verify(HttpRequest.of(b"{}", {"Authorization": text}), 0) == Verified(0)
    for text in ("", "Basic", given, f"Bearer {given}", f"Basic {base64.b64encode(b'hook:a').decode()}"):
        with pytest.raises(SignatureInvalid):
            source.verify(HttpRequest.of(b"{}", {"Authorization": text}), 0)
    with pytest.raises(ConfigError, match="colon"):
        create("postmark", secrets=["only-a-password"])
    assert facts("postmark", b'{"From":"a@b.c","MessageID":"m","MailboxHash":""}')[0][1:3] == ("Inbound", "m")


def test_buildkite_can_send_its_token_instead() -> None:
    source = create("buildkite", secrets=[SECRET], token="header:X-Buildkite-Token")

    assert source.verify(HttpRequest.of(b"{}", {"X-Buildkite-Token": SECRET}), 0) == Verified(0)
    assert source.tolerance is None
    with pytest.raises(SignatureInvalid):
        source.verify(HttpRequest.of(b"{}", {"X-Buildkite-Signature": "timestamp=1,signature=00"}), 0)


def test_circleci_takes_no_other_version() -> None:
    source = create("circleci", secrets=[SECRET])
    mac = hex_mac(b"{}")

    assert source.verify(HttpRequest.of(b"{}", {"circleci-signature": f"v2=00, v1={mac}"}), 0) == Verified(0)
    for value in (f"v2={mac}", mac, f"v1:{mac}", f"v0={mac},v1="):
        with pytest.raises(SignatureInvalid):
            source.verify(HttpRequest.of(b"{}", {"circleci-signature": value}), 0)


def test_calendly_is_refused_after_three_minutes() -> None:
    source = create("calendly", secrets=[SECRET])
    request = HttpRequest.of(
        b"{}", {"Calendly-Webhook-Signature": f"t={NOW_S},v1={hex_mac(b'%d.{}' % NOW_S)}"}
    )

    assert source.verify(request, NOW_MS + 180_000) == Verified(0, NOW_MS)
    with pytest.raises(SignatureInvalid, match="181 s in the past, tolerance is 180 s"):
        source.verify(request, NOW_MS + 181_000)


def test_gitea_sends_json_in_a_form_too() -> None:
    head = {
        "X-Gitea-Event": "issues",
        "X-Gitea-Delivery": "d",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    body = (
        b"payload=%7B%22action%22%3A%22opened%22%2C%22repository%22%3A%7B%22full_name%22%3A%22a%2Fb%22%7D%7D"
    )

    assert facts("gitea", body, head) == [("d", "issues.opened", "a/b", None)]
    assert facts("gitea", b"{}", {"X-Gitea-Event": "push", "X-Gitea-Delivery": "d"})[0][1] == "push"
