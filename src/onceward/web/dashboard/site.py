"""The dashboard's routes, to be mounted under any prefix by whoever keeps strangers out.

This package shows and acts; who may is decided before it, and told to it by *who*. It checks what
is told: a viewer's form, a form without the session's token and a form from another site are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from starlette.routing import BaseRoute, Route

from onceward.console.port import Console
from onceward.core.errors import NotFound
from onceward.web.dashboard.actions import Actions
from onceward.web.dashboard.assets import Assets
from onceward.web.dashboard.bulk import Bulk
from onceward.web.dashboard.live import Live
from onceward.web.dashboard.making import Making
from onceward.web.dashboard.pages import Page, Pages, guarded
from onceward.web.dashboard.render import Renderer, Who

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response


def routes(
    console: Console,
    who: Who,
    *,
    api: str | None = None,
    logout: str | None = None,
    address: Callable[[], str] | None = None,
) -> list[BaseRoute]:
    """Give the routes of a dashboard, relative to where they are mounted.

    Args:
        console: answers and acts; may be asked from any request.
        who: gives who asks, for the audit and for what they may; None where nobody has to say. It is
            asked for pages only: what must keep strangers out stands before these routes.
        api: the REST API's address, relative to the dashboard's first page; None without one.
        logout: where a person logs out, by POST, likewise; None where nobody logs in.
        address: gives where the app is reached, for commands; by default on this machine, port 8000.

    Returns:
        Starlette routes. All links between pages are relative: mount them where you like.
    """
    assets = Assets()
    renderer = Renderer(who, assets, api=api, logout=logout, address=address)
    pages, actions, bulk = Pages(console, renderer), Actions(console, renderer), Bulk(console, renderer)
    making = Making(console, renderer)

    def get(path: str, page: Page) -> Route:
        return Route(path, guarded(renderer, page), methods=["GET"])

    def post(path: str, page: Page) -> Route:
        return Route(path, guarded(renderer, page), methods=["POST"])

    async def nowhere(_request: Request) -> Response:
        raise NotFound("There is no such page.", todo="The menu above has all there are.")

    return [
        get("/", pages.overview),
        get("/runs", pages.runs),
        get("/runs/{run_id}", pages.run),
        get("/runs/{run_id}/complete", making.ask_complete),
        post("/runs/{run_id}/complete", making.complete),
        get("/runs/{run_id}/{verb}", actions.ask),
        post("/runs/{run_id}/{verb}", actions.act),
        get("/emit", making.ask_emit),
        post("/emit", making.emit),
        get("/events", pages.events),
        get("/event", pages.event),
        get("/deliveries", pages.deliveries),
        get("/deliveries/{delivery_id}", pages.delivery),
        post("/deliveries/{delivery_id}", actions.redeliver),
        get("/dead", pages.dead),
        get("/sources", pages.sources),
        get("/workers", pages.workers),
        get("/workflows", pages.workflows),
        get("/audit", pages.audit),
        get("/search", pages.search),
        get("/help", pages.help),
        get("/bulk/ask", bulk.ask),
        post("/bulk/ask", bulk.ask),
        post("/bulk", bulk.begin),
        get("/bulk/{bulk_id}", bulk.progress),
        Route("/live", Live(console).serve, methods=["GET"]),
        Route("/static/{version}/{name}", assets.serve, methods=["GET"]),
        get("/{rest:path}", nowhere),
    ]
