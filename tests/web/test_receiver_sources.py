"""The receiver does what a source says: methods, questions, dialects, threads, encodings, addresses."""

from __future__ import annotations

import asyncio
import gzip
import threading
import tracemalloc
import zlib
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import pytest

from onceward.core.arrival import Incoming, Outcome, Verified
from onceward.core.errors import (
    BodyMalformed,
    ConfigError,
    KeyUnavailable,
    SignatureInvalid,
    StoreUnavailable,
)
from onceward.core.messages import HttpRequest, HttpResponse
from onceward.sources import Source
from onceward.sources.signing import hex_hmac, matching_secret, sole_header
from onceward.web.address import Proxies
from onceward.web.admission import Admission
from onceward.web.port import Limits
from onceward.web.receiver import Receiver
from tests.web.fake_intake import FakeIntake

SECRET = "a secret of this module"
MIB = 1024 * 1024


class Talkative(Source):
    """A source whose every habit a test can set."""

    kind = "talkative"
    methods: ClassVar[tuple[str, ...]] = ("POST", "GET", "HEAD")

    def __init__(self, **habits: Any) -> None:
        super().__init__(secrets=SECRET)
        for name, habit in habits.items():
            setattr(self, name, habit)
        self.seen: list[tuple[str, bytes, str]] = []
        self.replies: dict[str, HttpResponse] = {}

    def verify(self, request: HttpRequest, now_ms: int) -> Verified:
        self.seen.append(("verify", request.body, request.url))
        given = sole_header(request, "x-signature")
        return Verified(matching_secret(self.secrets, request.body, [given]))

    def handshake(self, request: HttpRequest, now_ms: int) -> HttpResponse | None:
        self.seen.append(("handshake", request.body, request.url))
        if request.query == "refuse":
            raise SignatureInvalid("the token is wrong")
        if request.query == "break":
            raise KeyError("a fault")
        return HttpResponse.of(200, b"echo") if request.query == "challenge" else None

    def normalize(self, request: HttpRequest) -> Any:
        self.seen.append(("normalize", request.body, request.url))
        assert request.header("content-encoding") is None
        if request.body == b"malformed":
            raise BodyMalformed("It is malformed.")
        answer = getattr(self, "gives", None)
        return (
            answer if answer is not None else [Incoming(id="e1", type="a.b", payload=request.body.decode())]
        )

    def respond(self, outcome: Outcome) -> HttpResponse | None:
        return self.replies.get(outcome)


def signed(body: bytes) -> dict[str, str]:
    return {"X-Signature": hex_hmac(SECRET.encode(), body).decode()}


class Answer(HttpResponse, frozen=True):
    def header(self, name: str) -> str | None:
        return next((value.decode() for found, value in self.headers if found == name.encode()), None)


def ask(
    source: Source,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
    *,
    method: str = "POST",
    query: str = "",
    limits: Limits | None = None,
    proxies: Proxies | None = None,
    intake: FakeIntake | None = None,
    **changes: Any,
) -> tuple[Answer, FakeIntake]:
    """Send one request below HTTP; give the reply and the engine behind the receiver."""
    intake = intake or FakeIntake()
    intake._sources[source.name] = source
    receiver = Receiver(intake, limits=limits, proxies=proxies)
    given = signed(body) if headers is None else headers
    scope = {
        "type": "http",
        "method": method,
        "path": f"/hooks/{source.name}",
        "query_string": query.encode(),
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in given.items()],
        "scheme": "http",
        "client": ("192.0.2.1", 5),
        **changes,
    }
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(receiver(scope, receive, send))
    assert receiver._admission.bytes == receiver._admission.deliveries == 0
    return Answer(sent[0]["status"], tuple(sent[0]["headers"]), sent[1]["body"]), intake


# --- questions ------------------------------------------------------------------------------------


def test_a_question_with_another_method_is_answered_and_never_a_delivery() -> None:
    source = Talkative(handshake_phase="unverified")

    answer, intake = ask(source, headers={}, method="GET", query="challenge")

    assert (answer.status, answer.body) == (200, b"echo")
    assert [name for name, _, _ in source.seen] == ["handshake"]
    assert intake.requests == []


def test_a_question_that_is_signed_is_verified_first() -> None:
    source = Talkative()

    unsigned, _ = ask(source, headers={}, method="GET", query="challenge")
    genuine, _ = ask(source, headers=signed(b""), method="GET", query="challenge")

    assert (unsigned.status, genuine.status) == (401, 200)
    assert [name for name, _, _ in source.seen] == ["verify", "verify", "handshake"]


