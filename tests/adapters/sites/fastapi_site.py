"""A FastAPI application with middleware that reads every body, some of it without giving it back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response

from onceward.adapters.fastapi import Adapter
from tests.adapters.sites.shop import app, greet, linger, note

hooks = Adapter(app)


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[dict[str, str]]:
    assert app.is_open
    yield {"own": "state"}
    assert app.is_open
    note("own lifespan over")


web = FastAPI(lifespan=lifespan)
hooks.mount(web)


class Eats:
    """Middleware that takes the body and gives none to those behind it."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"].startswith("/webhooks/hooks/"):
            while (await receive()).get("more_body"):
                pass
        await self.app(scope, receive, send)


@web.middleware("http")
async def parses(request: Request, call_next: Any) -> Response:
    assert await request.body() == b""
    response: Response = await call_next(request)
    response.headers["X-Parsed"] = request.state.own
    return response


web.add_middleware(Eats)


@web.post("/start/{name}")
async def start(name: str) -> str:
    return (await hooks.start(greet, name, id=name)).run_id


@web.post("/start-other/{name}")
def start_other(name: str) -> str:
    return hooks.sync.start(greet, name, id=name).run_id


@web.post("/emit/{order}")
async def emit(order: str) -> str:
    emitted = await hooks.emit("order.paid", {"order": order}, id=order)
    return emitted.runs[0].run_id


@web.get("/result/{run_id}")
async def result(run_id: str) -> Any:
    return await hooks.run(run_id).result("20s")


@web.post("/linger/{name}")
async def begin(name: str) -> str:
    return (await hooks.start(linger, name)).run_id
