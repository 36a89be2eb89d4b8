"""Twilio: the vectors of its helper libraries, addresses behind proxies, forms and streams."""

from __future__ import annotations

import hashlib
from typing import Any
from urllib.parse import urlencode

import pytest

from onceward.core.errors import ConfigError
from onceward.core.messages import HttpRequest
from onceward.sources import Twilio
from tests.sources.known import NOW_MS, base64_of, example, malformed, refused, sole_event

# From the tests of twilio-python, twilio-php and twilio-csharp ("RequestValidator").
TOKEN = "12345"
URL = "https://mycompany.com/myapp.php?foo=1&bar=2"
PARAMS = {
    "CallSid": "CA1234567890ABCDE",
    "Digits": "1234",
    "From": "+14158675309",
    "To": "+18005551212",
    "Caller": "+14158675309",
}
SIGNATURE = "RSOYDt4T1cUTdK1PDd93/VVr8B8="
JSON_BODY = b'{"property": "value", "boolean": true}'
JSON_HASH = "0a1ff7634d9ab3b95db5c9a2dfe9416e41502b283a80c7cf19632632f96e6620"
JSON_URL = f"{URL}&bodySHA256={JSON_HASH}"
JSON_SIGNATURE = "a9nBmqA0ju/hNViExpshrM61xv4="
FORM = "application/x-www-form-urlencoded"
SOURCE = Twilio(secrets=["another", TOKEN])


def request(
    params: Any = PARAMS, url: str = URL, signature: str = SIGNATURE, content_type: str = FORM, **more: str
) -> HttpRequest:
    body = params if isinstance(params, bytes) else urlencode(params, doseq=True).encode()
    headers = {"Content-Type": content_type, "X-Twilio-Signature": signature}
    return HttpRequest.of(body, headers | {n.replace("_", "-"): v for n, v in more.items()}, url=url)


def json_request(
    body: bytes = JSON_BODY, url: str = JSON_URL, signature: str = JSON_SIGNATURE
) -> HttpRequest:
    return request(body, url, signature, "application/json")


@pytest.mark.parametrize(
    ("params", "url", "signature"),
    [
        (PARAMS, URL, SIGNATURE),
        (dict(reversed(PARAMS.items())), URL, SIGNATURE),
        (
            {"Sid": "CA123", "SidAccount": "AC123", "Digits": ["5678", "1234", "1234"]},
            URL,
            "IK+Dwps556ElfBT0I3Rgjkr1wJU=",
        ),
        (
            {"Sid": "CA123", "SidAccount": "AC123", "Digits": ["1234", "5678"]},
            URL,
            "IK+Dwps556ElfBT0I3Rgjkr1wJU=",
        ),
        # Signed without the port that was called, and with it.
        (PARAMS, URL.replace(".com", ".com:1234"), SIGNATURE),
        (PARAMS, URL.replace(".com", ".com:443"), SIGNATURE),
        (PARAMS, "http://mycompany.com:1234/myapp.php?foo=1&bar=2", "Zmvh+3yNM1Phv2jhDCwEM3q5ebU="),
        # Signed with the default port that was not written.
        (PARAMS, URL, "kvajT1Ptam85bY51eRf/AJRuM3w="),
        (PARAMS, URL.replace("https", "http"), "0ZXoZLH/DfblKGATFgpif+LLRf4="),
    ],
)
def test_the_published_vectors_of_forms_verify(params: Any, url: str, signature: str) -> None:
    assert SOURCE.verify(request(params, url, signature), NOW_MS).secret_index == 1


@pytest.mark.parametrize(
    ("url", "signature"),
    [
        (JSON_URL, JSON_SIGNATURE),
        (f"https://mycompany.com/myapp.php?bodySHA256={JSON_HASH}", "y77kIzt2vzLz71DgmJGsen2scGs="),
    ],
)
def test_the_published_vectors_of_json_verify(url: str, signature: str) -> None:
    assert SOURCE.verify(json_request(url=url, signature=signature), NOW_MS).secret_index == 1


