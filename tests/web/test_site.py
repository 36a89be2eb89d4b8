"""The whole site over a real app: a delivery comes in, people and programs look and act."""

from __future__ import annotations

import asyncio
import contextlib
import html
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount, Route

from onceward import App, Context, Event, Permanent
from onceward.runtime.clock import wall_ms
from onceward.sources import Stripe
from onceward.web import site as site_module
from onceward.web.access import Role
from onceward.web.auth.guard import field_of
from onceward.web.auth.headers import HEADERS
from onceward.web.site import Site, accounts_of, site_for
from tests.engine.conftest import broken_promises
from tests.helpers import eventually_async
from tests.web.fake_console import NASTY
from tests.web.site_world import BASE, CHEAP, PASSWORD, SAME_SITE

SECRET = "whsec_site_0123456789"
V1 = "/api/v1"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty store, of each kind in turn; its invariants are checked afterwards."""
    if request.param == "postgres":
        url = str(request.getfixturevalue("postgres_store"))
    else:
        url = f"sqlite:///{tmp_path / 'store.db'}"
    yield url
    assert broken_promises(url) == []


def make_shop(url: str) -> App:
    app = App(url, poll="20ms", linger="0s")
    stripe = app.source(Stripe(secrets=[SECRET]))
    asked: list[str] = []

    @app.workflow(on=stripe["invoice.paid"])
    async def fulfil(ctx: Context, event: Event) -> str:
        asked.append(event.id)
        if len(asked) < 2:
            raise Permanent(NASTY)
        return NASTY

    return app


@contextlib.asynccontextmanager
async def served(app: App, web: Any = None, base: str = BASE) -> AsyncIterator[httpx.AsyncClient]:
    """Give a client of the site while the app is open."""
    site = web or site_for(app, api=True, dashboard=True, cost=CHEAP)
    async with app, httpx.AsyncClient(transport=httpx.ASGITransport(site), base_url=base) as client:
        accounts_of(app, cost=CHEAP).add_user("ann", Role.OPERATOR, PASSWORD, actor="test")
        client.headers["Authorization"] = "Bearer " + accounts_of(app).add_token(
            "ci", Role.OPERATOR, actor="test"
        )
        yield client


async def deliver(client: httpx.AsyncClient, prefix: str = "") -> str:
    """Send a delivery; give the id of its run."""
    body = b'{"id": "evt_1", "type": "invoice.paid", "note": "<script>alert(1)</script>"}'
    headers = Stripe(secrets=[SECRET]).sign(body, wall_ms())
    reply = await client.post(f"{prefix}/hooks/stripe", content=body, headers=headers)
    assert reply.status_code == 202, reply.text
    return str(reply.json()["events"][0]["runs"][0])


async def state_of(client: httpx.AsyncClient, run_id: str, prefix: str = "") -> str:
    reply = await client.get(f"{prefix}{V1}/runs/{run_id}")
    return str(reply.json()["run"]["state"])


async def becomes(client: httpx.AsyncClient, run_id: str, state: str, prefix: str = "") -> None:
    async def is_so() -> bool:
        return await state_of(client, run_id, prefix) == state

    await eventually_async(is_so, what=f"{run_id} to be {state}")


@pytest.mark.anyio
async def test_a_program_finds_and_retries_what_failed(store_url: str) -> None:
    app = make_shop(store_url)
    async with served(app) as client:
        run_id = await deliver(client)
        await becomes(client, run_id, "failed")
        problems = (await client.get(f"{V1}/runs?problems=true")).json()["items"]
        plan = await client.get(f"{V1}/runs/{run_id}/plan?verb=retry")
        done = await client.post(f"{V1}/runs/{run_id}/retry", json={}, headers={"Idempotency-Key": "k1"})
        again = await client.post(f"{V1}/runs/{run_id}/retry", json={}, headers={"Idempotency-Key": "k1"})
        await becomes(client, run_id, "completed")
        late = await client.post(f"{V1}/runs/{run_id}/retry", json={})
        event = await client.get(f"{V1}/events/stripe/evt_1")
        audit = (await client.get(f"{V1}/audit")).json()["items"]

    assert [one["run_id"] for one in problems] == [run_id]
    assert [plan.status_code, done.status_code, again.status_code] == [200] * 3
    assert plan.json()["verb"] == "retry"
    assert [done.json()["is_duplicate"], again.json()["is_duplicate"]] == [False, True]
    assert (late.status_code, late.json()["code"]) == (409, "state_conflict")
    assert event.json()["payload"]["note"] == "<script>alert(1)</script>"
    assert [(one["verb"], one["actor"]) for one in audit if one["run_id"]] == [("retry", "token:ci")]
    assert {one["verb"] for one in audit if not one["run_id"]} == {"user_added", "token_added"}


@pytest.mark.anyio
@pytest.mark.parametrize(
    "query", [{"workflow": "a\0"}, {"tag": "a\0"}, {"event_id": "e"}, {"error": "card", "state": "queued"}]
)
async def test_a_bulk_action_of_what_cannot_be_looked_for_does_not_begin(
    tmp_path: Path, query: dict[str, str]
) -> None:
    app = make_shop(f"sqlite:///{tmp_path / 'store.db'}")
    asked = {"query": query, "action": {"verb": "retry"}, "dry_run": False, "request_id": "monday"}
    async with served(app) as client:
        reply = await client.post(f"{V1}/runs/bulk", json=asked)
        progress = await client.get(f"{V1}/bulk/monday")

    assert (reply.status_code, reply.json()["code"], progress.status_code) == (400, "config", 404)


@pytest.mark.anyio
async def test_a_restart_that_would_do_something_outside_again_takes_its_plan(store_url: str) -> None:
    app = App(store_url, poll="20ms", linger="0s")
    charged: list[str] = []

    @app.step(effect="outside")
    async def charge(order: str) -> str:
        charged.append(order)
        return order

    @app.workflow
    async def order(ctx: Context, name: str) -> str:
        return await charge(name)

    async with served(app) as client:
        run_id = (await app.start(order, "o1")).run_id
        await becomes(client, run_id, "completed")
        refused = await client.post(f"{V1}/runs/{run_id}/restart", json={})
        plan = (await client.get(f"{V1}/runs/{run_id}/plan?verb=restart")).json()
        kept = (await client.get(f"{V1}/runs/{run_id}/plan?verb=restart&keep=charge")).json()
        stale = await client.post(f"{V1}/runs/{run_id}/restart", json={"plan": kept["token"]})
        done = await client.post(f"{V1}/runs/{run_id}/restart", json={"plan": plan["token"]})
        await becomes(client, run_id, "completed")

    assert (refused.status_code, refused.json()["code"]) == (409, "plan_needed")
    assert refused.json()["plan"]["token"] == plan["token"]
    assert plan["outside_again"] == ["charge"]
    assert kept["outside_again"] == []
    assert stale.status_code == 409
    assert done.status_code == 200
    assert charged == ["o1", "o1"]


@pytest.mark.anyio
async def test_a_person_logs_in_looks_and_acts(store_url: str) -> None:
    app = make_shop(store_url)
    async with served(app) as client:
        run_id = await deliver(client)
        await becomes(client, run_id, "failed")
        bearer = client.headers.pop("Authorization")
        first = await client.get("/", headers={"Accept": "text/html"})
        done = await client.post("/login", data={"name": "ann", "password": PASSWORD}, headers=SAME_SITE)
        pages = {
            path: await client.get(path)
            for path in (
                "/",
                "/runs",
                f"/runs/{run_id}",
                "/event?source=stripe&id=evt_1",
                "/deliveries",
                "/dead",
            )
        }
        ask = await client.get(f"/runs/{run_id}/retry")
        without = await client.post(f"/runs/{run_id}/retry", data={}, headers=SAME_SITE)
        fields = dict(hidden_fields(ask.text))
        acted = await client.post(f"/runs/{run_id}/retry", data=fields, headers=SAME_SITE)
        client.headers["Authorization"] = bearer
        await becomes(client, run_id, "completed")
        audit = (await client.get(f"{V1}/audit")).json()["items"]

    assert (first.status_code, first.headers["location"]) == (303, "./login?next=%2F")
    assert done.status_code == 303
    assert {path: page.status_code for path, page in pages.items()} == dict.fromkeys(pages, 200)
    assert not any("<script>alert" in page.text for page in pages.values())
    assert without.status_code == 403
    assert acted.status_code == 303, acted.text
    assert [(one["verb"], one["actor"]) for one in audit if one["run_id"]] == [("retry", "ann")]
    assert PASSWORD not in repr(audit)


def hidden_fields(page: str) -> Iterator[tuple[str, str]]:
    """Give the hidden fields of the first form that carries the session's secret."""
    for form in re.findall(r"<form[^>]*>.*?</form>", page, re.DOTALL):
        fields = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', form)
        if "csrf" in dict(fields) and "logout" not in form[:200]:
            yield from fields
            return


