"""A site over a store in memory, with users, tokens and a browser that behaves like one."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import httpx
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from onceward.core.ids import IdSource
from onceward.core.ports import Store
from onceward.web.access import Role
from onceward.web.address import Proxies
from onceward.web.api.server import Api
from onceward.web.auth.accounts import Accounts
from onceward.web.auth.guard import Guard, field_of
from onceward.web.auth.hosts import Hosts
from onceward.web.auth.passwords import Cost
from onceward.web.receiver import Receiver
from onceward.web.site import Site
from tests.stores.factories import Factory, SqliteMemory
from tests.web.fake_console import FakeConsole
from tests.web.fake_intake import FakeIntake

CHEAP = Cost(n=2, r=1, p=1)
PASSWORD = "correct horse battery"
BASE = "http://127.0.0.1:8000"
SAME_SITE = {"Origin": BASE, "Sec-Fetch-Site": "same-origin"}


async def inline(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)


async def _page(request: Request) -> Response:
    said = field_of(await request.body(), "said")
    return PlainTextResponse(f"page {request.url.path} {said}")


PAGES: list[BaseRoute] = [
    Route("/", _page),
    Route("/static/v1/app.css", _page),
    Route("/runs/{run_id}", _page, methods=["GET", "POST"]),
]


class World:
    """Everything of a site, in one process and one event loop.

    Args:
        factory: of the store.
        hosts: the setting ``allowed_hosts``.
        proxies: the setting ``trusted_proxies``.
        pages: whether there is a dashboard.
    """

    def __init__(
        self,
        factory: Factory | None = None,
        *,
        hosts: str | None = None,
        proxies: str | None = None,
        pages: bool = True,
    ) -> None:
        self.factory = factory or SqliteMemory()
        self.store: Store = self.factory.open()
        self.intake = FakeIntake()
        self.console = FakeConsole()
        self.now = self.factory.now
        self.accounts = self.accounts_on(self.store)
        self.guard = Guard(
            lambda: self.accounts,
            inline,
            hosts=Hosts(hosts, listening="127.0.0.1"),
            proxies=Proxies(proxies),
            cookie="onceward_test",
            form_bytes_max=10_000,
        )
        self.api = Api(self.console, body_bytes_max=10_000)
        self.site = Site(Receiver(self.intake), self.guard, api=self.api, pages=PAGES if pages else None)

    def accounts_on(self, store: Store) -> Accounts:
        ids = IdSource(now_ms=lambda: self.now, random_bytes=os.urandom)
        return Accounts(
            store,
            now_ms=lambda: self.now,
            new_id=lambda: str(ids.uuid7()),
            random_bytes=os.urandom,
            cost=CHEAP,
        )

    def token(self, role: Role | str = Role.OPERATOR, name: str = "", **how: Any) -> dict[str, str]:
        """Make a token; give the header that shows it."""
        text = self.accounts.add_token(name or f"{role}-token", Role(role), actor="test", **how)
        return {"Authorization": f"Bearer {text}"}

    def user(self, name: str = "ann", role: Role | str = Role.OPERATOR) -> None:
        self.accounts.add_user(name, Role(role), PASSWORD, actor="test")

    def client(self, app: Any = None, base: str = BASE, **how: Any) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(app or self.site, client=("127.0.0.1", 50_000), **how)
        return httpx.AsyncClient(transport=transport, base_url=base)

    async def browser(self, name: str = "ann", role: Role | str = Role.OPERATOR) -> Browser:
        """Give a browser in which a user has just logged in."""
        self.user(name, role)
        browser = Browser(self)
        reply = await browser.log_in(name)
        assert reply.status_code == 303, reply.text
        return browser

    def verbs(self) -> list[str]:
        """Give what the audit tells of, leaving out what made the world."""
        rows = sorted(self.store.audits(""), key=lambda row: row.audit_id)
        return [row.verb for row in rows if row.actor != "test"]

    def close(self) -> None:
        self.factory.close()


class Browser:
    """Keeps cookies, and says where a request comes from."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.client = world.client()
        self.csrf = ""

    async def log_in(
        self, name: str = "ann", password: str = PASSWORD, headers: dict[str, str] | None = None, **more: str
    ) -> httpx.Response:
        fields = {"name": name, "password": password, **more}
        reply = await self.client.post(
            "/login", data=fields, headers=SAME_SITE if headers is None else headers
        )
        principal = self.world.accounts.by_cookie(self.cookie)
        self.csrf = principal.csrf if principal else ""
        return reply

    @property
    def cookie(self) -> str:
        return self.client.cookies.get("onceward_test") or ""

    async def get(self, path: str, **headers: str) -> httpx.Response:
        return await self.client.get(path, headers={"Accept": "text/html", **headers})

    async def post(
        self, path: str, data: dict[str, str] | None = None, headers: dict[str, str] | None = None
    ) -> httpx.Response:
        fields = {"csrf": self.csrf} if data is None else data
        return await self.client.post(path, data=fields, headers=SAME_SITE if headers is None else headers)