def test_what_asks_nothing_is_a_405_with_the_methods_of_the_source() -> None:
    answer, intake = ask(Talkative(handshake_phase="unverified"), headers={}, method="GET")
    other, _ = ask(Talkative(), headers={}, method="PUT")

    assert (answer.status, answer.header("allow")) == (405, "POST, GET, HEAD")
    assert (other.status, other.header("allow")) == (405, "POST, GET, HEAD")
    assert intake.requests == []


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(("query", "check"), [("refuse", "the token is wrong"), ("break", "failed")])
def test_a_question_that_proves_nothing_is_refused(method: str, query: str, check: str) -> None:
    source = Talkative(handshake_phase="unverified")

    answer, intake = ask(source, method=method, query=query, headers={})

    assert answer.status == 401
    [(_, status, told, _)] = intake.refusals
    assert status == 401
    assert check in told


def test_an_unverified_question_is_answered_before_the_signature_is_looked_at_and_deliveries_are_not() -> (
    None
):
    source = Talkative(handshake_phase="unverified")

    question, _ = ask(source, b"x", {}, query="challenge")
    forged, intake = ask(source, b"x", {"X-Signature": "0"})

    assert (question.status, forged.status) == (200, 401)
    assert intake.requests == []


def test_a_fault_in_a_verified_handshake_loses_no_delivery() -> None:
    answer, intake = ask(Talkative(), b"x", query="break")

    assert answer.status == 202
    assert len(intake.unparsed) == 1


# --- dialects -------------------------------------------------------------------------------------

OWN = {
    "accepted": HttpResponse.of(200, b"[accepted]"),
    "duplicate": HttpResponse.of(208, b"again"),
    "refused": HttpResponse.of(498),
    "malformed": HttpResponse.of(406),
    "busy": HttpResponse.of(500, b"later"),
}


def talk(replies: Mapping[str, HttpResponse]) -> dict[str, Answer]:
    """Give the reply to one delivery of each outcome."""
    source = Talkative()
    source.replies = dict(replies)
    intake = FakeIntake()
    found = {name: ask(source, b"x", intake=intake)[0] for name in ("accepted", "duplicate")}
    found["refused"], _ = ask(source, b"x", {}, intake=intake)
    found["malformed"], _ = ask(source, b"malformed", intake=intake)
    intake.fault = StoreUnavailable("It is away.")
    found["busy"], _ = ask(source, b"x", intake=intake)
    return found


def test_a_source_answers_in_its_senders_dialect() -> None:
    found = talk(OWN)

    assert {name: (reply.status, reply.body) for name, reply in found.items()} == {
        name: (reply.status, reply.body) for name, reply in OWN.items()
    }
    assert found["busy"].header("retry-after") is not None


def test_without_one_the_replies_are_the_receivers_own() -> None:
    assert {name: reply.status for name, reply in talk({}).items()} == {
        "accepted": 202,
        "duplicate": 202,
        "refused": 401,
        "malformed": 400,
        "busy": 503,
    }


def test_a_dialect_may_not_lie(caplog: pytest.LogCaptureFixture) -> None:
    ok, gone = HttpResponse.of(200), HttpResponse.of(410)
    lies = {"accepted": gone, "duplicate": gone, "refused": ok, "malformed": ok, "busy": ok}

    assert {name: reply.status for name, reply in talk(lies).items()} == {
        "accepted": 202,
        "duplicate": 202,
        "refused": 401,
        "malformed": 400,
        "busy": 503,
    }
    assert caplog.text.count("not told") == len(lies)


# --- faults of a plug-in --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "gives",
    [
        "text",
        [{"id": "e1"}],
        [Incoming(id="", type="a", payload=1)],
        [Incoming(id="x" * 256, type="a", payload=1)],
        [Incoming(id="a\0b", type="a", payload=1)],
        [Incoming(id="a", type="", payload=1)],
        [Incoming(id=7, type="a", payload=1)],  # type: ignore[arg-type]
        [Incoming(id="a", type="a", payload=1, occurred_at_ms=1.5)],  # type: ignore[arg-type]
        [Incoming(id="a", type="a", payload=1, version=2**63)],
        [Incoming(id=str(n), type="a", payload=1) for n in range(5_001)],
    ],
    ids=str,
)
def test_what_no_store_could_keep_is_a_fault_of_the_plug_in_and_kept_unparsed(gives: object) -> None:
    answer, intake = ask(Talkative(gives=gives), b"x")

    assert answer.status == 202
    assert intake.requests == []
    [(_, request, error, _)] = intake.unparsed
    assert request.body == b"x"
    assert error.startswith("normalize gave")


def test_a_source_may_keep_what_it_calls_malformed() -> None:
    refused, without = ask(Talkative(), b"malformed")
    kept, intake = ask(Talkative(keeps_malformed=True), b"malformed")

    assert (refused.status, kept.status) == (400, 202)
    assert without.unparsed == []
    assert [error for _, _, error, _ in intake.unparsed] == ["It is malformed."]


# --- sources that wait ----------------------------------------------------------------------------