def test_a_port_behind_credentials_is_the_port() -> None:
    for url, signed in [
        ("https://user:pass@h.example/p", "https://user:pass@h.example:443/p"),
        ("https://user:pass@h.example:8443/p", "https://user:pass@h.example/p"),
        ("https://[::1]:8443/p", "https://[::1]/p"),
    ]:
        sent = request({}, url, base64_of(TOKEN, signed.encode(), "sha1"))
        assert SOURCE.verify(sent, NOW_MS).secret_index == 1


@pytest.mark.parametrize(
    ("query", "signature"),
    [
        ("&q=it%27s", "7xDZOhrAne09Zd0eM8049sC9JyQ="),
        ("&q=it%27s", "f70rtu+N4BZFKze5IqU3OfNY+ts="),  # and with the port
        ("&q=it's", "+jAfzDDc6kWujiiUKzE9x7mH+qs="),
        ("&q=a+b", "P0SWdDtbgHQV64ZgAt+eD/r4sYY="),
        ("&q=%28a%29%21", "+T6R/q1j0cBNnl0mzKGfYopkHFc="),
        ("&c=sip:1@2.3.4.5", "u90EiGHIa9KYkVsaR9uxhlnfugk="),
        ("&q=%c3%a4", "85j0EHTYer1MU9nhLoHsWJf7b2A="),
        ("&q", "5XsAyMuFjI20MKd2UnOF7iqtOvA="),
    ],
)
def test_a_query_that_was_signed_in_another_spelling_verifies(query: str, signature: str) -> None:
    """Signatures by twilio-node 6.3.1, whose validateRequest takes each for this address."""
    assert SOURCE.verify(request(url=URL + query, signature=signature), NOW_MS).secret_index == 1
    refused(SOURCE, request(url=f"{URL}{query}x", signature=signature))
    refused(SOURCE, request(url=URL + query + "&more=1", signature=signature))


def test_blank_and_unicode_values_are_signed_as_they_are() -> None:
    params = [("Body", "☃ é"), ("Media", ""), ("A B", "x+y")]
    message = URL.encode() + "A Bx+yBody☃ éMedia".encode()

    assert SOURCE.verify(request(params, URL, base64_of(TOKEN, message, "sha1")), NOW_MS).secret_index == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"signature": ""},
        {"signature": "NOT" + SIGNATURE},
        {"signature": SIGNATURE.rstrip("=")},
        {"signature": "é\xff"},
        # Twilio's own test: ReasonConferenceEnded sorted before Reason.
        {"signature": "95+Bu0JVPi0r/SsESZCVf0dWAjw="},
        {"url": ""},
        {"url": URL.replace("https", "http")},
        {"url": URL + "&x=1"},
        {"url": URL.replace("myapp", "m%79app")},
        {"params": PARAMS | {"Digits": "1235"}},
        {"params": PARAMS | {"New": "1"}},
        {"params": b"\xff\xfe"},
        {"params": b"Digits=%FF"},
        {"params": b"&" * 5000},
        {"params": b""},
        {"content_type": "application/json"},
        {"content_type": "text/plain"},
    ],
)
def test_anything_else_is_refused(changed: dict[str, Any]) -> None:
    refused(SOURCE, request(**changed))


@pytest.mark.parametrize(
    "changed",
    [
        {"body": b'{"property": "evil"}'},
        {"body": b""},
        {"url": URL},
        {"url": f"{JSON_URL}&bodySHA256={'0' * 64}"},
        {"url": URL + "&bodySHA256=é"},
        {"url": URL + "&bodySHA256="},
        {"signature": SIGNATURE},
    ],
)
def test_json_needs_both_the_hash_and_the_signature(changed: dict[str, Any]) -> None:
    refused(SOURCE, json_request(**changed))


@pytest.mark.parametrize("body", [b"", b"=", b"&&"])
def test_a_signature_over_the_address_alone_does_not_fit_an_empty_form(body: bytes) -> None:
    refused(SOURCE, request(body, JSON_URL, JSON_SIGNATURE))


