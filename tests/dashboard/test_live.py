"""Live: pages follow the store without a reload, and keep what their reader is doing."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from playwright.sync_api import expect

from onceward.core.errors import NotFound
from tests.dashboard.conftest import OpenPage, Serve
from tests.dashboard.everything import everything
from tests.dashboard.shop import Shop, shop_in


@pytest.fixture
def shop(tmp_path: Path, serve: Serve) -> Shop:
    shop = shop_in(tmp_path)
    shop.site = serve(shop.console)
    return shop


def test_the_overview_and_the_lists_follow(shop: Shop, open_page: OpenPage) -> None:
    assert shop.site
    first, second = open_page(), open_page()
    first.goto(shop.site.url)
    second.goto(f"{shop.site.url}runs")
    expect(second.locator("main")).to_contain_text("No runs yet")
    for page in (first, second):
        page.wait_for_selector("[data-live-state=live]")
        page.evaluate("window.__same = true")
    shop.emit("order.paid", "order-7")

    expect(first.locator(".tile[data-state=failed] .tile-number")).to_have_text("1")
    expect(second.locator("tr[data-row]")).to_have_count(1)
    assert first.evaluate("window.__same")
    assert second.evaluate("window.__same")


def test_what_is_open_ticked_and_focused_stays_and_nothing_jumps(open_page: OpenPage, serve: Serve) -> None:
    console = everything(str)
    site = serve(console)
    page = open_page(viewport={"width": 1200, "height": 600})
    page.goto(site.url + "runs")
    page.wait_for_selector("[data-live-state=live]")
    third = page.locator("tr[data-row]").nth(2)
    third.locator("input[name=run]").check()
    third.locator("a.open").focus()
    row = third.get_attribute("id")
    runs = console.answers["runs"]
    newest = msgspec.structs.replace(runs.items[0], run_id="run_new")
    console.answers["runs"] = msgspec.structs.replace(runs, items=[newest, *runs.items])
    site.call(console.change)
    page.wait_for_selector("#row-run_new")

    expect(page.locator(f"#{row} a.open")).to_be_focused()
    expect(page.locator(f"#{row} input[name=run]")).to_be_checked()
    expect(page.locator("#row-run_new input[name=run]")).not_to_be_checked()


def test_an_open_step_stays_open_while_the_run_goes_on(open_page: OpenPage, serve: Serve) -> None:
    console = everything(str)
    run = msgspec.structs.replace(console.answers["run"].run, ended_at=1)  # the head keeps its height
    detail = console.answers["run"] = msgspec.structs.replace(console.answers["run"], run=run)
    site = serve(console)
    page = open_page(viewport={"width": 1200, "height": 600})
    page.goto(f"{site.url}runs/{console.answers['run'].run.run_id}")
    page.wait_for_selector("[data-live-state=live]")
    page.locator("details.step > summary").nth(1).click()
    page.evaluate("window.scrollTo(0, 300)")
    console.answers["run"] = msgspec.structs.replace(
        detail, run=msgspec.structs.replace(detail.run, state="completed"), output={"fresh": "output"}
    )
    site.call(console.change)
    expect(page.locator("h1 .state")).to_have_text("completed")

    expect(page.locator("details.step").nth(1)).to_have_attribute("open", "")
    assert page.evaluate("window.scrollY") == 300
    expect(page.locator("#data")).to_contain_text("fresh")


def test_a_session_that_is_over_stops_the_page_and_says_so(open_page: OpenPage, serve: Serve) -> None:
    console = everything(str)
    site = serve(console)
    page = open_page(expects="the server responded with a status of 4")
    page.goto(site.url + "workers")
    page.wait_for_selector("[data-live-state=live]")
    console.refuses = NotFound("gone")
    site.call(console.change)

    expect(page.locator("[data-live-text]")).to_have_text("stopped")
    expect(page.locator("h1")).to_have_text("Workers and leases")  # what was seen stays


def test_a_bulk_action_shows_how_far_it_is(open_page: OpenPage, serve: Serve) -> None:
    console = everything(str)
    site = serve(console)
    page = open_page()
    page.goto(f"{site.url}bulk/ask?verb=retry&problems=1")
    page.get_by_role("button", name="Retry 2 runs").click()
    expect(page.locator("h1")).to_have_text("Retry many: under way")
    site.call(console.step.set)

    expect(page.locator("h1")).to_have_text("Retry many: done")
    expect(page.locator("#progress")).to_contain_text("2 runs")
