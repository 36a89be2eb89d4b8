"""Promises over HTTP: a POST completes them, a GET changes nothing, whoever opens the link."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from onceward import App, Context, RunHandle, StepFailed
from tests.engine.running import make_app, run_app
from tests.helpers import eventually_async

SECRET = "0123456789" * 4
FORM = "application/x-www-form-urlencoded"


async def call(
    app: App, method: str, path: str, body: bytes = b"", kind: str = "application/json"
) -> tuple[int, dict[str, str], bytes]:
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "headers": [[b"content-type", kind.encode()], [b"host", b"shop.example"]],
        "query_string": b"",
    }
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await app.asgi()(scope, receive, send)
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], headers, sent[1]["body"]


class Asking:
    """An app whose run waits for an approval."""

    def __init__(self, directory: Path) -> None:
        self.app = app = make_app(
            f"sqlite:///{directory / 'store.db'}", promise_secret=SECRET, public_url="https://shop.example/in"
        )
        self.urls: list[str] = []

        @app.workflow()
        async def flow(ctx: Context) -> Any:
            approval = await ctx.step.promise("approval", timeout="7d")
            self.urls.append(approval.url)
            try:
                return await approval.result()
            except StepFailed as error:
                return f"failed: {error.message}"

        self.flow = flow

    async def begin(self) -> tuple[RunHandle[Any], str]:
        handle = await self.app.start(self.flow)
        await eventually_async(self._is_asked)
        url = self.urls[-1]
        assert url.startswith("https://shop.example/in/promises/")
        return handle, url.removeprefix("https://shop.example/in")

    async def _is_asked(self) -> bool:
        return bool(self.urls)


@pytest.fixture
def asking(tmp_path: Path) -> Asking:
    return Asking(tmp_path)


@pytest.mark.parametrize(
    ("body", "kind", "value"),
    [
        (b'{"by": "ann"}', "application/json", {"by": "ann"}),
        (b"", "application/json", None),
        (b"confirmed=yes&by=a%20b", FORM, {"confirmed": "yes", "by": "a b"}),
        (b"", f"{FORM}; charset=utf-8", {}),
    ],
)
def test_a_post_completes_it_with_its_body(asking: Asking, body: bytes, kind: str, value: Any) -> None:
    async def scenario() -> Any:
        handle, path = await asking.begin()
        status, headers, page = await call(asking.app, "POST", path, body, kind)
        assert status == 200
        assert headers["cache-control"] == "no-store"
        if kind.startswith(FORM):
            assert b"Thank you" in page
        else:
            assert json.loads(page) == {"state": "completed", "duplicate": False}
        return await handle.result("10s")

    assert run_app(asking.app, scenario) == value


def test_opening_the_link_changes_nothing_and_tells_nothing(asking: Asking) -> None:
    async def scenario() -> None:
        handle, path = await asking.begin()
        for method in ("GET", "HEAD"):
            status, headers, _ = await call(asking.app, method, path)
            assert status == 200
            assert headers["referrer-policy"] == "no-referrer"
            assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert await call(asking.app, "GET", path) == await call(asking.app, "GET", "/promises/forged")
        assert await handle.state() != "completed"
        assert (await call(asking.app, "POST", path, b"confirmed=yes", FORM))[0] == 200
        assert await handle.result("10s") == {"confirmed": "yes"}

    run_app(asking.app, scenario)


def test_it_can_be_failed_with_a_reason(asking: Asking) -> None:
    async def scenario() -> Any:
        handle, path = await asking.begin()
        status, _, body = await call(asking.app, "POST", f"{path}/fail", b'{"reason": "no budget"}')
        assert (status, json.loads(body)["state"]) == (200, "failed")
        return await handle.result("10s")

    assert run_app(asking.app, scenario) == "failed: no budget"


def test_what_cannot_be_done_is_refused_as_problem_json(
    asking: Asking, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> list[tuple[int, str]]:
        handle, path = await asking.begin()
        told = []
        for method, where, body in (
            ("POST", "/promises/forged", b"1"),
            ("POST", path, b"{not json"),
            ("PUT", path, b"1"),
            ("GET", f"{path}/fail", b""),
            ("POST", "/promises/", b"1"),
            ("POST", path, b"1"),
            ("POST", path, b"1"),
            ("POST", path, b"2"),
        ):
            status, _, reply = await call(asking.app, method, where, body)
            told.append((status, json.loads(reply).get("code", "")))
        await handle.result("10s")
        return told

    told = run_app(asking.app, scenario)

    assert told == [
        (404, "not_found"),
        (400, "body_malformed"),
        (405, "method_not_allowed"),
        (405, "method_not_allowed"),
        (404, "not_found"),
        (200, ""),
        (200, ""),
        (409, "already_completed"),
    ]
    assert asking.urls[0].rpartition("/")[2] not in caplog.text


def test_after_the_end_of_the_run_it_is_gone(asking: Asking) -> None:
    async def scenario() -> int:
        handle, path = await asking.begin()
        await handle.cancel()
        await eventually_async(lambda: is_cancelled(handle))
        return (await call(asking.app, "POST", path))[0]

    async def is_cancelled(handle: RunHandle[Any]) -> bool:
        await asyncio.sleep(0)
        return await handle.state() == "cancelled"

    assert run_app(asking.app, scenario) == 410