def test_the_signature_must_be_there_once() -> None:
    body = urlencode(PARAMS).encode()
    headers = [("Content-Type", FORM), ("X-Twilio-Signature", SIGNATURE)]

    refused(SOURCE, HttpRequest.of(body, headers[:1], url=URL))
    refused(SOURCE, HttpRequest.of(body, [*headers, headers[1]], url=URL))
    # Of two content types it is not clear which one Twilio wrote.
    refused(SOURCE, HttpRequest.of(body, [*headers, headers[0]], url=URL))


@pytest.mark.parametrize(
    ("public_url", "path"),
    [
        ("https://mycompany.com", "/myapp.php"),
        ("https://mycompany.com/", "/myapp.php"),
        ("https://mycompany.com/myapp.php", "/myapp.php"),
        ("https://mycompany.com/myapp.php", "/"),
    ],
)
def test_the_public_url_wins_over_what_the_app_sees(public_url: str, path: str) -> None:
    behind = Twilio(secrets=TOKEN, public_url=public_url)
    seen = HttpRequest.of(
        urlencode(PARAMS).encode(),
        {"Content-Type": FORM, "X-Twilio-Signature": SIGNATURE},
        path=path,
        query="foo=1&bar=2",
        url="http://10.0.0.7:8000/myapp.php?foo=1&bar=2",
    )

    assert behind.verify(seen, NOW_MS).secret_index == 0
    refused(Twilio(secrets=TOKEN), seen)
    refused(Twilio(secrets=TOKEN, public_url="https://other.example"), request())


@pytest.mark.parametrize(
    "public_url",
    ["mycompany.com", "ftp://a.b", "https://", "https://a.b/#x", "https://[", ""],
)
def test_what_is_no_base_of_an_address_is_refused(public_url: str) -> None:
    with pytest.raises(ConfigError):
        Twilio(secrets=TOKEN, public_url=public_url)


@pytest.mark.parametrize(
    ("event_type", "subject", "occurred_at_ms", "version"),
    [
        ("message.received", "SM1f0e8ae6ade43cb3c0ce4525424e404f", None, None),
        ("message.delivered", "SM2xxxxxxxxxx", None, None),
        ("call.completed", "CA1234567890abcdef1234567890abcdef", 1795111980000, 2),
    ],
)
def test_a_form_is_read(
    event_type: str, subject: str, occurred_at_ms: int | None, version: int | None
) -> None:
    incoming = sole_event(SOURCE, request(example("twilio", event_type)))

    assert (incoming.type, incoming.subject) == (event_type, subject)
    assert (incoming.occurred_at_ms, incoming.version) == (occurred_at_ms, version)
    assert incoming.payload["ApiVersion"] == "2010-04-01"
    assert incoming.id_is_derived


def test_an_id_is_kept_by_retries_and_told_from_the_next() -> None:
    body = example("twilio", "message.delivered")
    first = sole_event(SOURCE, request(body))

    assert sole_event(SOURCE, request(body)) == first
    assert sole_event(SOURCE, request(body.replace(b"delivered", b"sent"))).id != first.id
    assert sole_event(SOURCE, request(body, "https://mycompany.com/other")).id != first.id
    given = sole_event(SOURCE, request(body, I_Twilio_Idempotency_Token="tok-1"))
    assert (given.id, given.id_is_signed, given.id_is_derived) == ("tok-1", False, False)


def test_repeated_fields_are_a_list_and_an_odd_form_is_an_event() -> None:
    assert sole_event(SOURCE, request(b"Digits=1&Digits=2&A=")).payload == {"Digits": ["1", "2"], "A": ""}
    assert sole_event(SOURCE, request(b"EventType=task.created")).type == "task.created"
    assert sole_event(SOURCE, request(b"")).type == "webhook"


