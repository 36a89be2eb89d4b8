"""The source that is described: everything a description can say, against signatures made elsewhere."""

from __future__ import annotations

import base64
import gzip
import hashlib
import hmac
import tomllib
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from onceward.core.arrival import UNVERIFIED, Verified
from onceward.core.errors import BodyMalformed, ConfigError, SignatureInvalid
from onceward.core.messages import HttpRequest
from onceward.sources import CloudEvents, Generic, create, source_class
from onceward.sources.described.scheme import Scheme, Signature, Timestamp, in_words
from onceward.sources.described.template import Template
from tests.sources.rsa_keys import KEY as RSA

SECRET = "a generic secret"
BODY = b'{"id": "e-1", "type": "order.paid", "note": "{timestamp} {body}"}'
NOW_S = 1_780_000_000
NOW_MS = NOW_S * 1000
COMMA_LIST = {"header": "X", "item_separator": ",", "field": "v1"}
PLACES: dict[str, Any] = {"id": "/id", "type": "/type"}


def source(signature: dict[str, Any] | None = None, **fields: Any) -> Generic:
    trust: dict[str, Any] = {} if "insecure" in fields or "secrets" in fields else {"secrets": [SECRET]}
    signed = {} if signature is None else {"signature": {"header": "X-Sign", **signature}}
    return Generic(name="acme", **(trust | PLACES | signed | fields))


def mac(message: bytes, key: bytes = SECRET.encode(), algorithm: str = "sha256") -> bytes:
    return hmac.new(key, message, getattr(hashlib, algorithm)).digest()


def taken(acme: Generic, headers: Any, body: bytes = BODY, now_ms: int = NOW_MS, **request: Any) -> bool:
    try:
        acme.verify(HttpRequest.of(body, headers, **request), now_ms)
    except SignatureInvalid:
        return False
    return True


# --- what is signed -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{body}", BODY),
        ("v0:{timestamp}:{body}", b"v0:%d:%b" % (NOW_S, BODY)),
        ("{id}.{timestamp}.{body}", b"m-1.%d.%b" % (NOW_S, BODY)),
        ("{method}{url}{body}", b"POSThttps://shop.example/hooks/acme?a=%20b" + BODY),
        ("{path}?{query}\n{body}", b"/hooks/acme?a=%20b\n" + BODY),
        ("{header:X-Other}|{body}", b"other|" + BODY),
        ("{{{body}}}", b"{" + BODY + b"}"),
        ("ä{body}", "ä".encode() + BODY),
    ],
)
def test_a_template_is_filled_in_one_pass(template: str, message: bytes) -> None:
    time: dict[str, Any] = {"timestamp": {"place": "header:X-Time"}} if "{timestamp}" in template else {}
    acme = source({"template": template}, id="header:X-Id", **time)
    headers = {
        "X-Sign": mac(message).hex(),
        "X-Time": str(NOW_S),
        "X-Id": "m-1",
        "X-Other": "other",
    }
    url = "https://shop.example/hooks/acme?a=%20b"

    assert taken(acme, headers, url=url)
    assert not taken(acme, headers, body=BODY + b" ", url=url)


@given(st.binary(max_size=60), st.binary(max_size=30))
def test_markers_in_what_is_filled_in_stay_what_they_are(body: bytes, other: bytes) -> None:
    filled = Template("a{body}b{x}c").fill({"body": b"{x}" + body, "x": b"{body}" + other}.__getitem__)

    assert filled == b"a{x}" + body + b"b{body}" + other + b"c"


def test_the_fields_of_a_form_are_signed_sorted() -> None:
    acme = source({"template": "{url}{form}", "algorithm": "sha1", "encoding": "base64"}, id="form:Sid")
    body = b"Sid=S1&Body=a+b%26&Empty=&Body=a+b%26&Alpha=2&Alpha=10"
    url = "https://shop.example/sms"
    message = b"https://shop.example/smsAlpha10Alpha2Bodya b&EmptySidS1"
    signed = base64.b64encode(mac(message, algorithm="sha1")).decode()

    assert taken(acme, {"X-Sign": signed}, body, url=url)
    assert not taken(acme, {"X-Sign": signed}, b"\xff=1", url=url)


def test_a_signed_address_that_nobody_knows_is_refused() -> None:
    acme = source({"template": "{url}{body}"})

    with pytest.raises(SignatureInvalid, match="public_url"):
        acme.verify(HttpRequest.of(BODY, {"X-Sign": mac(BODY).hex()}), 0)


def test_what_is_inside_of_gzip_is_signed_where_the_sender_says_so() -> None:
    packed = gzip.compress(BODY)
    headers = {"X-Sign": mac(BODY).hex(), "Content-Encoding": "gzip"}
    inside, outside = source({"signed": "decoded"}), source({})

    assert taken(inside, headers, packed)
    assert not taken(outside, headers, packed)
    assert taken(outside, headers | {"X-Sign": mac(packed).hex()}, packed)
    assert taken(inside, headers, BODY)  # a server in front has decoded it
    assert inside.normalize(HttpRequest.of(packed, headers))[0].id == "e-1"
    assert [one.payload_is_body for one in inside.normalize(HttpRequest.of(packed, headers))] == [False]


