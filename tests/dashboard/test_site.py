"""The whole site in a real browser: nobody looks in without a login, and then everything works."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn
from playwright.sync_api import expect

from onceward.web.access import Role
from onceward.web.auth.passwords import Cost
from onceward.web.site import accounts_of, site_for
from tests.dashboard.conftest import OpenPage
from tests.dashboard.serving import Site
from tests.dashboard.shop import Shop, shop_in
from tests.helpers import eventually

PASSWORD = "a long one from a password manager"
CHEAP = Cost(2, 1, 1)


class Served(Site):
    """The app as ``onceward serve`` would have it, with one operator."""

    def __init__(self, shop: Shop) -> None:
        self.principal = None
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/"
        self._shop = shop
        self._thread = threading.Thread(target=self._run, name="site-of-a-test")
        app = site_for(shop.app, api=True, dashboard=True, cost=CHEAP)
        self._server = uvicorn.Server(
            uvicorn.Config(app, log_level="warning", lifespan="on", timeout_graceful_shutdown=1)
        )

    def _run(self) -> None:
        async def main() -> None:
            self.loop = asyncio.get_running_loop()
            await self._server.serve(sockets=[self._socket])

        asyncio.run(main())


@pytest.fixture
def shop(tmp_path: Path, serve: object) -> Iterator[Shop]:
    shop = shop_in(tmp_path)
    with Served(shop) as site:
        shop.site = site

        async def add() -> None:
            accounts = accounts_of(shop.app, cost=CHEAP)
            await asyncio.to_thread(accounts.add_user, "ann", Role.OPERATOR, PASSWORD, actor="test")

        shop.do(add())
        yield shop


def test_a_person_logs_in_acts_and_logs_out(shop: Shop, open_page: OpenPage) -> None:
    assert shop.site
    run_id = shop.emit("order.paid", "order-7")
    shop.is_away = False
    page = open_page(expects="the server responded with a status of 401")
    page.goto(f"{shop.site.url}runs/{run_id}")
    page.get_by_label("Name").fill("ann")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button").first.click()
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button").first.click()
    page.wait_for_url(f"**/runs/{run_id}")  # where they wanted to go
    page.wait_for_selector("[data-live-state=live]")
    page.get_by_role("link", name="Retry", exact=True).click()
    page.get_by_role("button", name="Retry it").click()
    expect(page.locator("h1 .state")).to_have_text("completed")
    expect(page.locator("#kin")).to_contain_text("ann")

    page.get_by_role("button", name="Log out").click()
    page.goto(shop.site.url)
    page.wait_for_url("**/login*")
    eventually(lambda: shop.charged == ["order-7"])


def test_a_session_that_ended_elsewhere_stops_an_open_page(shop: Shop, open_page: OpenPage) -> None:
    assert shop.site
    page = open_page(expects="the server responded with a status of 401")
    page.goto(f"{shop.site.url}workers")
    page.get_by_label("Name").fill("ann")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button").first.click()
    page.wait_for_selector("[data-live-state=live]")
    page.context.clear_cookies()
    shop.emit("order.paid", "order-7")

    expect(page.locator("[data-live-text]")).to_have_text("log in")
