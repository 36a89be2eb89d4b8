"""How fast a console answers over a store of a million runs: lists, searches, pages, the overview.

The store is written by SQL, past the engine: a month of events with a delivery, a run and a step each, of
which one in a hundred failed with a traceback, with a backlog, sleepers and a busy last hour. Each question is
asked through `LocalConsole`, as the REST API, the dashboard and the command line ask it, and with other values
each time; then all of them again of a store with ten thousand runs, for the ratio.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sqlite3
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from benchmarks.databases import PostgresDatabases, SqliteFiles, open_databases
from onceward import App
from onceward.console.asking import run_id_at
from onceward.console.local import LocalConsole
from onceward.console.port import DeliveryQuery, EventQuery, RunQuery
from onceward.core import ids
from onceward.sources import Stripe
from onceward.stores.choose import make_store

ASKED = 40
"""How often each question is asked; the first is left out, which opens connections."""

VIEWED = 6
"""How often each page is opened in a browser."""

MONTH_MS, HOUR_MS = 30 * 86_400_000, 3_600_000
LAST_HOUR = 6_000
"""Runs of the last hour in each store, so that an overview of it has as much to look at in both."""

BACKLOG_SHARE = 50  # one run in so many is queued, and of the newest
RARE_SHARE = 50_000  # one run in so many is of a workflow that hardly ever runs
SLOW_MS = 300
BESIDE = 10_000
RATIO_MAX = 1.5
"""A question is quick enough below `SLOW_MS`, or if it takes no longer than so many times what it takes of `BESIDE` runs."""

RARE = "workflow-rare"
WORKFLOWS = [f"workflow-{number}" for number in range(10)]
SOURCES = ["stripe", "github", "shopify", "emit/order.paid", "emit/order.sent"]
QUIET = "quiet"
"""A source of which nothing ever came."""

ERRORS = ["connection reset by peer", "card declined", "no such customer", "rate limit exceeded", "disk full"]

REQUEST = '{"method":"POST","path":"/hooks/stripe"}'

Row = tuple[Any, ...]
EVENT = "namespace, source, id, type, subject, payload, received_at, id_is_signed"
RUN = (
    "namespace, run_id, workflow, source, event_id, replay_id, state, generation, attempt, failures, crashes, "
    "fence, created_at, started_at, ended_at, output, error, problem_at, dismissed_at, is_called, depth, is_stale, "
    "reason, key"
)
STEP = (
    "namespace, run_id, generation, name, item, ordinal, seq, kind, state, attempt, started_at, ended_at, "
    "tries, output"
)
QUEUE = "namespace, run_id, workflow, due_at, woken, is_suspect"
DELIVERY = "namespace, delivery_id, part, source, event_id, outcome, content_hash, received_at, sent_at, secret_index, request"
UNPARSED = "namespace, delivery_id, source, content_hash, received_at, last_at, sent_at, copies, error, request, body"
AUDIT = "namespace, run_id, audit_id, at, verb, actor, detail"
TABLES = {
    "event": EVENT,
    "run": RUN,
    "step": STEP,
    "queue": QUEUE,
    "delivery": DELIVERY,
    "unparsed": UNPARSED,
    "audit": AUDIT,
}


def rows(count: int, now: int) -> Iterator[dict[str, Row]]:
    """Give the rows of each run, oldest first."""
    draw = random.Random(7)
    traceback = "\n".join(
        f'  File "/srv/shop/part_{number}.py", line {number}, in call' for number in range(25)
    )
    for number in range(count):
        at = _at(number, count, now)
        run_id = ids.run_id(at, draw.randbytes(10))
        source = draw.choice(SOURCES)
        workflow = RARE if number % RARE_SHARE == RARE_SHARE // 2 else draw.choice(WORKFLOWS)
        event_id, subject = f"evt_{number:09d}", f"customer-{draw.randrange(count // 10 + 1)}"
        found: dict[str, Row] = {
            "event": (
                "default",
                source,
                event_id,
                f"type-{number % 7}",
                subject,
                f'{{"order":"order-{number}","amount":{number % 977},"note":"{"x" * 200}"}}',
                at,
                1,
            )
        }
        luck = draw.random()
        state, error, problem_at, dismissed_at, reason = "completed", None, None, None, None
        ended_at: int | None = at + draw.randrange(20, 5_000)
        if luck < 0.014:
            state, problem_at = "failed", ended_at
            dismissed_at = ended_at if luck < 0.004 else None
            said = f"{draw.choice(ERRORS)} for order-{number}"
            error = (
                f'{{"type":"shop.Failure","message":"{said}","traceback":{ids.composed(traceback)[1:-1]}}}'
            )
            found["audit"] = (
                *("default", run_id, run_id.removeprefix(ids.RUN_ID_PREFIX), at, "dismiss", "alice"),
                "too late",
            )
        elif luck < 0.0142:
            state, reason, problem_at, ended_at = "held", f"poison: order-{number} was lost", ended_at, None
        elif luck < 0.0143:
            state = "cancelled"
        elif luck < 0.0145:
            state, ended_at = "sleeping", None
            found["queue"] = ("default", run_id, workflow, now + 86_400_000, 0, 0)
        elif number > count - count // BACKLOG_SHARE and luck < 0.9:
            state, ended_at = "queued", None
            found["queue"] = ("default", run_id, workflow, at, 0, 0)
        started_at = None if state == "queued" else at
        output = '"done"' if state == "completed" else None
        life: Row = (
            "",
            state,
            1,
            1,
            0,
            0,
            1,
            at,
            started_at,
            ended_at,
            output,
            error,
            problem_at,
            dismissed_at,
        )
        key = f"order-{number}" if number % 10 == 0 else None
        found["run"] = ("default", run_id, workflow, source, event_id, *life, 0, 0, 0, reason, key)
        delivery_id = ids.DELIVERY_ID_PREFIX + run_id.removeprefix(ids.RUN_ID_PREFIX)
        if "/" not in source:
            outcome = "duplicate" if luck > 0.98 else "accepted"
            found["delivery"] = (
                *("default", delivery_id, 0, source, event_id, outcome, "0" * 32, at, at - 300, 0),
                REQUEST,
            )
        if number % 500 == 0:
            found["unparsed"] = (
                *("default", f"{delivery_id}u", "github", f"{number:032d}", at, at, None, 1),
                *("it is no JSON", REQUEST, b"{"),
            )
        if state != "queued":
            found["step"] = (
                *("default", run_id, 1, "load", "", 1, 1, "run", "done", 1),
                *(at, at + 9, 1, f'{{"order":"order-{number}"}}'),
            )
        yield found


def _at(number: int, count: int, now: int) -> int:
    """Give when a run was accepted: one after the other, the newest within the last hour."""
    older = count - LAST_HOUR
    if number < older:
        return now - MONTH_MS + number * (MONTH_MS - HOUR_MS) // older
    return now - HOUR_MS + (number - older) * (HOUR_MS - 10_000) // LAST_HOUR


def fill(url: str, count: int, now: int) -> None:
    """Write the rows, and let the database know what it has."""
    if url.startswith("sqlite"):
        with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            connection.execute("pragma synchronous = off")
            for batch in _batches(rows(count, now)):
                for table, columns in TABLES.items():
                    marks = ", ".join("?" * len(columns.split(", ")))
                    statement = f"insert into onceward_{table} ({columns}) values ({marks})"
                    connection.executemany(statement, batch[table])
                connection.commit()
            connection.execute("pragma wal_checkpoint(truncate)")
        return
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        for batch in _batches(rows(count, now)):
            for table, columns in TABLES.items():
                copy = f"copy onceward.{table} ({columns}) from stdin"
                with connection.cursor().copy(copy) as into:
                    for row in batch[table]:
                        into.write_row(row)
        connection.execute("vacuum analyze")


def _batches(found: Iterator[dict[str, Row]]) -> Iterator[dict[str, list[Row]]]:
    batch: dict[str, list[Row]] = {table: [] for table in TABLES}
    for one in found:
        for table, row in one.items():
            batch[table].append(row)
        if len(batch["run"]) >= 50_000:
            yield batch
            batch = {table: [] for table in TABLES}
    yield batch


Question = Callable[[LocalConsole, random.Random], Awaitable[Any]]


def questions(count: int, now: int, runs: Sequence[str], failed: Sequence[str]) -> dict[str, Question]:
    """Give what is asked, by name."""

    def at(draw: random.Random) -> int:
        return now - draw.randrange(MONTH_MS)

    def of_runs(**given: Any) -> Question:
        return lambda console, _: console.runs(RunQuery(**given))

    early = run_id_at(now - MONTH_MS + 2_000 * MONTH_MS // count)
    return {
        "overview": lambda console, _: console.overview(),
        "overview of a month": lambda console, _: console.overview(window_ms=MONTH_MS),
        "counts": lambda console, _: console.counts(),
        "list runs": lambda console, _: console.runs(RunQuery()),
        "list runs, a page far back": lambda console, draw: console.runs(RunQuery(after=run_id_at(at(draw)))),
        "list runs of a workflow": lambda console, draw: console.runs(
            RunQuery(workflow=draw.choice(WORKFLOWS))
        ),
        "list runs, the last page": of_runs(after=early),
        "list runs of a workflow that hardly ever runs": lambda console, draw: console.runs(
            RunQuery(workflow=RARE, after=run_id_at(at(draw)))
        ),
        "list failed runs": of_runs(state="failed"),
        "list held runs, a page far back": lambda console, draw: console.runs(
            RunQuery(state="held", after=run_id_at(at(draw)))
        ),
        "list sleeping runs": of_runs(state="sleeping"),
        "list queued runs": of_runs(state="queued"),
        "list failed runs of a workflow, source and type": lambda console, draw: console.runs(
            RunQuery(state="failed", workflow=draw.choice(WORKFLOWS), source="stripe", type="type-3")
        ),
        "list runs by workflow, state, subject, source, type and day": lambda console, draw: console.runs(
            RunQuery(
                workflow=draw.choice(WORKFLOWS),
                state="completed",
                subject=f"customer-{draw.randrange(count // 10 + 1)}",
                source="stripe",
                type="type-3",
                since=(day := at(draw)),
                until=day + 86_400_000,
            )
        ),
        "search runs for a key": lambda console, draw: console.runs(
            RunQuery(key=f"order-{draw.randrange(count // 10) * 10}", state="completed")
        ),
        "list completed runs": lambda console, _: console.runs(RunQuery(state="completed")),
        "list cancelled runs, of which there are none": lambda console, draw: console.runs(
            RunQuery(state="cancelled", after=run_id_at(at(draw)))
        ),
        "list runs of a day": lambda console, draw: console.runs(
            RunQuery(since=(day := at(draw)), until=day + 86_400_000)
        ),
        "list problems": of_runs(problems=True),
        "list dead letters, a page far back": lambda console, draw: console.runs(
            RunQuery(problems=True, after=run_id_at(at(draw)), limit=200)
        ),
        "search problems for frequent words": lambda console, draw: console.runs(
            RunQuery(problems=True, error=draw.choice(ERRORS))
        ),
        "search problems for one order": lambda console, draw: console.runs(
            RunQuery(problems=True, error=f"order-{draw.randrange(count)}")
        ),
        "search runs for a subject": lambda console, draw: console.runs(
            RunQuery(subject=f"customer-{draw.randrange(count // 10 + 1)}")
        ),
        "list runs of a type": lambda console, draw: console.runs(RunQuery(type=f"type-{draw.randrange(7)}")),
        "page of a run": lambda console, draw: console.run(draw.choice(runs)),
        "page of a failed run": lambda console, draw: console.run(draw.choice(failed)),
        "list events": lambda console, _: console.events(EventQuery()),
        "list events, a page far back": lambda console, draw: console.events(EventQuery(until=at(draw))),
        "search events for a subject": lambda console, draw: console.events(
            EventQuery(subject=f"customer-{draw.randrange(count // 10 + 1)}")
        ),
        "list events without runs, of which there are none": lambda console, draw: console.events(
            EventQuery(without_runs=True, until=at(draw))
        ),
        "list events, the last page": lambda console, _: console.events(
            EventQuery(until=now - MONTH_MS + 30 * MONTH_MS // count)
        ),
        "list events of a source and type": lambda console, draw: console.events(
            EventQuery(source="stripe", type="type-3", until=at(draw))
        ),
        "list deliveries": lambda console, _: console.deliveries(DeliveryQuery()),
        "list deliveries of a source, of which there are none": lambda console, _: console.deliveries(
            DeliveryQuery(source=QUIET)
        ),
        "list clashes, of which there are none": lambda console, _: console.deliveries(
            DeliveryQuery(outcome="clash")
        ),
        "list what could not be read": lambda console, _: console.deliveries(
            DeliveryQuery(outcome="unparsed")
        ),
        "sources": lambda console, _: console.sources(),
        "workers": lambda console, _: console.workers(),
        "list the audit": lambda console, _: console.audit(),
    }


async def ask(app: App, count: int, now: int) -> dict[str, list[tuple[float, float]]]:
    """Ask each question; give how long each answer took, in milliseconds, and of that this process's CPU."""
    await app.open(runs=False)
    try:
        console, draw = LocalConsole(app), random.Random(11)
        far = [
            run.run_id
            for _ in range(20)
            for run in (
                await console.runs(RunQuery(after=run_id_at(now - draw.randrange(MONTH_MS)), limit=20))
            ).items
        ]
        failed = [run.run_id for run in (await console.runs(RunQuery(problems=True, limit=200))).items]
        took: dict[str, list[tuple[float, float]]] = {}
        for name, question in questions(count, now, far, failed).items():
            took[name] = []
            for _ in range(ASKED + 1):
                began, began_cpu = time.perf_counter(), time.process_time()
                await question(console, draw)
                cpu = time.process_time() - began_cpu
                took[name].append(((time.perf_counter() - began) * 1_000, cpu * 1_000))
        return {name: values[1:] for name, values in took.items()}
    finally:
        await app.close("1s")