@pytest.mark.parametrize(
    "packed",
    [gzip.compress(b"0" * (17 * 1024 * 1024)), gzip.compress(BODY)[:-1], gzip.compress(BODY) + b"x"],
    ids=["bomb", "cut off", "more"],
)
def test_a_bomb_or_a_cut_off_body_is_refused(packed: bytes) -> None:
    acme = source({"signed": "decoded"})
    request = HttpRequest.of(packed, {"X-Sign": mac(BODY).hex(), "Content-Encoding": "gzip"})

    with pytest.raises(SignatureInvalid):
        acme.verify(request, 0)
    with pytest.raises(BodyMalformed):
        acme.normalize(request)


# --- where the signature stands -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("signature", "value"),
    [
        ({"prefix": "sha256="}, "sha256={hex}"),
        ({"prefix": ["v1=", "v2="]}, "v2={hex}"),
        ({}, " {hex}\t"),
        ({}, "{HEX}"),
        ({"item_separator": ","}, "00,{hex}"),
        ({"item_separator": " ", "prefix": "v1,", "encoding": "base64"}, "v1a,xx v1,{base64}"),
        ({"item_separator": ";", "field": "h1"}, "ts=1;h1={hex}"),
        ({"item_separator": ",", "field": "v1"}, "t=1, v1=00 , v1={hex}"),
        ({"field": "sig", "field_separator": ":"}, "sig:{hex}"),
        ({"field": "sig", "encoding": "base64"}, "sig={base64}"),
        ({"encoding": "base64"}, "{unpadded}"),
        ({"encoding": "base64url"}, "{base64url}"),
    ],
)
def test_signatures_are_found_in_every_form(signature: dict[str, Any], value: str) -> None:
    raw = mac(BODY)
    text = base64.b64encode(raw).decode()
    filled = (
        value.replace("{hex}", raw.hex())
        .replace("{HEX}", raw.hex().upper())
        .replace("{base64}", text)
        .replace("{unpadded}", text.rstrip("="))
        .replace("{base64url}", base64.urlsafe_b64encode(raw).decode())
    )

    assert taken(source(signature), {"X-Sign": filled})


@pytest.mark.parametrize(
    ("signature", "value"),
    [
        ({"prefix": "sha256="}, "{hex}"),
        ({"prefix": "sha256="}, "sha1={hex}"),
        ({"prefix": "sha256="}, "xsha256={hex}"),
        ({"trim": False}, " {hex}"),
        ({}, "{hex},{hex}"),
        ({}, ""),
        ({"item_separator": ",", "field": "v1"}, "v0={hex}"),
        ({"item_separator": ",", "field": "v1"}, "v1,{hex}"),
        ({"item_separator": ","}, ",".join(["00"] * 17 + ["{hex}"])),
        ({"item_separator": ","}, "," * 100_000),
        ({"encoding": "base64url"}, "{base64}"),
    ],
)
def test_signatures_in_another_form_are_refused(signature: dict[str, Any], value: str) -> None:
    # A body whose base64 has characters that base64url writes otherwise.
    body = next(b'{"n":%d}' % n for n in range(99) if b"/" in base64.b64encode(mac(b'{"n":%d}' % n)))
    text = base64.b64encode(mac(body)).decode()
    filled = value.replace("{hex}", mac(body).hex()).replace("{base64}", text)

    assert not taken(source(signature), {"X-Sign": filled}, body)


def test_any_of_several_headers_may_hold_it_but_none_twice() -> None:
    acme = source({"header": ["X-One", "X-Two"]})
    good = mac(BODY).hex()

    assert taken(acme, {"X-Two": good})
    assert taken(acme, {"X-One": "00", "X-Two": good})
    assert not taken(acme, [("X-Two", good), ("x-two", good)])
    assert not taken(acme, {"X-One": good, "X-Two": ""})


# --- secrets --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("text", SECRET),
        ("hex", SECRET.encode().hex()),
        ("hex", SECRET.encode().hex().upper()),
        ("base64", base64.b64encode(SECRET.encode()).decode()),
        ("base64", base64.b64encode(SECRET.encode()).decode().rstrip("=")),
        ("base64url", base64.urlsafe_b64encode(SECRET.encode()).decode()),
    ],
)
@pytest.mark.parametrize("prefix", ["", "whsec_"])
def test_secrets_are_decoded_as_they_are_written(encoding: str, text: str, prefix: str) -> None:
    acme = source({"secret_encoding": encoding, "secret_prefix": "whsec_"}, secrets=[prefix + text])

    assert taken(acme, {"X-Sign": mac(BODY).hex()})
    assert text not in f"{acme!r} {vars(acme)}"