@pytest.mark.parametrize(
    ("fields", "event_type", "subject"),
    [
        (b"RoomSid=RM1&RoomStatus=completed&StatusCallbackEvent=room-ended", "room.room-ended", "RM1"),
        (b"ConferenceSid=CF1&StatusCallbackEvent=participant-join", "conference.participant-join", "CF1"),
    ],
)
def test_a_room_of_video_is_no_conference(fields: bytes, event_type: str, subject: str) -> None:
    incoming = sole_event(SOURCE, request(fields))

    assert (incoming.type, incoming.subject) == (event_type, subject)


def test_a_stream_is_a_batch_of_cloud_events() -> None:
    body = example("twilio", "com.twilio.messaging.message.delivered")

    incoming = sole_event(SOURCE, json_request(body))

    assert incoming.id == "EZ9796d3ffd3bb5e4d4e6f4c5a2c26d1a9"
    assert incoming.type == "com.twilio.messaging.message.delivered"
    assert incoming.occurred_at_ms == 1795111980000
    doubled = b"[" + body[1:-1] + b"," + body[1:-1].replace(b"EZ97", b"EZ98") + b"]"
    assert len({event.id for event in SOURCE.normalize(json_request(doubled))}) == 2
    assert SOURCE.normalize(json_request(b"[]")) == []


def test_another_json_body_is_one_event_by_its_content() -> None:
    one, again, other = (
        sole_event(SOURCE, json_request(body))
        for body in (JSON_BODY, JSON_BODY + b"\n", b'{"property": "x"}')
    )

    assert one.id == again.id != other.id
    assert (one.type, one.payload_is_body) == ("webhook", True)


@pytest.mark.parametrize("body", [b"{", b"1", b"[1]", b'{"type": 1.5}'])
def test_json_that_cannot_be_read_is_malformed(body: bytes) -> None:
    malformed(SOURCE, json_request(body))


@pytest.mark.parametrize("body", [b"a=%FF", b"\xff", b"&" * 5000, b"SmsStatus=" + b"x" * 300])
def test_a_form_that_cannot_be_read_is_malformed(body: bytes) -> None:
    malformed(SOURCE, request(body))


def test_the_reply_is_an_empty_document() -> None:
    answer = SOURCE.respond("accepted")

    assert answer is not None
    assert (answer.status, answer.headers) == (200, ((b"content-type", b"text/xml; charset=utf-8"),))
    assert answer.body.endswith(b"<Response/>")
    assert SOURCE.respond("refused") is None


def test_a_signed_request_carries_what_its_body_needs() -> None:
    form = SOURCE.signed_request(b"A=1", NOW_MS, secret_index=1, url=URL, event_id="tok")
    json = SOURCE.signed_request(b"[]", NOW_MS, secret_index=1, url=URL)

    assert [SOURCE.verify(one, NOW_MS).secret_index for one in (form, json)] == [1, 1]
    assert json.url == f"{URL}&bodySHA256={hashlib.sha256(b'[]').hexdigest()}"
    assert sole_event(SOURCE, form).id == "tok"
    own = Twilio(secrets=TOKEN, public_url="https://hooks.example")
    assert own.verify(own.signed_request(b"{}", NOW_MS), NOW_MS).secret_index == 0


# --- shared keys ----------------------------------------------------------------------------------

SHARED = "a shared key of a webhook rule"
SETTINGS = "key=SK0123456789abcdef,algorithm=HMAC_SHA256"
WITH_SHARED = Twilio(secrets=TOKEN, shared_keys=["an older one", SHARED])
SIGNED_FORM = URL + "".join(name + PARAMS[name] for name in sorted(PARAMS))


def shared_request(key: str = SHARED, algorithm: str = "sha256", settings: Any = SETTINGS) -> HttpRequest:
    signature = base64_of(key, SIGNED_FORM.encode(), algorithm)
    return request(signature=signature, X_Twilio_Webhooks_Signature_Settings=settings)


