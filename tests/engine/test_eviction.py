"""A process that was evicted registers anew; what comes meanwhile waits for it, and not for ever."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from onceward import App, Context, StoreUnavailable
from onceward.core import failpoints
from onceward.core.errors import ReplyLost
from onceward.core.ids import IdSource
from onceward.core.ports import Store
from tests.engine.running import make_app, open_store, run_app


def evict(url: str) -> None:
    """Take every process over, as another one would whose clock says that their leases have ended."""
    with open_store(url) as store:
        store.take_over(store.now_ms() + 3_600_000, crash_limit=3, skip="")


def test_starts_and_emits_wait_for_the_new_registration(store_url: str) -> None:
    app = make_app(store_url)

    @app.workflow(on="order.paid")
    async def flow(ctx: Context, event: Any) -> str:
        return await ctx.step.run("work", lambda: "done")

    async def scenario() -> list[str]:
        before = app.worker.process_id
        await asyncio.to_thread(evict, store_url)
        emitting = asyncio.create_task(app.emit("order.paid", id="1"))
        handles = await asyncio.gather(*[app.start(flow, {"n": n}, id=str(n)) for n in range(20)])
        assert app.worker.process_id != before
        return [await handle.result() for handle in (*handles, *(await emitting).runs)]

    assert run_app(app, scenario) == ["done"] * 21


def test_who_starts_a_run_hears_so_though_the_reply_is_lost_and_the_lease_with_it(store_url: str) -> None:
    app = make_app(store_url)

    @app.workflow
    async def flow(ctx: Context) -> str:
        return "done"

    def lose(name: str, _detail: str) -> None:
        if name == "accept.after_commit":
            failpoints.arm(None)
            evict(store_url)
            raise ReplyLost("lost")

    async def scenario() -> list[bool]:
        failpoints.arm(lose)
        try:
            first = await app.start(flow, id="1")
        finally:
            failpoints.arm(None)
        again = await app.start(flow, id="1")
        assert first.run_id == again.run_id
        return [first.is_duplicate, again.is_duplicate]

    assert run_app(app, scenario) == [False, True]


class _Deaf:
    """A store that lets nobody register any more once it is told so."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.is_deaf = False

    def __getattr__(self, name: str) -> Any:
        if name == "join" and self.is_deaf:
            raise StoreUnavailable("The store is away.")
        return getattr(self._inner, name)


class _DeafApp(App):
    deaf: _Deaf

    def _make_store(self, draws: IdSource) -> Store:
        self.deaf = _Deaf(super()._make_store(draws))
        return self.deaf


def test_a_registration_that_does_not_come_is_told_after_a_while(sqlite_url: str) -> None:
    app = _DeafApp(sqlite_url, poll="50ms", drain="1s")

    @app.workflow
    async def flow(ctx: Context) -> None: ...

    async def scenario() -> None:
        app.deaf.is_deaf = True
        await asyncio.to_thread(evict, sqlite_url)
        with pytest.raises(StoreUnavailable, match="could not register anew within 5 s") as told:
            await app.start(flow, id="1")
        assert told.value.means == "Nothing was stored."
        app.deaf.is_deaf = False
        handle = await app.start(flow, id="1")
        assert not handle.is_duplicate
        await handle.result()

    run_app(app, scenario)


@pytest.mark.parametrize("fault", [ReplyLost("lost"), RuntimeError("odd")], ids=["lost", "odd"])
def test_what_may_be_stored_is_not_said_to_be_nothing_where_reply_and_registration_are_lost(
    store_url: str, fault: Exception
) -> None:
    app = _DeafApp(store_url, poll="50ms", drain="1s")

    @app.workflow
    async def flow(ctx: Context) -> None: ...

    def lose(name: str, _detail: str) -> None:
        if name == "accept.after_commit":
            failpoints.arm(None)
            app.deaf.is_deaf = True
            evict(store_url)
            raise fault

    async def scenario() -> None:
        failpoints.arm(lose)
        try:
            with pytest.raises(StoreUnavailable, match="could not register anew within 5 s") as told:
                await app.start(flow, id="1")
        finally:
            failpoints.arm(None)
        assert told.value.means == "It may have been stored."
        # What came behind it never left this process.
        with pytest.raises(StoreUnavailable) as behind:
            await app.start(flow, id="2")
        assert behind.value.means == "Nothing was stored."
        app.deaf.is_deaf = False
        again, first = await app.start(flow, id="1"), await app.start(flow, id="2")
        assert (again.is_duplicate, first.is_duplicate) == (True, False)
        await first.result()

    run_app(app, scenario)


def test_what_may_be_stored_stays_so_where_the_next_try_finds_no_store(store_url: str) -> None:
    app = _DeafApp(store_url, poll="50ms", drain="1s")

    @app.workflow
    async def flow(ctx: Context) -> None: ...

    def lose(name: str, _detail: str) -> None:
        if name == "accept.after_commit":
            evict(store_url)
            failpoints.arm(away)
            raise ReplyLost("lost")

    def away(name: str, _detail: str) -> None:
        if name == "accept.after_commit":
            raise StoreUnavailable("The store is away.", means="Nothing was written.")

    async def scenario() -> None:
        failpoints.arm(lose)
        try:
            with pytest.raises(StoreUnavailable, match="The store is away") as told:
                await app.start(flow, id="1")
        finally:
            failpoints.arm(None)
        assert told.value.means == "It may have been stored."
        again = await app.start(flow, id="1")
        assert again.is_duplicate

    run_app(app, scenario)
