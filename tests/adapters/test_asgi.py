"""The adapters of ASGI: whose requests are whose, and who lives when."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, Request
from litestar import Litestar

from onceward import App, ConfigError, Context, Event
from onceward.adapters.asgi import Adapter
from onceward.adapters.django import Adapter as DjangoAdapter
from onceward.adapters.fastapi import Adapter as FastApiAdapter
from onceward.adapters.litestar import Adapter as LitestarAdapter
from onceward.sources import Stripe
from tests.adapters.serving import SECRET
from tests.pages import call

BODY = json.dumps({"id": "evt_1", "type": "charge.succeeded"}).encode()
FRONTS: list[Any] = [Adapter, DjangoAdapter]


def make_app(folder: Path, store: str = "store.db") -> App:
    app = App(f"sqlite:///{folder / store}", poll="50ms", linger="20ms", drain="2s")
    stripe = app.source(Stripe(secrets=SECRET))

    @app.workflow(on=stripe["charge.*"])
    async def charged(ctx: Context, event: Event) -> str:
        return event.id

    return app


@pytest.mark.parametrize("adapter", [Adapter, DjangoAdapter, FastApiAdapter, LitestarAdapter])
def test_the_web_application_in_the_apps_place_is_told(adapter: Any) -> None:
    with pytest.raises(
        ConfigError, match=r"was given <fastapi.applications.FastAPI .* not an App.*mount\(web\)"
    ):
        adapter(FastAPI())


async def deliver(app: App, web: Any, path: str = "/webhooks/hooks/stripe", **scope: Any) -> int:
    headers = app.sources["stripe"].sign(BODY, time.time_ns() // 1_000_000)
    status, _ = await call(with_scope(web, **scope), "POST", path, headers, BODY)
    return status


def with_scope(web: Any, **more: Any) -> Any:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        await web(scope | more, receive, send)

    return application


class Life:
    """A server's side of "lifespan"."""

    def __init__(self, web: Any) -> None:
        self._heard: asyncio.Queue[Any] = asyncio.Queue()
        self.said: asyncio.Queue[Any] = asyncio.Queue()
        self.task = asyncio.ensure_future(
            web({"type": "lifespan", "state": {}}, self._heard.get, self.said.put)
        )

    async def tell(self, stage: str) -> str:
        await self._heard.put({"type": f"lifespan.{stage}"})
        asked = asyncio.ensure_future(self.said.get())
        await asyncio.wait({asked, self.task}, return_when="FIRST_COMPLETED")
        if not asked.done():
            await self.task
        said = await asked
        return str(said["type"] + said.get("message", "")).removeprefix("lifespan.")


