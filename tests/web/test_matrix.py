"""Who may do what, route by route, written down: a route that nobody wrote down fails here."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.routing import Route

from onceward import App
from onceward.web import site as site_module
from onceward.web.access import Role
from onceward.web.api.calls import ENDPOINTS
from onceward.web.api.server import Api
from onceward.web.auth import gate
from onceward.web.site import LOGIN_PATHS, Site, accounts_of, site_for
from tests.engine.conftest import broken_promises
from tests.web.fake_console import FakeConsole
from tests.web.site_world import BASE, CHEAP
from tests.web.test_site import make_shop

VIEWER, OPERATOR, ADMIN = Role.VIEWER, Role.OPERATOR, Role.ADMIN
RANK = {VIEWER: 1, OPERATOR: 2, ADMIN: 3}

CALLS = {
    "GET /overview": VIEWER,
    "GET /counts": VIEWER,
    "GET /runs": VIEWER,
    "GET /runs/{run_id}": VIEWER,
    "GET /runs/{run_id}/plan": VIEWER,
    "POST /runs/{run_id}/plan": VIEWER,
    "POST /runs/{run_id}/retry": OPERATOR,
    "POST /runs/{run_id}/restart": OPERATOR,
    "POST /runs/{run_id}/replay": OPERATOR,
    "POST /runs/{run_id}/cancel": OPERATOR,
    "POST /runs/{run_id}/resume": OPERATOR,
    "POST /runs/{run_id}/answer": OPERATOR,
    "POST /runs/{run_id}/dismiss": OPERATOR,
    "POST /runs/{run_id}/complete": OPERATOR,
    "POST /runs/bulk": OPERATOR,
    "GET /bulk/{bulk_id}": VIEWER,
    "GET /events": VIEWER,
    "POST /events": OPERATOR,
    "GET /events/{source}/{event_id}": VIEWER,
    "GET /event": VIEWER,
    "GET /deliveries": VIEWER,
    "GET /deliveries/{delivery_id}": VIEWER,
    "POST /deliveries/{delivery_id}/redeliver": OPERATOR,
    "GET /sources": VIEWER,
    "GET /refusals": VIEWER,
    "GET /workers": VIEWER,
    "GET /notices": VIEWER,
    "GET /workflows": VIEWER,
    "GET /audit": VIEWER,
    "POST /prune": ADMIN,
    "GET /export": VIEWER,
    "GET /changes": VIEWER,
}
DESCRIPTIONS = {"GET /openapi.json": VIEWER, "GET /docs": VIEWER, "GET /docs.css": VIEWER}
PAGES = {
    "GET /": VIEWER,
    "GET /runs": VIEWER,
    "GET /runs/{run_id}": VIEWER,
    "GET /runs/{run_id}/complete": VIEWER,
    "POST /runs/{run_id}/complete": OPERATOR,
    "GET /runs/{run_id}/{verb}": VIEWER,
    "POST /runs/{run_id}/{verb}": OPERATOR,
    "GET /emit": VIEWER,
    "POST /emit": OPERATOR,
    "GET /events": VIEWER,
    "GET /event": VIEWER,
    "GET /deliveries": VIEWER,
    "GET /deliveries/{delivery_id}": VIEWER,
    "POST /deliveries/{delivery_id}": OPERATOR,
    "GET /dead": VIEWER,
    "GET /sources": VIEWER,
    "GET /workers": VIEWER,
    "GET /workflows": VIEWER,
    "GET /audit": VIEWER,
    "GET /search": VIEWER,
    "GET /help": VIEWER,
    "GET /bulk/ask": VIEWER,
    "POST /bulk/ask": OPERATOR,
    "POST /bulk": OPERATOR,
    "GET /bulk/{bulk_id}": VIEWER,
    "GET /live": VIEWER,
    "GET /{rest:path}": VIEWER,
}
PUBLIC = ("GET /static/{version}/{name}",)
"""Files of ours: no store is asked for them."""

V1 = "/api/v1"
BEYOND = {"GET /metrics": VIEWER, f"GET {V1}/export?raw=true": ADMIN, f"GET {V1}/nothing": VIEWER}
WHOLE = {
    **{f"{name.partition(' ')[0]} {V1}{name.partition(' ')[2]}": role for name, role in CALLS.items()},
    **{f"GET {V1}{name.partition(' ')[2]}": role for name, role in DESCRIPTIONS.items()},
    **PAGES,
    **BEYOND,
}
STREAMS = ("/live", f"{V1}/changes")
PARTS = {
    "run_id": "run_none",
    "source": "none",
    "event_id": "none",
    "delivery_id": "del_none",
    "bulk_id": "none",
    "verb": "retry",
    "rest:path": "nowhere",
}
BODIES: dict[str, dict[str, Any]] = {
    "/runs/bulk": {"query": {"state": "failed"}, "action": {"verb": "retry"}},
    "/events": {"type": "order.paid"},
    "/answer": {"answer": "retry"},
    "/plan": {"verb": "retry"},
    "/complete": {"promise": "approval", "value": 1},
}


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty store, of each kind in turn; its invariants are checked afterwards."""
    url = f"sqlite:///{tmp_path / 'store.db'}"
    if request.param == "postgres":
        url = str(request.getfixturevalue("postgres_store"))
    yield url
    assert broken_promises(url) == []


