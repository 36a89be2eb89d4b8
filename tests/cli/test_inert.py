"""Stored text controls no terminal and no shell: whatever an instance tells, each command prints it plainly."""

from __future__ import annotations

import http.server
import shlex
import threading
from collections.abc import Iterator
from typing import Any, ClassVar
from urllib.parse import urlsplit

import msgspec
import pytest
from click.testing import CliRunner

from onceward.cli.main import main
from onceward.console import views
from onceward.core.states import Verb
from tests.dashboard.filling import filled

MARK = "stranger"
CONTROLS = "\x1b]0;x\x07\x1b[2J\x9b31m\x7f\u202e\u2028\r\ue000"
TEXT = f"{MARK} '; $(touch x) `y` \"{CONTROLS}\n[bold]root"
RUN_ID = "run_01kjz1qd2ge1ar2rxzs5x7d4aa"


def fill(kind: Any) -> Any:
    return filled(kind, lambda name: RUN_ID if name.endswith("run_id") else TEXT)


def run() -> views.RunDetail:
    found: views.RunDetail = fill(views.RunDetail)
    (step,) = found.steps
    question = dict.fromkeys(("step", "kind", "why", "idempotency_key", "arguments"), TEXT)
    asked = msgspec.structs.replace(step, question={**question, "began_at": 1_764_000_000_000})
    return msgspec.structs.replace(
        found,
        run=msgspec.structs.replace(found.run, state="held", ended_at=None),
        steps=[asked, asked],
        verbs=[views.VerbView(verb=verb, is_allowed=True, reply=TEXT, hint=TEXT) for verb in Verb],
    )


def page(kind: Any) -> dict[str, Any]:
    return {"items": [fill(kind)], "next": None}


SAMPLE = {"at": 1_764_000_000_000, "status": 401, "check": TEXT, "skew_ms": 5}

ANSWERS: dict[str, Any] = {
    "/overview": fill(views.Overview),
    "/counts": fill(views.Counts),
    "/runs": page(views.RunSummary),
    f"/runs/{RUN_ID}": run(),
    "/events": page(views.EventSummary),
    "/event": fill(views.EventDetail),
    "/deliveries": page(views.DeliveryView),
    "/deliveries/x": fill(views.DeliveryView),
    "/refusals": [msgspec.structs.replace(fill(views.RefusalView), samples=[SAMPLE])],
    "/sources": [fill(views.SourceView)],
    "/workers": [fill(views.WorkerView)],
    "/notices": fill(views.NoticesView),
    "/workflows": [fill(views.WorkflowView)],
    "/audit": page(views.AuditView),
}


class Instance(http.server.BaseHTTPRequestHandler):
    """Answers with something in every field."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        path = urlsplit(self.path).path.removeprefix("/api/v1")
        self.asked.append(path)
        told = msgspec.json.encode(ANSWERS.get(path, {"what": TEXT, "means": TEXT, "todo": TEXT}))
        self.send_response(200 if path in ANSWERS else 404)
        self.send_header("Content-Length", str(len(told)))
        self.end_headers()
        self.wfile.write(told)

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def instance() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Instance) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


COMMANDS = [
    "runs list",
    f"runs show {RUN_ID}",
    f"runs show {RUN_ID} --values",
    f"runs retry {RUN_ID} --yes",
    "events list",
    "events show stripe/evt_1",
    "deliveries list",
    "deliveries show x",
    "deliveries refused",
    "dead",
    "workers",
    "notices",
    "nothing",
]


@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_that_is_told_controls_a_terminal(instance: str, command: str, as_json: bool) -> None:
    words = [*command.split(), "--api", instance, *(["--json"] if as_json else [])]
    done = CliRunner().invoke(main, words, color=False)

    assert MARK in done.output or command == "nothing", done.output
    assert not done.exception or isinstance(done.exception, SystemExit), done.exception
    assert [char for char in done.output if not char.isprintable() and char != "\n"] == []
    for line in done.output.splitlines():
        if line.startswith("  onceward "):
            assert not {"x", "$(touch", "`y`"} & set(shlex.split(line)), line