@pytest.mark.parametrize(
    ("encoding", "text"), [("hex", "xyz"), ("hex", "abc"), ("base64", "a"), ("base64", "ä")]
)
def test_a_secret_that_is_not_so_written_is_refused(encoding: str, text: str) -> None:
    with pytest.raises(ConfigError, match=f"is not {encoding}"):
        source({"secret_encoding": encoding}, secrets=[text])


# --- the time -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("unit", "text", "sent_at_ms"),
    [
        ("s", str(NOW_S), NOW_MS),
        ("ms", str(NOW_MS + 5), NOW_MS + 5),
        ("iso", "2026-05-28T20:26:40Z", NOW_MS),
        ("iso", "2026-05-28T22:26:40.634234626+02:00", NOW_MS + 634),
    ],
)
def test_the_signed_time_is_read_and_told(unit: str, text: str, sent_at_ms: int) -> None:
    acme = source({"template": "{timestamp}{body}"}, timestamp={"place": "header:X-Time", "unit": unit})
    headers = {"X-Sign": mac(text.encode() + BODY).hex(), "X-Time": text}

    assert acme.verify(HttpRequest.of(BODY, headers), NOW_MS) == Verified(0, sent_at_ms)


@pytest.mark.parametrize(
    ("late_s", "is_taken"), [(-31, False), (-30, True), (0, True), (120, True), (121, False)]
)
def test_past_and_future_have_tolerances_of_their_own(late_s: int, is_taken: bool) -> None:
    timestamp = {"place": "header:X-Time", "tolerance": "2m", "future_tolerance": "30s"}
    acme = source({"template": "{timestamp}{body}"}, timestamp=timestamp)
    headers = {"X-Sign": mac(b"%d" % NOW_S + BODY).hex(), "X-Time": str(NOW_S)}

    assert taken(acme, headers, now_ms=NOW_MS + late_s * 1000) is is_taken


def test_a_users_tolerance_wins() -> None:
    acme = source({"template": "{timestamp}{body}"}, timestamp={"place": "header:X-Time"}, tolerance="1h")
    headers = {"X-Sign": mac(b"%d" % NOW_S + BODY).hex(), "X-Time": str(NOW_S)}

    assert taken(acme, headers, now_ms=NOW_MS + 3_600_000)
    assert taken(acme, headers, now_ms=NOW_MS - 3_600_000)
    assert not taken(acme, headers, now_ms=NOW_MS + 3_601_000)


def test_the_time_may_stand_in_the_body_or_in_a_field() -> None:
    body = b'{"sent": %d}' % NOW_MS
    inside = source({}, timestamp={"place": "/sent", "unit": "ms"})
    fields = source(
        {"item_separator": ",", "field": "v1", "template": "{timestamp}.{body}"},
        timestamp={"place": "field:t"},
    )
    signed = mac(b"%d.%b" % (NOW_S, BODY)).hex()

    assert taken(inside, {"X-Sign": mac(body).hex()}, body)
    assert not taken(inside, {"X-Sign": mac(body).hex()}, body, now_ms=NOW_MS + 301_000)
    assert not taken(inside, {"X-Sign": mac(b"{}").hex()}, b"{}")
    assert taken(fields, {"X-Sign": f"t={NOW_S},v1={signed}"})
    for value in (f"v1={signed}", f"t={NOW_S},t={NOW_S},v1={signed}", f"t=,v1={signed}"):
        assert not taken(fields, {"X-Sign": value})


# --- public keys ----------------------------------------------------------------------------------

ED = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
EC = ec.derive_private_key(0x5EED, ec.SECP256R1())
SIGNERS: dict[str, tuple[Any, Any]] = {
    "ed25519": (ED.public_key(), ED.sign),
    "ecdsa-p256-sha256": (EC.public_key(), lambda message: EC.sign(message, ec.ECDSA(hashes.SHA256()))),
    "rsa-sha256": (RSA.public_key(), lambda message: RSA.sign(message, padding.PKCS1v15(), hashes.SHA256())),
}


def written(key: Any, form: str) -> str:
    if form == "pem":
        return str(key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode())
    if form == "spki":
        return base64.b64encode(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).decode()
    raw = key.public_bytes(Encoding.Raw, PublicFormat.Raw)
    return raw.hex() if form == "hex" else base64.b64encode(raw).decode()


