"""The console over HTTP: what it asks for, what it makes of the replies, and of their absence."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, ClassVar

import msgspec
import pytest
from click.testing import CliRunner

from onceward.cli.main import main
from onceward.console.port import Action, Completion, DeliveryQuery, Emit, EventQuery, RunQuery
from onceward.console.remote import RemoteConsole
from onceward.console.views import BulkReply, Counts, EmitReply, EventSummary, Page
from onceward.core import errors

PAGE: Page[Any] = Page(items=[], next="x")
COUNTS = Counts(states={"queued": 2})
REPLY = {"run_id": "run_1", "verb": "retry", "effect": "join", "text": "joined"}


class Instance(http.server.BaseHTTPRequestHandler):
    """Gives the next of the replies, and notes what was asked."""

    replies: ClassVar[list[tuple[int, Any]]] = []
    asked: ClassVar[list[tuple[str, Any, str | None]]] = []

    def do_GET(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        body = msgspec.json.decode(self.rfile.read(length)) if length else None
        self.asked.append((f"{self.command} {self.path}", body, self.headers.get("Authorization")))
        status, given = self.replies.pop(0)
        encoded = given if isinstance(given, bytes) else msgspec.json.encode(given)
        self.send_response(status)
        self.send_header("Content-Length", str(len(encoded)))
        self.end_headers()
        self.wfile.write(encoded)

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def instance() -> Iterator[str]:
    Instance.replies.clear()
    Instance.asked.clear()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Instance) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def ask(url: str, question: Callable[[RemoteConsole], Coroutine[Any, Any, Any]], *replies: Any) -> Any:
    Instance.replies += [one if isinstance(one, tuple) else (200, one) for one in replies]
    return asyncio.run(question(RemoteConsole(url, "secret")))


def test_questions_are_asked_where_the_api_answers_them(instance: str) -> None:
    assert ask(instance, lambda console: console.counts(), COUNTS) == COUNTS
    query = RunQuery(problems=True, error="a b", since=5)
    assert ask(f"{instance}/api/v1/", lambda console: console.runs(query), PAGE) == PAGE
    ask(f"{instance}/under", lambda console: console.events(EventQuery(without_runs=True, limit=7)), PAGE)
    ask(instance, lambda console: console.deliveries(DeliveryQuery(outcome="clash")), PAGE)
    ask(instance, lambda console: console.audit(after="x"), PAGE)
    with pytest.raises(errors.OncewardError):
        ask(instance, lambda console: console.event("emit/order.paid", "../x y"), {})
    with pytest.raises(errors.OncewardError):
        ask(instance, lambda console: console.run("run/1", 2), {})

    assert [asked for asked, _, _ in Instance.asked] == [
        "GET /api/v1/counts",
        "GET /api/v1/runs?since=5&problems=true&error=a+b",
        "GET /under/api/v1/events?without_runs=true&limit=7",
        "GET /api/v1/deliveries?outcome=clash",
        "GET /api/v1/audit?limit=50&after=x",
        "GET /api/v1/event?source=emit%2Forder.paid&id=..%2Fx+y",
        "GET /api/v1/runs/run%2F1?generation=2",
    ]
    assert {token for _, _, token in Instance.asked} == {"Bearer secret"}


def test_actions_send_what_was_given_and_no_actor(instance: str) -> None:
    retry = Action(verb="retry", actor="ann", request_id="click")
    assert ask(instance, lambda console: console.act("run_1", retry), REPLY).effect == "join"
    replay = Action(verb="replay", actor="ann", payload=None)
    ask(instance, lambda console: console.act("run_1", replay), REPLY)
    ask(instance, lambda console: console.redeliver("del_1", actor="ann"), {"events": []})
    emit = Emit(type="paid", actor="ann", payload=[1], request_id="e1")
    event = EventSummary(source="emit/paid", id="e1", type="paid", received_at=1)
    made = EmitReply(event=event, is_duplicate=False, runs=[], skipped=[])
    assert ask(instance, lambda console: console.emit(emit), made) == made
    end = Completion(actor="ann", promise="approval", reason="no")
    ask(instance, lambda console: console.complete("run_1", end), REPLY)

    assert [(asked, body) for asked, body, _ in Instance.asked] == [
        ("POST /api/v1/runs/run_1/retry", {"request_id": "click"}),
        ("POST /api/v1/runs/run_1/replay", {"payload": None}),
        ("POST /api/v1/deliveries/del_1/redeliver", {}),
        ("POST /api/v1/events", {"type": "paid", "payload": [1], "request_id": "e1"}),
        ("POST /api/v1/runs/run_1/complete", {"promise": "approval", "reason": "no"}),
    ]


def test_a_bulk_action_is_followed_to_its_end_also_by_another_process(instance: str) -> None:
    def reply(done: int, *, is_over: bool) -> BulkReply:
        return BulkReply(
            bulk_id="mend", verb="retry", is_dry_run=False, matched=3, done=done, is_over=is_over
        )

    told: list[int] = []

    async def question(console: RemoteConsole) -> BulkReply:
        action = Action(verb="retry", actor="ann", request_id="mend")
        return await console.bulk(
            RunQuery(problems=True),
            action,
            dry_run=False,
            progress=lambda so_far: told.append(so_far.done),
        )

    found = ask(
        instance,
        question,
        reply(0, is_over=False),
        (404, {"code": "not_found", "what": "none"}),
        reply(2, is_over=False),
        reply(3, is_over=True),
    )

    assert (found.done, told) == (3, [0, 2, 3])
    paths = [asked for asked, _, _ in Instance.asked]
    assert paths == ["POST /api/v1/runs/bulk", "GET /api/v1/bulk/mend"] * 2
    assert Instance.asked[0][1] == Instance.asked[2][1]
    assert Instance.asked[0][1] == {
        "query": {"problems": True},
        "action": {"verb": "retry"},
        "dry_run": False,
        "request_id": "mend",
    }


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        ((404, {"code": "not_found", "what": "There is no run."}), errors.NotFound),
        ((409, {"code": "key_taken", "what": "Another holds it."}), errors.StateConflict),
        ((409, {"code": "state_conflict", "what": "It is held."}), errors.StateConflict),
        ((400, {"code": "config", "what": "There is no state."}), errors.ConfigError),
        ((401, {"code": "unauthorized", "detail": "Who is it?"}), errors.ConfigError),
        ((503, {"code": "store_unavailable", "what": "It is away."}), errors.StoreUnavailable),
        ((404, b"<html>nginx</html>"), errors.ConfigError),
        ((200, b"<html>hello</html>"), errors.ConfigError),
        ((500, {"code": "error", "detail": "?"}), errors.OncewardError),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_refusal_is_the_error_that_was_raised_there(
    instance: str, reply: tuple[int, Any], kind: type[errors.OncewardError]
) -> None:
    with pytest.raises(errors.OncewardError) as told:
        ask(instance, lambda console: console.counts(), reply)

    assert type(told.value) is kind
    assert told.value.what


def test_an_instance_that_is_not_there_is_unavailable() -> None:
    with pytest.raises(errors.StoreUnavailable, match="no reply"):
        asyncio.run(RemoteConsole("http://127.0.0.1:1").counts())


@pytest.mark.parametrize("url", ["", "hooks.example.com", "ftp://x", "http://", "http://a b", "http://x:0"])
def test_an_address_that_cannot_be_one_is_refused(url: str) -> None:
    with pytest.raises(errors.ConfigError):
        RemoteConsole(url)
    with pytest.raises(errors.ConfigError):
        RemoteConsole("http://x", "a\nb")


class Endless(http.server.BaseHTTPRequestHandler):
    """Goes on and on with what makes no reply."""

    def do_GET(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def log_message(self, *_: Any) -> None:
        pass


def test_a_reply_without_end_is_cut_off() -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Endless) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        console = RemoteConsole(f"http://127.0.0.1:{server.server_port}", whole_seconds=0.2)
        with pytest.raises(errors.StoreUnavailable, match="no reply within"):
            asyncio.run(console.counts())
        server.shutdown()


def test_a_redirect_is_an_error_and_the_token_goes_nowhere(instance: str) -> None:
    with pytest.raises(errors.ConfigError):
        ask(instance, lambda console: console.counts(), (302, b""))

    assert [token for _, _, token in Instance.asked] == ["Bearer secret"]


def test_an_error_that_is_told_at_length_is_cut(instance: str) -> None:
    told = {"what": "x" * 1_000_000, "means": "y" * 1_000_000, "code": "config"}
    with pytest.raises(errors.OncewardError) as caught:
        ask(instance, lambda console: console.counts(), (400, told))

    assert len(str(caught.value)) < 10_000


@pytest.mark.parametrize("url", ["http://ann:hunter2@h", "http://hunter2@h:x", "ftp://ann:hunter2@h"])
def test_a_password_in_the_address_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(errors.ConfigError) as caught:
        RemoteConsole(url)

    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://a..b", f"http://{'a' * 64}.example"])
def test_a_name_that_cannot_be_looked_up_is_refused(url: str) -> None:
    with pytest.raises(errors.ConfigError):
        RemoteConsole(url)


def test_a_command_fails_where_a_bulk_action_stopped_early_and_says_how_to_go_on(instance: str) -> None:
    begun = BulkReply(bulk_id="mend", verb="retry", is_dry_run=False, matched=3, done=1, is_over=False)
    why = "Interrupted after 1 of 3: whoever was at it has not been heard of since."
    over = msgspec.structs.replace(begun, is_over=True, is_interrupted=True, reasons=[why])
    Instance.replies += [(200, begun), (200, over)]
    asked = ["runs", "retry", "--problems", "--yes", "--api", instance]
    done = CliRunner(env={"NO_COLOR": "1", "COLUMNS": "200"}).invoke(main, asked, prog_name="onceward")

    assert done.exit_code == 1
    assert done.stdout.splitlines() == [
        f"retry: 1 of 3 runs done, 0 refused: {why}",
        "It stopped early. To go on: the same with --request mend",
    ]
    request_id = Instance.asked[0][1]["request_id"]
    assert done.stderr == f"If this is cut off, it goes on with --request {request_id}\n"


@pytest.mark.parametrize("gone", [{"matched": 0}, {"matched": 1, "done": 1}, {"matched": 2, "refused": 2}])
def test_nothing_is_said_of_going_on_where_nothing_is_left_or_nothing_was_done(
    instance: str, gone: dict[str, Any]
) -> None:
    begun = BulkReply(bulk_id="mend", verb="retry", is_dry_run=False, matched=gone["matched"], is_over=False)
    half = msgspec.structs.replace(begun, refused=gone.get("refused", 0) // 2)
    over = BulkReply(bulk_id="mend", verb="retry", is_dry_run=False, is_over=True, **gone)
    Instance.replies += [(200, begun), (200, half), (200, over)]
    asked = ["runs", "retry", "--problems", "--yes", "--api", instance]
    done = CliRunner(env={"NO_COLOR": "1", "COLUMNS": "200"}).invoke(main, asked, prog_name="onceward")

    assert done.stderr == ""
