"""One trace from a delivery through its run, steps and children; nothing where nobody asks for one."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry import trace
from opentelemetry.propagate import inject
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import onceward
from onceward import App, Context, Event, Retry, SyncContext
from onceward.runtime.clock import wall_ms
from onceward.runtime.tracing import ATTRIBUTES, context_of, tracer_found
from onceward.sources import Stripe
from tests.engine.running import SOON, evict, make_app, run_app
from tests.helpers import eventually_async

SECRET = "whsec_site_0123456789"


class Spans:
    """What was exported."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._exporter = exporter

    def named(self, name: str) -> list[ReadableSpan]:
        found = [span for span in self._exporter.get_finished_spans() if span.name == name]
        return sorted(found, key=lambda span: span.start_time or 0)

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span

    def all(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    """A provider that is set up for this test only; the API itself allows to set one once."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield Spans(exporter)
    provider.shutdown()


def id_of(span: ReadableSpan) -> tuple[int, int]:
    context = span.get_span_context()
    assert context is not None
    return context.trace_id, context.span_id


def parent_of(span: ReadableSpan) -> tuple[int, int] | None:
    return None if span.parent is None else (span.parent.trace_id, span.parent.span_id)


def links_of(span: ReadableSpan) -> list[tuple[int, int]]:
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


async def deliver(app: App) -> str:
    """Send a delivery; give the id of its run."""
    body = b'{"id": "evt_1", "type": "invoice.paid"}'
    headers = Stripe(secrets=[SECRET]).sign(body, wall_ms())
    # A stranger's word about traces, which is not signed, is not believed.
    headers = {**headers, "traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app.asgi()), base_url="http://127.0.0.1"
    ) as client:
        reply = await client.post("/hooks/stripe", content=body, headers=headers)
    assert reply.status_code == 202, reply.text
    return str(reply.json()["events"][0]["runs"][0])


async def has_ended(app: App, run_id: str, state: str = "completed") -> None:
    async def is_so() -> bool:
        return await app.run(run_id).state() == state

    await eventually_async(is_so, what=f"{run_id} to be {state}")
    await eventually_async(lambda: _is_away(app, run_id), what="its span has ended")


async def _is_away(app: App, run_id: str) -> bool:
    return run_id not in app.worker.executions


def test_one_trace_from_the_delivery_to_the_child(store_url: str, spans: Spans) -> None:
    app = make_app(store_url, linger="5s")  # whoever waits for a child stays in memory: one go
    stripe = app.source(Stripe(secrets=[SECRET]))
    sent: dict[str, str] = {}

    @app.workflow
    def ship(ctx: SyncContext, order: str) -> str:
        return ctx.step.run("pack", lambda: order)

    @app.workflow(on=stripe["invoice.paid"])
    async def fulfil(ctx: Context, event: Event) -> str:
        async def charge() -> str:
            inject(sent)  # as an instrumented HTTP client does
            await app.emit("charged", {})
            return "ok"

        await ctx.step.run("charge", charge)
        return await ctx.step.call("ship", ship, "A-1")

    @app.workflow(on="charged")
    async def thank(ctx: Context, event: Event) -> None: ...

    async def scenario() -> str:
        run_id = await deliver(app)
        await has_ended(app, run_id)
        for row in await app.runs():
            await has_ended(app, row.run_id)
        return run_id

    run_id = run_app(app, scenario)

    receive, fulfilling, charge = (
        spans.one("receive stripe"),
        spans.one("run fulfil"),
        spans.one("step charge"),
    )
    shipping, pack, thanking = spans.one("run ship"), spans.one("step pack"), spans.one("run thank")
    assert parent_of(receive) is None
    assert id_of(receive)[0] != int("a" * 32, 16)
    assert parent_of(fulfilling) == id_of(receive)
    assert parent_of(charge) == id_of(fulfilling)
    assert parent_of(thanking) == id_of(charge)
    assert parent_of(shipping) == id_of(fulfilling)
    assert parent_of(pack) == id_of(shipping)
    assert sent["traceparent"].split("-")[1:3] == [f"{id_of(charge)[0]:032x}", f"{id_of(charge)[1]:016x}"]
    assert fulfilling.attributes is not None
    assert fulfilling.attributes["onceward.run.id"] == run_id
    assert fulfilling.attributes["onceward.run.state"] == "completed"
    used = {name for span in spans.all() for name in span.attributes or {}}
    assert used == set(ATTRIBUTES)


def test_a_run_continues_its_trace_in_the_next_process(store_url: str, spans: Spans) -> None:
    app = make_app(store_url)
    stripe = app.source(Stripe(secrets=[SECRET]))
    began: list[int] = []

    @app.workflow(on=stripe["invoice.paid"])
    async def fulfil(ctx: Context, event: Event) -> str:
        async def first() -> None: ...

        await ctx.step.run("first", first)
        began.append(1)
        if len(began) == 1:
            await asyncio.Event().wait()  # its process dies here
        return "done"

    async def scenario() -> None:
        run_id = await deliver(app)

        async def is_beyond_first() -> bool:
            return bool(began)

        await eventually_async(is_beyond_first)
        await evict(app, run_id)
        await has_ended(app, run_id)

    run_app(app, scenario)

    goes = spans.named("run fulfil")
    assert len(goes) == 2
    assert {parent_of(go) for go in goes} == {id_of(spans.one("receive stripe"))}
    assert len(spans.named("step first")) == 1, "what is saved is not done again"


def test_attempts_and_what_comes_after_a_wait_are_linked(store_url: str, spans: Spans) -> None:
    app = make_app(store_url)
    stripe = app.source(Stripe(secrets=[SECRET]))
    tried: list[int] = []

    @app.workflow(on=stripe["invoice.paid"], retry=Retry(max_tries=2, base="10ms"))
    async def fulfil(ctx: Context, event: Event) -> None:
        tried.append(1)
        if len(tried) == 1:
            raise ValueError("away")
        await ctx.step.wait_for("go", "go")

    async def scenario() -> None:
        run_id = await deliver(app)
        await has_ended(app, run_id, "waiting")
        await app.emit("go", {})
        await has_ended(app, run_id)

    run_app(app, scenario)

    first, *later = spans.named("run fulfil")
    received = id_of(spans.one("receive stripe"))
    assert parent_of(first) == received
    assert first.status.status_code is trace.StatusCode.ERROR
    assert len(later) == 2
    assert [(parent_of(go), links_of(go)) for go in later] == [(None, [received])] * 2
    assert len({id_of(go)[0] for go in (first, *later)}) == 3


def test_each_try_has_a_span_and_says_why_it_failed(store_url: str, spans: Spans) -> None:
    app = make_app(store_url)
    tried: list[int] = []

    @app.workflow
    async def order(ctx: Context) -> None:
        async def flaky() -> None:
            tried.append(1)
            if len(tried) == 1:
                raise ValueError("away, password=hunter2")

        await ctx.step.run("flaky", flaky, retry=SOON)

    async def scenario() -> None:
        handle = await app.start(order)
        await has_ended(app, handle.run_id)

    run_app(app, scenario)

    tries = spans.named("step flaky")
    assert [(span.attributes or {})["onceward.step.try"] for span in tries] == [1, 2]
    assert [span.status.status_code for span in tries] == [trace.StatusCode.ERROR, trace.StatusCode.UNSET]
    assert "away, password=[redacted]" in str(tries[0].status.description)
    assert parent_of(spans.one("run order")) is None


class Broken(SpanProcessor):
    """Raises at whatever it is told."""

    def on_start(self, span: Span, parent_context: Any = None) -> None:
        if span.name in self.at_start:
            raise RuntimeError("broken")

    def on_end(self, span: ReadableSpan) -> None:
        raise RuntimeError("broken")

    def __init__(self, *at_start: str) -> None:
        self.at_start = at_start


@pytest.mark.parametrize("at_start", [(), ("receive stripe", "run fulfil", "step charge")])
def test_spans_that_cannot_be_made_or_ended_cost_nothing_else(
    sqlite_url: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    at_start: tuple[str, ...],
) -> None:
    provider = TracerProvider()
    provider.add_span_processor(Broken(*at_start))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    app = make_app(sqlite_url)
    stripe = app.source(Stripe(secrets=[SECRET]))

    @app.workflow(on=stripe["invoice.paid"])
    async def fulfil(ctx: Context, event: Event) -> None:
        await ctx.step.run("charge", lambda: None)

    async def scenario() -> None:
        await has_ended(app, await deliver(app))

    run_app(app, scenario)

    assert [record.name for record in caplog.records].count("onceward.tracing") == 3


@pytest.mark.parametrize(
    "text", [None, "", "nonsense", "01-" + "a" * 32 + "-" + "b" * 16 + "-01", f"00-{'0' * 32}-{'0' * 16}-00"]
)
def test_a_stored_span_that_is_none_is_none(text: Any) -> None:
    assert context_of(text) is None


def test_a_stored_span_is_found_again() -> None:
    found = context_of(f"00-{'a' * 32}-{'b' * 16}-01")

    assert found is not None
    assert (found.trace_id, found.span_id, found.is_remote) == (int("a" * 32, 16), int("b" * 16, 16), True)


def test_without_a_provider_there_is_no_tracer() -> None:
    assert tracer_found() is None


def test_without_a_provider_the_library_is_not_even_loaded() -> None:
    program = (
        "import asyncio, sys\n"
        "from onceward import App, Context\n"
        "app = App('sqlite:///:memory:')\n"
        "@app.workflow\n"
        "async def w(ctx: Context) -> None:\n"
        "    await ctx.step.run('s', lambda: None)\n"
        "async def main():\n"
        "    async with app:\n"
        "        await (await app.start(w)).result()\n"
        "asyncio.run(main())\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])\n"
    )
    source = str(Path(onceward.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": source},
    )

    assert done.stdout == "[]\n", done.stderr


def test_the_page_names_every_attribute() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "telemetry.md").read_text()
    rows = dict(re.findall(r"^\| `(onceward\.[a-z.]+)` \| (.+) \|$", page, re.MULTILINE))

    assert rows == ATTRIBUTES
