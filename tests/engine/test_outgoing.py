"""Idempotency keys on real requests of real clients, and keys that outlive a run or are forgotten."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import aiohttp
import httpx
import httpx2
import pytest
import requests

from onceward import AUTO, App, ConfigError, Context, IdempotencyKey, RunState, SyncContext, event
from onceward.outgoing import HEADER, NO_KEY, KeyingAdapter, key_request, keyed, trace_config
from tests.engine.running import ONCE, SOON, evict, make_app, result_of, run_app
from tests.helpers import eventually_async


class Service:
    """A service that notes the keys of the requests that it gets."""

    def __init__(self) -> None:
        self.got: list[tuple[str, str, str | None]] = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                service.got.append((self.command, self.path, self.headers.get(HEADER)))
                self.send_response(307 if self.path == "/moved" else 200)
                if self.path == "/moved":
                    self.send_header("Location", "/there")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *_: object) -> None:
                pass

        for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
            setattr(Handler, f"do_{method}", Handler._answer)
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def keys(self, path: str = "") -> list[str | None]:
        return [key for _, at, key in self.got if at == path or not path]


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    thread = threading.Thread(target=service.server.serve_forever, args=(0.01,))
    thread.start()
    yield service
    service.server.shutdown()
    thread.join()
    service.server.server_close()


Send = Callable[..., Awaitable[None]]
WithClient = Callable[[Callable[[Send], Awaitable[Any]]], Awaitable[Any]]


async def with_httpx(use: Callable[[Send], Awaitable[Any]]) -> Any:
    async with keyed(httpx.AsyncClient(follow_redirects=True)) as client:

        async def send(method: str, url: str, **headers: str) -> None:
            await client.request(method, url, headers=headers)

        return await use(send)


async def with_httpx_blocking(use: Callable[[Send], Awaitable[Any]]) -> Any:
    with keyed(httpx.Client(follow_redirects=True)) as client:

        async def send(method: str, url: str, **headers: str) -> None:
            await asyncio.to_thread(client.request, method, url, headers=headers)

        return await use(send)


async def with_httpx2(use: Callable[[Send], Awaitable[Any]]) -> Any:
    async with keyed(httpx2.AsyncClient(follow_redirects=True)) as client:

        async def send(method: str, url: str, **headers: str) -> None:
            await client.request(method, url, headers=headers)

        return await use(send)


async def with_httpx2_blocking(use: Callable[[Send], Awaitable[Any]]) -> Any:
    with keyed(httpx2.Client(follow_redirects=True)) as client:

        async def send(method: str, url: str, **headers: str) -> None:
            await asyncio.to_thread(client.request, method, url, headers=headers)

        return await use(send)


async def with_aiohttp(use: Callable[[Send], Awaitable[Any]]) -> Any:
    async with keyed(aiohttp.ClientSession()) as session:

        async def send(method: str, url: str, **headers: str) -> None:
            async with session.request(method, url, headers=headers) as response:
                await response.read()

        return await use(send)


async def with_requests(use: Callable[[Send], Awaitable[Any]]) -> Any:
    with keyed(requests.Session()) as session:

        async def send(method: str, url: str, **headers: str) -> None:
            await asyncio.to_thread(session.request, method, url, headers=headers)

        return await use(send)


CLIENTS = [with_httpx, with_httpx_blocking, with_httpx2, with_httpx2_blocking, with_aiohttp, with_requests]


@pytest.fixture(params=CLIENTS, ids=lambda with_client: with_client.__name__)
def with_client(request: pytest.FixtureRequest) -> WithClient:
    return request.param  # type: ignore[no-any-return]


def test_requests_of_a_body_carry_keys_that_are_the_same_at_every_try(
    sqlite_url: str, service: Service, with_client: WithClient
) -> None:
    app = make_app(sqlite_url)
    given: list[str] = []

    @app.workflow()
    async def flow(ctx: Context) -> None:
        async def body(*, key: IdempotencyKey = AUTO) -> None:
            async def use(send: Send) -> None:
                given.append(key)
                await send("GET", f"{service.url}/look")
                await send("POST", f"{service.url}/charge")
                await send("POST", f"{service.url}/mail")
                await send("POST", f"{service.url}/mail")
                for method in ("PUT", "PATCH", "DELETE"):
                    await send(method, f"{service.url}/{method}")
                if len(given) < 3:
                    raise ConnectionError

            await with_client(use)

        await ctx.step.run("one", body, retry=SOON)
        await ctx.step.run("two", body, retry=SOON)

    result_of(app, flow)

    assert set(service.keys("/look")) == {None}
    one, again, third, two = (service.keys()[start : start + 7] for start in (0, 7, 14, 21))
    assert one == again == third
    assert one[1] == given[0]
    assert two[1] == given[3]
    assert len({*one[1:], *two[1:]}) == 12


def test_a_header_of_the_callers_own_stays_and_one_call_can_opt_out(
    sqlite_url: str, service: Service, with_client: WithClient
) -> None:
    app = make_app(sqlite_url)

    @app.workflow()
    async def flow(ctx: Context) -> None:
        async def use(send: Send) -> None:
            await send("POST", f"{service.url}/mine", **{"idempotency-key": "mine"})
            await send("POST", f"{service.url}/none", **NO_KEY)
            await send("POST", f"{service.url}/both")

        await ctx.step.run("send", with_client, use)

    result_of(app, flow)

    mine, none, both = service.keys()
    assert (mine, none) == ("mine", None)
    assert both is not None
    assert both.startswith("ow_")


def test_a_request_that_is_sent_elsewhere_keeps_its_key(
    sqlite_url: str, service: Service, with_client: WithClient
) -> None:
    app = make_app(sqlite_url)

    @app.workflow()
    async def flow(ctx: Context) -> None:
        await ctx.step.run("send", with_client, lambda send: send("POST", f"{service.url}/moved"))

    result_of(app, flow)

    assert [path for _, path, _ in service.got] == ["/moved", "/there"]
    assert len(set(service.keys())) == 1
    assert service.keys() != [None, None]


def test_outside_a_steps_body_nothing_is_added(
    sqlite_url: str, service: Service, with_client: WithClient
) -> None:
    app = make_app(sqlite_url)
    late: list[asyncio.Task[None]] = []

    @app.workflow()
    async def flow(ctx: Context) -> None:
        async def use(send: Send) -> None:
            await send("POST", f"{service.url}/between")

            async def body() -> None:
                is_over = asyncio.Event()

                async def later() -> None:
                    await is_over.wait()
                    await send("POST", f"{service.url}/late")

                late.append(asyncio.create_task(later()))
                asyncio.get_running_loop().call_later(0.01, is_over.set)

            await ctx.step.run("body", body)
            await late[0]

        await with_client(use)

    async def plainly() -> None:
        await with_client(lambda send: send("POST", f"{service.url}/outside"))

    asyncio.run(plainly())
    result_of(app, flow)

    assert [path for _, path, _ in service.got] == ["/outside", "/between", "/late"]
    assert service.keys() == [None, None, None]


def test_plain_steps_in_plain_workflows_have_keys_too(sqlite_url: str, service: Service) -> None:
    app = make_app(sqlite_url)
    session = keyed(requests.Session())

    @app.step
    def charge(*, key: IdempotencyKey = AUTO) -> str:
        session.post(f"{service.url}/charge")
        return key

    @app.workflow()
    def flow(ctx: SyncContext) -> str:
        return charge()

    given = result_of(app, flow)
    session.close()

    assert service.keys() == [given]


def test_a_client_is_made_ready_once_and_keeps_its_own_hooks() -> None:
    seen: list[object] = []
    client = keyed(keyed(httpx.Client(event_hooks={"request": [seen.append]})))
    session = keyed(keyed(requests.Session()))

    assert client.event_hooks["request"] == [seen.append, key_request]
    adapters = list(session.adapters.values())
    assert all(isinstance(adapter, KeyingAdapter) for adapter in adapters)
    assert not any(isinstance(adapter._adapter, KeyingAdapter) for adapter in adapters)  # type: ignore[attr-defined]
    first: Any = adapters[0]
    assert first.max_retries.total == 0
    client.close()
    session.close()


def test_what_is_no_client_is_refused() -> None:
    with pytest.raises(ConfigError, match="of type str"):
        keyed("https://a.example")


def test_a_trace_of_ones_own_session_does_the_same(sqlite_url: str, service: Service) -> None:
    app = make_app(sqlite_url)

    @app.workflow()
    async def flow(ctx: Context) -> None:
        async def body() -> None:
            async with aiohttp.ClientSession(trace_configs=[trace_config()]) as session:
                await session.post(f"{service.url}/charge")

        await ctx.step.run("send", body)

    result_of(app, flow)

    assert service.keys() != [None]


# --- keys of what the run is about ---------------------------------------------------------------


def test_a_business_key_is_the_same_after_a_restart_and_in_a_replay(store_url: str) -> None:
    app = make_app(store_url)
    keys: list[str] = []

    async def pay(*, key: IdempotencyKey = AUTO) -> None:
        keys.append(key)

    @app.step(key_scope="business")
    async def refund(*, key: IdempotencyKey = AUTO) -> None:
        keys.append(key)

    @app.workflow()
    async def flow(ctx: Context) -> None:
        await ctx.step.run("pay", pay, key_scope="business")
        await ctx.step.run("pay", pay, item="2", key_scope="business")
        await refund()

    async def scenario() -> None:
        handle = await app.start(flow)
        await handle.result()
        await handle.restart(acknowledge=True)
        await handle.result()
        replay = await handle.replay()
        await replay.result()
        await (await app.start(flow)).result()

    run_app(app, scenario)

    first, restarted, replayed, other = (keys[start : start + 3] for start in (0, 3, 6, 9))
    assert first == restarted == replayed
    assert len({*first, *other}) == 6


def test_business_keys_of_two_workflows_on_one_event_differ(sqlite_url: str) -> None:
    app = make_app(sqlite_url)
    keys: list[str] = []

    @app.step(key_scope="business")
    async def pay(*, key: IdempotencyKey = AUTO) -> None:
        keys.append(key)

    @app.workflow(on="paid")
    async def one(ctx: Context) -> None:
        await pay()

    @app.workflow(on="paid")
    async def two(ctx: Context) -> None:
        await pay()

    async def scenario() -> None:
        emitted = await app.emit("paid", {}, id="A-1")
        for run in emitted.runs:
            await run.result()

    run_app(app, scenario)

    assert len(set(keys)) == 2


def test_a_scope_of_a_step_called_in_a_body_is_its_own(sqlite_url: str) -> None:
    app = make_app(sqlite_url)
    keys: list[tuple[str, str]] = []

    @app.step(key_scope="business")
    async def pay(*, key: IdempotencyKey = AUTO) -> str:
        return key

    @app.workflow()
    async def flow(ctx: Context) -> None:
        async def body(*, key: IdempotencyKey = AUTO) -> None:
            keys.append((key, await pay()))

        await ctx.step.run("body", body)

    async def scenario() -> None:
        handle = await app.start(flow)
        await handle.result()
        await handle.restart(acknowledge=True)
        await handle.result()

    run_app(app, scenario)

    assert keys[0][0] != keys[1][0]
    assert keys[0][1] == keys[1][1]


@pytest.mark.parametrize("wrong", [{"key_scope": "order"}, {"key_memory": "a day"}])
def test_a_wrong_scope_or_memory_is_refused_where_it_is_written(
    sqlite_url: str, wrong: dict[str, Any]
) -> None:
    app = make_app(sqlite_url)

    with pytest.raises(ConfigError, match=next(iter(wrong))):
        app.step(**wrong)(lambda: None)


# --- keys that are forgotten ---------------------------------------------------------------------

MEMORY_MS = 300


class Charging:
    """An app whose step hangs in its first try, until its run is thrown out of memory."""

    def __init__(self, url: str, **options: Any) -> None:
        self.app: App = make_app(url)
        self.keys: list[str] = []
        self.is_hanging = False

        async def charge(*, key: IdempotencyKey = AUTO) -> str:
            self.keys.append(key)
            if len(self.keys) == 1:
                self.is_hanging = True
                await asyncio.sleep(30)
            return key

        @self.app.workflow()
        async def flow(ctx: Context) -> str:
            return await ctx.step.run("charge", charge, retry=ONCE, **options)

        self.flow = flow

    async def cut_off(self, *, after_ms: int) -> Any:
        """Start a run, and cut its step off when that many milliseconds have passed."""
        handle = await self.app.start(self.flow)

        async def hangs() -> bool:
            return self.is_hanging

        await eventually_async(hangs)
        begun = time.monotonic()

        async def has_passed() -> bool:
            return (time.monotonic() - begun) * 1000 > after_ms

        await eventually_async(has_passed)
        await evict(self.app, handle.run_id)
        return handle


async def state_of(handle: Any) -> RunState:
    return await handle.state()  # type: ignore[no-any-return]


async def is_held(handle: Any) -> bool:
    return await state_of(handle) is RunState.HELD


def test_a_try_beyond_the_memory_of_its_receiver_is_held_for_a_person(store_url: str) -> None:
    charging = Charging(store_url, key_memory=MEMORY_MS / 1000)

    async def scenario() -> tuple[str, str]:
        handle = await charging.cut_off(after_ms=MEMORY_MS + 50)
        await eventually_async(lambda: is_held(handle))
        reason = (await handle.row()).reason or ""
        assert len(charging.keys) == 1
        await handle.answer("retry")
        return reason, await handle.result()

    reason, result = run_app(charging.app, scenario)

    assert "the key of step 'charge' may be forgotten" in reason
    assert charging.keys == [result, result]


def test_a_person_may_give_up_instead(sqlite_url: str) -> None:
    charging = Charging(sqlite_url, key_memory=MEMORY_MS / 1000)

    async def scenario() -> RunState:
        handle = await charging.cut_off(after_ms=MEMORY_MS + 50)
        await eventually_async(lambda: is_held(handle))
        await handle.answer("fail")
        return await state_of(handle)

    assert run_app(charging.app, scenario) is RunState.FAILED
    assert len(charging.keys) == 1


@pytest.mark.parametrize("options", [{"key_memory": "24h"}, {"unknown": "retry"}])
def test_a_try_within_the_memory_is_run_again(store_url: str, options: dict[str, Any]) -> None:
    charging = Charging(store_url, **options)

    async def scenario() -> str:
        handle = await charging.cut_off(after_ms=0)
        return await handle.result()  # type: ignore[no-any-return]

    assert charging.keys == [run_app(charging.app, scenario)] * 2


def test_a_retry_that_comes_too_late_is_held_too(sqlite_url: str) -> None:
    app = make_app(sqlite_url)
    tries: list[float] = []

    async def has_passed() -> bool:
        return (time.monotonic() - tries[0]) * 1000 > MEMORY_MS + 50

    @app.step(retry=SOON, key_memory=MEMORY_MS / 1000)
    async def charge() -> None:
        tries.append(time.monotonic())
        await eventually_async(has_passed)
        raise ConnectionError

    @app.workflow()
    async def flow(ctx: Context) -> None:
        await charge()

    async def scenario() -> None:
        handle = await app.start(flow)
        await eventually_async(lambda: is_held(handle))

    run_app(app, scenario)

    assert len(tries) == 1


def test_a_restart_with_a_business_key_beyond_the_memory_is_held(store_url: str) -> None:
    app = make_app(store_url)
    begun: list[float] = []

    @app.step(key_scope="business", key_memory=MEMORY_MS / 1000)
    async def charge() -> None:
        begun.append(time.monotonic())

    @app.workflow()
    async def flow(ctx: Context) -> None:
        await charge()

    async def has_passed() -> bool:
        return (time.monotonic() - begun[0]) * 1000 > MEMORY_MS + 50

    async def scenario() -> list[int]:
        handle = await app.start(flow)
        await handle.result()
        counts = [len(begun)]
        await eventually_async(has_passed)
        await handle.restart(acknowledge=True)
        await eventually_async(lambda: is_held(handle))
        replay = await handle.replay()
        await eventually_async(lambda: is_held(replay))
        counts.append(len(begun))
        await handle.answer("retry")
        await handle.result()
        return [*counts, len(begun)]

    assert run_app(app, scenario) == [1, 1, 2]


def test_another_event_of_the_same_key_beyond_the_memory_is_held(store_url: str) -> None:
    """Its keys are those of the first run: whoever got them may have forgotten them since."""
    app = make_app(store_url)
    begun: list[tuple[str, float]] = []

    @app.step(key_scope="business", key_memory=MEMORY_MS / 1000)
    async def charge(*, key: IdempotencyKey = AUTO) -> str:
        begun.append((key, time.monotonic()))
        return key

    @app.workflow(key=event.payload["order"], once="active")
    async def flow(ctx: Context, order: int) -> str:
        return await charge()

    async def has_passed() -> bool:
        return (time.monotonic() - begun[0][1]) * 1000 > MEMORY_MS + 50

    async def scenario() -> None:
        first = await app.start(flow, 7)
        key = await first.result()
        await eventually_async(has_passed)
        second = await app.start(flow, 7)
        await eventually_async(lambda: is_held(second))
        other = await app.start(flow, 8)
        assert await other.result() != key
        assert len(begun) == 2
        await second.answer("retry")
        assert await second.result() == key

    run_app(app, scenario)