@pytest.mark.parametrize(
    ("algorithm", "form"),
    [
        *((algorithm, form) for algorithm in SIGNERS for form in ("pem", "spki")),
        ("ed25519", "hex"),
        ("ed25519", "base64"),
    ],
)
@pytest.mark.parametrize("encoding", ["hex", "base64", "base64url"])
def test_public_keys_verify(algorithm: str, form: str, encoding: str) -> None:
    key, sign = SIGNERS[algorithm]
    acme = source(
        {"algorithm": algorithm, "encoding": encoding, "template": "{timestamp}{body}"},
        timestamp={"place": "header:X-Time"},
        secrets=[written(key, form)],
    )
    raw = sign(b"%d" % NOW_S + BODY)
    encode = {"hex": bytes.hex, "base64": base64.b64encode, "base64url": base64.urlsafe_b64encode}[encoding]
    text = encode(raw)  # type: ignore[operator]
    headers = {"X-Sign": text if isinstance(text, str) else text.decode(), "X-Time": str(NOW_S)}

    assert taken(acme, headers)
    assert not taken(acme, headers, BODY + b" ")
    assert not taken(acme, headers | {"X-Time": str(NOW_S + 1)})
    for damaged in (headers["X-Sign"][:-4], "zz", "", headers["X-Sign"] + "AA", "ä" * 64):
        assert not taken(acme, headers | {"X-Sign": damaged})
    with pytest.raises(ConfigError, match="cannot sign"):
        acme.sign(BODY, NOW_MS)


def test_a_signature_has_one_spelling_in_base64() -> None:
    acme = source({"algorithm": "ed25519", "encoding": "base64"}, secrets=[written(ED.public_key(), "hex")])
    text = base64.b64encode(ED.sign(BODY)).decode()  # 64 bytes: four bits of the last letter mean nothing
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    twin = text[:-3] + alphabet[alphabet.index(text[-3]) ^ 1] + "=="

    assert base64.b64decode(twin) == base64.b64decode(text)
    assert taken(acme, {"X-Sign": text})
    assert not taken(acme, {"X-Sign": twin})


def test_a_key_of_another_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match="no public key for ed25519"):
        source({"algorithm": "ed25519"}, secrets=[written(EC.public_key(), "pem")])
    with pytest.raises(ConfigError, match="no public key"):
        source({"algorithm": "rsa-sha256"}, secrets=["short"])


# --- tokens ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("token", "headers", "body", "query"),
    [
        ("bearer", {"Authorization": f"Bearer {SECRET}"}, BODY, ""),
        ("bearer", {"Authorization": f"bearer  {SECRET}"}, BODY, ""),
        ("header:X-Token", {"X-Token": SECRET}, BODY, ""),
        ("/token", {}, b'{"token": "a generic secret"}', ""),
        ("body:/0/token", {}, b'[{"token": "a generic secret"}]', ""),
        ("form:t", {"Content-Type": "application/x-www-form-urlencoded"}, b"t=a+generic+secret", ""),
        ("query:t", {}, BODY, "t=a%20generic+secret"),
    ],
)
def test_tokens_are_compared(token: str, headers: dict[str, str], body: bytes, query: str) -> None:
    acme = source(token=token, secrets=["new", SECRET])
    wrong = {name: value.replace("secret", "secrex") for name, value in headers.items()}
    other = body.replace(b"secret", b"secrex")

    found = acme.verify(HttpRequest.of(body, headers, query=query), 0)

    assert found == Verified(1)
    assert not taken(acme, wrong, other, query=query.replace("secret", "secrex"))
    assert not taken(acme, {}, b"{}")
    assert not taken(acme, {}, b"[")
    assert acme.normalize(HttpRequest.of(b'{"id": 1, "type": "t"}'))[0].id_is_signed is False


def test_insecure_is_said_aloud() -> None:
    acme = Generic(name="acme", insecure=True, **PLACES)

    assert acme.verify(HttpRequest.of(BODY), 0) == UNVERIFIED
    with pytest.raises(ConfigError, match="no secret"):
        Generic(name="acme", signature={"header": "X"}, **PLACES)


# --- required headers -----------------------------------------------------------------------------


def test_required_headers_have_exactly_their_value() -> None:
    acme = source({}, require={"X-Version": "1"})
    good = {"X-Sign": mac(BODY).hex(), "X-Version": "1"}

    assert taken(acme, good)
    assert not taken(acme, good | {"X-Version": "2"})
    assert not taken(acme, {"X-Sign": good["X-Sign"]})


# --- events ---------------------------------------------------------------------------------------


def events(body: bytes, headers: Any = (), **fields: Any) -> list[tuple[Any, ...]]:
    acme = source({}, **fields)
    found = acme.normalize(HttpRequest.of(body, headers, query="q=1", received_at_ms=7))
    return [(one.id, one.type, one.subject, one.occurred_at_ms, one.version) for one in found]


def test_places_are_found_everywhere() -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded", "X-Type": "sms"}

    assert events(BODY, subject=["/none", "/note"]) == [
        ("e-1", "order.paid", "{timestamp} {body}", None, None)
    ]
    assert events(b"Sid=S1&a=", form, id="form:Sid", type="header:X-Type", subject="query:q") == [
        ("S1", "sms", "1", None, None)
    ]
    assert events(b"Sid=S1", form, id="/Sid", type="const:sms") == [("S1", "sms", None, None, None)]
    assert events(b'{"a":{"~/":[{"id":9007199254740993}]},"type":"t"}', id="/a/~0~1/0/id")[0][0] == (
        "9007199254740993"
    )
    with pytest.raises(BodyMalformed):  # a form's place is none in JSON
        events(b'{"Sid": "S1"}', id="form:Sid", type="const:sms")


