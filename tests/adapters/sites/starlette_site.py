"""A Starlette application with middleware that reads every body."""

from __future__ import annotations

from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from onceward.adapters.starlette import Adapter
from tests.adapters.sites.shop import app, greet, linger

hooks = Adapter(app)


class Parses(BaseHTTPMiddleware):
    async def dispatch(self, request: Request, call_next: Any) -> Response:
        assert await request.body() == b""
        response: Response = await call_next(request)
        response.headers["X-Parsed"] = "state"
        return response


async def start(request: Request) -> Response:
    name = request.path_params["name"]
    return JSONResponse((await hooks.start(greet, name, id=name)).run_id)


def start_other(request: Request) -> Response:
    name = request.path_params["name"]
    return JSONResponse(hooks.sync.start(greet, name, id=name).run_id)


async def emit(request: Request) -> Response:
    order = request.path_params["name"]
    emitted = await hooks.emit("order.paid", {"order": order}, id=order)
    return JSONResponse(emitted.runs[0].run_id)


async def result(request: Request) -> Response:
    return JSONResponse(await hooks.run(request.path_params["name"]).result("20s"))


async def begin(request: Request) -> Response:
    return JSONResponse((await hooks.start(linger, request.path_params["name"])).run_id)


web = Starlette(
    routes=[
        Route("/start/{name}", start, methods=["POST"]),
        Route("/start-other/{name}", start_other, methods=["POST"]),
        Route("/emit/{name}", emit, methods=["POST"]),
        Route("/result/{name}", result),
        Route("/linger/{name}", begin, methods=["POST"]),
    ],
    middleware=[Middleware(Parses)],
)
hooks.mount(web)