def measure(store: str, url: str | None, count: int, *, browser: bool = False) -> dict[str, Any]:
    """Give what each question took of *count* runs, and of `BESIDE` runs.

    Args:
        store: ``sqlite`` or ``postgres``.
        url: of a PostgreSQL to use.
        count: runs.
        browser: also open pages in Chromium, each `VIEWED` times, until their first row is there.

    Returns:
        ``questions``: by name p50 and p95 in milliseconds, p50 of the CPU of this process, ``beside_p95_ms``
        and ``ratio``, of the p95. That CPU is all there is on SQLite, and tells a slow answer from a busy
        machine; PostgreSQL's is not in it. ``settings`` says of what.
    """
    with open_databases(store, url) as databases:
        beside = _asked(databases, min(BESIDE, count), browser=browser)
        found = _asked(databases, count, browser=browser)
        settings = {**databases.describe(), "runs": count, "beside_runs": min(BESIDE, count), "asked": ASKED}
    return {
        "settings": settings,
        "questions": {name: _figures(values, beside[name]) for name, values in found.items()},
    }


def _asked(
    databases: SqliteFiles | PostgresDatabases, count: int, *, browser: bool
) -> dict[str, list[tuple[float, float]]]:
    with databases.fresh("console") as fresh:
        app = app_for(fresh.url)
        empty = make_store(app.settings, now_ms=lambda: time.time_ns() // 1_000_000, draw=random.random)
        empty.open(migrate=True)
        empty.close()
        now, began = time.time_ns() // 1_000_000, time.perf_counter()
        fill(fresh.url, count, now)
        print(f"{count:,} runs in {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
        took = asyncio.run(ask(app, count, now))
        if browser:
            from benchmarks.first_view import first_views

            views = asyncio.run(first_views(lambda: app_for(fresh.url), VIEWED))
            took |= {f"browser: {page}": [(wall, 0.0) for wall in walls] for page, walls in views.items()}
        return took


def app_for(url: str) -> App:
    """Give an app with the sources that the deliveries are of, and one of which there are none."""
    app = App(url, poll="10s", lease="60s")
    for name in (*(source for source in SOURCES if "/" not in source), QUIET):
        app.source(Stripe(name=name, insecure=True))
    return app


def _figures(values: list[tuple[float, float]], beside: list[tuple[float, float]]) -> dict[str, float]:
    p95, beside_p95 = (percentile([wall for wall, _ in took], 95) for took in (values, beside))
    return {
        "p50_ms": percentile([wall for wall, _ in values], 50),
        "p95_ms": p95,
        "cpu_ms": percentile([cpu for _, cpu in values], 50),
        "beside_p95_ms": beside_p95,
        "ratio": round(p95 / max(beside_p95, 0.1), 2),
    }


def percentile(values: Sequence[float], percent: int) -> float:
    """Give what so many percent of the values do not exceed."""
    return round(sorted(values)[len(values) * percent // 100], 1)


def is_slow(figures: dict[str, float]) -> bool:
    """Say whether a question takes longer than it may."""
    return figures["p95_ms"] > SLOW_MS and figures["ratio"] > RATIO_MAX


def table(found: dict[str, Any]) -> str:
    """Give the result for people; what takes longer than it may is marked."""
    questions, settings = found["questions"], found["settings"]
    width = max(map(len, questions))
    lines = [f"{'':{width}}  p50 ms  p95 ms  CPU ms  p95 ms of {settings['beside_runs']:,}  ratio"]
    for name, values in questions.items():
        mark = "  SLOW" if is_slow(values) else ""
        lines.append(
            f"{name:{width}}  {values['p50_ms']:6.1f}  {values['p95_ms']:6.1f}  {values['cpu_ms']:6.1f}"
            f"  {values['beside_p95_ms']:16.1f}  {values['ratio']:5.2f}{mark}"
        )
    return "\n".join(lines)