@pytest.mark.anyio
async def test_commands_on_pages_name_the_address_that_is_configured(tmp_path: Path) -> None:
    app = make_shop(f"sqlite:///{tmp_path / 'store.db'}")
    app.configure(host="127.0.0.1", port=9123)
    async with served(app) as client:
        for page in ("runs", "events", "deliveries"):
            reply = await client.get(f"/{page}")
            assert "--to http://127.0.0.1:9123/hooks/stripe" in html.unescape(reply.text)


@pytest.mark.anyio
@pytest.mark.parametrize("way", ["mounted", "stripped", "told"])
async def test_the_whole_works_below_a_prefix(tmp_path: Path, way: str) -> None:
    app = make_shop(f"sqlite:///{tmp_path / 'store.db'}")
    site: Any = site_for(app, api=True, dashboard=True, cost=CHEAP)
    prefix = "" if way == "stripped" else "/ops"
    web: Any = site
    if way == "mounted":
        web = Starlette(routes=[Mount("/ops", site)])
    elif way == "told":

        async def told(scope: Any, receive: Any, send: Any) -> None:
            await site({**scope, "root_path": "/ops"}, receive, send)

        web = told
    async with served(app, web) as client:
        run_id = await deliver(client, prefix)
        await becomes(client, run_id, "failed", prefix)
        bearer = client.headers.pop("Authorization")
        sent = await client.get(f"{prefix}/runs/{run_id}", headers={"Accept": "text/html"})
        login = sent.url.join(sent.headers["location"])
        fields = {"name": "ann", "password": PASSWORD, "next": field_of(login.query, "next")}
        done = await client.post(login.copy_with(query=None), data=fields, headers=SAME_SITE)
        page = await client.get(login.join(done.headers["location"]))
        absolute = re.findall(r'(?:href|src|action|data-[a-z]+)="(/[^"]*)"', page.text)
        client.headers["Authorization"] = bearer

    assert page.status_code == 200
    assert page.url.path == f"{prefix}/runs/{run_id}"
    assert absolute == []


