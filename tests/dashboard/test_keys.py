"""The keyboard: everything can be reached, nothing acts by a slip of a finger."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.dashboard.conftest import OpenPage, Serve
from tests.dashboard.everything import everything


@pytest.fixture
def page(open_page: OpenPage, serve: Serve) -> Page:
    """The list of runs."""
    page = open_page()
    page.goto(f"{serve(everything(str)).url}runs")
    return page


def test_a_slash_searches_and_escape_leaves(page: Page) -> None:
    page.keyboard.press("/")
    expect(page.locator("#search")).to_be_focused()
    page.keyboard.type("gr/?j")  # text, and no shortcut

    expect(page.locator("#search")).to_have_value("gr/?j")
    page.keyboard.press("Escape")
    expect(page.locator("#search")).not_to_be_focused()


def test_j_and_k_move_and_enter_opens(page: Page) -> None:
    for key in "jjjk":
        page.keyboard.press(key)
    second = page.locator("tr[data-row]").nth(1)
    expect(second.locator("a.open")).to_be_focused()
    page.keyboard.press("x")
    expect(second.locator("input[name=run]")).to_be_checked()

    page.locator("tr[data-row]").nth(1).locator("a.open").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs/0192*")


@pytest.mark.parametrize(
    ("key", "path"), [("o", ""), ("d", "dead"), ("e", "events"), ("s", "sources"), ("w", "workers")]
)
def test_g_goes(page: Page, key: str, path: str) -> None:
    page.keyboard.press("g")
    page.keyboard.press(key)

    page.wait_for_url(f"**/deep/ops/{path}")


def test_a_question_mark_shows_the_keys(page: Page) -> None:
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")

    expect(page.get_by_role("dialog")).not_to_be_visible()


def test_the_first_tab_skips_to_the_content(page: Page) -> None:
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")

    expect(page.locator("main")).to_be_focused()


def test_what_has_the_focus_can_be_seen(page: Page) -> None:
    page.keyboard.press("j")

    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_a_step_opens_by_key(page: Page) -> None:
    page.locator("a.open").first.click()
    page.wait_for_url("**/runs/0192*")  # and until its scripts are there
    page.keyboard.press("j")
    page.keyboard.press("Enter")

    expect(page.locator("details.step").first).to_have_attribute("open", "")
