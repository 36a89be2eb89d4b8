"""A Litestar application with middleware that reads every body."""

from __future__ import annotations

from typing import Any

from litestar import Litestar, Request, get, post
from litestar.params import FromPath
from litestar.types import ASGIApp, Receive, Scope, Send

from onceward.adapters.litestar import Adapter
from tests.adapters.sites.shop import app as shop
from tests.adapters.sites.shop import greet, linger

hooks = Adapter(shop)


def parses(app: ASGIApp) -> ASGIApp:
    async def middleware(scope: Scope, receive: Receive, send: Send) -> None:
        async def say(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"x-parsed", b"state")]
            await send(message)

        if "method" in scope:
            await Request[Any, Any, Any](scope, receive).body()
        await app(scope, receive, say)

    return middleware


@post("/start/{name:str}")
async def start(name: FromPath[str]) -> str:
    return (await hooks.start(greet, name, id=name)).run_id


@post("/start-other/{name:str}", sync_to_thread=True)
def start_other(name: FromPath[str]) -> str:
    return hooks.sync.start(greet, name, id=name).run_id


@post("/emit/{name:str}")
async def emit(name: FromPath[str]) -> str:
    emitted = await hooks.emit("order.paid", {"order": name}, id=name)
    return emitted.runs[0].run_id


@get("/result/{name:str}")
async def result(name: FromPath[str]) -> Any:
    return await hooks.run(name).result("20s")


@post("/linger/{name:str}")
async def begin(name: FromPath[str]) -> str:
    return (await hooks.start(linger, name)).run_id


web = Litestar([start, start_other, emit, result, begin], middleware=[parses])
hooks.mount(web)