class Inner:
    """An application that notes what of it lives while the app does."""

    def __init__(self, app: App, *, speaks: bool | str = True, fails_at: str = "") -> None:
        self.app, self.speaks, self.fails_at = app, speaks, fails_at
        self.seen: list[tuple[str, bool]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            if not self.speaks:
                raise ValueError("only HTTP")
            if self.speaks == "nonsense":
                await send({"type": "http.response.start", "status": 418, "headers": []})
                return
            for stage in ("startup", "shutdown"):
                assert (await receive())["type"] == f"lifespan.{stage}"
                self.seen.append((stage, self.app.is_open))
                outcome = "failed" if stage == self.fails_at else "complete"
                await send({"type": f"lifespan.{stage}.{outcome}"})
                if outcome == "failed":
                    raise RuntimeError("on purpose")
        else:
            self.seen.append((scope["path"], self.app.is_open))
            await send({"type": "http.response.start", "status": 418, "headers": []})
            await send({"type": "http.response.body", "body": b""})


@pytest.mark.parametrize("adapter", FRONTS)
def test_an_application_lives_while_the_app_is_open(adapter: Any, tmp_path: Path) -> None:
    app = make_app(tmp_path)
    inner = Inner(app)

    async def scenario() -> None:
        web = adapter(app).mount(inner)
        for _ in range(2):  # a process may start its web application again
            life = Life(web)
            assert await life.tell("startup") == "startup.complete"
            assert await deliver(app, web) == 202
            assert await deliver(app, web, "/elsewhere") == 418
            assert await life.tell("shutdown") == "shutdown.complete"
            await life.task
            assert not app.is_open

    asyncio.run(scenario())

    assert inner.seen == [("startup", True), ("/elsewhere", True), ("shutdown", True)] * 2


@pytest.mark.parametrize("speaks", [False, "nonsense"])
@pytest.mark.parametrize("adapter", FRONTS)
def test_an_application_that_knows_no_lifespan_needs_none(
    adapter: Any, speaks: bool | str, tmp_path: Path
) -> None:
    app = make_app(tmp_path)

    async def scenario() -> None:
        life = Life(adapter(app).mount(Inner(app, speaks=speaks)))
        assert await life.tell("startup") == "startup.complete"
        assert app.is_open
        assert await life.tell("shutdown") == "shutdown.complete"
        assert not app.is_open

    asyncio.run(scenario())


@pytest.mark.parametrize("stage", ["startup", "shutdown"])
def test_an_application_that_fails_is_told_of_and_the_app_is_closed(stage: str, tmp_path: Path) -> None:
    app = make_app(tmp_path)

    async def scenario() -> str:
        life = Life(Adapter(app).mount(Inner(app, fails_at=stage)))
        said = await life.tell("startup")
        return await life.tell("shutdown") if stage == "shutdown" else said

    assert asyncio.run(scenario()) == f"{stage}.failed"
    assert not app.is_open


@pytest.mark.parametrize("adapter", FRONTS)
def test_a_store_that_cannot_be_opened_keeps_the_server_from_starting(adapter: Any, tmp_path: Path) -> None:
    app = make_app(tmp_path, "missing/store.db")
    inner = Inner(app)

    async def scenario() -> str:
        return await Life(adapter(app).mount(inner)).tell("startup")

    said = asyncio.run(scenario())
    assert said.startswith("startup.failedThe folder")
    assert inner.seen == []


def test_django_opens_by_itself_under_a_server_without_lifespan(tmp_path: Path) -> None:
    app = make_app(tmp_path)
    hooks = DjangoAdapter(app)
    web: Any = hooks.mount(Inner(app))

    async def scenario() -> list[int]:
        return list(await asyncio.gather(*(deliver(app, web) for _ in range(5))))

    assert asyncio.run(scenario()) == [202] * 5
    assert hooks.event("stripe", "evt_1").runs[0].workflow == "charged"
    hooks.close()

    broken: Any = DjangoAdapter(make_app(tmp_path, "missing/store.db")).mount(Inner(app))
    assert asyncio.run(deliver(app, broken)) == 503


def test_django_takes_applications_of_both_kinds_and_nothing_else(tmp_path: Path) -> None:
    hooks = DjangoAdapter(make_app(tmp_path))

    class Wsgi:
        def __call__(self, environ: Any, start_response: Any) -> Any: ...

    assert type(hooks.mount(Wsgi())).__name__ == "WsgiFront"
    with pytest.raises(ConfigError, match="neither a WSGI nor an ASGI application"):
        hooks.mount(lambda request: None)


@pytest.mark.parametrize(
    ("path", "scope", "address"),
    [
        ("/webhooks", {}, "/webhooks/hooks/stripe"),
        ("/webhooks/", {}, "/webhooks/hooks/stripe"),
        ("", {}, "/hooks/stripe"),
        ("/a/b", {}, "/a/b/hooks/stripe"),
        ("/webhooks", {"root_path": "/site"}, "/site/webhooks/hooks/stripe"),
        ("/webhooks", {"root_path": "/site"}, "/webhooks/hooks/stripe"),  # a proxy took it off
    ],
)
def test_the_receiver_is_where_it_is_mounted(
    path: str, scope: dict[str, Any], address: str, tmp_path: Path
) -> None:
    app = make_app(tmp_path)

    async def scenario() -> list[int]:
        async with app:
            web = Adapter(app).mount(Inner(app), path)
            return [await deliver(app, web, one, **scope) for one in (address, address + "x", f"/x{address}")]

    assert asyncio.run(scenario()) == [202, 404, 418]


@pytest.mark.parametrize("path", ["webhooks", "/a//b", "/a?b", "/a\nb"])
def test_a_path_that_nobody_could_send_to_is_refused(path: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be mounted at"):
        Adapter(make_app(tmp_path)).mount(Inner(make_app(tmp_path)), path)


def test_two_apps_share_one_web_application(tmp_path: Path) -> None:
    one, two = make_app(tmp_path), make_app(tmp_path, "two.db")
    web = FastAPI()
    FastApiAdapter(one).mount(web, "/one")
    FastApiAdapter(two).mount(web, "/two")

    async def scenario() -> list[int]:
        async with web.router.lifespan_context(web):
            return [
                await deliver(app, web, f"/{app_path}/hooks/stripe")
                for app, app_path in ((one, "one"), (two, "two"))
            ]

    assert asyncio.run(scenario()) == [202, 202]


def test_the_receiver_as_a_route_bears_middleware_that_gives_the_body_back(tmp_path: Path) -> None:
    app = make_app(tmp_path)
    web = FastAPI(lifespan=app.lifespan)
    web.mount("/webhooks", app.asgi())
    read: list[bytes] = []

    @web.middleware("http")
    async def reads(request: Request, call_next: Any) -> Any:
        read.append(await request.body())
        return await call_next(request)

    async def scenario() -> int:
        async with web.router.lifespan_context(web):
            return await deliver(app, web)

    assert asyncio.run(scenario()) == 202
    assert read == [BODY]


def test_a_web_application_that_has_started_is_not_mounted_in(tmp_path: Path) -> None:
    web = FastAPI()
    asyncio.run(call(web, "GET", "/", {}, b""))

    with pytest.raises(ConfigError, match="has started already"):
        FastApiAdapter(make_app(tmp_path)).mount(web)


def test_litestars_own_hooks_run_while_the_app_is_open(tmp_path: Path) -> None:
    app = make_app(tmp_path)
    seen: list[bool] = []
    note: Callable[[], Awaitable[None]] = noting(app, seen)
    # It would set up the logging of the whole process.
    web = Litestar(on_startup=[note], on_shutdown=[note], logging_config=None)
    LitestarAdapter(app).mount(web)

    async def scenario() -> None:
        async with web.lifespan():
            assert await deliver(app, web) == 202

    asyncio.run(scenario())

    assert seen == [True, True]
    assert not app.is_open


def noting(app: App, seen: list[bool]) -> Callable[[], Awaitable[None]]:
    async def note() -> None:
        seen.append(app.is_open)

    return note


def test_web_processes_that_run_nothing_accept_all_the_same(tmp_path: Path) -> None:
    app = make_app(tmp_path)
    hooks = Adapter(app, runs=False)

    async def scenario() -> str:
        async with hooks.lifespan():
            assert await deliver(app, hooks.mount(Inner(app))) == 202
            (run,) = (await app.event("stripe", "evt_1")).runs
            return await hooks.run(run.run_id).state()

    assert asyncio.run(scenario()) == "queued"