def test_a_blocking_source_runs_in_a_thread_and_its_answer_is_the_same() -> None:
    threads = []

    class Waiting(Talkative):
        is_blocking = True

        def verify(self, request: HttpRequest, now_ms: int) -> Verified:
            threads.append(threading.current_thread())
            return super().verify(request, now_ms)

    accepted, _ = ask(Waiting(), b"x")
    refused, _ = ask(Waiting(), b"x", {})

    assert (accepted.status, refused.status) == (202, 401)
    assert threading.main_thread() not in threads


@pytest.mark.parametrize("is_blocking", [False, True])
def test_a_key_that_cannot_be_had_is_a_503_since_the_sender_is_not_to_blame(is_blocking: bool) -> None:
    class Keyless(Talkative):
        def verify(self, request: HttpRequest, now_ms: int) -> Verified:
            raise KeyUnavailable("its certificate cannot be fetched")

    answer, intake = ask(Keyless(is_blocking=is_blocking), b"x")

    assert (answer.status, answer.header("retry-after")) == (503, "5")
    assert [check for _, _, check, _ in intake.refusals] == ["its certificate cannot be fetched"]


def test_a_source_that_waits_too_long_is_a_503() -> None:
    go_on = threading.Event()

    class Waiting(Talkative):
        is_blocking = True

        def verify(self, request: HttpRequest, now_ms: int) -> Verified:
            go_on.wait(60)
            return super().verify(request, now_ms)

    try:
        answer, intake = ask(Waiting(), b"x", limits=Limits(verify_seconds_max=0.02))
    finally:
        go_on.set()

    assert (answer.status, answer.header("retry-after")) == (503, "5")
    assert intake.requests == []


# --- encodings ------------------------------------------------------------------------------------

TEXT = b"naive text " * 1000
RAW_DEFLATE = zlib.compressobj(wbits=-15)
DEFLATED = RAW_DEFLATE.compress(TEXT) + RAW_DEFLATE.flush()


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        ("gzip", gzip.compress(TEXT)),
        ("GZIP ", gzip.compress(TEXT)),
        ("x-gzip", gzip.compress(TEXT[:500]) + gzip.compress(TEXT[500:])),
        ("deflate", zlib.compress(TEXT)),
        ("deflate", DEFLATED),
    ],
)
def test_a_source_that_signs_decoded_bytes_is_given_them(encoding: str, packed: bytes) -> None:
    source = Talkative(encoded_bodies="decoded")

    answer, intake = ask(source, packed, signed(TEXT) | {"Content-Encoding": encoding})

    assert answer.status == 202
    assert {body for _, body, _ in source.seen} == {TEXT}
    [(_, request, _)] = intake.requests
    assert (request.body, request.header("content-encoding")) == (TEXT, None)


def test_a_source_that_signs_what_it_sends_is_verified_over_that_and_reads_the_rest() -> None:
    packed = gzip.compress(TEXT)
    source = Talkative(encoded_bodies="as-sent")

    answer, intake = ask(source, packed, signed(packed) | {"Content-Encoding": "gzip"})

    assert answer.status == 202
    assert [(name, body) for name, body, _ in source.seen] == [
        ("verify", packed),
        ("handshake", TEXT),
        ("normalize", TEXT),
    ]
    [(_, request, _)] = intake.requests
    assert (request.body, request.header("content-encoding")) == (packed, "gzip")
    [event] = intake.events.values()
    assert (event.payload, event.payload_is_body) == (TEXT.decode(), False)


@pytest.mark.parametrize("mode", ["decoded", "as-sent"])
@pytest.mark.parametrize(
    ("encoding", "packed", "status"),
    [
        ("gzip", gzip.compress(TEXT)[:-9], 400),
        ("gzip", b"no gzip", 400),
        ("gzip", b"", 400),
        ("gzip", gzip.compress(TEXT) + b"more", 400),
        ("gzip", gzip.compress(b"") * 1_000, 400),
        ("deflate", zlib.compress(TEXT) + b"more", 400),
        ("gzip", gzip.compress(b"x" * (MIB + 1)), 413),
        ("deflate", zlib.compress(b"x" * (MIB + 1)), 413),
        ("gzip, gzip", gzip.compress(gzip.compress(TEXT)), 415),
        ("br", b"x", 415),
        ("zstd", b"x", 415),
    ],
)
def test_what_cannot_be_decoded_within_the_limit_is_refused(
    mode: Literal["decoded", "as-sent"], encoding: str, packed: bytes, status: int
) -> None:
    source = Talkative(encoded_bodies=mode)

    answer, intake = ask(
        source,
        packed,
        signed(packed) | {"Content-Encoding": encoding},
        limits=Limits(body_bytes_max=MIB),
    )

    assert answer.status == status
    assert (intake.requests, intake.unparsed) == ([], [])


