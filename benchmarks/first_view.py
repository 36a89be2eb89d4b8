"""From the start of a navigation to the first row that a person can read, in a real browser.

The dashboard is served by this process over a store that is filled already; each page is opened afresh, with
an empty cache, so that scripts and style are fetched as well.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.applications import Starlette

from onceward.console.local import LocalConsole
from onceward.core.errors import ConfigError
from onceward.web.dashboard.site import routes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from playwright.async_api import Browser

    from onceward import App

PAGES = {
    "runs": "tr[data-row]",
    "runs?state=failed": "tr[data-row]",
    "events": "tr[data-row]",
    "dead": ".group",
    "": ".tile-number",
    "help": "h1",
}
"""What of a page is the first useful thing to see."""

SEEN = """selector => new Promise(told => {
  const look = () => document.querySelector(selector)
    ? requestAnimationFrame(() => told(performance.now()))
    : requestAnimationFrame(look);
  look();
})"""


async def first_views(make: Callable[[], App], times: int) -> dict[str, list[float]]:
    """Give how many milliseconds each page took, from the start of its navigation, *times* times.

    Raises:
        ConfigError: there is no Chromium here.
    """
    from playwright.async_api import async_playwright

    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        raise ConfigError("There is no Chromium on this machine.", todo="Install it, or leave --browser out.")
    app = make()

    @asynccontextmanager
    async def lifespan(site: Starlette) -> AsyncIterator[None]:
        await app.open(runs=False)
        site.router.routes.extend(routes(LocalConsole(app), lambda _request: None))
        yield
        await app.close("1s")

    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
    config = uvicorn.Config(Starlette(lifespan=lifespan), log_level="warning", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
            found = {
                page or "overview": await _opened(browser, f"{url}{page}", PAGES[page], times)
                for page in PAGES
            }
            await browser.close()
    finally:
        server.should_exit = True
        await serving
    return found


async def _opened(browser: Browser, url: str, selector: str, times: int) -> list[float]:
    took: list[float] = []
    for _ in range(times + 1):
        context: Any = await browser.new_context()
        page = await context.new_page()
        await page.goto(url, wait_until="commit")
        took.append(float(await page.evaluate(SEEN, selector)))
        await context.close()
    return took[1:]  # the first opens the store's connections
