"""The dashboard on PostgreSQL, in a real browser: it follows, and every button does what it does on SQLite."""

from __future__ import annotations

import re

import httpx
import pytest
from playwright.sync_api import expect

from tests.dashboard.conftest import OpenPage, Serve
from tests.dashboard.serving import Site
from tests.dashboard.shop import Shop
from tests.dashboard.test_acting import press
from tests.helpers import eventually

pytestmark = pytest.mark.postgres


def test_pages_follow_and_every_action_is_done(
    postgres_store: str, serve: Serve, open_page: OpenPage
) -> None:
    shop = Shop(postgres_store)
    site: Site = serve(shop.console)
    shop.site = site
    overview, page = open_page(), open_page()
    overview.goto(site.url)
    overview.wait_for_selector("[data-live-state=live]")

    # It follows, without a reload.
    paid = shop.emit("order.paid", "order-7")
    expect(overview.locator(".tile[data-state=failed] .tile-number")).to_have_text("1")

    shop.is_away = False
    page.goto(f"{site.url}runs/{paid}")
    press(page, "Retry")
    expect(page.locator("h1 .state")).to_have_text("completed")
    expect(overview.locator(".tile[data-state=failed] .tile-number")).to_have_text("0")
    press(page, "Restart")
    eventually(lambda: shop.charged == ["order-7"] * 2)
    expect(page.get_by_role("navigation", name="Generation")).to_be_visible()
    press(page, "Replay")
    eventually(lambda: shop.charged == ["order-7"] * 3)
    assert paid not in page.url

    slow = shop.emit("order.slow", "order-8")
    page.goto(f"{site.url}runs/{slow}")
    press(page, "Cancel")
    expect(page.locator("h1 .state")).to_have_text("cancelled")

    for answer, result in {"happened": '"label 9"', "did_not_happen": ""}.items():
        shop.is_away = True
        label = shop.emit("order.labelled", "order-9")
        expect(overview.locator(".tile[data-state=held] .tile-number")).to_have_text("1")
        shop.is_away = False
        page.goto(f"{site.url}runs/{label}")
        page.get_by_role("link", name="Answer it").click()
        page.get_by_role("radio", name=re.compile(f"^{answer} ")).check()
        if result:
            page.get_by_label("What it returned").fill(result)
        page.get_by_role("button", name="Answer it").click()
        expect(page.locator("h1 .state")).to_have_text("completed")
        expect(overview.locator(".tile[data-state=held] .tile-number")).to_have_text("0")
    assert shop.charged[-1] == "label of order-9"

    shop.is_away = True
    failed = shop.emit("order.paid", "order-11")
    page.goto(f"{site.url}runs/{failed}")
    press(page, "Dismiss")
    expect(overview.locator(".tile[data-state=failed] .tile-number")).to_have_text("0")

    async def deliver() -> int:
        transport = httpx.ASGITransport(app=shop.app.asgi())
        async with httpx.AsyncClient(transport=transport, base_url="http://shop.example") as client:
            return (await client.post("/hooks/carrier", content=b"parcel-1")).status_code

    assert shop.do(deliver()) == 202
    page.goto(f"{site.url}deliveries")
    page.locator("tr[data-row] a.open").first.click()
    shop.can_read = True
    page.get_by_role("button", name="Read it again").click()
    expect(page.locator(".notice.good")).to_contain_text("parcel-1")