def test_several_places_are_joined_for_a_type_and_tried_for_the_rest() -> None:
    body = b'{"id": 1, "kind": "payments", "action": "paid", "at": {"b": 5}}'

    assert events(body, type=["/kind", "/action"])[0][1] == "payments.paid"
    assert events(body, type=["/kind", "/missing"])[0][1] == "payments"
    assert events(body, type="/kind", subject=["/at/a", "/at/b", "/kind"])[0][2] == "5"
    with pytest.raises(BodyMalformed):
        events(body, type=["/none", "/missing"])


@pytest.mark.parametrize(
    ("unit", "value", "ms"),
    [
        ("s", b"1780000000", NOW_MS),
        ("s", b"1780000000.25", NOW_MS + 250),
        ("s", b'"1780000000"', NOW_MS),
        ("ms", b"1780000000000", NOW_MS),
        ("s", b'"2026-05-28T20:26:40Z"', NOW_MS),
        ("s", b'"2026-05-28T20:26:40.123"', NOW_MS + 123),
        ("s", b'"2026-05-28 20:26:40"', NOW_MS),
        ("s", b"-1", None),
        ("s", b"1e300", None),
        ("s", b"true", None),
        ("s", b'"yesterday"', None),
        ("s", b"null", None),
    ],
)
def test_times_are_read_or_left_out(unit: str, value: bytes, ms: int | None) -> None:
    body = b'{"id": 1, "type": "t", "at": %b}' % value

    assert events(body, occurred_at="/at", occurred_at_unit=unit)[0][3] == ms


@pytest.mark.parametrize(
    ("value", "version"),
    [
        (b"7", 7),
        (b'"7"', 7),
        (b'"2026-05-28T20:26:40Z"', NOW_MS),
        (b"1.5", None),
        (b"-1", None),
        (b"9223372036854775808", None),
        (b'"x"', None),
    ],
)
def test_versions_are_read_or_left_out(value: bytes, version: int | None) -> None:
    assert events(b'{"id": 1, "type": "t", "v": %b}' % value, version="/v")[0][4] == version


def ids(body: bytes, headers: Any = (), **fields: Any) -> list[str]:
    return [one[0] for one in events(body, headers, **fields)]


def test_a_derived_id_ignores_what_it_is_told_to_and_the_spelling() -> None:
    fields: dict[str, Any] = {"id": "derived", "id_ignore": ["/attempt", "/meta/try"]}
    first = ids(b'{"type":"t","a":1,"attempt":1,"meta":{"try":1,"x":2}}', **fields)

    assert ids(b'{"meta": {"x": 2, "try": 2}, "a": 1, "type": "t"}', **fields) == first
    assert ids(b'{"type":"t","a":1,"attempt":1,"meta":{"try":1,"x":3}}', **fields) != first
    assert ids(b'{"type":"t","a":true,"attempt":1,"meta":{"x":2}}', **fields) != first
    assert len(first[0]) == 32


def test_a_sender_that_sometimes_gives_an_id_has_one_derived_otherwise() -> None:
    acme = source({}, id="header:X-Id", id_else="derived", id_ignore=["/attempt"])

    given, missing, empty, again = (
        acme.normalize(HttpRequest.of(b'{"type":"t","attempt":%d}' % attempt, headers))[0]
        for attempt, headers in ((1, {"X-Id": "e-1"}), (1, {}), (1, {"X-Id": ""}), (2, {}))
    )

    assert (given.id, given.id_is_derived, given.id_is_signed) == ("e-1", False, False)
    assert missing.id == empty.id == again.id != "e-1"
    assert (missing.id_is_derived, missing.id_is_signed) == (True, True)


def test_a_form_that_was_meant_as_json_is_named() -> None:
    source = Generic(name="acme", token="header:X-Token", secrets="a token", id="/id")
    body = b'{"id": "a"}'

    with pytest.raises(
        BodyMalformed, match="the id at /id, read as the form that its Content-Type says, is missing"
    ):
        source.normalize(HttpRequest.of(body, {"Content-Type": "application/x-www-form-urlencoded"}))
    with pytest.raises(BodyMalformed, match="the id at /id is missing"):
        source.normalize(HttpRequest.of(b"{}", {"Content-Type": "application/json"}))
    assert source.normalize(HttpRequest.of(body))[0].id == "a"


def test_a_composed_id_keeps_its_parts_apart() -> None:
    fields: dict[str, Any] = {"id": ["/a", "/b"]}

    distinct = [
        b'{"a":"x","b":"y"}',
        b'{"a":"xy","b":""}',
        b'{"a":"x"}',
        b'{"b":"x"}',
        b'{"a":1}',
        b'{"a":"1"}',
    ]
    found = [ids(body.replace(b"}", b',"type":"t"}'), **fields)[0] for body in distinct]
    assert len(set(found)) == len(distinct)
    with pytest.raises(BodyMalformed, match="nothing of which the id is made"):
        ids(b'{"type":"t"}', **fields)