def test_a_body_that_inflates_to_exactly_the_limit_is_accepted() -> None:
    body = b"x" * MIB

    answer, _ = ask(
        Talkative(encoded_bodies="decoded"),
        gzip.compress(body),
        signed(body) | {"Content-Encoding": "gzip"},
        limits=Limits(body_bytes_max=MIB),
    )

    assert answer.status == 202


def test_a_bomb_takes_no_more_memory_than_the_limit() -> None:
    bomb = gzip.compress(bytes(200 * MIB), 9)

    tracemalloc.start()
    try:
        answer, _ = ask(
            Talkative(encoded_bodies="decoded"),
            bomb,
            {"Content-Encoding": "gzip"},
            limits=Limits(body_bytes_max=MIB),
        )
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert answer.status == 413
    assert peak < 5 * MIB


# --- addresses ------------------------------------------------------------------------------------

TRUSTED = "192.0.2.0/24 2001:db8::/32"
FORWARDED = {"Host": "inner:8000", "X-Forwarded-Proto": "https", "X-Forwarded-Host": "shop.example"}


@pytest.mark.parametrize(
    ("headers", "trusted", "changes", "expected"),
    [
        ({"Host": "shop.example"}, "", {}, "http://shop.example/hooks/talkative?a=%20b"),
        ({"Host": "shop.example"}, "", {"scheme": "https"}, "https://shop.example/hooks/talkative?a=%20b"),
        (
            {"Host": "shop.example"},
            "",
            {"raw_path": b"/a%2Fb/hooks/talkative"},
            "http://shop.example/a%2Fb/hooks/talkative?a=%20b",
        ),
        ({}, "", {"server": ("127.0.0.1", 80)}, "http://127.0.0.1:80/hooks/talkative?a=%20b"),
        ({}, "", {"server": ("::1", 80)}, "http://[::1]:80/hooks/talkative?a=%20b"),
        ({}, "", {}, ""),
        ({"Host": "x" * 300}, "", {}, ""),
        (FORWARDED, "", {}, "http://inner:8000/hooks/talkative?a=%20b"),
        (FORWARDED, "10.0.0.0/8", {}, "http://inner:8000/hooks/talkative?a=%20b"),
        (FORWARDED, TRUSTED, {}, "https://shop.example/hooks/talkative?a=%20b"),
        (FORWARDED, "*", {"client": None}, "https://shop.example/hooks/talkative?a=%20b"),
        (FORWARDED, TRUSTED, {"client": None}, "http://inner:8000/hooks/talkative?a=%20b"),
        (
            FORWARDED,
            TRUSTED,
            {"client": ("::ffff:192.0.2.9", 1)},
            "https://shop.example/hooks/talkative?a=%20b",
        ),
        (
            FORWARDED | {"X-Forwarded-Host": "forged.example, shop.example"},
            TRUSTED,
            {},
            "https://shop.example/hooks/talkative?a=%20b",
        ),
        ({"Host": "inner"}, TRUSTED, {}, "http://inner/hooks/talkative?a=%20b"),
    ],
)
def test_the_address_is_the_one_that_the_sender_called(
    headers: dict[str, str], trusted: str, changes: dict[str, Any], expected: str
) -> None:
    source = Talkative()

    ask(source, b"x", headers | signed(b"x"), query="a=%20b", proxies=Proxies(trusted), **changes)

    assert {url for _, _, url in source.seen} == {expected}


def test_a_proxy_that_is_no_address_is_an_error_at_once() -> None:
    with pytest.raises(ConfigError, match=r"'proxy\.local', which is no address"):
        Proxies("10.0.0.1, proxy.local")


# --- admission ------------------------------------------------------------------------------------


def test_no_source_gets_more_than_half_of_the_places() -> None:
    admission = Admission(deliveries_max=4, bytes_max=100)

    assert [admission.enter("noisy") for _ in range(3)] == [True, True, False]
    assert [admission.enter(name) for name in ("a", "b", "c")] == [True, True, False]
    admission.leave("noisy")
    assert admission.enter("c")
    for name in ("noisy", "a", "b", "c"):
        admission.leave(name)
    assert (admission.deliveries, admission._deliveries_of) == (0, {})


def test_no_source_holds_more_than_half_of_the_bytes() -> None:
    admission = Admission(deliveries_max=4, bytes_max=100)

    assert admission.hold("noisy", 50)
    assert not admission.hold("noisy", 1)
    admission.release("noisy", 1)
    assert admission.hold("a", 30)
    assert admission.hold("b", 20)
    assert not admission.hold("c", 1)
    for name, size in (("noisy", 50), ("a", 30), ("b", 20), ("c", 1)):
        admission.release(name, size)
    assert (admission.bytes, admission._bytes_of) == (0, {})
