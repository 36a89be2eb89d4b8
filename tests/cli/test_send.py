"""``onceward send`` against a receiver of each kind, and against the real one."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner

from onceward.cli.main import main
from onceward.cli.post import post
from onceward.cli.send import _target
from onceward.cli.shots import id_places, shots
from onceward.cli.tampering import tampered
from onceward.core.errors import BodyMalformed, OncewardError, SignatureInvalid
from onceward.core.messages import HttpRequest
from onceward.runtime.clock import wall_ms
from onceward.sources import Hmac, Source, create
from onceward.sources.fixture import Body, Fixture, fixtures_of
from tests.cli.running import SHOP, onceward, running
from tests.sources import test_examples
from tests.sources.test_fixtures import OPTIONS, SECRETS

STRIPE = "whsec_0123456789abcdefghij"


class Receiver(ThreadingHTTPServer):
    """Answers with what a source makes of the request; keeps what came."""

    def __init__(self, source: Source | None, answer: tuple[int, bytes] | None = None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.source = source
        self.answer = answer
        self.seen: list[HttpRequest] = []
        self.ids: set[str] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hooks/it?a=%2F"

    def outcome(self, request: HttpRequest) -> tuple[int, bytes]:
        if self.source is None:
            assert self.answer is not None
            return self.answer
        try:
            self.source.verify(request, wall_ms())
            events = [
                {"id": one.id, "duplicate": one.id in self.ids, "runs": []}
                for one in self.source.normalize(request)
            ]
        except SignatureInvalid as error:
            return 401, error.check.encode()
        except BodyMalformed as error:
            return 400, str(error).encode()
        self.ids |= {str(event["id"]) for event in events}
        return 202, json.dumps({"events": events}).encode()


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        request = HttpRequest.of(
            body, list(self.headers.items()), url=f"http://127.0.0.1:{self.server.server_port}{self.path}"
        )
        self.server.seen.append(request)
        status, reply = self.server.outcome(request)
        self.send_response(status)
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def receiving(source: Source | None, answer: tuple[int, bytes] | None = None) -> Iterator[Receiver]:
    with Receiver(source, answer) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def send(*arguments: str, env: dict[str, str] | None = None) -> tuple[int, str]:
    done = CliRunner(env=env).invoke(main, ["send", *arguments], prog_name="onceward")
    return done.exit_code, done.output


def sent(*arguments: str, env: dict[str, str] | None = None) -> tuple[int, list[dict[str, Any]]]:
    status, text = send(*arguments, "--json", env=env)
    return status, json.loads(text)


ALL: dict[str, dict[str, Any]] = {kind: {"secrets": SECRETS} | options for kind, options in OPTIONS.items()}
for each in test_examples.KINDS:
    ALL[each] = {"secrets": "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"} | test_examples.OPTIONS.get(each, {})


def configured(kind: str) -> list[str]:
    options = dict(ALL[kind])
    secrets = options.pop("secrets")
    given = [f"--secret={secret}" for secret in ([secrets] if isinstance(secrets, str) else secrets)]
    for name, value in options.items():
        text = value if isinstance(value, str) else json.dumps(value)
        given += ["--option", f"{name}={json.dumps(text)}"]
    return given


def source_of(kind: str) -> Source:
    return create(kind, **ALL[kind])


# --- every kind -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ALL)
def test_every_packaged_delivery_is_accepted_as_it_is_and_refused_when_it_is_spoiled(kind: str) -> None:
    for event_type in fixtures_of(kind):
        with receiving(source_of(kind)) as receiver:
            good, told = sent(kind, event_type, "--to", receiver.url, *configured(kind))
            spoiled, refused = sent(kind, event_type, "--to", receiver.url, *configured(kind), "--tampered")

        assert (good, [one["status"] for one in told]) == (0, [202])
        assert (spoiled, [one["status"] for one in refused]) == (0, [401])
        assert told[0]["event_ids"] == [event["id"] for event in json.loads(told[0]["reply"])["events"]]


@pytest.mark.parametrize("kind", OPTIONS)
def test_late_is_refused_where_a_time_is_signed_and_compared(kind: str) -> None:
    event_type = next(iter(fixtures_of(kind)))
    is_timed = kind in {"google_pubsub", "hubspot", "mailgun", "paddle", "stripe", "zendesk"}

    with receiving(source_of(kind)) as receiver:
        status, [told] = sent(kind, event_type, "--to", receiver.url, *configured(kind), "--late", "2h")

    assert (status, told["outcome"]) == (0, "refused" if is_timed else "accepted")


# --- what is sent ---------------------------------------------------------------------------------


def test_each_event_has_an_id_of_its_own_and_doubled_ones_are_duplicates() -> None:
    with receiving(source_of("stripe")) as receiver:
        status, told = sent(
            "stripe", "invoice.paid", "--to", receiver.url, "--secret", SECRETS[0], "--repeat=3", "--doubled"
        )

    assert status == 0
    assert len({one["event_ids"][0] for one in told}) == 3
    assert [json.loads(one["reply"])["events"][0]["duplicate"] for one in told] == [False, True] * 3
    assert receiver.seen[0] == receiver.seen[1]


@pytest.mark.parametrize(
    ("kind", "body", "places"),
    [
        ("stripe", {"id": "evt_1", "type": "a", "data": {"object": {"id": "evt_1"}}}, ["/id", "/data/object/id"]),
        ("stripe", {"id": 17, "type": "a", "data": {"evt/~": [17, True, None]}}, ["/id", "/data/evt~1~0/0"]),
        ("stripe", {"type": "a"}, []),
        ("mailgun", {"recipient": "a@example.com", "Message-Id": "<20260225.1@example.com>"}, ["/Message-Id"]),
        ("mailgun", {"event-data": {"event": "opened1234", "id": "abcd1234"}}, ["/event-data/id"]),
        ("zendesk", {"note": "none"}, []),
    ],
)  # fmt: skip
def test_of_a_delivery_that_does_not_say_where_its_ids_stand_they_are_found(
    kind: str, body: dict[str, Any], places: list[str]
) -> None:
    assert id_places(source_of(kind), Body(body, "recipient" in body), {}) == places


class HashedAddress(Hmac):
    def signed_request(self, body: bytes, now_ms: int, **how: Any) -> HttpRequest:
        made = super().signed_request(body, now_ms, **how)
        return HttpRequest.of(body, {"X-S": made.header("x-s") or ""}, url=f"{how['url']}&hash=1")


def test_a_sender_may_add_to_the_address_that_it_calls() -> None:
    url = "http://127.0.0.1:8000/hooks/it?a=1"
    source = HashedAddress(name="it", secrets="s", header="X-S", id_from="/id", type_from="/id")
    [shot] = shots(
        lambda: source, "a", Fixture({"id": "evt_1"}), edits=[], url="https://x.example/?a=1", now_ms=0,
        late_ms=0, repeat=1, is_doubled=False, is_tampered=False, is_unsigned=False, random=Random(1),
    )  # fmt: skip

    assert _target(url, "https://x.example/?a=1", shot.request.url) == f"{url}&hash=1"
    assert _target(url, "https://x.example/?a=1", "https://x.example/?a=1") == url


def test_the_body_can_be_edited() -> None:
    edits = ["--set", "data.object.amount_due=7", "--set", "/id=evt_mine", "--set", "/data/object/note=a=b"]

    with receiving(source_of("stripe")) as receiver:
        status, text = send("stripe", "invoice.paid", "--to", receiver.url, *edits, "--secret", SECRETS[1])

    body = json.loads(receiver.seen[0].body)
    assert status == 0
    assert (body["id"], body["data"]["object"]["amount_due"]) == ("evt_mine", 7)
    assert body["data"]["object"]["note"] == "a=b"
    assert "ok  202 accepted  stripe invoice.paid" in text
    assert "event evt_mine" in text


def test_a_form_can_be_edited() -> None:
    with receiving(source_of("mailgun")) as receiver:
        status, _ = send(
            "mailgun", "inbound", "--to", receiver.url, "--secret", SECRETS[0], "--set", "subject=Hällo & so"
        )

    assert status == 0
    assert b"subject=H%C3%A4llo+%26+so" in receiver.seen[0].body


def test_json_in_a_form_can_be_edited_and_a_line_end_behind_json_is_kept() -> None:
    edits = ("--set", "payload.user.name=Ada")
    with receiving(source_of("slack")) as receiver:
        how = ("--to", receiver.url, *configured("slack"))
        status, told = sent("slack", "block_actions", *how, *edits, "--repeat=2")
    with receiving(source_of("sendgrid")) as sendgrid:
        send("sendgrid", "bounce", "--to", sendgrid.url, *configured("sendgrid"))

    assert status == 0
    assert len({one["event_ids"][0] for one in told}) == 2
    assert b"%22name%22%3A%22Ada%22" in receiver.seen[0].body
    assert sendgrid.seen[0].body.endswith(b"]\r\n")


def test_headers_beside_the_signature_are_sent() -> None:
    with receiving(source_of("github")) as receiver:
        send("github", "pull_request.opened", "--to", receiver.url, "--secret", SECRETS[0])

    request = receiver.seen[0]
    assert request.header("x-github-event") == "pull_request"
    assert len(request.header("x-github-delivery") or "") == 36
    assert (request.header("user-agent") or "").startswith("onceward/")


def test_the_secret_can_come_from_the_environment_and_an_option_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "login"
    file.write_text("user:pass")
    key = OPTIONS["adyen"]["secrets"][1]

    with receiving(create("adyen", secrets=key, basic_auth="user:pass")) as receiver:
        status, told = sent(
            "adyen", "CAPTURE", "--to", receiver.url, "--option", f"basic_auth=@{file}",
            env={"ONCEWARD_SECRET": key},
        )  # fmt: skip

    assert (status, told[0]["status"]) == (0, 202)


def test_another_address_can_be_signed() -> None:
    public = "https://shop.example.com/hooks/square"
    with receiving(create("square", secrets="s", public_url=public)) as receiver:
        how = ("square", "order.created", "--to", receiver.url, "--secret", "s")

        assert sent(*how)[1][0]["status"] == 401
        assert sent(*how, "--signed-url", f"{public}?a=%2F")[0] == 0


def test_without_a_signature_for_those_who_check_none() -> None:
    with receiving(create("paypal", insecure=True)) as receiver:
        status, told = sent("paypal", "CHECKOUT.ORDER.APPROVED", "--to", receiver.url, "--unsigned")

    assert (status, told[0]["status"]) == (0, 202)


# --- what is answered -----------------------------------------------------------------------------


def test_a_receiver_that_takes_what_it_should_refuse_is_told_by_the_exit_status() -> None:
    with receiving(create("stripe", insecure=True)) as receiver:
        status, text = send(
            "stripe", "invoice.paid", "--to", receiver.url, "--secret", SECRETS[0], "--tampered"
        )

    assert status == 1
    assert "NOT 202 accepted" in text
    assert "expected: refused" in text


@pytest.mark.parametrize(
    ("answer", "outcome", "advice"),
    [
        ((400, b"no"), "refused", "    Compare KIND with the receiver's source"),
        ((401, b"no"), "refused", "    Compare the secrets"),
        ((503, b""), "failed", "    The receiver's store is away"),
        ((302, b""), "failed", "    expected: accepted"),
        ((404, b"\xff\x1b[31m"), "refused", "    Compare the address"),
    ],
)
def test_a_receiver_that_does_not_take_it_is_told_by_the_exit_status_and_what_to_do(
    answer: tuple[int, bytes], outcome: str, advice: str
) -> None:
    with receiving(None, answer) as receiver:
        how = ("stripe", "invoice.paid", "--to", receiver.url, "--secret", "s")
        status, text = send(*how)
        _, told = sent(*how)

    assert (status, told[0]["outcome"]) == (1, outcome)
    assert "\x1b[31m" not in text
    assert text.splitlines()[-1].startswith(advice)


def test_a_second_delivery_that_is_called_new_is_not_as_it_should_be() -> None:
    answer = (202, b'{"events":[{"id":"evt_1","duplicate":false,"runs":[]}]}')

    with receiving(None, answer) as receiver:
        how = ("stripe", "invoice.paid", "--to", receiver.url, "--secret", "s", "--doubled")
        status, told = sent(*how)
        _, text = send(*how)

    assert (status, [one["as_expected"] for one in told]) == (1, [True, False])
    assert text.splitlines()[-1] == "    expected: a duplicate, and an event of it is called new"


def test_no_receiver_is_an_error_with_what_to_do() -> None:
    with receiving(None, (200, b"")) as receiver:
        url = receiver.url

    status, text = send("stripe", "invoice.paid", "--to", url, "--secret", "s")

    assert status == 1
    assert f"There is no reply from {url}" in text
    assert "onceward serve MODULE:APP" in text
    with pytest.raises(OncewardError):
        post(url, HttpRequest.of(b""))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["strip", "invoice.paid"], "Did you mean stripe?"),
        (["xyzzy", "invoice.paid"], "no kind of source called 'xyzzy'"),
        (["stripe", "invoice.payed"], "Did you mean invoice.paid?"),
        (["stripe"], "There are: checkout.session.completed,"),
        (["hmac", "x"], "No delivery of kind 'hmac' is packaged."),
        (["stripe", "invoice.paid"], "There is no secret"),
        (["stripe", "invoice.paid", "--secret", "s", "--option", "tolerance"], "NAME=VALUE"),
        (["stripe", "invoice.paid", "--secret", "s", "--option", "colour=red"], "Options are:"),
        (["stripe", "invoice.paid", "--secret", "s", "--option", "name=@/no/file"], "cannot be read"),
        (["stripe", "invoice.paid", "--secret", "s", "--set", "/data/object/id/x=1"], "There is no place"),
        (["stripe", "invoice.paid", "--secret", "s", "--late", "soon"], "--late cannot be"),
        (["paypal", "CHECKOUT.ORDER.APPROVED", "--secret", "s"], "private_keys"),
        (["stripe", "invoice.paid", "--secret", "s", "--to", "localhost:8000"], "no http or https address"),
    ],
)
def test_a_wrong_call_sends_nothing_and_says_what_is_right(arguments: list[str], words: str) -> None:
    with receiving(None, (200, b"")) as receiver:
        to = [] if "--to" in arguments else ["--to", receiver.url]
        status, text = send(*arguments, *to, env={"ONCEWARD_SECRET": ""})

    assert (status, receiver.seen) == (2, [])
    assert words in text


@pytest.mark.parametrize(
    ("env", "example"),
    [
        ({"ONCEWARD_PORT": "9123"}, "http://127.0.0.1:9123/hooks/stripe"),
        ({"ONCEWARD_PUBLIC_URL": "https://shop.example/"}, "https://shop.example/hooks/stripe"),
        ({"ONCEWARD_PORT": "nine"}, "http://127.0.0.1:8000/hooks/stripe"),
    ],
)
def test_a_wrong_address_is_told_with_the_configured_one(env: dict[str, str], example: str) -> None:
    _, text = send("stripe", "invoice.paid", "--secret", "s", "--to", "localhost", env=env)

    assert f"e.g. {example}." in " ".join(text.split())


def test_what_cannot_be_checked_here_is_spoiled_all_the_same() -> None:
    asked = create("hmac", name="it", secrets="s", header="X-S", id_from="/id", type_from="/id")
    request = asked.signed_request(b'{"id":"a"}', 0)

    unreadable = HttpRequest.of(b"\xff", {"X-S": "0" * 64})

    assert tampered(lambda: asked, request, 0) != request
    assert tampered(lambda: asked, unreadable, 0).header("x-s") != "0" * 64


# --- the real receiver ----------------------------------------------------------------------------


def test_a_served_app_takes_and_refuses_what_it_should(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    with running("serve", "shop:app", "--port", "0", cwd=tmp_path) as server:
        to = f"http://127.0.0.1:{server.port()}/hooks/stripe"
        how = ("send", "stripe", "charge.refunded", "--to", to, "--json")
        env = {"ONCEWARD_SECRET": STRIPE}
        calls = {
            more: onceward(*how, *more, cwd=tmp_path, env=env)
            for more in (("--doubled",), ("--tampered",), ("--late", "10m"))
        }

    statuses = {
        more[0]: (done.returncode, [one["status"] for one in json.loads(done.stdout)])
        for more, done in calls.items()
    }
    assert statuses == {"--doubled": (0, [202, 202]), "--tampered": (0, [401]), "--late": (0, [401])}
    first, second = (json.loads(one["reply"]) for one in json.loads(calls[("--doubled",)].stdout))
    assert first["events"][0]["runs"] == second["events"][0]["runs"] != []