def test_an_id_of_the_receipt_differs_for_each() -> None:
    acme = source({}, id="received")

    one, two = (acme.normalize(HttpRequest.of(BODY, received_at_ms=at))[0] for at in (1, 2))

    assert one.id != two.id
    assert one.id_is_derived
    assert acme.normalize(HttpRequest.of(BODY, received_at_ms=1))[0] == one


def test_batches_hold_none_to_many() -> None:
    listed: dict[str, Any] = {"items": "body:/events"}
    whole: dict[str, Any] = {"items": "body:"}

    assert ids(b'{"events": [{"id":1,"type":"t"},{"id":2,"type":"t"}]}', **listed) == ["1", "2"]
    assert ids(b'{"events": []}', **listed) == []
    assert ids(b'{"events": {"id":3,"type":"t"}}', **listed) == ["3"]
    assert ids(b'[{"id":1,"type":"t"}]', **whole) == ["1"]
    assert ids(b'{"id":4,"type":"t"}', **whole) == ["4"]
    assert events(b'{"n":"N","events":[{"id":1,"type":"t"}]}', subject="body:/n", **listed)[0][2] == "N"
    assert source({}, **listed).is_batching
    for body in (b"{}", b'{"events": null}', b'{"events": "x"}', b'{"events": [1]}'):
        with pytest.raises(BodyMalformed):
            ids(body, **listed)


def test_json_in_a_field_of_a_form_is_the_payload() -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    fields = {"payload_field": "payload"}

    assert ids(b"payload=%7B%22id%22%3A1%2C%22type%22%3A%22t%22%7D", form, **fields) == ["1"]
    assert ids(BODY, **fields) == ["e-1"]
    for body in (b"other=1", b"payload=1&payload=2", b"payload=%ff", b"payload=%7B"):
        with pytest.raises(BodyMalformed):
            ids(body, form, **fields)


def test_another_content_type_is_malformed() -> None:
    fields = {"accept_content_types": ["application/json"]}

    assert ids(BODY, {"Content-Type": "Application/JSON; charset=utf-8"}, **fields) == ["e-1"]
    with pytest.raises(BodyMalformed, match="Content-Type"):
        ids(BODY, {"Content-Type": "text/plain"}, **fields)


def test_types_can_follow_rules() -> None:
    rules = [{"match": {"header:X-Kind": "ping"}, "type": "const:ping"}]

    assert events(b'{"id":1}', {"X-Kind": "ping"}, type_rules=rules)[0][1] == "ping"
    assert events(BODY, {"X-Kind": "other"}, type_rules=rules)[0][1] == "order.paid"


def test_an_id_outside_the_signature_is_told() -> None:
    signed = {"X-Id": "m"}

    def is_signed(template: str, place: str) -> bool:
        acme = source({"template": template}, id=place)
        return acme.normalize(HttpRequest.of(BODY, signed))[0].id_is_signed

    assert is_signed("{body}", "/id")
    assert not is_signed("{body}", "header:X-Id")
    assert is_signed("{id}{body}", "header:X-Id")
    assert is_signed("{header:x-id}{body}", "header:X-Id")


# --- questions and replies ------------------------------------------------------------------------


def test_a_question_is_echoed_or_signed() -> None:
    acme = source(
        {},
        handshake=[
            {
                "match": {"/event": "url_validation"},
                "reply": '{{"plain":"{/plain}","signed":"{hmac:/plain}"}}',
                "content_type": "application/json",
            },
            {
                "method": "GET",
                "match": {"query:mode": "subscribe", "query:token": "s3cret"},
                "phase": "unverified",
                "reply": "{query:challenge}",
            },
            {
                "method": "OPTIONS",
                "match": {"header:Origin": None},
                "phase": "unverified",
                "headers": {"X-Allowed": "{header:Origin}"},
                "status": 204,
            },
        ],
    )
    asked = b'{"event":"url_validation","plain":"a\\"b"}'
    signed = {"X-Sign": mac(asked).hex()}
    query = "mode=subscribe&token=s3cret&challenge=42"

    answer = acme.handshake(HttpRequest.of(asked, signed), NOW_MS)
    assert answer is not None
    assert msgspec.json.decode(answer.body) == {"plain": 'a"b', "signed": mac(b'a"b').hex()}
    echoed = acme.handshake(HttpRequest.of(method="GET", query=query), NOW_MS)
    assert echoed is not None
    assert echoed.body == b"42"
    allowed = acme.handshake(HttpRequest.of(headers={"Origin": "o"}, method="OPTIONS"), 0)
    assert allowed is not None
    assert (allowed.status, allowed.headers, allowed.body) == (204, ((b"x-allowed", b"o"),), b"")

    assert acme.methods == ("POST", "GET", "OPTIONS")
    with pytest.raises(SignatureInvalid):  # it would sign anything for anyone
        acme.handshake(HttpRequest.of(asked), NOW_MS)
    for odd in ("mode=subscribe&token=wrong&challenge=42", query + "&token=s3cret", "", "challenge=42"):
        assert acme.handshake(HttpRequest.of(method="GET", query=odd), 0) is None
    for odd in (query.replace("42", "x" * 5_000), query.replace("42", "%0a"), query.replace("=42", "")):
        assert acme.handshake(HttpRequest.of(method="GET", query=odd), 0) is None
    assert acme.handshake(HttpRequest.of(BODY, {"X-Sign": mac(BODY).hex()}), 0) is None


