"""The pages of the documentation as programs: what is fenced in them, and a folder to run it in.

A fence says by its note what is done with it::

    ```python                        part of the page's own program, `<page>.py`
    ```python look.py                part of a file of that name, which runs unless the page runs it
    ```python no-run: <reason>       left out
    ```sh                            run by bash, in the order of the page
    ```sh serves                     started in the background; what follows waits until it is healthy
    ```sh run-by: <test> <name>      a test runs it, since it needs more than a folder
    ```sh no-run: <reason>           left out
    ```text                          behind a sh fence: its output, `…` stands for any text

A Python fence inside an HTML comment runs and is not shown: there a page proves what it says.
"""

from __future__ import annotations

import functools
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from onceward.sources import Stripe
from onceward.testing.server_home import LOOPBACK, free_port
from tests.helpers import eventually

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted(
    path
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    if "generated" not in path.relative_to(ROOT).parts
)

FENCE = re.compile(r"^```(?P<language>\w*)(?P<note>[^\n]*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
NOTES = {
    "python": re.compile(r"| \w+\.py| no-run: \S.{9,}"),
    "sh": re.compile(r"| serves| run-by: tests/\S+\.py \S+| no-run: \S.{9,}"),
}
SHOWN_ONLY = {"dockerfile", "ini", "json", "text", "toml"}
DOCUMENTED_PORT = "8000"

RUN_SECONDS_MAX = 60
HEALTHY_SECONDS_MAX = 30


@dataclass(frozen=True)
class Fence:
    """One fenced block; *line* is that of its first line of code, counted from 0."""

    language: str
    note: str
    code: str
    line: int

    @property
    def is_run(self) -> bool:
        return not self.note.startswith((" no-run:", " run-by:"))


def fences(text: str) -> list[Fence]:
    """Give the fenced blocks of a page, directives of Sphinx aside."""
    found = [
        Fence(block["language"], block["note"], block["code"], text.count("\n", 0, block.start("code")))
        for block in FENCE.finditer(text)
    ]
    return [fence for fence in found if not fence.note.startswith("{")]


def faults(fence: Fence) -> str | None:
    """Say what is wrong with how a fence is marked, or None."""
    if fence.language in NOTES:
        known = NOTES[fence.language].fullmatch(fence.note) is not None
        return None if known else f"the note {fence.note!r} says nothing that is known"
    return None if fence.language in SHOWN_ONLY and not fence.note else f"what is {fence.language!r}?"


def programs(text: str, own: str) -> dict[str, str]:
    """Give the Python files of a page by name, every line where it was on the page.

    Args:
        text: the page.
        own: the name of its own program.
    """
    blank = [""] * (text.count("\n") + 1)
    files: dict[str, list[str]] = {}
    for fence in fences(text):
        if fence.language == "python" and fence.is_run:
            lines = files.setdefault(fence.note.strip() or own, list(blank))
            code = fence.code.splitlines()
            lines[fence.line : fence.line + len(code)] = code
    return {name: "\n".join(lines) for name, lines in files.items()}


def visible(text: str) -> str:
    """Give a page without its HTML comments, every line where it was."""
    return COMMENT.sub(lambda comment: "\n" * comment[0].count("\n"), text)


def runnable(page: Path) -> str:
    """Give the own program of a page."""
    return programs(page.read_text(), "own.py")["own.py"]


def by_name(page: Path, name: str) -> str:
    """Give the shell fence that a test runs under *name*."""
    (found,) = [fence.code for fence in fences(page.read_text()) if fence.note.endswith(f" {name}")]
    return found


class Folder:
    """An empty folder in which a page is followed from top to bottom.

    Args:
        path: the folder.
        page: the page.
    """

    def __init__(self, path: Path, page: Path) -> None:
        self.path = path
        self._page = page
        self._port = free_port()
        self._server: subprocess.Popen[str] | None = None
        self._command = ""
        self._environment = {
            name: value for name, value in os.environ.items() if not name.startswith("ONCEWARD_")
        } | {
            "ONCEWARD_PORT": str(self._port),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
        }

    def follow(self) -> None:
        """Write the page's files, run its programs, then its shell fences; fails where one does."""
        text = self._page.read_text()
        shell = list(outputs(fences(text)))
        called = "\n".join(fence.code for fence, _ in shell)
        files = programs(text, f"{self._page.stem.replace('-', '_')}.py")
        for name, code in files.items():
            (self.path / name).write_text(self._here(code))
        for name in files:
            others = "\n".join(code for other, code in files.items() if other != name)
            if not any(use in called + others for use in (name, f"{name.removesuffix('.py')}:app")):
                self._run([sys.executable, "-W", "error", name])
        try:
            for fence, shown in shell:
                if fence.note == " serves":
                    self._serve(fence.code, shown)
                else:
                    printed = self._run(["bash", "-euo", "pipefail", "-c", self._here(fence.code)])
                    assert shown is None or matches(shown, printed), f"{shown}\nis shown for\n{printed}"
            self._stop()
        finally:
            if self._server is not None:
                os.killpg(self._server.pid, signal.SIGKILL)
                self._server.wait()

    def _here(self, code: str) -> str:
        return re.sub(rf"([: ]){DOCUMENTED_PORT}\b", rf"\g<1>{self._port}", code)

    def _run(self, command: list[str]) -> str:
        done = subprocess.run(
            command,
            cwd=self.path,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS_MAX,
        )
        assert done.returncode == 0, f"{command[-1]}\n{done.stdout}{done.stderr}"
        return done.stdout

    def _serve(self, command: str, shown: str | None) -> None:
        self._stop()
        path = self.path / "server.log"
        with path.open("w") as log:
            self._server = subprocess.Popen(
                ["bash", "-c", self._here(command)],
                cwd=self.path,
                env=self._environment,
                stdout=log,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._command = command
        eventually(self._answers, HEALTHY_SECONDS_MAX, what=f"{command} answers")
        printed = path.read_text()
        assert shown is None or matches(self._here(shown), printed), f"{shown}\nis shown for\n{printed}"

    def _answers(self) -> bool:
        assert self._server is not None
        status = self._server.poll()
        assert status is None, (
            f"{self._command} ended with {status}:\n{(self.path / 'server.log').read_text()}"
        )
        for path in ("/healthz", "/webhooks/healthz"):
            with (
                suppress(OSError),
                urllib.request.urlopen(f"http://{LOOPBACK}:{self._port}{path}", timeout=5),
            ):
                return True
        return False

    def _stop(self) -> None:
        """Stop the server as Ctrl-C does; one that the page lets crash has crashed."""
        if self._server is None:
            return
        is_crashed = ":kill" in self._command
        if not is_crashed:
            os.killpg(self._server.pid, signal.SIGINT)
        status = self._server.wait(RUN_SECONDS_MAX)
        self._server = None
        log = (self.path / "server.log").read_text()
        assert (status in (-signal.SIGKILL, 128 + signal.SIGKILL)) == is_crashed, f"{status}\n{log}"
        assert status == 0 or is_crashed, f"{status}\n{log}"


def outputs(found: list[Fence]) -> Iterator[tuple[Fence, str | None]]:
    """Give each shell fence that is run, with the output that the page shows behind it."""
    for fence, following in pairwise([*found, None]):
        if fence is not None and fence.language == "sh" and fence.is_run:
            shown = following is not None and following.language == "text"
            yield fence, following.code if shown and following is not None else None


def matches(shown: str, printed: str) -> bool:
    """Say whether an output is the one that a page shows."""
    pattern = ".*".join(re.escape(part) for part in shown.strip().split("…"))
    return re.fullmatch(pattern, printed.strip(), re.DOTALL) is not None


def check_mounted(url: str, stripe: Stripe) -> None:
    """Check a page's web application: a delivery, doubled and forged, and a run from a handler."""
    order = {"client_reference_id": "A-1"}
    body = json.dumps({"id": "evt_1", "type": "checkout.session.completed", "data": {"object": order}})
    headers = stripe.sign(body.encode(), time.time_ns() // 1_000_000)
    first, second, forged = (
        _asked(f"{url}/webhooks/hooks/stripe", data, headers)
        for data in (body.encode(), body.encode(), b"{}")
    )
    run_id = json.loads(first[1])["events"][0]["runs"][0]
    assert (first[0], second[0], forged[0]) == (202, 202, 401)
    assert json.loads(second[1])["events"] == [{"id": "evt_1", "duplicate": True, "runs": [run_id]}]
    started = _text(_asked(f"{url}/orders/A-1", b""))
    assert started == _text(_asked(f"{url}/orders/A-1", b""))
    for run in (run_id, started):
        ended = functools.partial(_has_ended, f"{url}/runs/{run}")
        eventually(ended, what="a run ends")


def _has_ended(url: str) -> bool:
    return _text(_asked(url)) == "completed"


def _asked(url: str, body: bytes | None = None, headers: Mapping[str, str] = {}) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, dict(headers)), timeout=30) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def _text(reply: tuple[int, str]) -> str:
    assert reply[0] in (200, 201), reply
    return reply[1].strip('"')


async def call(
    application: Any, method: str, path: str, headers: Mapping[str, str], body: bytes
) -> tuple[int, bytes]:
    """Make one request of an ASGI application and give the reply's status and body."""
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        "client": (LOOPBACK, 1),
        "server": (LOOPBACK, 80),
    }
    messages: Iterator[dict[str, Any]] = iter(
        [{"type": "http.request", "body": body}, {"type": "http.disconnect"}]
    )
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return next(messages)

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await application(scope, receive, send)
    return int(sent[0]["status"]), b"".join(message.get("body", b"") for message in sent[1:])