def test_a_shared_key_signs_the_same_text_with_the_hash_that_the_header_names() -> None:
    assert WITH_SHARED.verify(shared_request(), NOW_MS).secret_index == 2
    sha1 = shared_request(algorithm="sha1", settings="key=SK1, algorithm=HMAC_SHA1")
    assert WITH_SHARED.verify(sha1, NOW_MS).secret_index == 2
    # Its library reads the name in any case.
    lower = shared_request(settings="key=SK1,algorithm=hmac_sha256")
    assert WITH_SHARED.verify(lower, NOW_MS).secret_index == 2
    spaced = shared_request(settings="key = SK1, algorithm = HMAC_SHA256")
    assert WITH_SHARED.verify(spaced, NOW_MS).secret_index == 2
    assert WITH_SHARED.verify(request(), NOW_MS).secret_index == 0


@pytest.mark.parametrize("settings", ["", "key=SK1", "key=SK1,algorithm="])
def test_a_settings_header_that_names_no_hash_is_as_none(settings: str) -> None:
    """By getSignatureAlgorithm of twilio-node 6.3.1: the auth token signs, with SHA-1."""
    given = request(X_Twilio_Webhooks_Signature_Settings=settings)

    assert WITH_SHARED.verify(given, NOW_MS).secret_index == 0
    assert SOURCE.verify(given, NOW_MS).secret_index == 1


def test_the_hash_in_the_address_is_compared_as_text_as_by_the_libraries_of_twilio() -> None:
    upper = JSON_URL.replace(JSON_HASH, JSON_HASH.upper())
    headers = {
        "Content-Type": "application/json",
        "X-Twilio-Signature": base64_of(TOKEN, upper.encode(), "sha1"),
    }

    assert upper != JSON_URL
    refused(SOURCE, HttpRequest.of(JSON_BODY, headers, url=upper))


def test_a_shared_key_signs_json_by_its_address() -> None:
    signature = base64_of(SHARED, JSON_URL.encode())
    headers = {
        "Content-Type": "application/json",
        "X-Twilio-Signature": signature,
        "X-Twilio-Webhooks-Signature-Settings": SETTINGS,
    }

    assert WITH_SHARED.verify(HttpRequest.of(JSON_BODY, headers, url=JSON_URL), NOW_MS).secret_index == 2
    refused(WITH_SHARED, HttpRequest.of(JSON_BODY + b" ", headers, url=JSON_URL))


@pytest.mark.parametrize(
    "candidate",
    [
        shared_request(TOKEN),
        shared_request("other"),
        shared_request(algorithm="sha1"),
        shared_request(settings="key=SK1,algorithm=NONE"),
        shared_request(settings="key=SK1,algorithm=HMAC_SHA256,algorithm=HMAC_SHA1"),
        shared_request(settings="key=SK1"),
        shared_request(settings=""),
        request(X_Twilio_Webhooks_Signature_Settings=SETTINGS),
        request(signature=base64_of(TOKEN, SIGNED_FORM.encode(), "sha256")),
        request(signature=base64_of(SHARED, SIGNED_FORM.encode(), "sha1")),
    ],
)
def test_neither_key_nor_hash_stands_in_for_another(candidate: HttpRequest) -> None:
    refused(WITH_SHARED, candidate)


def test_without_shared_keys_their_header_refuses() -> None:
    refused(SOURCE, shared_request(TOKEN))


def test_a_request_signed_here_with_a_shared_key_says_so() -> None:
    made = WITH_SHARED.signed_request(b"CallSid=CA1&CallStatus=completed", NOW_MS, secret_index=2, url=URL)

    assert WITH_SHARED.verify(made, NOW_MS).secret_index == 2


def test_the_query_of_the_configured_address_never_stands_in_for_that_of_a_request() -> None:
    """Else a signature over the configured address alone would fit any body whose hash a forger adds."""
    source = Twilio(secrets=TOKEN, public_url="https://mycompany.com/myapp.php?foo=1&bar=2")
    signature = base64_of(TOKEN, URL.encode(), "sha1")
    headers = {"Content-Type": "application/json", "X-Twilio-Signature": signature}

    forged = HttpRequest.of(JSON_BODY, headers, path="/myapp.php", query=f"bodySHA256={JSON_HASH}")
    refused(source, forged)
    refused(source, HttpRequest.of(JSON_BODY, headers, path="/myapp.php"))
