"""Standard Webhooks, Svix, Clerk, Resend, OpenAI: published vectors and the reference library."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import standardwebhooks
from hypothesis import given
from hypothesis import strategies as st

from onceward.core.errors import ConfigError
from onceward.core.messages import HttpRequest
from onceward.sources import Clerk, OpenAI, Resend, Source, StandardWebhooks, Svix
from tests.sources.known import NOW, NOW_MS, base64_of, json_of, malformed, refused, sole_event

# The vector that the reference libraries and Svix's share in their tests.
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
MESSAGE_ID = "msg_p5jXN8AQM9LWM0D4loKWxJek"
TIMESTAMP = "1614265330"
AT_MS = 1_614_265_330_000
BODY = b'{"test": 2432232314}'
SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
# Svix's, from svix-server's test of asymmetric signing and its documentation of the key format.
PUBLIC = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="
PRIVATE = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
SIGNATURE_1A = "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg=="
OTHER = "whsec_" + base64.b64encode(b"another key of 24 bytes.").decode()
HOSTILE = st.text(st.characters(max_codepoint=255), max_size=40)


def headers(family: str = "webhook", **changed: str) -> dict[str, str]:
    values = {"id": MESSAGE_ID, "timestamp": TIMESTAMP, "signature": SIGNATURE} | changed
    return {f"{family}-{part}": value for part, value in values.items()}


def request(body: bytes = BODY, family: str = "webhook", **changed: str) -> HttpRequest:
    return HttpRequest.of(body, headers(family, **changed))


SOURCE = StandardWebhooks(secrets=[OTHER, SECRET, PUBLIC])


@pytest.mark.parametrize("family", ["webhook", "svix"])
@pytest.mark.parametrize(
    ("signature", "index"),
    [
        (SIGNATURE, 1),
        (SIGNATURE_1A, 2),
        (f"v1,nonsense {SIGNATURE}", 1),
        (f"{SIGNATURE} v2,AAAA", 1),
        (f"v1a,{'A' * 86}== {SIGNATURE_1A}", 2),
        (f"no-comma {SIGNATURE}", 1),
        (f"{SIGNATURE}  ", 1),
    ],
)
def test_the_published_vectors_verify_with_the_position_of_their_key(
    family: str, signature: str, index: int
) -> None:
    verified = SOURCE.verify(request(family=family, signature=signature), AT_MS)

    assert (verified.secret_index, verified.sent_at_ms) == (index, AT_MS)


@pytest.mark.parametrize("kind", [StandardWebhooks, Svix, Clerk, Resend, OpenAI])
@pytest.mark.parametrize("secret", [SECRET, SECRET.removeprefix("whsec_")])
def test_every_kind_verifies_both_families_of_names(kind: type[Source], secret: str) -> None:
    for family in ("webhook", "svix"):
        assert kind(secrets=secret).verify(request(family=family), AT_MS).secret_index == 0


@pytest.mark.parametrize("key", [b"a" * 25, b"a" * 26, b"a" * 27])
def test_the_padding_of_a_secret_may_be_missing(key: bytes) -> None:
    padded = "whsec_" + base64.b64encode(key).decode()
    signature = "v1," + base64_of(key, f"{MESSAGE_ID}.{TIMESTAMP}.".encode() + BODY)

    for secret in (padded, padded.rstrip("=")):
        source = StandardWebhooks(secrets=secret)
        assert source.verify(request(signature=signature), AT_MS).secret_index == 0


@given(st.text(), st.text(st.sampled_from("abc_-0"), min_size=1), st.integers(0, 10**10))
def test_what_the_reference_library_signs_verifies(text: str, message_id: str, seconds: int) -> None:
    body = text.encode("utf-8", "replace")
    moment = datetime.fromtimestamp(seconds, tz=UTC)
    signature = standardwebhooks.Webhook(SECRET).sign(message_id, moment, body.decode())

    sent = request(body, id=message_id, timestamp=str(seconds), signature=signature)

    assert SOURCE.verify(sent, seconds * 1000).secret_index == 1


def test_what_is_signed_here_the_reference_library_accepts() -> None:
    now_ms = int(datetime.now(UTC).timestamp() * 1000)

    signed = StandardWebhooks(secrets=SECRET).sign(BODY, now_ms, event_id="msg_1")

    assert standardwebhooks.Webhook(SECRET).verify(BODY, signed) == {"test": 2432232314}


def test_a_private_key_signs_as_svix_does() -> None:
    source = StandardWebhooks(secrets=PRIVATE)

    signed = source.sign(BODY, AT_MS, event_id=MESSAGE_ID)

    assert signed["webhook-signature"] == SIGNATURE_1A
    assert source.verify(HttpRequest.of(BODY, signed), AT_MS).secret_index == 0
    with pytest.raises(ConfigError):
        StandardWebhooks(secrets=PUBLIC).sign(BODY, AT_MS)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"signature": SIGNATURE[:-4] + "AAA="}, "no signature matches"),
        ({"signature": SIGNATURE.replace("v1,", "v2,")}, "no signature matches (v1 offered: 0"),
        ({"signature": SIGNATURE.replace("v1,", "v1a,")}, "no signature matches"),
        ({"signature": SIGNATURE_1A.replace("v1a,", "v1,")}, "no signature matches"),
        ({"signature": SIGNATURE_1A[:-3] + "h=="}, "no signature matches"),
        ({"signature": SIGNATURE.removeprefix("v1,")}, "no signature matches (v1 offered: 0"),
        ({"signature": "v1,é\xff"}, "no signature matches"),
        ({"signature": "v1a,é\xff"}, "no signature matches"),
        ({"signature": ""}, "empty webhook-signature header"),
        ({"signature": " ".join(["v1,AAAA"] * 17)}, "17 signatures"),
        ({"id": "msg_other"}, "no signature matches"),
        ({"id": ""}, "empty webhook-id header"),
        ({"timestamp": "1614265331"}, "no signature matches"),
        ({"timestamp": "1614265330.0"}, "timestamp is not"),
        ({"timestamp": "1e9"}, "timestamp is not"),
        ({"timestamp": "-1614265330"}, "timestamp is not"),
        ({"timestamp": "9" * 5000}, "timestamp is not"),
    ],
)
def test_a_changed_header_is_refused(changed: dict[str, Any], says: str) -> None:
    assert says in refused(SOURCE, request(**changed), AT_MS)


def test_a_dot_moved_between_id_and_time_is_refused() -> None:
    # The same bytes are signed: "msg.1614265330" + "." + "7" + "." + body.
    signature = "v1," + base64_of(base64.b64decode(SECRET[6:]), b"msg.1614265330.7.{}")
    genuine = request(b"7.{}", id="msg", signature=signature)
    moved = request(b"{}", id="msg.1614265330", timestamp="7", signature=signature)

    assert SOURCE.verify(genuine, AT_MS).secret_index == 1
    assert refused(SOURCE, moved, 7000) == "the webhook-id header holds a dot"


def test_headers_of_both_families_must_agree() -> None:
    both = HttpRequest.of(BODY, headers() | headers("svix"))
    mixed = HttpRequest.of(BODY, headers() | headers("svix", id="msg_fresh"))
    torn = HttpRequest.of(
        BODY,
        {"svix-id": MESSAGE_ID, "webhook-timestamp": TIMESTAMP, "webhook-signature": SIGNATURE},
    )

    assert SOURCE.verify(both, AT_MS).secret_index == 1
    assert "mixed" in refused(SOURCE, mixed, AT_MS)
    assert "mixed" in refused(SOURCE, torn, AT_MS)


@pytest.mark.parametrize("part", ["id", "timestamp", "signature"])
def test_each_header_must_be_there_once(part: str) -> None:
    pairs = list(headers().items())

    missing = HttpRequest.of(BODY, [pair for pair in pairs if pair[0] != f"webhook-{part}"])
    doubled = HttpRequest.of(BODY, [*pairs, (f"Webhook-{part}", headers()[f"webhook-{part}"])])

    assert refused(SOURCE, missing, AT_MS) == f"no webhook-{part} header"
    assert refused(SOURCE, doubled, AT_MS) == f"2 webhook-{part} headers"


@pytest.mark.parametrize("skew_ms", [-300_000, 0, 300_000])
def test_a_time_within_the_tolerance_is_accepted(skew_ms: int) -> None:
    assert SOURCE.verify(request(), AT_MS + skew_ms).secret_index == 1


@pytest.mark.parametrize(("skew_ms", "side"), [(300_001, "past"), (-300_001, "future")])
def test_a_time_beyond_the_tolerance_is_refused_on_both_sides(skew_ms: int, side: str) -> None:
    assert f"300 s in the {side}" in refused(SOURCE, request(), AT_MS + skew_ms)
    wide = StandardWebhooks(secrets=SECRET, tolerance="1h")
    assert wide.verify(request(), AT_MS + skew_ms).secret_index == 0


@given(st.integers(0, len(BODY) - 1), st.integers(1, 255))
def test_a_changed_byte_of_the_body_is_refused(position: int, flip: int) -> None:
    changed = bytearray(BODY)
    changed[position] ^= flip

    refused(SOURCE, request(bytes(changed)), AT_MS)


@given(HOSTILE, HOSTILE, HOSTILE)
def test_hostile_headers_are_refused_and_nothing_else(one: str, two: str, three: str) -> None:
    refused(SOURCE, request(id=one, timestamp=two, signature=three), AT_MS)
    refused(SOURCE, request(signature=f"v1a,{three} v1,{one}"), AT_MS)


@pytest.mark.parametrize(
    ("body", "event_type", "subject", "occurred_at_ms"),
    [
        (
            {"type": "a.b", "timestamp": "2022-11-03T20:26:10.344522Z", "data": {"id": "x_1"}},
            "a.b",
            "x_1",
            1667507170344,
        ),
        ({"type": "a", "timestamp": 1654012591835, "data": {"id": 7}}, "a", "7", 1654012591835),
        ({"type": "a", "created_at": 1750287018}, "a", None, 1750287018000),
        ({"type": "", "timestamp": "yesterday"}, "message", None, None),
        ({"type": 7, "timestamp": -1}, "message", None, None),
        ({"type": "x" * 256, "timestamp": 10**30}, "message", None, None),
        ([1], "message", None, None),
        (None, "message", None, None),
    ],
)
def test_a_message_is_read(
    body: Any, event_type: str, subject: str | None, occurred_at_ms: int | None
) -> None:
    incoming = sole_event(SOURCE, request(json_of(body)))

    assert (incoming.id, incoming.type) == (MESSAGE_ID, event_type)
    assert (incoming.subject, incoming.occurred_at_ms) == (subject, occurred_at_ms)
    assert incoming.payload == body
    assert incoming.payload_is_body
    assert incoming.id_is_signed


def test_a_redelivery_signed_anew_is_the_same_event() -> None:
    source = Clerk(secrets=SECRET)
    requests = [
        HttpRequest.of(BODY, source.sign(BODY, at_ms, event_id="msg_1"))
        for at_ms in (NOW_MS, NOW_MS + 60_000)
    ]

    assert source.verify(requests[1], NOW_MS + 60_000).sent_at_ms == NOW_MS + 60_000
    assert requests[0].header("svix-timestamp") == NOW
    assert len({sole_event(source, one).id for one in requests}) == 1


def test_an_unreadable_message_is_malformed() -> None:
    malformed(SOURCE, request(b"{"))
    malformed(SOURCE, HttpRequest.of(BODY))
    malformed(SOURCE, HttpRequest.of(BODY, [("webhook-id", "a"), ("webhook-id", "b")]))


@pytest.mark.parametrize(
    "secret", ["whsec_", "whsec_%%%", "whsec_====", "whpk_AAAA", "whsk_AAAA", "whpk_" + "%" * 44, "é" * 8]
)
def test_a_secret_that_can_never_match_is_refused(secret: str) -> None:
    with pytest.raises(ConfigError):
        StandardWebhooks(secrets=[SECRET, secret])


@pytest.mark.parametrize("tolerance", [timedelta(0), 0, "five"])
def test_a_tolerance_that_would_refuse_everything_is_refused(tolerance: Any) -> None:
    with pytest.raises(ConfigError):
        StandardWebhooks(secrets=SECRET, tolerance=tolerance)


def test_an_event_of_resend_is_about_its_email_or_what_else_has_an_id() -> None:
    resend = Resend(secrets=SECRET)
    subjects = [
        resend.normalize(request(body))[0].subject
        for body in (
            b'{"type":"email.bounced","data":{"email_id":"56761188","subject":"Sending this example"}}',
            b'{"type":"contact.created","data":{"id":"e169aa45","email":"steve@example.com"}}',
        )
    ]

    assert subjects == ["56761188", "e169aa45"]