def test_a_body_that_nobody_signed_is_not_read() -> None:
    acme = source(
        {},
        handshake=[
            {"match": {"/event": "ping"}},
            {"match": {"form:id": None}, "phase": "unverified"},
            {"method": "HEAD", "phase": "unverified"},
        ],
    )
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    bomb = {"Content-Type": "application/json", "Content-Encoding": "gzip"}

    assert acme.handshake(HttpRequest.of(b"id=1", form), 0) is not None
    assert acme.handshake(HttpRequest.of(method="HEAD"), 0) is not None
    for request in (HttpRequest.of(b"{"), HttpRequest.of(gzip.compress(b"0" * 20_000_000), bomb)):
        with pytest.raises(SignatureInvalid):
            acme.handshake(request, 0)


def test_replies_come_from_the_table() -> None:
    acme = source(
        {}, respond={"accepted": {"status": 200, "body": "[accepted]", "content_type": "text/plain"}}
    )

    reply = acme.respond("accepted")

    assert reply is not None
    assert (reply.status, reply.body, reply.headers) == (
        200,
        b"[accepted]",
        ((b"content-type", b"text/plain"),),
    )
    assert acme.respond("busy") is None


# --- signing for tests ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"signature": {"header": "X-Sign", "prefix": "sha256="}},
        {
            "signature": {
                "header": "X",
                "item_separator": ",",
                "field": "v1",
                "template": "{timestamp}.{body}",
            },
            "timestamp": {"place": "field:t"},
        },
        {
            "signature": {"header": "X", "encoding": "base64", "template": "{id}{timestamp}{url}{body}"},
            "timestamp": {"place": "header:T", "unit": "iso"},
            "id": "header:X-Id",
        },
        {"signature": {"header": "X"}, "require": {"V": "1"}, "type": "header:X-Type"},
        {"token": "bearer"},
        {"token": "header:X-Token"},
    ],
)
def test_what_it_signs_it_takes(fields: dict[str, Any]) -> None:
    acme = source(**fields, secrets=["one", SECRET])

    request = acme.signed_request(
        BODY, NOW_MS, event_id="m", event_type="t", secret_index=1, url="https://a.example/b"
    )

    assert acme.verify(request, NOW_MS).secret_index == 1
    assert acme.normalize(request)


# --- configuration --------------------------------------------------------------------------------


def test_a_table_of_text_is_a_configuration() -> None:
    table = tomllib.loads(
        """
        [acme]
        id = "/id"
        type = ["/object", "/action"]
        [acme.signature]
        header = "X-Acme-Signature"
        item_separator = ","
        field = "v1"
        template = "{timestamp}.{body}"
        [acme.timestamp]
        place = "field:t"
        tolerance = "10m"
        """
    )

    acme = create("generic", name="acme", secrets=[SECRET], **table["acme"])

    assert acme.tolerance is not None
    assert acme.tolerance.total_seconds() == 600


def test_a_kind_of_ones_own_is_a_class_with_a_scheme() -> None:
    class Acme(Generic):
        kind = "acme"
        scheme_default = Scheme(
            signature=Signature(header="X-Sign", template="{timestamp}{body}"),
            timestamp=Timestamp(place="header:X-Time"),
            id="/id",
        )

    acme = Acme(secrets=[SECRET], type="/type")

    assert acme.name == "acme"
    assert acme.normalize(HttpRequest.of(BODY))[0].type == "order.paid"


