"""The receiver over real HTTP, behind both of uvicorn's parsers."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import time
from collections.abc import Iterator

import aiohttp
import pytest

from onceward import App
from onceward.core.errors import StoreUnavailable
from onceward.sources import GitHub, Stripe
from onceward.web.port import Limits
from tests.pages import call
from tests.web.fake_intake import CUSTOM_SECRET, NOW_MS, STRIPE_SECRET
from tests.web.serving import DEADLINE_SECONDS, Reply, Served, read_reply, serving

LIMITS = Limits(
    body_bytes_max=100_000,
    body_seconds_max=0.5,
    header_count_max=40,
    header_bytes_max=4_000,
    health_seconds_max=0.2,
)
EVENT = {"id": "evt_1", "type": "invoice.paid", "data": {"object": {"id": "in_1", "note": "naïve ☃"}}}
BODY = json.dumps(EVENT, ensure_ascii=False).encode()


@pytest.fixture(scope="module", params=["httptools", "h11"])
def running(request: pytest.FixtureRequest) -> Iterator[Served]:
    with serving(request.param, limits=LIMITS) as served:
        yield served


@pytest.fixture
def running_parser(request: pytest.FixtureRequest) -> str:
    """The name of the parser that `running` has."""
    return str(request.node.callspec.params["running"])


@pytest.fixture
def served(running: Served, caplog: pytest.LogCaptureFixture) -> Served:
    running.intake.events.clear()
    running.intake.requests.clear()
    running.intake.fault = None
    running.intake.health = True
    caplog.set_level(logging.INFO, "onceward.receiver")
    return running


def signed(body: bytes = BODY, at_ms: int = NOW_MS, secret: str = STRIPE_SECRET) -> dict[str, str]:
    return Stripe(secrets=secret).sign(body, at_ms)


def custom_signed(body: bytes) -> dict[str, str]:
    github_style = GitHub(secrets=CUSTOM_SECRET).sign(body, 0)["X-Hub-Signature-256"]
    return {"X-Custom-Signature": github_style.removeprefix("sha256=")}


def assert_problem(reply: Reply, status: int, code: str) -> None:
    assert (reply.status, reply.headers["content-type"]) == (status, "application/problem+json")
    problem = reply.json()
    assert set(problem) == {"type", "title", "status", "detail", "code"}
    assert (problem["status"], problem["code"], problem["type"]) == (
        status,
        code,
        f"urn:onceward:problem:{code}",
    )


def assert_nothing_stored(served: Served) -> None:
    assert served.intake.requests == []


# --- accepting ------------------------------------------------------------------------------------


def test_a_signed_delivery_is_accepted_and_its_redelivery_gets_the_same_run(served: Served) -> None:
    first = served.deliver("stripe", BODY)
    second = served.deliver("stripe", BODY)

    assert first.status == second.status == 202
    assert first.headers["content-type"] == "application/json"
    assert first.json() == {"events": [{"id": "evt_1", "duplicate": False, "runs": ["run-of-evt_1"]}]}
    assert second.json() == {"events": [{"id": "evt_1", "duplicate": True, "runs": ["run-of-evt_1"]}]}


def test_the_engine_gets_the_bytes_as_they_were_sent(served: Served) -> None:
    served.post("/hooks/stripe?a=%20b&c", BODY, signed())

    [(source, request, verified)] = served.intake.requests
    assert (source, verified.secret_index) == ("stripe", 0)
    assert (request.method, request.path, request.query) == ("POST", "/hooks/stripe", "a=%20b&c")
    assert request.body == BODY
    assert request.received_at_ms == NOW_MS
    assert request.header("Content-Type") == "application/json; charset=utf-8"
    assert served.intake.events["stripe", "evt_1"].payload == EVENT


def test_a_github_delivery_is_accepted(served: Served) -> None:
    reply = served.deliver("github", b'{"action":"opened"}', event_id="d-1", event_type="issues.opened")

    assert reply.json()["events"][0]["id"] == "d-1"
    assert served.intake.events["github", "d-1"].type == "issues.opened"


def test_a_body_in_chunks_is_verified_over_all_its_bytes(served: Served) -> None:
    reply = served.post("/hooks/stripe", (BODY[i : i + 7] for i in range(0, len(BODY), 7)), signed())

    assert reply.status == 202
    assert served.intake.requests[0][1].body == BODY


@pytest.mark.parametrize(("body", "ids"), [(b"a b c", ["a", "b", "c"]), (b"", [])])
def test_a_delivery_may_hold_several_events_or_none(served: Served, body: bytes, ids: list[str]) -> None:
    reply = served.post("/hooks/custom", body, custom_signed(body))

    assert reply.status == 202
    assert [event["id"] for event in reply.json()["events"]] == ids
    assert len(served.intake.requests) == 1


def test_a_body_of_exactly_the_limit_is_accepted(served: Served) -> None:
    body = b"x" * LIMITS.body_bytes_max

    assert served.post("/hooks/custom", body, custom_signed(body)).status == 202


def test_concurrent_redeliveries_all_get_2xx_and_one_run_each(served: Served) -> None:
    async def storm() -> list[tuple[str, int, list[str]]]:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{served.port}") as session:

            async def one(event_id: str) -> tuple[str, int, list[str]]:
                body = json.dumps({"id": event_id, "type": "a.b"}).encode()
                async with session.post("/hooks/stripe", data=body, headers=signed(body)) as response:
                    events = (await response.json())["events"]
                    return event_id, response.status, events[0]["runs"]

            return await asyncio.gather(*(one(f"evt_{n % 10}") for n in range(100)))

    replies = asyncio.run(storm())

    assert all(status == 202 and runs == [f"run-of-{event_id}"] for event_id, status, runs in replies)
    assert len(served.intake.events) == 10
    assert len(served.intake.requests) == 100


def test_two_pipelined_deliveries_are_both_answered(served: Served) -> None:
    request = raw_request(BODY, signed())
    with served.connect() as connection:
        connection.sendall(request + request)
        received = b""
        while received.count(b'"runs"') < 2:
            part = connection.recv(65_536)
            assert part, f"closed after {received!r}"
            received += part

    assert received.count(b"HTTP/1.1 202 ") == 2


# --- refusing -------------------------------------------------------------------------------------


def test_every_failed_check_gets_the_same_reply_and_its_own_log_line(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    good = signed()["Stripe-Signature"]
    attempts = {
        "no Stripe-Signature header": {},
        "no signature matches (offered: 1, secrets tried: 1)": signed(secret="whsec_wrong"),
        "timestamp is 301 s in the past, tolerance is 300 s": signed(at_ms=NOW_MS - 301_000),
        "timestamp is 301 s in the future, tolerance is 300 s": signed(at_ms=NOW_MS + 301_000),
        "Stripe-Signature has no v1 signature": {"Stripe-Signature": good.replace("v1=", "v0=")},
    }

    replies = [served.post("/hooks/stripe", BODY, headers) for headers in attempts.values()]
    replies.append(served.post("/hooks/stripe", BODY + b" ", {"Stripe-Signature": good}))
    replies.append(served.post("/hooks/github", BODY, {"X-Hub-Signature-256": "sha256=é"}))

    assert_problem(replies[0], 401, "signature_invalid")
    assert {reply.body for reply in replies} == {replies[0].body}
    assert [record.getMessage() for record in caplog.records][: len(attempts)] == [
        f"delivery refused: source='stripe' status=401 check='{check}'" for check in attempts
    ]
    assert len(caplog.records) == len(replies)
    assert_nothing_stored(served)


def test_neither_payload_nor_secrets_are_logged(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    canary = b'{"card": "4242-4242-4242-4242"}'
    served.post("/hooks/stripe", canary, signed(secret="whsec_wrong"))
    served.deliver("stripe", canary)
    served.deliver("stripe", b"4242-4242-4242-4242")
    served.intake.fault = RuntimeError("4242-4242-4242-4242")
    served.deliver("stripe", BODY)

    assert len(caplog.records) == 4
    assert "4242" not in caplog.text
    assert STRIPE_SECRET not in caplog.text
    assert signed(canary)["Stripe-Signature"].partition("v1=")[2] not in caplog.text


def test_a_genuine_body_that_cannot_be_read_is_a_400(served: Served) -> None:
    assert_problem(served.deliver("stripe", b"not json"), 400, "body_malformed")
    assert_problem(served.deliver("stripe", b'{"id": "evt_1"}'), 400, "body_malformed")
    assert_problem(served.deliver("stripe", b""), 400, "body_malformed")
    assert_nothing_stored(served)


@pytest.mark.parametrize("value", [rb'"\ud83d"', b"1e999", b"9" * 5000], ids=["half a pair", "float", "int"])
def test_json_that_no_store_could_keep_is_kept_as_it_came(served: Served, value: bytes) -> None:
    body = b'{"id": "evt_1", "type": "invoice.paid", "note": %b}' % value
    served.intake.unparsed.clear()

    reply = served.deliver("stripe", body)

    assert (reply.status, reply.json()) == (202, {"events": []})
    [(name, request, reason, _)] = served.intake.unparsed
    assert (name, request.body) == ("stripe", body)
    assert "is JSON that no store could keep" in reason


@pytest.mark.parametrize("value", [b"NaN", b"-Infinity", rb'"\x"', b"\xff", b"[" * 40_000 + b"]" * 40_000])
def test_what_is_no_json_is_refused_all_the_same(served: Served, value: bytes) -> None:
    served.intake.unparsed.clear()

    reply = served.deliver("stripe", b'{"id": "evt_1", "type": "invoice.paid", "note": %b}' % value)

    assert_problem(reply, 400, "body_malformed")
    assert served.intake.unparsed == []


def test_an_unreadable_body_that_is_not_genuine_is_a_401(served: Served) -> None:
    reply = served.post("/hooks/stripe", b"not json", signed(secret="whsec_wrong"))

    assert_problem(reply, 401, "signature_invalid")


@pytest.mark.parametrize("name", ["nobody", "STRIPE", "stripe/", "stripe/more", "%00", "..", "stripe%2f"])
def test_an_unknown_source_is_a_404(served: Served, name: str) -> None:
    assert_problem(served.post(f"/hooks/{name}", BODY, signed()), 404, "source_unknown")
    assert_nothing_stored(served)


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_body_that_the_server_drops_for_an_offer_to_upgrade_is_never_the_senders_fault(
    served: Served, running_parser: str, caplog: pytest.LogCaptureFixture, is_chunked: bool
) -> None:
    """uvicorn's fast parser does that, and Java's HttpClient makes the offer; a 401 may end its tries."""
    offer = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAEAAEAA"}

    reply = served.post("/hooks/stripe", iter([BODY]) if is_chunked else BODY, signed() | offer)

    if running_parser == "h11":
        assert reply.status == 202
        return
    assert_problem(reply, 500, "body_gone")
    assert "this server drops it where a sender offers to upgrade" in caplog.text
    assert_nothing_stored(served)


def test_a_strangers_source_name_cannot_write_log_lines(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    served.post("/hooks/a%0d%0aforged%1b[31m%E2%80%AE'" + "x" * 500)

    [record] = caplog.records
    message = record.getMessage()
    assert message.isascii()
    assert message.isprintable()
    assert "a\\r\\nforged\\x1b[31m\\u202e" in message
    assert len(message) < 400


@pytest.mark.parametrize("path", ["/", "/hooks", "/hooks/", "/hook/stripe", "/healthz/"])
def test_any_other_address_is_a_404(served: Served, path: str) -> None:
    assert_problem(served.post(path), 404, "not_found")


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_another_method_is_a_405_that_names_the_right_one(served: Served, method: str) -> None:
    reply = served.ask(method, "/hooks/stripe")

    assert_problem(reply, 405, "method_not_allowed")
    assert reply.headers["allow"] == "POST"


def test_head_is_a_405_without_a_body(served: Served) -> None:
    reply = served.ask("HEAD", "/hooks/stripe")

    assert (reply.status, reply.headers["allow"], reply.body) == (405, "POST", b"")


@pytest.mark.parametrize("encoding", ["gzip", "br", "identity, gzip", "x"])
def test_a_compressed_body_is_a_415(served: Served, encoding: str) -> None:
    reply = served.post("/hooks/stripe", BODY, signed() | {"Content-Encoding": encoding})

    assert_problem(reply, 415, "encoding_unsupported")
    assert reply.headers["accept-encoding"] == "identity"
    assert_nothing_stored(served)


def test_the_identity_encoding_is_none(served: Served) -> None:
    assert served.post("/hooks/stripe", BODY, signed() | {"Content-Encoding": "Identity"}).status == 202


# --- limits ---------------------------------------------------------------------------------------


def raw_request(body: bytes, headers: dict[str, str], **extra: str) -> bytes:
    fields = {"Host": "x", "Content-Length": str(len(body)), **headers, **extra}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"POST /hooks/stripe HTTP/1.1\r\n{head}\r\n".encode() + body


def test_a_body_announced_too_large_is_refused_before_it_is_sent(served: Served) -> None:
    with served.connect() as connection:
        connection.sendall(raw_request(b"", {"Content-Length": str(LIMITS.body_bytes_max + 1)}))

        assert_problem(read_reply(connection), 413, "body_too_large")
    assert_nothing_stored(served)


@pytest.mark.parametrize(
    "said", ["gzip, chunked", "chunked, chunked", "Chunked, gzip", "gzip\r\nTransfer-Encoding: chunked"]
)
def test_a_body_under_another_transfer_encoding_is_no_wrong_signature(served: Served, said: str) -> None:
    """uvicorn's fast parser takes the chunks off and leaves the rest; h11 refuses it by itself, with 400."""
    chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
    fields = "".join(f"{name}: {value}\r\n" for name, value in signed().items())
    head = f"POST /hooks/stripe HTTP/1.1\r\nHost: x\r\n{fields}Transfer-Encoding: {said}\r\n\r\n"
    with served.connect() as connection:
        connection.sendall(head.encode() + chunks)

        assert read_reply(connection).status in (400, 415)
    assert_nothing_stored(served)


