"""What a person reads on the pages at night: what is found, what is cut off, what looks like something else."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from httpx import Client
from playwright.sync_api import Page, expect

from onceward.console.audit import said
from onceward.console.views import EventSummary
from onceward.console.views import Page as PageOf
from tests.dashboard.conftest import OpenPage, Serve
from tests.dashboard.everything import RUN_ID, everything
from tests.dashboard.filling import filled
from tests.dashboard.shop import Shop, shop_in
from tests.dashboard.stub import StubConsole

DESK = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}
LISTS = ("", "runs", "events", "deliveries", "sources", "workers", "audit")
CUT_OFF = "[...document.querySelectorAll('.scroll, .tile')].filter(e => e.scrollWidth > e.clientWidth).map(e => e.textContent.trim().slice(0, 60))"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def shop(request: pytest.FixtureRequest, tmp_path: Path, serve: Serve) -> Shop:
    is_sqlite = request.param == "sqlite"
    shop = shop_in(tmp_path) if is_sqlite else Shop(request.getfixturevalue("postgres_store"))
    shop.site = serve(shop.console)
    return shop


def test_the_search_finds_a_key_and_a_delivery(shop: Shop, client: Client) -> None:
    """ "What became of order 1042?" is asked by the number of the order, which is a key and no subject."""
    assert shop.site is not None
    run_id = shop.emit("order.ready", "cs_1", {"parcel": "1042"})
    found = client.get(f"{shop.site.url}search", params={"q": " 1042 "})
    assert run_id in found.text
    assert f'href="./runs/{run_id}"' in found.text
    assert 'runs?key=1042">1042</a>' in client.get(f"{shop.site.url}runs/{run_id}").text
    nothing = client.get(f"{shop.site.url}search", params={"q": "104"})
    assert "Nothing has exactly that" in nothing.text


def test_a_delivery_of_several_events_says_of_how_many(serve: Serve, client: Client) -> None:
    console = everything(str)
    shown = console.answers["deliveries"].items[0]
    for events, more in ((["one"], 0), ([str(number) for number in range(1_001)], 1_000)):
        row = msgspec.structs.replace(shown, event_id="evt_1", events=events)
        console.answers["deliveries"] = PageOf(items=[row])
        page = client.get(f"{serve(console).url}deliveries").text
        assert (f"and {more:,} more" in page) is bool(more)
        assert "evt_1</a>" in page


def test_the_id_of_a_delivery_leads_to_it(serve: Serve, client: Client) -> None:
    console = everything(str)
    console.answers["run"] = None

    async def no_run(run_id: str, generation: int | None = None) -> Any:
        from onceward.core.errors import NotFound

        raise NotFound(f"There is no run {run_id!r}.")

    console.run = no_run  # type: ignore[method-assign]
    reply = client.get(f"{serve(console).url}search", params={"q": "del_01m8"}, follow_redirects=False)

    assert (reply.status_code, reply.headers["location"]) == (303, "./deliveries/del_01m8")


def usual() -> StubConsole:
    """Give pages of lengths that are usual: what runs emit and start, long types, the ids of senders."""

    def text(name: str) -> str:
        known = {
            "subject": "sub_1PqRuV2eZvKYlo2CzXcVbNmA",
            "type": "customer.subscription.updated",
            "event_type": "customer.subscription.updated",
            "event_id": "044eda1b-5187-473b-9e18-dd7d381526a6",
            "host": "shop-7d9f8b6c5-x2v4q",
        }
        return known.get(name, name)

    console = everything(text)
    event: EventSummary = filled(EventSummary, text)
    events = [
        msgspec.structs.replace(event, source="github", id="044eda1b-5187-473b-9e18-dd7d381526a6"),
        msgspec.structs.replace(
            event, source="run/run_01m8nwgnfcf6m8gp6k6x8ayevc", id='[1,"print label","",1,"start"]'
        ),
    ]
    console.answers["events"] = PageOf(items=events)
    overview = console.answers["overview"]
    due = time.time_ns() // 1_000_000 - 9 * 60_000 - 59_000
    counts = msgspec.structs.replace(overview.counts, oldest_due_at=due)
    console.answers["overview"] = msgspec.structs.replace(overview, counts=counts)
    return console


@pytest.mark.parametrize("viewport", [DESK, PHONE], ids=["desk", "phone"])
def test_nothing_usual_is_cut_off(open_page: OpenPage, serve: Serve, viewport: Any) -> None:
    """When it came, why it failed and how long it took are seen without scrolling sideways."""
    site = serve(usual())
    page = open_page(viewport=viewport)
    cut = {}
    for path in LISTS:
        page.goto(site.url + path, wait_until="domcontentloaded")
        cut[path] = page.evaluate(CUT_OFF)

    assert {path: what for path, what in cut.items() if what} == {}


def shown(console: StubConsole, state: str, reason: str) -> StubConsole:
    """Give the console with its one run, and its list of one, in a state."""
    detail = console.answers["run"]
    run = msgspec.structs.replace(detail.run, state=state, reason=reason, failure=None)
    console.answers["run"] = msgspec.structs.replace(detail, run=run, failure=None)
    console.answers["runs"] = PageOf(items=[run])
    return console


def test_a_wait_is_not_shown_as_a_failure(open_page: OpenPage, serve: Serve) -> None:
    site = serve(shown(everything(str), "waiting", "waits for order.packed"))
    page = open_page()
    page.goto(f"{site.url}runs")

    expect(page.get_by_text("waits for order.packed")).to_be_visible()
    assert page.locator(".why").count() == 0


@pytest.mark.parametrize(
    ("state", "proposed"), [("waiting", ["Answer"]), ("queued", ["Answer"]), ("failed", ["Retry", "Answer"])]
)
def test_only_what_helps_is_proposed(
    open_page: OpenPage, serve: Serve, state: str, proposed: list[str]
) -> None:
    """A run that waits is not one to press "Retry" on; the stub allows every verb."""
    site = serve(shown(everything(str), state, ""))
    page = open_page()
    page.goto(f"{site.url}runs/{RUN_ID}")

    assert page.locator(".verbs .main").all_inner_texts() == proposed


def test_a_run_that_kills_its_process_says_behind_which_step(serve: Serve, client: Client) -> None:
    console = shown(everything(str), "held", "poison: its process was lost 4 times in a row")
    detail = console.answers["run"]
    site = serve(console)
    assert "Behind <code>label</code>" in client.get(f"{site.url}runs/{RUN_ID}").text
    steps = [msgspec.structs.replace(step, ended_at=None) for step in detail.steps]
    console.answers["run"] = msgspec.structs.replace(detail, steps=steps)
    assert "Before any step was saved" in client.get(f"{site.url}runs/{RUN_ID}").text


def test_what_was_done_to_many_is_said_in_words() -> None:
    reply = '{"bulk_id":"1","verb":"retry","is_dry_run":false,"matched":5,"done":4,"refused":1,"reasons":["it runs"]}'

    assert said(reply) == "4 of 5 done, 1 refused; it runs"
    assert said(reply[:-1] + ',"is_interrupted":true}') == "interrupted, 4 of 5 done, 1 refused; it runs"
    assert [said(text) for text in ("by a link", "5", '{"a": 1}', "\ud800")] == [
        "by a link",
        "5",
        '{"a": 1}',
        "\ud800",
    ]


def test_a_bulk_action_that_is_over_goes_on_no_more(open_page: OpenPage, serve: Serve) -> None:
    console = everything(str)
    site = serve(console)
    page: Page = open_page()
    page.goto(f"{site.url}bulk/ask?verb=retry&problems=1")
    page.get_by_role("button", name="Retry 2 runs").click()
    expect(page.locator("#progress")).to_contain_text("It goes on when you leave this page.")
    site.call(console.step.set)

    expect(page.locator("h1")).to_have_text("Retry many: done")
    expect(page.locator("#progress")).not_to_contain_text("It goes on")


def test_a_failure_that_is_alone_is_dismissed_by_itself(serve: Serve, client: Client) -> None:
    """What is done to all alike would reach those that fail while one looks."""
    site = serve(shown(everything(str), "failed", ""))
    page = client.get(f"{site.url}dead").text
    assert f'runs/{RUN_ID}/dismiss">Dismiss it</a>' in page
    assert "all like this" not in page