def routes_of_dashboard(app: App) -> list[Route]:
    pages = site_module._dashboard(object(), lambda: BASE, api=True)  # type: ignore[arg-type]
    return [route for route in pages if isinstance(route, Route)]


@pytest.mark.anyio
async def test_every_page_of_the_dashboard_is_shut_to_strangers(tmp_path: Path) -> None:
    app = make_shop(f"sqlite:///{tmp_path / 'store.db'}")
    async with served(app) as client:
        run_id = await deliver(client)
        client.headers.pop("Authorization")
        told = {}
        for route in routes_of_dashboard(app):
            path = route.path.replace("{page:str}", "runs")
            for name in route.param_convertors:
                path = path.replace(f"{{{name}}}", run_id if name == "run_id" else "retry")
            for method in sorted(route.methods or ()):
                reply = await client.request(method, path)
                told[f"{method} {route.path}"] = reply.status_code
                missing = [name for name, value in HEADERS if name.decode() not in reply.headers]
                assert missing == [], path

    open_to_all = {path: status for path, status in told.items() if status != 401}
    assert open_to_all.keys() == {"GET /static/{version}/{name}", "HEAD /static/{version}/{name}"}
    assert len(told) > 20


@pytest.mark.anyio
async def test_a_viewer_looks_and_changes_nothing(tmp_path: Path) -> None:
    app = make_shop(f"sqlite:///{tmp_path / 'store.db'}")
    async with served(app) as client:
        run_id = await deliver(client)
        await becomes(client, run_id, "failed")
        bearer = client.headers.pop("Authorization")
        made = accounts_of(app, cost=CHEAP)
        made.add_user("vic", Role.VIEWER, PASSWORD, actor="test")
        await client.post("/login", data={"name": "vic", "password": PASSWORD}, headers=SAME_SITE)
        cookie = next(iter(client.cookies.values()))
        who = made.by_cookie(cookie)
        assert who is not None
        fields = {"csrf": who.csrf, "request_id": "r1"}
        looked = await client.get(f"/runs/{run_id}")
        posts = [
            (await client.post(path, data=fields, headers=SAME_SITE)).status_code
            for path in (f"/runs/{run_id}/retry", "/bulk", f"/deliveries/{run_id}")
        ]
        client.headers["Authorization"] = bearer
        state = await state_of(client, run_id)

    assert looked.status_code == 200
    assert posts == [403] * 3
    assert state == "failed"