@pytest.mark.parametrize(
    ("fields", "about"),
    [
        ({"name": None}, "no name"),
        ({"sinature": {}}, "sinature"),
        ({"signature": {"heder": "X"}}, "heder"),
        ({"signature": {"header": "X", "algorithm": "md5"}}, "md5"),
        ({"signature": {"header": "X", "encoding": "base32"}}, "base32"),
        ({"signature": {"header": "X y"}}, "X y"),
        ({"signature": {"header": []}}, "no signature header"),
        ({"signature": {"header": "X", "template": "{bdy}"}}, "bdy"),
        ({"signature": {"header": "X", "template": "{body"}}, "brace"),
        ({"signature": {"header": "X", "template": "{id}"}}, "forged"),
        ({"signature": {"header": "X", "template": "static"}}, "forged"),
        ({"signature": {"header": "X", "template": "{timestamp}{body}"}}, "no timestamp"),
        ({"signature": {"header": "X", "template": "{id}{body}"}, "id": "derived"}, "no place of the id"),
        ({"signature": {"header": "X", "template": "{header:}{body}"}}, "header:"),
        ({"signature": {"header": "X", "field": "v1", "field_separator": ""}}, "field_separator"),
        ({"timestamp": {"place": "field:t"}}, "no field for the signature"),
        ({"timestamp": {"place": "field:t"}, "signature": {"header": "X", "field": "v1"}}, "item_separator"),
        ({"timestamp": {"place": "const:1"}}, "nobody signs"),
        ({"timestamp": {"place": "header:T"}}, "nobody signs"),
        ({"timestamp": {"place": "field:t"}, "signature": COMMA_LIST}, "nobody signs"),
        ({"timestamp": {"place": "t"}}, "no place"),
        ({"timestamp": {"place": "header:T", "unit": "us"}}, "us"),
        ({"timestamp": {"place": "header:T", "tolerance": "0s"}}, "tolerance of 0"),
        ({"timestamp": {"place": "header:T", "tolerance": "soon"}}, "tolerance"),
        ({"tolerance": "5m"}, "signs no time"),
        ({"token": "bearer", "signature": {"header": "X"}}, "a signature and a token"),
        ({"token": "const:x", "signature": None}, "takes its token from"),
        ({"token": "basic", "signature": None}, "colon"),
        ({"signature": None}, "neither"),
        ({"id": "const:same"}, "same for all"),
        ({"id": ""}, "no place"),
        ({"id": []}, "same for all"),
        ({"id": ["const:a", "const:b"]}, "same for all"),
        ({"id_ignore": ["/a"]}, "id_ignore"),
        ({"id": "derived", "id_ignore": ["header:X"]}, "no JSON pointer"),
        ({"id_else": "derived", "id": ["/a", "/b"]}, "no sole place"),
        ({"id_else": "received"}, "received"),
        ({"type": []}, "no place of the type"),
        ({"items": "header:X"}, "not in the body"),
        ({"require": {"X y": "1"}}, "X y"),
        ({"respond": {"accepted": {"status": 500}}}, "500 for what is accepted"),
        ({"respond": {"refused": {"status": 200}}}, "200 for what is refused"),
        ({"respond": {"busy": {"status": 99}}}, "99"),
        ({"respond": {"lost": {"status": 200}}}, "lost"),
        ({"handshake": [{}]}, "every POST"),
        ({"handshake": [{"method": "GET", "status": 302}]}, "302"),
        ({"handshake": [{"method": "GET", "headers": {"a b": ""}}]}, "cannot be"),
        ({"handshake": [{"method": "GET", "reply": "{/x"}]}, "brace"),
        (
            {"handshake": [{"method": "GET", "phase": "unverified", "reply": "{hmac:query:c}"}]},
            "signs what anyone",
        ),
        ({"public_url": "shop.example"}, "public_url"),
        ({"public_url": "ftp://shop.example"}, "public_url"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused(fields: dict[str, Any], about: str) -> None:
    whole: dict[str, Any] = {
        "name": "acme",
        "secrets": [SECRET],
        "signature": {"header": "X"},
        **PLACES,
        **fields,
    }
    if "token" in fields and whole["signature"] is None:
        del whole["signature"]

    with pytest.raises(ConfigError) as refusal:
        Generic(**whole)

    assert about in str(refusal.value)


# --- what a described kind says of itself ---------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("calendly", "HMAC-SHA256 in hex over {timestamp}.{body}, in Calendly-Webhook-Signature"),
        ("box", "HMAC-SHA256 in base64 over {body}{timestamp}, in BOX-SIGNATURE-PRIMARY and 1 like it"),
        ("postmark", "Basic authentication"),
        ("cloudevents", "a bearer token"),
        ("mollie_classic", "nothing"),
    ],
)
def test_a_scheme_is_told_in_words(kind: str, words: str) -> None:
    described = source_class(kind)

    assert issubclass(described, Generic)
    assert described.scheme_default is not None
    assert in_words(described.scheme_default) == words


def test_a_class_knows_what_its_scheme_says() -> None:
    dropbox, box = source_class("dropbox"), source_class("box")

    assert (dropbox.is_batching, dropbox.methods, dropbox.handshake_phase) == (
        True,
        ("POST", "GET"),
        "unverified",
    )
    assert (box.is_batching, box.methods, box.handshake_phase) == (False, ("POST",), "verified")
    assert vars(box)["tolerance_default"].total_seconds() == 600
    assert issubclass(box, Generic)
    assert box.options_unused() == {"public_url"}
    assert CloudEvents.options_unused() == frozenset()
