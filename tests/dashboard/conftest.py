"""A real browser, and pages that fail their test at any error, violation or request to elsewhere."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import ConsoleMessage, Dialog, Page, Request, expect, sync_playwright

from tests.conftest import WITH_PAGES
from tests.dashboard.serving import Site

LOAD_MS = 15_000
expect.set_options(timeout=LOAD_MS)

OpenPage = Callable[..., Page]
Serve = Callable[[Any], Site]


class Chromium:
    """The machine's Chromium, which scripts/services.sh installs, and pages that were used before.

    A new page with a context of its own takes it a second of work, four times as much as a page that
    goes on to the next address. What a test may leave in a context is its cookies: nothing of ours
    stores anything else in a browser.
    """

    def __init__(self) -> None:
        program = (
            shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        )
        assert program, "Chromium is not on this machine: run scripts/services.sh"
        self.complaints: list[str] = []
        self._idle: dict[str, list[Page]] = {}
        self._playwright = sync_playwright().start()
        self._browser = self._playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        )

    def lend(self, options: dict[str, Any]) -> Page:
        """Give a watched page; its options are those of Playwright's ``new_context``."""
        if idle := self._idle.get(repr(options)):
            return idle.pop()
        context = self._browser.new_context(**options)
        context.set_default_timeout(LOAD_MS)
        page = context.new_page()
        watch(page, self.complaints)
        return page

    def take_back(self, page: Page, options: dict[str, Any]) -> None:
        """Leave the page's address and make the page as `lend` gave it."""
        page.goto("about:blank")
        page.emulate_media(media="screen", color_scheme=options.get("color_scheme", "light"))
        page.context.clear_cookies()
        self._idle.setdefault(repr(options), []).append(page)

    def close(self) -> None:
        """End the browser and what drives it."""
        self._browser.close()
        self._playwright.stop()


_running: list[Chromium] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """End the browser when the next test is not of a module with pages: its driver keeps a loop running."""
    yield
    if _running and (nextitem is None or nextitem.nodeid.partition("::")[0] not in WITH_PAGES):
        _running.pop().close()


@pytest.fixture
def browser() -> Chromium:
    """The browser that this process has, for as long as tests of pages follow each other."""
    if not _running:
        _running.append(Chromium())
    return _running[0]


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
def open_page(browser: Chromium, serve: object) -> Iterator[OpenPage]:
    """Open watched pages: options as of Playwright's ``new_context``."""
    lent: list[tuple[Page, dict[str, Any]]] = []
    expected: list[str] = []
    browser.complaints.clear()

    def open_one(*, expects: str = "", **options: Any) -> Page:
        if expects:
            expected.append(expects)
        page = browser.lend(options)
        lent.append((page, options))
        return page

    yield open_one
    for page, options in lent:
        browser.take_back(page, options)
    assert [each for each in browser.complaints if not any(text in each for text in expected)] == []


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