@pytest.mark.anyio
async def test_parts_can_be_left_out(tmp_path: Path) -> None:
    told: dict[str, list[int]] = {}
    for name, api, dashboard in (("api", True, False), ("dashboard", False, True), ("none", False, False)):
        app = make_shop(f"sqlite:///{tmp_path / name}.db")
        web = app.asgi(api=api, dashboard=dashboard)
        assert isinstance(web, Site) == (api or dashboard)
        async with served(app, web) as client:
            paths = (f"{V1}/counts", "/", "/login", "/login.css", "/healthz")
            told[name] = [(await client.get(path)).status_code for path in paths]

    assert told == {
        "api": [200, 404, 404, 404, 200],
        "dashboard": [404, 200, 200, 200, 200],
        "none": [404, 404, 404, 404, 200],
    }


@pytest.mark.anyio
async def test_the_sites_lifespan_opens_and_closes_the_app(tmp_path: Path) -> None:
    app = make_shop(f"sqlite:///{tmp_path / 'store.db'}")
    site = app.asgi(api=True, dashboard=True)
    stages: asyncio.Queue[str] = asyncio.Queue()
    sent: list[Any] = []

    async def receive() -> dict[str, str]:
        return {"type": f"lifespan.{await stages.get()}"}

    async def send(message: Any) -> None:
        sent.append((message["type"], app.is_open))

    stages.put_nowait("startup")
    task = asyncio.create_task(site({"type": "lifespan"}, receive, send))
    await eventually_async(lambda: asyncio.sleep(0, bool(sent)))
    stages.put_nowait("shutdown")
    await task

    assert sent == [("lifespan.startup.complete", True), ("lifespan.shutdown.complete", False)]


@pytest.mark.anyio
async def test_streams_end_when_the_server_stops(tmp_path: Path) -> None:
    app = make_shop(f"sqlite:///{tmp_path / 'store.db'}")
    site = site_for(app, api=True, dashboard=True, cost=CHEAP)
    async with served(app, site) as client:
        asked = [asyncio.create_task(client.get(path)) for path in (f"{V1}/changes", "/live")]
        await eventually_async(lambda: asyncio.sleep(0, len(site._gate._streams) == 2))

        site.end_streams()
        replies = await asyncio.gather(*asked)

    assert [reply.status_code for reply in replies] == [200, 200]
    assert all("event: open" in reply.text for reply in replies)
    assert site._gate._streams == set()


@pytest.mark.anyio
async def test_who_completes_a_promise_needs_no_login(tmp_path: Path) -> None:
    app = make_shop(f"sqlite:///{tmp_path / 'store.db'}")
    async with served(app) as client:
        client.headers.pop("Authorization")
        reply = await client.post("/promises/nonsense", json={}, headers={"Host": "any.example"})

    assert reply.status_code not in (401, 403, 421, 500)
    assert "content-security-policy" not in reply.headers
