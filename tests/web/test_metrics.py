"""``GET /metrics``: what the store holds and what the process counted, for who may see it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from onceward import App, Context, Event, Permanent, Retry
from onceward.console.views import Counts, RefusalView
from onceward.core.counters import OTHER, SECONDS, SERIES_MAX, Counter, Histogram
from onceward.core.errors import StoreUnavailable
from onceward.sources import Stripe
from onceward.web.access import Role
from onceward.web.metrics import LABEL_CHARS_MAX, METRICS_TABLE, REFUSALS_MAX, Metrics, _refusals
from onceward.web.site import accounts_of, site_for
from tests.helpers import eventually_async
from tests.web.test_site import SECRET, becomes, deliver, served, store_url

__all__ = ["store_url"]

Values = dict[str, dict[tuple[str, ...], float]]


def read(text: str) -> Values:
    """Give the values by sample and labels, the process left out."""
    found: Values = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = {name: value for name, value in sample.labels.items() if name != "process"}
            found.setdefault(sample.name, {})[tuple(labels.values())] = sample.value
    return found


def make_shop(url: str) -> App:
    app = App(url, poll="20ms", linger="0s", concurrency=7)
    stripe = app.source(Stripe(secrets=[SECRET]))

    @app.workflow(on=stripe["invoice.paid"])
    async def fulfil(ctx: Context, event: Event) -> str:
        async def flaky() -> str:
            raise ValueError("away")

        await ctx.step.run("flaky", flaky, retry=Retry(max_tries=2, base="1ms"))
        return "done"

    @app.workflow
    async def fine(ctx: Context) -> str:
        return "done"

    return app


@pytest.mark.anyio
async def test_what_happened_is_counted(store_url: str) -> None:
    app = make_shop(store_url)
    async with served(app) as client:
        run_id = await deliver(client)
        assert await deliver(client) == run_id
        await client.post("/hooks/stripe", content=b"{}", headers={"Stripe-Signature": "t=1,v1=00"})
        await client.post("/hooks/nobody", content=b"{}")
        await becomes(client, run_id, "failed")
        await (await app.start(app.workflows["fine"])).result()
        reply = await client.get("/metrics")
        head = await client.head("/metrics")
        post = await client.post("/metrics")

    values = read(reply.text)
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert values["onceward_runs_ended_total"] == {("failed", "fulfil"): 1, ("completed", "fine"): 1}
    assert values["onceward_deliveries_total"] == {
        ("accepted", "stripe"): 1,
        ("duplicate", "stripe"): 1,
        ("refused", "stripe"): 1,
        ("refused", ""): 1,
    }
    assert values["onceward_step_tries_failed_total"] == {("again", "fulfil"): 1, ("failed", "fulfil"): 1}
    assert values["onceward_runs"][("failed",)] == 1
    assert values["onceward_runs"][("queued",)] == 0
    assert values["onceward_problems_open"] == {(): 1}
    assert values["onceward_workers_alive"] == {(): 1}
    assert values["onceward_run_slots"] == {(): 7}
    assert {source for _, source in values["onceward_refusals_total"]} == {"stripe", ""}
    assert values["onceward_batch_seconds_count"][()] >= 3
    assert values["onceward_batch_seconds_sum"][()] > 0
    assert (head.status_code, head.text, post.status_code) == (200, "", 405)


@pytest.mark.anyio
async def test_every_metric_of_the_table_is_there_and_no_other(tmp_path: Path) -> None:
    app = make_shop(f"sqlite:///{tmp_path / 'store.db'}")
    async with served(app) as client:
        text = (await client.get("/metrics")).text
        openmetrics = await client.get("/metrics", headers={"Accept": "application/openmetrics-text"})

    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert {name: family.type for name, family in families.items()} == {
        metric.name: metric.kind for metric in METRICS_TABLE
    }
    assert {name: family.documentation for name, family in families.items()} == {
        metric.name: metric.help for metric in METRICS_TABLE
    }
    assert openmetrics.text.endswith("# EOF\n")


@pytest.mark.anyio
async def test_only_who_may_look_sees_them(tmp_path: Path) -> None:
    app = make_shop(f"sqlite:///{tmp_path / 'store.db'}")
    async with served(app) as client:
        viewer = accounts_of(app).add_token("prometheus", Role.VIEWER, actor="test")
        client.headers["Authorization"] = f"Bearer {viewer}"
        allowed = await client.get("/metrics")
        client.headers.pop("Authorization")
        refused = await client.get("/metrics")
        other_name = await client.get("/metrics", headers={"Host": "evil.example"})

    assert [allowed.status_code, refused.status_code, other_name.status_code] == [200, 401, 421]


@pytest.mark.anyio
async def test_they_are_served_with_the_api_only(tmp_path: Path) -> None:
    app = make_shop(f"sqlite:///{tmp_path / 'store.db'}")
    async with served(app, site_for(app, api=False, dashboard=True)) as client:
        reply = await client.get("/metrics")

    assert reply.status_code == 404


@pytest.mark.anyio
async def test_without_the_library_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client.exposition", None)
    app = make_shop(f"sqlite:///{tmp_path / 'store.db'}")
    async with served(app) as client:
        reply = await client.get("/metrics")

    assert (reply.status_code, reply.json()["code"]) == (501, "metrics_missing")
    assert "onceward[metrics]" in reply.json()["detail"]


class SlowConsole:
    """Answers when it is told to, and counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.may_answer = asyncio.Event()
        self.is_away = False

    async def counts(self) -> Counts:
        self.asked += 1
        await self.may_answer.wait()
        if self.is_away:
            raise StoreUnavailable("The store is away.")
        return Counts(states={"failed": 2, "held": 1}, oldest_due_at=None)

    async def workers(self) -> list[Any]:
        return []

    async def refusals(self) -> list[RefusalView]:
        return []


