"""Stored text is inert: whatever a stranger sent is shown on every page, and nothing of it runs."""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

import pytest
from httpx import Client, QueryParams
from playwright.sync_api import Page

from tests.dashboard.conftest import OpenPage, Serve
from tests.dashboard.everything import PAGES, everything
from tests.helpers import eventually

CANARY = "window.__canary=1"
MARK = "stranger"

CORPUS = [
    f"<script>{CANARY}</script>",
    f"<img src=x onerror={CANARY}>",
    f"\"><svg onload={CANARY}>",
    f"'><details open ontoggle={CANARY}>",
    f"\" autofocus onfocus={CANARY} x=\"",
    f"' style='animation:x' onanimationstart='{CANARY}",
    f"</title><script>{CANARY}</script>",
    f"</textarea></pre></svg><iframe srcdoc='<script>parent.{CANARY}</script>'>",
    f"--><!--<script>{CANARY}</script>",
    f"{{{{7*7}}}}{{% set x %}}${{{CANARY}}}`{CANARY}`",
    f"\\u003cscript\\u003e{CANARY}\\u003c/script\\u003e &lt;script&gt; &#60;script&#62;",
    f"<math><mtext><table><mglyph><style><!--</style><img title=\"--&gt;&lt;img src=1 onerror={CANARY}&gt;\">",
    "<base href=https://example.invalid/><meta http-equiv=refresh content=0;url=https://example.invalid/>",
    f"<form action=https://example.invalid><button formaction=javascript:{CANARY}>",
    "<link rel=stylesheet href=https://example.invalid/x.css><style>@import'//example.invalid'</style>",
    "\u202e\u2066reversed\u2069 \x00\x07\x1b[31m\ud7ff\ufffe\ud800",
    "line\nbreak\r\nSet-Cookie: a=b",
]  # fmt: skip
STARTS = [
    f"javascript:{CANARY}//",
    f"data:text/html,<script>{CANARY}</script>",
    "//example.invalid/../..",
    "../../../../x?y=#z",
]

TEXTS = [" ".join([MARK, *CORPUS]), *(f"{start} {MARK}" for start in STARTS)]


def mixed(name: str) -> str:
    """Give each field one of those that only bite at the beginning of an address."""
    return TEXTS[1 + crc32(name.encode()) % len(STARTS)]


FOREIGN = """() => ({
    canary: window.__canary ?? null,
    handlers: [...document.querySelectorAll('*')].filter(e => [...e.attributes].some(a => a.name.startsWith('on') || a.name === 'style' || a.name === 'srcdoc')).map(e => e.outerHTML.slice(0, 200)),
    elements: [...document.querySelectorAll('iframe, object, embed, base, img, math, style, body script, head script:not([type=module])')].map(e => e.outerHTML.slice(0, 200)),
    links: [...document.querySelectorAll('[href], [action], [formaction], [src]')].map(e => e.href?.baseVal ?? e.href ?? e.formAction ?? e.action ?? e.src).filter(url => url && !String(url).startsWith(location.origin + '/deep/ops/')),
})"""


def foreign(page: Page) -> object:
    return page.evaluate(FOREIGN)


@pytest.mark.parametrize(
    "text", [lambda _: TEXTS[0], lambda _: TEXTS[1], mixed], ids=["markup", "javascript", "addresses"]
)
def test_nothing_that_is_stored_runs_on_any_page(
    open_page: OpenPage, serve: Serve, text: Callable[[str], str]
) -> None:
    console = everything(text)
    seen = 0
    site = serve(console)
    page = open_page(expects="the server responded with a status of 4")
    for path in PAGES:
        page.goto(site.url + path, wait_until="domcontentloaded")
        seen += page.content().count(MARK)

        assert foreign(page) == {"canary": None, "handlers": [], "elements": [], "links": []}, path
    assert seen > 500  # it was there


def test_what_is_typed_is_as_inert(open_page: OpenPage, serve: Serve) -> None:
    text = TEXTS[0].replace("\x00", "").replace("\ud7ff", "").replace("\ud800", "")[:900]
    site = serve(everything(str))
    page = open_page(expects="the server responded with a status of 4")
    for path in (
        "search?q=",
        "runs?workflow=",
        "runs?state=",
        "events?since=",
        "runs?nonsense=",
        "event?source=a&id=",
    ):
        page.goto(site.url + path + str(QueryParams({"x": text}))[2:])

        assert foreign(page) == {"canary": None, "handlers": [], "elements": [], "links": []}, path


def test_live_update_runs_nothing_either(open_page: OpenPage, serve: Serve) -> None:
    """What comes in by live update is parsed by a script, which is another way in."""
    console = everything(str)
    site = serve(console)
    page = open_page()
    page.goto(site.url)
    page.wait_for_selector("[data-live-state=live]")
    console.answers.update(everything(lambda name: TEXTS[0]).answers)
    site.call(console.change)
    page.wait_for_selector("body[data-refreshed]")
    # Not `wait_for_function`: it asks again by an eval, which the page's policy forbids.
    eventually(lambda: page.evaluate(f"document.body.innerText.includes('{MARK}')"))

    assert foreign(page) == {"canary": None, "handlers": [], "elements": [], "links": []}


def test_a_planted_breach_is_found(open_page: OpenPage) -> None:
    """The test above can fail: unescaped, every one of these texts would be seen."""
    page = open_page()
    page.set_content(f"<p>{TEXTS[0]}</p><a href='{TEXTS[1]}'>x</a>")
    found = page.evaluate(FOREIGN)

    assert found["handlers"]
    assert found["elements"]
    assert found["links"]


def test_every_page_says_what_may_run_on_it(serve: Serve, client: Client) -> None:
    site = serve(everything(str))
    for path in PAGES:
        reply = client.get(site.url + path)

        assert reply.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self';")
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["cache-control"] == "no-store"
