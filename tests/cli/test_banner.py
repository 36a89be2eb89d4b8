"""The banner's lines for what a test cannot serve."""

from __future__ import annotations

from onceward import App, Context
from onceward.cli.banner import Facts, lines
from onceward.sources import GitHub, Stripe


def shop() -> App:
    app = App("sqlite:///shop.db", concurrency=8)
    stripe = app.source(Stripe(secrets=["whsec_0123456789abcdefghij", "whsec_short"]))
    app.source(GitHub(name="hub", insecure=True))

    @app.workflow(on=[stripe["charge.*"], "order.paid"])
    async def charged(ctx: Context, event: object) -> None: ...

    @app.workflow
    async def by_name(ctx: Context) -> None: ...

    return app


def found(facts: Facts, label: str) -> list[str]:
    return [text for name, text in lines(shop(), facts) if name == label]


OLD = {"store": "sqlite shop.db", "version": "SQLite 3.40.1", "durability": "WAL, synchronous=FULL"}


def test_sources_and_workflows_stand_in_columns_with_secrets_masked() -> None:
    facts = Facts("serve", OLD, address="http://127.0.0.1:8000")

    assert found(facts, "sources") == [
        "POST /hooks/stripe  Stripe, whsec_…ghij, whsec_…",
        "POST /hooks/hub     GitHub, INSECURE, accepts anything",
    ]
    assert found(facts, "workflows") == ["charged  stripe charge.*, order.paid", "by_name  started by name"]


def test_a_worker_has_no_address() -> None:
    facts = Facts("worker", OLD)

    assert found(facts, "address") == []
    assert found(facts, "sources")[0] == "stripe  Stripe, whsec_…ghij, whsec_…"


def test_old_sqlite_is_noted_where_several_processes_share_the_file() -> None:
    new = OLD | {"version": "SQLite 3.51.3"}

    assert found(Facts("serve", OLD), "note") == []
    assert found(Facts("serve", new, workers=3), "note") == []
    assert "SQLite before 3.51.3" in found(Facts("serve", OLD, workers=3), "note")[0]


def test_that_transactions_wait_beside_a_second_process_is_said_where_the_app_has_some() -> None:
    waiting = "wait: none begins while a second process uses"

    assert not any(waiting in text for text in found(Facts("worker", OLD, workers=2), "note"))
    told = found(Facts("worker", OLD, workers=2, has_transactions=True), "note")
    assert waiting in told[1]


def test_one_of_something_is_told_in_the_singular() -> None:
    app = App("sqlite:///shop.db", concurrency=1, threads=1)

    assert ("at once", "1 run, 1 thread") in lines(app, Facts("serve", OLD))


def test_how_postgresql_is_connected_is_said() -> None:
    store = {"store": "host/db", "version": "PostgreSQL 15.8", "durability": "on", "connection": "direct"}

    assert found(Facts("worker", store), "connection") == ["direct"]


def test_promises_without_the_secret_for_it_are_noted() -> None:
    app = App("sqlite:///shop.db")

    @app.workflow
    async def approve(ctx: Context) -> None:
        async def ask() -> object:
            return await ctx.step.promise("approval", timeout="3d")

        await ask()

    @app.workflow
    async def keep(ctx: Context, promise: str) -> None:
        await ctx.step.run("keep", lambda: promise)

    def notes() -> list[str]:
        return [text for label, text in lines(app, Facts("serve", OLD)) if label == "note"]

    assert notes() == [
        "promises are made in 'approve', and promise_secret (ONCEWARD_PROMISE_SECRET) is not set: a run that "
        "makes one is held."
    ]
    app.configure(promise_secret="0123456789abcdef" * 2)
    assert notes() == []