async def status_of(metrics: Metrics) -> int:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("a GET has no body")

    await metrics({"type": "http", "method": "GET", "path": "/metrics", "headers": []}, receive, send)
    return int(sent[0]["status"])


@pytest.mark.anyio
async def test_many_that_ask_cost_the_store_as_much_as_one(tmp_path: Path) -> None:
    app, console, now = make_shop(f"sqlite:///{tmp_path / 'store.db'}"), SlowConsole(), [0.0]
    metrics = Metrics(app, console, elapsed_s=lambda: now[0])  # type: ignore[arg-type] # what it needs of one
    async with app:
        asking = [asyncio.create_task(status_of(metrics)) for _ in range(5)]
        await eventually_async(lambda: asyncio.sleep(0, console.asked == 1))
        console.may_answer.set()
        first = await asyncio.gather(*asking)
        now[0] = 0.9
        again = await status_of(metrics)
        asked = console.asked
        now[0] = 1.1
        later = await status_of(metrics)

    assert [*first, again, later] == [200] * 7
    assert (asked, console.asked) == (1, 2)


@pytest.mark.anyio
async def test_an_answer_that_failed_is_not_kept(tmp_path: Path) -> None:
    app, console = make_shop(f"sqlite:///{tmp_path / 'store.db'}"), SlowConsole()
    metrics = Metrics(app, console, elapsed_s=lambda: 0.0)  # type: ignore[arg-type] # what it needs of one
    console.may_answer.set()
    async with app:
        console.is_away = True
        away = await status_of(metrics)
        console.is_away = False
        back = await status_of(metrics)

    assert (away, back) == (503, 200)


# --- bounds ---------------------------------------------------------------------------------------


def refusals(pairs: Iterable[tuple[str, str]]) -> list[RefusalView]:
    return [
        RefusalView(source=source, reason=reason, count=1, first_at=number, last_at=number)
        for number, (source, reason) in enumerate(pairs)
    ]


def test_refusals_have_so_many_series_at_most_and_lose_no_count() -> None:
    found = _refusals(list(reversed(refusals(("s", f"reason {number}") for number in range(500)))))

    assert len(found) == REFUSALS_MAX + 1
    assert sum(found.values()) == 500
    assert ("s", "reason 0") in found, "the oldest stay, so that no series falls"


def test_a_label_is_short_and_can_be_encoded() -> None:
    (label,) = _refusals(refusals([("s", "\ud800" + "x" * 1_000)]))

    assert len(label[1]) == LABEL_CHARS_MAX
    assert label[1].encode()


def test_a_counter_tells_a_bounded_number_apart() -> None:
    counter = Counter()
    for number in range(SERIES_MAX + 5):
        counter.add("workflow", str(number))
    counter.add("workflow", "1")

    assert len(counter.values) == SERIES_MAX + 1
    assert counter.values[OTHER, OTHER] == 5
    assert counter.values["workflow", "1"] == 2


def test_a_histogram_counts_into_the_first_class_that_is_long_enough() -> None:
    histogram = Histogram()
    for seconds in (0.0, SECONDS[0], SECONDS[1], 100.0):
        histogram.add(seconds)

    assert histogram.counts[:2] == [2, 1]
    assert histogram.counts[-1] == 1
    assert histogram.total == SECONDS[0] + SECONDS[1] + 100.0


def test_a_failure_that_is_final_is_no_next_try(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path / 'store.db'}")

    @app.workflow
    async def ends(ctx: Context) -> None:
        async def never() -> None:
            raise Permanent("never")

        await ctx.step.run("never", never)

    async def scenario() -> dict[tuple[str, ...], int]:
        async with app:
            handle = await app.start(ends)
            with pytest.raises(Exception, match="never"):
                await handle.result()
            return app.worker.counters.tries_failed.values

    assert asyncio.run(scenario()) == {("ends", "failed"): 1}