def test_an_endless_body_in_chunks_is_refused_while_it_is_sent(served: Served) -> None:
    chunk = b"2710\r\n" + b"x" * 10_000 + b"\r\n"
    with served.connect() as connection:
        connection.sendall(b"POST /hooks/stripe HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(11):
            connection.sendall(chunk)

        assert_problem(read_reply(connection), 413, "body_too_large")
    assert_nothing_stored(served)


def test_a_client_that_sends_everything_first_reads_the_413_and_the_server_lives_on(served: Served) -> None:
    reply = served.post("/hooks/stripe", (b"x" * 100_000 for _ in range(200)))

    assert_problem(reply, 413, "body_too_large")
    assert served.deliver("stripe", BODY).status == 202


@pytest.mark.parametrize(
    "headers", [{f"X-{n}": "" for n in range(41)}, {"X-Long": "x" * 4_000}, {"X" * 4_000: "x"}]
)
def test_too_many_or_too_long_headers_are_a_431(served: Served, headers: dict[str, str]) -> None:
    assert_problem(served.post("/hooks/stripe", BODY, headers), 431, "headers_too_large")
    assert_nothing_stored(served)


def test_a_sender_that_stalls_gets_a_408_and_is_cut_off(served: Served) -> None:
    with served.connect() as connection:
        connection.sendall(raw_request(BODY, signed())[:-1])

        assert_problem(read_reply(connection), 408, "body_too_slow")
        assert connection.recv(1) == b""
    assert_nothing_stored(served)


def test_a_sender_that_trickles_is_cut_off_all_the_same(served: Served) -> None:
    with served.connect() as connection:
        connection.sendall(raw_request(b"", {"Content-Length": "90000"}))
        # Waits for a reply up to 50 ms between bytes: far below the limit each time.
        connection.settimeout(0.05)
        sent = 0
        while sent < 200:
            try:
                connection.recv(1, socket.MSG_PEEK)
                break
            except TimeoutError:
                connection.sendall(b"x")
                sent += 1
        connection.settimeout(10)

        assert_problem(read_reply(connection), 408, "body_too_slow")
    assert 1 < sent < 200
    assert_nothing_stored(served)


def test_a_sender_that_hangs_up_in_the_middle_leaves_nothing(served: Served) -> None:
    with served.connect() as connection:
        connection.sendall(raw_request(BODY, signed())[:-10])
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b""

    assert served.deliver("stripe", b'{"id": "evt_2", "type": "a"}').status == 202
    assert list(served.intake.events) == [("stripe", "evt_2")]


# --- faults ---------------------------------------------------------------------------------------


def test_a_store_that_is_away_is_a_503_that_says_when_to_come_back(served: Served) -> None:
    served.intake.fault = StoreUnavailable("The database is locked.")

    reply = served.deliver("stripe", BODY)

    assert_problem(reply, 503, "store_unavailable")
    assert int(reply.headers["retry-after"]) > 0
    assert b"locked" not in reply.body


def test_an_unexpected_fault_is_a_500_and_is_logged_once_with_its_place(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    served.intake.fault = RuntimeError("inner details")

    reply = served.deliver("stripe", BODY)

    assert_problem(reply, 500, "error")
    [record] = caplog.records
    assert record.levelno == logging.ERROR
    assert record.getMessage().startswith("delivery failed: source='stripe' error=RuntimeError\n")
    assert "fake_intake.py" in record.getMessage()
    assert "inner details" not in reply.body.decode() + caplog.text


def test_an_app_that_nobody_opened_is_a_500_and_the_log_says_what_to_do(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As when ``app.asgi()`` is mounted in an application whose lifespan does not open the app."""
    app = App("sqlite:///:memory:")
    github = app.source(GitHub(secrets="a secret"))
    headers = github.sign(b"{}", 0, event_id="1", event_type="push")

    status, text = asyncio.run(call(app.asgi(), "POST", "/hooks/github", headers, b"{}"))

    assert status == 500
    assert b"lifespan" not in text
    [record] = caplog.records
    assert "source='github' error=The app is not open." in record.getMessage()
    assert "FastAPI(lifespan=app.lifespan)" in record.getMessage()


def test_a_plug_in_whose_verify_fails_refuses(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    reply = served.post("/hooks/custom", b"a", custom_signed(b"a") | {"X-Fail": "verify"})

    assert_problem(reply, 401, "signature_invalid")
    assert "error=KeyError" in caplog.text
    assert "4242" not in caplog.text
    assert_nothing_stored(served)


def test_what_a_plug_in_fails_to_read_is_kept_and_answered_2xx(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    served.intake.unparsed.clear()
    reply = served.post("/hooks/custom", b"fail", custom_signed(b"fail"))

    assert (reply.status, reply.json()) == (202, {"events": []})
    assert "error=ValueError" in caplog.text
    assert "forged log line" not in caplog.text
    assert_nothing_stored(served)
    [(source, request, error, told_by)] = served.intake.unparsed
    assert (source, request.body, told_by) == ("custom", b"fail", [])
    assert error.startswith("ValueError in ")
    assert "4242" not in error


def test_what_can_neither_be_read_nor_kept_is_a_503(served: Served) -> None:
    served.intake.fault = StoreUnavailable("The disk is full.")

    reply = served.post("/hooks/custom", b"fail", custom_signed(b"fail"))

    assert_problem(reply, 503, "store_unavailable")


# --- handshakes -----------------------------------------------------------------------------------


def test_a_verified_handshake_is_answered_by_the_source_and_not_stored(served: Served) -> None:
    echo = served.post("/hooks/custom?challenge=1", b"abc", custom_signed(b"abc"))
    empty = served.post("/hooks/custom?empty", b"abc", custom_signed(b"abc"))

    assert (echo.status, echo.headers["content-type"], echo.body) == (200, "text/plain", b"abc")
    assert (empty.status, empty.body) == (204, b"")
    assert "content-length" not in empty.headers
    assert_nothing_stored(served)


def test_a_handshake_that_is_not_genuine_is_refused(served: Served) -> None:
    assert_problem(served.post("/hooks/custom?challenge=1", b"abc"), 401, "signature_invalid")


# --- health ---------------------------------------------------------------------------------------


def test_health_is_200_while_deliveries_can_be_accepted(served: Served) -> None:
    assert (served.ask("GET", "/healthz").status, served.ask("GET", "/healthz").json()) == (
        200,
        {"status": "ok"},
    )
    assert (served.ask("HEAD", "/healthz").status, served.ask("HEAD", "/healthz").body) == (200, b"")


@pytest.mark.parametrize("health", [False, RuntimeError("store"), None])
def test_health_is_503_when_the_engine_says_no_fails_or_does_not_answer(
    served: Served, health: bool | Exception | None
) -> None:
    served.intake.health = health

    assert_problem(served.ask("GET", "/healthz"), 503, "unhealthy")


def test_health_takes_no_other_method(served: Served) -> None:
    assert served.ask("POST", "/healthz").headers["allow"] == "GET, HEAD"


# --- the server around it -------------------------------------------------------------------------


def test_below_a_mount_prefix_the_addresses_are_the_same() -> None:
    with serving(root_path="/api/v1") as served:
        reply = served.post("/hooks/stripe", BODY, signed())

        assert reply.status == 202
        # What the sender called, as far as this server knows.
        assert served.intake.requests[0][1].path == "/api/v1/hooks/stripe"


def test_while_draining_deliveries_are_a_503_and_health_says_so() -> None:
    with serving() as served:
        served.receiver.drain()

        reply = served.deliver("stripe", BODY)

        assert_problem(reply, 503, "draining")
        assert int(reply.headers["retry-after"]) > 0
        assert reply.headers["connection"] == "close"
        assert_problem(served.ask("GET", "/healthz"), 503, "unhealthy")
        assert_nothing_stored(served)


def test_bodies_in_flight_are_bounded_and_one_source_may_not_have_them_all() -> None:
    with serving(limits=Limits(held_bytes_max=20_000)) as served:
        with served.connect() as slow:
            slow.sendall(raw_request(b"x" * 9_000, {"Content-Length": "9001"}))
            body = json.dumps({"id": "evt_1", "type": "a.b", "more": "y" * 2_000}).encode()
            # The server may take a moment to read the slow body; until then there is room.
            deadline = time.monotonic() + DEADLINE_SECONDS
            while (busy := served.deliver("stripe", body)).status == 202:
                assert time.monotonic() < deadline, "the slow body is not counted"
            other = served.post("/hooks/custom", b"z" * 2_000, custom_signed(b"z" * 2_000))
            small = served.deliver("stripe", BODY)

        assert_problem(busy, 503, "busy")
        assert "retry-after" in busy.headers
        assert (other.status, small.status) == (202, 202)
