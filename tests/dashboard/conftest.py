"""A real browser, and pages that fail their test at any error, violation or request to elsewhere."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import Browser, ConsoleMessage, Dialog, Page, Request, expect, sync_playwright

from tests.dashboard.serving import Site

LOAD_MS = 15_000
expect.set_options(timeout=LOAD_MS)

OpenPage = Callable[..., Page]
Serve = Callable[[Any], Site]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The machine's Chromium; scripts/services.sh installs it. For one module, since it keeps a loop."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert program, "Chromium is not on this machine: run scripts/services.sh"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Serve the dashboard of a console; stopped after the pages are closed, which watch it."""
    with contextlib.ExitStack() as sites:
        yield lambda console: sites.enter_context(Site(console))


@pytest.fixture(scope="session")
def client() -> Iterator[httpx.Client]:
    """A client that is no browser; patient, since the machine may be busy."""
    with httpx.Client(timeout=60) as client:
        yield client


@pytest.fixture
def open_page(browser: Browser, serve: object) -> Iterator[OpenPage]:
    """Open watched pages: options as of Playwright's ``new_context``."""
    contexts = []
    complaints: list[str] = []
    expected: list[str] = []

    def open_one(*, expects: str = "", **options: Any) -> Page:
        context = browser.new_context(**options)
        context.set_default_timeout(LOAD_MS)
        contexts.append(context)
        if expects:
            expected.append(expects)
        page = context.new_page()
        watch(page, complaints)
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert [each for each in complaints if not any(text in each for text in expected)] == []


def watch(page: Page, complaints: list[str]) -> None:
    """Note what no page of ours may do."""

    def told(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):  # a violated policy is told as an error
            complaints.append(f"{message.type} at {page.url}: {message.text}")

    def asked(request: Request) -> None:
        if urlsplit(request.url).hostname not in ("127.0.0.1", None):
            complaints.append(f"{page.url} asks {request.url}")

    def opened(dialog: Dialog) -> None:
        complaints.append(f"a dialog at {page.url}")
        dialog.dismiss()

    page.on("console", told)
    page.on("pageerror", lambda error: complaints.append(f"error at {page.url}: {error}"))
    page.on("request", asked)
    page.on("dialog", opened)
