"""Every page for every eye: no serious finding of axe, readable in the dark, no wider than a phone."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from tests.dashboard.conftest import OpenPage, Serve
from tests.dashboard.everything import PAGES, everything

LONG = "a-rather-long-word-without-any-space-" * 4
PHONE = {"width": 360, "height": 740}
EXPECTED = "the server responded with a status of 4"  # two of the pages are refusals
LOOKED_AT = [
    path for path in PAGES if not path.endswith(("/restart", "/cancel", "/retry", "nowhere", "error=x"))
]
AXE = Axe().axe_script
WORST = {"serious", "critical"}


def findings(page: Page, within: str = "html", **options: Any) -> list[str]:
    """Give what axe calls serious or critical, each with the place; the page has axe in it."""
    # Nothing of ours plays or turns, and what axe loads beforehand is only for the two rules about that.
    asked = {"resultTypes": ["violations"], "iframes": False, "preload": False, **options}
    found = page.evaluate("([within, options]) => axe.run(within, options)", [within, asked])["violations"]
    return [
        f"{each['id']}: {each['nodes'][0]['html'][:200]} {each['nodes'][0]['failureSummary'][:200]}"
        for each in found
        if each["impact"] in WORST
    ]


def test_no_page_has_a_serious_finding_in_the_light_or_the_dark(open_page: OpenPage, serve: Serve) -> None:
    site = serve(everything(str))
    page = open_page(expects=EXPECTED)
    found = {}
    for path in LOOKED_AT:
        page.emulate_media(color_scheme="light")
        page.goto(site.url + path, wait_until="domcontentloaded")
        page.evaluate(AXE)
        page.evaluate("for (const details of document.querySelectorAll('details')) details.open = true")
        found[path] = findings(page)
        page.emulate_media(color_scheme="dark")
        # What stands around every page is looked at in the dark once; on the others the light has seen it.
        within = "html" if path == LOOKED_AT[0] else "main"
        found[f"{path} in the dark"] = findings(
            page, within, runOnly={"type": "rule", "values": ["color-contrast"]}
        )

    assert {path: complaints for path, complaints in found.items() if complaints} == {}


def test_axe_finds_what_is_wrong(open_page: OpenPage) -> None:
    page = open_page()
    page.set_content("<title>x</title><p style='color: #ccc'>pale</p><input><button></button>")
    page.evaluate(AXE)

    assert len(findings(page)) >= 3


def test_no_page_is_wider_than_a_phone(open_page: OpenPage, serve: Serve) -> None:
    """Tables scroll by themselves; the page does not, and every button can be hit with a thumb."""
    site = serve(everything(lambda name: f"{name}-{LONG}"))
    page = open_page(expects=EXPECTED, viewport=PHONE)
    widths, small = {}, {}
    for path in PAGES:
        page.goto(site.url + path, wait_until="domcontentloaded")
        widths[path] = page.evaluate("document.documentElement.scrollWidth")
        small[path] = page.evaluate(
            "[...document.querySelectorAll('a.button, button, .chips a')].map(e => [e.textContent, e.getBoundingClientRect()])"
            ".filter(([, box]) => box.height && box.height < 24).map(([text]) => text)"
        )

    assert {path: width for path, width in widths.items() if width > PHONE["width"]} == {}
    assert {path: texts for path, texts in small.items() if texts} == {}


def test_a_phone_shows_of_a_notice_whether_it_was_told_and_why_not(open_page: OpenPage, serve: Serve) -> None:
    """Without a finger on the table; and the page does not move."""
    console = everything(str)
    notices = console.answers["notices"]
    trouble = "it answered 503 Service Unavailable"
    latest = [
        msgspec.structs.replace(
            notices.latest[0],
            run_id=f"run_01m8nxgbr0f4ca1xptepatceq{number}",
            workflow="fulfil_orders_of_the_shop",
            type="run.failed",
            address="https://alerts.a-rather-long-name.example.com",
            state=state,
            trouble=trouble,
        )
        for number, state in enumerate(["owed", "given_up"])
    ]
    console.answers["notices"] = msgspec.structs.replace(notices, latest=latest)
    page = open_page(viewport=PHONE)
    page.goto(f"{serve(console).url}workers", wait_until="domcontentloaded")

    cells = page.get_by_role("cell", name=trouble).all()
    boxes = [cell.bounding_box() for cell in cells]
    assert [box["x"] + box["width"] <= PHONE["width"] for box in boxes if box] == [True, True]
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]


def test_pages_work_without_javascript(open_page: OpenPage, serve: Serve) -> None:
    site = serve(everything(str))
    page = open_page(java_script_enabled=False)
    page.goto(site.url)
    page.get_by_role("link", name="Runs", exact=True).click()
    page.locator("a.open").first.click()
    page.get_by_role("link", name="Retry").click()
    page.get_by_role("button", name="Retry it").click()
    page.wait_for_url("**/runs/*?did=retry*")

    assert page.locator(".notice.good").inner_text().strip() == "Retrying: saved steps are kept."


def test_the_theme_is_kept_and_the_next_page_comes_in_it(open_page: OpenPage, serve: Serve) -> None:
    site = serve(everything(str))
    page = open_page(color_scheme="light")
    page.goto(site.url)
    light = page.evaluate("getComputedStyle(document.body).color")
    page.get_by_role("button", name="Switch between light and dark").click()
    page.goto(f"{site.url}runs")

    assert page.get_attribute("html", "data-theme") == "dark"
    assert page.evaluate("getComputedStyle(document.body).color") != light


@pytest.mark.parametrize("theme", ["dark; onceward_x=1", "<script>", "sepia"])
def test_a_cookie_is_no_way_into_the_page(open_page: OpenPage, serve: Serve, theme: str) -> None:
    site = serve(everything(str))
    page = open_page(extra_http_headers={"Cookie": f"onceward_theme={theme}"})
    page.goto(site.url)

    assert page.get_attribute("html", "data-theme") in (None, "dark")
    assert "<script>" not in page.content().replace('<script type="module"', "")


def test_a_run_can_be_printed(open_page: OpenPage, serve: Serve) -> None:
    site = serve(everything(str))
    page = open_page()
    page.goto(site.url + next(path for path in PAGES if path.startswith("runs/")))
    page.emulate_media(media="print")

    assert page.locator("#timeline").is_visible()
    assert not page.locator("nav").first.is_visible()
    assert not page.locator(".verbs").is_visible()
