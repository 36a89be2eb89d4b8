"""A workflow is told as it is written, not as it is stored; in the command line and the dashboard alike."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from click.testing import CliRunner
from httpx import ASGITransport, AsyncClient
from starlette.applications import Starlette
from starlette.routing import Mount

from onceward import App, Context, Event
from onceward import event as e
from onceward.cli.main import main
from onceward.console.local import LocalConsole
from onceward.console.workflow_words import BY_NAME, rules_told, starts_on
from onceward.sources import Stripe
from onceward.web.dashboard.site import routes
from onceward.web.dashboard.words import NONE
from tests.engine.running import make_app, run_app

KEYS: dict[str, tuple[dict[str, Any], str]] = {
    "ever": ({}, "held for good: an event that finds it held gets that run"),
    "window": (
        {"once": "36h", "clash": "reject"},
        "held for 1d 12h: an event that finds it held gets none",
    ),
    "active": (
        {"once": "active", "clash": "replace"},
        "held until it has ended: an event that finds it held replaces that run",
    ),
    "line": (
        {"once": "active", "clash": "queue"},
        "held until it has ended: an event that finds it held waits for its turn",
    ),
}


def app_of(url: str) -> App:
    app = make_app(url)
    stripe = app.source(Stripe(secrets="whsec_words_0123456789"))

    async def nothing(ctx: Context, event: Event) -> None: ...

    for name, (policies, _) in KEYS.items():
        app.workflow(name=name, on=f"order.{name}", key=e.payload["order"], **policies)(nothing)
    app.workflow(
        name="ordered",
        on=[stripe["customer.*"], "customer.moved"],
        version=e.payload["at"],
        on_redelivery="retry",
    )(nothing)
    app.workflow(name="marked", on="a", version=lambda event: 1, stale="mark")(nothing)
    app.workflow(name="plain")(nothing)
    return app


TOLD = {
    **{
        name: f"order.{name}; one run for each event.payload['order'], {told}"
        for name, (_, told) in KEYS.items()
    },
    "ordered": (
        "stripe customer.*, customer.moved; the newest of a subject by event.payload['at']: an event that is "
        "not newer gets no run; a redelivery retries its failed run"
    ),
    "marked": "a; the newest of a subject by value of a function: an event that is not newer gets a run that is marked",
    "plain": BY_NAME,
}


def test_the_command_line_and_the_dashboard_tell_what_starts_a_workflow_and_its_rules(store_url: str) -> None:
    app = app_of(store_url)

    async def scenario() -> str:
        site = Starlette(routes=[Mount("/", routes=routes(LocalConsole(app), lambda _request: None))])
        async with AsyncClient(transport=ASGITransport(app=site), base_url="http://shop.example") as client:
            return (await client.get("/workflows")).text

    page = html.unescape(run_app(app, scenario))
    listed = CliRunner().invoke(main, ["workflows", "list", "--store", store_url]).output

    told = {line.split()[0]: line.split("  ", 1)[1].strip() for line in listed.splitlines()}
    assert {name: line.partition("; last registered")[0] for name, line in told.items()} == TOLD
    rows = re.findall(
        r'<a class="open"[^>]*>(.*?)</a>.*?<td class="wide">(.*?)</td><td class="wide">(.*?)</td>', page
    )
    parts = {
        name: ", ".join(on.split("<br>")) + "; " + "; ".join(rules.split("<br>")) for name, on, rules in rows
    }
    assert {name: text.removesuffix(f"; {NONE}") for name, text in parts.items()} == TOLD
    assert "{" not in "".join(TOLD.values())


@pytest.mark.parametrize(
    "odd",
    [
        {},
        [],
        7,
        None,
        "text",
        "\ud800",
        ["\ud800"],
        {"source": 7, "type": []},
        {"source": "s", "type": "*.a"},
        {"source": "s"},
    ],
)
def test_what_this_version_does_not_know_is_shown_as_it_is(odd: Any) -> None:
    assert all(isinstance(one, str) for one in starts_on([odd]))
    assert all(isinstance(one, str) for one in rules_told(odd))
    told = rules_told({"key": odd, "once": odd, "clash": odd, "window_ms": odd, "version": odd, "later": odd})
    assert all(isinstance(one, str) for one in told)
    assert '"later":' in told[-1]