def test_every_route_of_the_application_is_written_down() -> None:
    pages = site_module._dashboard(FakeConsole(), lambda: BASE, api=True)
    routes = {
        f"{method} {route.path}"
        for route in pages
        if isinstance(route, Route)
        for method in route.methods or ()
        if method != "HEAD"
    }

    assert routes == {*PAGES, *PUBLIC}
    assert len(pages) == len([route for route in pages if isinstance(route, Route)])
    assert {f"{one.method} {one.path}": one.role for one in ENDPOINTS} == CALLS
    assert {f"GET /{name}" for name in Api(FakeConsole(), body_bytes_max=1)._pages} == {*DESCRIPTIONS}
    assert {"/login", "/login.css"} == gate.PUBLIC
    assert gate.PUBLIC_PREFIX == "/static/"
    assert set(LOGIN_PATHS) == {*gate.PUBLIC, "/logout"}


async def _status(site: Site, client: httpx.AsyncClient, name: str, headers: dict[str, str]) -> int:
    method, _, path = name.partition(" ")
    address = path
    for part, value in PARTS.items():
        address = address.replace(f"{{{part}}}", value)
    if method == "GET":
        asked = asyncio.create_task(client.get(address, headers=headers))
        while path in STREAMS and not asked.done():
            site.end_streams()
            await asyncio.sleep(0.01)
        return (await asked).status_code
    if not path.startswith(V1):
        return (await client.post(address, data={"request_id": "r"}, headers=headers)).status_code
    body = next((body for end, body in BODIES.items() if path.endswith(end)), {})
    return (await client.post(address, json=body, headers=headers)).status_code


@pytest.mark.anyio
async def test_each_route_is_for_those_who_may(store_url: str) -> None:
    app = make_shop(store_url)
    site = site_for(app, api=True, dashboard=True, cost=CHEAP)
    wrong: list[tuple[str, str, int]] = []
    async with app, httpx.AsyncClient(transport=httpx.ASGITransport(site), base_url=BASE) as client:
        accounts = accounts_of(app, cost=CHEAP)
        expired = accounts.add_token("expired", ADMIN, actor="test", lasts_ms=1)
        revoked = accounts.add_token("revoked", ADMIN, actor="test")
        accounts.revoke_token("revoked", actor="test")
        async with App(store_url, namespace="other") as other:
            elsewhere = accounts_of(other, cost=CHEAP).add_token("ci", ADMIN, actor="test")
        strangers = {"nobody": "", "expired": expired, "revoked": revoked, "another namespace's": elsewhere}
        roles = {role: accounts.add_token(role.value, role, actor="test") for role in Role}
        for name, needed in WHOLE.items():
            for who, token in [*strangers.items(), *roles.items()]:
                headers = {"Authorization": f"Bearer {token}"} if token else {}
                status = await _status(site, client, name, headers)
                if who in strangers:
                    is_right = status == 401
                elif RANK[Role(who)] < RANK[needed]:
                    is_right = status == 403
                else:
                    is_right = status not in (401, 403, 405) and status < 500
                if not is_right:
                    wrong.append((name, who, status))

    assert wrong == []
