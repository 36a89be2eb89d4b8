"""The receiver under WSGI: what it reads, when it opens, what it answers when it cannot."""

from __future__ import annotations

import _thread
import contextlib
import io
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

import pytest

from onceward import App, ConfigError, Context, Event
from onceward.adapters.wsgi import Adapter
from onceward.core.arrival import Verified
from onceward.core.messages import HttpRequest
from onceward.sources import Stripe
from tests.adapters.serving import ROOT, SECRET
from tests.helpers import eventually

GET = {"REQUEST_METHOD": "GET"}
BODY = json.dumps({"id": "evt_1", "type": "charge.succeeded"}).encode()


class Input(io.BytesIO):
    """A request's body that remembers how much of it was read."""

    got = 0

    def read(self, size: int | None = -1) -> bytes:
        piece = super().read(size)
        self.got += len(piece)
        return piece


class Broken(io.BytesIO):
    def read(self, size: int | None = -1) -> bytes:
        raise ConnectionResetError("the sender hung up")


class Site:
    def __init__(self, url: str, **settings: Any) -> None:
        self.app = App(
            url, **{"poll": "50ms", "linger": "20ms", "drain": "2s", "body_bytes_max": "1KiB"} | settings
        )
        self.stripe = self.app.source(Stripe(secrets=SECRET))
        self.hooks = Adapter(self.app)
        self.web = self.hooks.mount(framework)

        @self.app.workflow(on=self.stripe["charge.*"])
        async def charged(ctx: Context, event: Event) -> str:
            return event.id

    def ask(self, path: str, source: io.BytesIO | None = None, environ: Any = None) -> Any:
        """Make one request; give its status, headers and body."""
        told: list[Any] = []
        given = {"REQUEST_METHOD": "POST", "SCRIPT_NAME": "", "PATH_INFO": path, "QUERY_STRING": ""}
        given |= {"wsgi.input": source or Input()} | (environ or {})
        setup_testing_defaults(given)

        def start_response(status: str, headers: list[tuple[str, str]], error: Any = None) -> Any:
            told.extend((int(status.split()[0]), {name.lower(): value for name, value in headers}))

        with contextlib.ExitStack() as stack:
            pieces = self.web(given, start_response)
            if hasattr(pieces, "close"):
                stack.callback(pieces.close)
            body = b"".join(pieces)
        return (*told, body)

    def deliver(self, body: bytes, source: io.BytesIO | None = None, environ: Any = None) -> Any:
        signed = self.stripe.sign(body, time.time_ns() // 1_000_000)["Stripe-Signature"]
        given = {"CONTENT_LENGTH": str(len(body)), "HTTP_STRIPE_SIGNATURE": signed} | (environ or {})
        return self.ask("/webhooks/hooks/stripe", source or Input(body), given)


def framework(environ: Any, start_response: Any) -> Any:
    start_response("418 Other", [("Content-Type", "text/plain")])
    return [environ["PATH_INFO"].encode()]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(f"sqlite:///{tmp_path / 'store.db'}")
    yield site
    site.hooks.close()


def test_the_first_delivery_opens_the_app_and_has_its_run(site: Site) -> None:
    assert not site.app.is_open

    status, headers, body = site.deliver(BODY)

    assert (status, headers["content-type"]) == (202, "application/json")
    (run_id,) = json.loads(body)["events"][0]["runs"]
    assert site.hooks.run(run_id).result("10s") == "evt_1"


def test_requests_that_come_at_once_open_the_app_once(site: Site) -> None:
    with ThreadPoolExecutor(20) as senders:
        replies = list(senders.map(lambda _: site.deliver(BODY), range(20)))

    assert {status for status, _, _ in replies} == {202}
    assert len({body.partition(b"runs")[2] for _, _, body in replies}) == 1
    assert len(site.hooks.processes()) == 1
    assert len([one for one in threading.enumerate() if one.name == "onceward-loop"]) == 1


def test_a_store_that_cannot_be_opened_is_a_503_and_tried_again(tmp_path: Path) -> None:
    site = Site(f"sqlite:///{tmp_path}/missing/store.db")
    before = set(threading.enumerate())
    with ThreadPoolExecutor(4) as senders:
        replies = list(senders.map(lambda _: site.deliver(BODY), range(4)))
    assert {(status, headers["retry-after"]) for status, headers, _ in replies} == {(503, "5")}
    eventually(lambda: not set(threading.enumerate()) - before, what="threads end")

    (tmp_path / "missing").mkdir()
    assert site.deliver(BODY)[0] == 202
    site.hooks.close()


def test_an_app_without_a_store_is_our_fault_and_no_senders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ONCEWARD_STORE", raising=False)
    site = Site(None)  # type: ignore[arg-type]

    assert site.deliver(BODY)[0] == 500
    with pytest.raises(ConfigError, match="No store is named"):
        site.hooks.emit("told")


def test_a_body_that_is_announced_too_large_is_not_read(site: Site) -> None:
    source = Input(b"x" * 5_000)

    assert site.ask("/webhooks/hooks/stripe", source, {"CONTENT_LENGTH": "5000"})[0] == 413
    assert source.got == 0


def test_of_a_body_without_a_length_no_more_is_read_than_one_piece_over_the_limit(site: Site) -> None:
    source = Input(b"x" * 1_000_000)

    reply = site.ask("/webhooks/hooks/stripe", source, {"wsgi.input_terminated": True})
    assert reply[0] == 413
    assert source.got == 64 * 1024
    assert site.deliver(BODY, None, {"CONTENT_LENGTH": "", "wsgi.input_terminated": True})[0] == 202


def test_a_body_without_a_length_or_an_end_is_not_waited_for(site: Site) -> None:
    source = Input(b"x")

    assert site.ask("/webhooks/hooks/stripe", source)[0] == 401
    assert site.ask("/webhooks/hooks/stripe", source, {"HTTP_TRANSFER_ENCODING": "chunked"})[0] == 501
    assert source.got == 0


@pytest.mark.parametrize("protocol", ["HTTP/2", "HTTP/2.0", "HTTP/3"])
def test_a_body_of_which_http_2_says_nothing_is_not_taken_for_an_empty_one(site: Site, protocol: str) -> None:
    """Its signature would be wrong then, and a sender that is told so gives the event up."""
    unsaid = {"CONTENT_LENGTH": "", "SERVER_PROTOCOL": protocol}

    assert site.deliver(BODY, Input(BODY), unsaid)[0] == 501
    assert site.ask("/webhooks/healthz", environ=GET | unsaid)[0] == 200


@pytest.mark.parametrize("said", [{"HTTP_TRANSFER_ENCODING": "chunked"}, {"SERVER_PROTOCOL": "HTTP/2"}])
def test_a_body_that_the_server_has_in_memory_is_read_to_its_end(site: Site, said: dict[str, str]) -> None:
    assert site.deliver(BODY, io.BytesIO(BODY), {"CONTENT_LENGTH": ""} | said)[0] == 202


@pytest.mark.parametrize(
    ("source", "status"),
    [
        (Broken(), 400),
        (Input(BODY[:10]), 400),  # hung up half way
        (Input(), 500),  # something read it before: a refusal would lose the event
    ],
)
def test_a_body_that_does_not_arrive_is_told_apart(site: Site, source: io.BytesIO, status: int) -> None:
    assert site.deliver(BODY, source)[0] == status


def test_what_is_before_the_receiver_may_read_no_body(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    source = Input(BODY)
    source.read()

    assert site.deliver(BODY, source)[0] == 500
    assert "something read the body before" in caplog.text


def test_a_bytes_path_query_and_headers_reach_the_source_as_they_were_sent(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[HttpRequest] = []
    verify = site.stripe.verify

    def looked_at(request: HttpRequest, now_ms: int) -> Verified:
        seen.append(request)
        return verify(request, now_ms)

    monkeypatch.setattr(site.stripe, "verify", looked_at)

    given = {
        "SCRIPT_NAME": "/site",
        "QUERY_STRING": "a=%20b",
        "HTTP_X_NAME": "ä, b",
        "CONTENT_TYPE": "text/x",
    }
    assert site.deliver(BODY, None, given)[0] == 202
    assert site.deliver(BODY, None, given | {"RAW_URI": "/site/webhooks/hooks/strip%65?a=1"})[0] == 202

    paths = [request.path for request in seen]
    assert paths == ["/site/webhooks/hooks/stripe", "/site/webhooks/hooks/strip%65"]
    assert {request.query for request in seen} == {"a=%20b"}
    assert seen[0].header_values("x-name") == ["ä, b".encode("latin-1")]
    assert seen[0].header("content-type") == "text/x"
    assert seen[0].body == BODY


def test_a_port_that_is_a_number_is_taken(site: Site) -> None:
    """WSGI wants text; Hypercorn and uvicorn give a number all the same."""
    assert site.deliver(BODY, None, {"SERVER_PORT": 8000})[0] == 202


def _begun_by(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have threads begin as *package* would begin them; here they are true ones all the same."""
    native = _thread.start_new_thread

    def start_new_thread(*given: Any) -> int:
        return native(*given)

    start_new_thread.__module__ = package
    monkeypatch.setattr(_thread, "start_new_thread", start_new_thread)


@pytest.mark.parametrize("kind", ["gevent.thread", "eventlet.green.thread", "uwsgi"])
def test_without_threads_nothing_is_opened_and_the_log_says_why(
    kind: str, site: Site, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "uwsgi":  # what it offers to what it runs; older ones without --enable-threads
        monkeypatch.setitem(sys.modules, "uwsgi", SimpleNamespace(has_threads=0))
        says = "--enable-threads"
    else:
        _begun_by(kind, monkeypatch)
        says = "gunicorn --threads 8"

    assert site.deliver(BODY)[0] == 500
    assert says in caplog.text
    with pytest.raises(ConfigError, match=says):
        site.hooks.open()
    assert not site.app.is_open

    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "uwsgi", SimpleNamespace(has_threads=1))
    assert site.deliver(BODY)[0] == 202


def test_threads_that_a_debugger_begins_are_threads(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    _begun_by("_pydev_bundle.pydev_monkey", monkeypatch)

    assert site.deliver(BODY)[0] == 202


def test_replies_keep_to_the_rules_of_wsgi(site: Site) -> None:
    site.web = validator(site.hooks.mount(validator(framework)))

    assert site.ask("/webhooks/healthz", environ=GET)[0] == 200
    status, headers, _ = site.ask("/webhooks/hooks/stripe", environ=GET)
    assert (status, headers["allow"]) == (405, "POST")
    site.app.asgi().drain()
    status, headers, _ = site.deliver(BODY)
    assert (status, "connection" in headers, headers["retry-after"]) == (503, False, "5")
    site.app.asgi().resume()


@pytest.mark.parametrize(
    "path", ["/", "/webhooks", "/webhooks/", "/webhooks/x", "/hooks/stripe", "/webhooksx/hooks/a"]
)
def test_everything_else_goes_to_the_framework_unopened(site: Site, path: str) -> None:
    assert site.ask(path)[::2] == (418, path.encode())
    assert not site.app.is_open


def test_verbs_open_the_app_and_a_block_keeps_it_open(site: Site) -> None:
    with site.hooks.lifespan():
        assert site.app.is_open
    assert not site.app.is_open

    assert site.hooks.emit("told", id="1").id == "1"
    assert site.hooks.event("emit/told", "1").type == "told"
    assert site.app.is_open
    site.hooks.close()
    assert site.deliver(BODY)[0] == 202, "the receiver accepts again"


def test_web_processes_that_run_nothing_accept_all_the_same(tmp_path: Path) -> None:
    site = Site(f"sqlite:///{tmp_path / 'store.db'}")
    site.web = Adapter(site.app, runs=False).mount(framework)

    status, _, body = site.deliver(BODY)

    assert status == 202
    (run_id,) = json.loads(body)["events"][0]["runs"]
    assert site.app.sync.run(run_id).state() == "queued"
    site.app.sync.close()


def test_a_process_that_exits_opens_nothing_again(site: Site) -> None:
    assert site.deliver(BODY)[0] == 202

    site.hooks._close_at_exit()

    status, headers, _ = site.deliver(BODY)
    assert (status, headers["retry-after"]) == (503, "5")
    assert not site.app.is_open


PROGRAM = """
import os, sys
from onceward import App
from onceward.adapters.wsgi import Adapter

app = App(sys.argv[1])
hooks = Adapter(app)

@app.step
def slow() -> int:
    print("begun", flush=True)
    sys.stdin.readline()
    return 7

@app.workflow
def flow(ctx) -> int:
    return slow()

if os.fork() == 0:  # as a prefork server: imported before, opened after
    run = hooks.start(flow, id="one")
    print(os.getpid(), run.run_id, flush=True)
    sys.exit(0)  # which waits for the step
os.wait()
assert not app.is_open
looked = hooks.run(sys.argv[2]) if len(sys.argv) > 2 else hooks.start(flow, id="one")
print(looked.result("10s"), len(hooks.processes()), looked.attempts(), flush=True)
"""


def test_a_forked_process_finishes_its_steps_and_signs_off_at_exit(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, f"sqlite:///{tmp_path / 'store.db'}"],
        input="\n",
        capture_output=True,
        text=True,
        timeout=60,
        env={"PYTHONPATH": str(ROOT / "src")},
    )

    assert (done.returncode, done.stderr) == (0, "")
    *_, last = done.stdout.splitlines()
    assert done.stdout.count("begun") == 1
    assert last == "7 1 []"
