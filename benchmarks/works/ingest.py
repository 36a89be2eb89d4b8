"""Deliveries over HTTP, signed, durable before the reply, with a run of one step for each.

The server has one core and the load the other. In the same round, on the same core, an application
that answers "hello" and does nothing says what HTTP alone costs. Both are measured with bodies of
300 bytes and of 2 KB, over 64 connections; then, at 70 % of what was reached, how long the slowest
hundredth waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, Self

from benchmarks import http_load
from benchmarks.job import Job
from benchmarks.measure import cpu_s, percentile
from benchmarks.payload import payload
from benchmarks.works.common import CountedApp, loop_name, make_app, run_loop
from onceward import Context, Event
from onceward.cli.starting import spare_collections
from onceward.sources import Stripe

SECRET = "whsec_benchmarks"
SIZES = {"": 300, "_2k": 2_048}
SHARE = 0.7
FINISH_SECONDS_MAX = 10.0
WARM_UP_SECONDS = 1.0


def run(job: Job) -> dict[str, Any]:
    """Measure one round, or be one of its servers."""
    pin(0 if job.phase else 1)
    return run_loop(_serve(job) if job.phase else _measure(job))


CORES = sorted(os.sched_getaffinity(0))


def pin(number: int) -> None:
    """Keep this process on one of the cores it was given, where there are several."""
    os.sched_setaffinity(0, {CORES[number % len(CORES)]})


# --- the servers --------------------------------------------------------------------------------


def _make_app(job: Job) -> CountedApp:
    app = make_app(job)
    stripe = app.source(Stripe(secrets=[SECRET]))

    @app.workflow(on=stripe["*"])
    async def paid(ctx: Context, event: Event) -> None:  # noqa: ARG001 (the engine's)
        async def body() -> None: ...

        await ctx.step.run("body", body)

    return app


async def _hello(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        for stage in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{stage}.complete"})
        return
    while (await receive()).get("more_body", False):
        pass  # whatever takes a delivery reads its body
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
    await send({"type": "http.response.body", "body": b"hello"})


async def _serve(job: Job) -> dict[str, Any]:
    """Serve until standard input is closed."""
    import uvicorn

    app = _make_app(job)
    listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
    # As `onceward serve` does; both servers alike.
    config = uvicorn.Config(
        _hello if job.phase.startswith("hello") else app.asgi(),
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
    )
    server = uvicorn.Server(config)

    def announce_and_wait() -> None:
        if not job.phase.startswith("hello"):
            spare_collections()  # as `onceward serve` does
        deadline = time.monotonic() + 60
        while not server.started and time.monotonic() < deadline:
            time.sleep(0.01)
        print(listening.getsockname()[1], flush=True)
        for line in sys.stdin:
            answer = asyncio.run_coroutine_threadsafe(_unfinished(app), loop).result() if line else 0
            print(answer, flush=True)
        server.should_exit = True

    loop = asyncio.get_running_loop()
    threading.Thread(target=announce_and_wait, daemon=True).start()
    await server.serve(sockets=[listening])
    return {}


async def _unfinished(app: CountedApp) -> int:
    """Give how many runs are not finished, as the store says."""
    worker = app.worker
    return len((await worker.read(worker.store.dump, "queue"))["queue"])


class _Server:
    """A server in a process of its own, on the other core."""

    def __init__(self, job: Job, phase: str) -> None:
        os.sched_setaffinity(0, CORES)  # a child begins with the cores of its parent
        try:
            self._process = job.start_phase(phase, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        finally:
            pin(1)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout
        self.port = int(self._out.readline())

    def cpu_s(self) -> float:
        """Give the CPU seconds that the server used so far."""
        return cpu_s([self._process.pid])

    def unfinished(self) -> int:
        """Ask how many runs are not finished."""
        self._in.write("?\n")
        self._in.flush()
        return int(self._out.readline())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._in.close()
        self._process.wait(60)
        self._out.close()


# --- the load -----------------------------------------------------------------------------------


def _requests(size: int, first: int, count: int) -> Iterator[bytes]:
    """Make deliveries that differ in their event's id, beforehand: the load does not pay for them."""
    made = []
    now = int(time.time())
    for number in range(first, first + count):
        body = json.dumps(payload(number)).encode()
        if len(body) < size:
            note = json.dumps({**payload(number), "note": "x" * (size - len(body) - 12)})
            body = note.encode()
        signed = hmac.new(SECRET.encode(), b"%d.%s" % (now, body), hashlib.sha256).hexdigest()
        head = (
            "POST /hooks/stripe HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            f"user-agent: Stripe/1.0\r\nstripe-signature: t={now},v1={signed}\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        made.append(head.encode() + body)
    return iter(made)


async def _measure(job: Job) -> dict[str, Any]:
    seconds = float(job.runs)
    found: dict[str, Any] = {"is_right": True}
    first = 0
    for suffix, size in SIZES.items():

        def some(count: int, size: int = size) -> Iterator[bytes]:
            nonlocal first
            first += count
            return _requests(size, first - count, count)

        with _Server(job, f"hello{suffix}") as hello:
            await http_load.closed_loop(hello.port, some(int(20_000 * WARM_UP_SECONDS)), WARM_UP_SECONDS)
            hello_cpu_s = -hello.cpu_s()
            said = await http_load.closed_loop(hello.port, some(int(25_000 * seconds)), seconds)
            hello_cpu_s += hello.cpu_s()
        with _Server(job, f"serve{suffix}") as ours:
            await http_load.closed_loop(ours.port, some(int(10_000 * WARM_UP_SECONDS)), WARM_UP_SECONDS)
            ours_cpu_s = -ours.cpu_s()
            taken = await http_load.closed_loop(ours.port, some(int(12_000 * seconds)), seconds)
            finished_s = await _finish(ours)
            ours_cpu_s += ours.cpu_s()
            rate = SHARE * taken.per_s
            steady = await http_load.open_loop(ours.port, some(int(rate * seconds) + 1), seconds, rate)
            await _finish(ours)
        found |= {
            f"accepted{suffix}_per_s": taken.per_s,
            f"hello{suffix}_per_s": said.per_s,
            f"share_of_hello{suffix}": round(taken.per_s / said.per_s, 3),
            f"p99{suffix}_ms": round(percentile(steady.took, 99) * 1e3, 2),
            f"p99_closed{suffix}_ms": round(percentile(taken.took, 99) * 1e3, 2),
            f"finished{suffix}_s": round(finished_s, 2),
            # What neighbours on the machine change least.
            f"cpu_us_hello{suffix}": round(hello_cpu_s / len(said.took) * 1e6, 1),
            f"cpu_us_accepted{suffix}": round(ours_cpu_s / len(taken.took) * 1e6, 1),
        }
        found["is_right"] = (
            found["is_right"] and taken.are_2xx and steady.are_2xx and finished_s <= FINISH_SECONDS_MAX
        )
    return {
        **found,
        "settings": {
            "connections": http_load.CONNECTIONS,
            "seconds": seconds,
            "loop": loop_name(),
            "cores": len(CORES),
            "signed": "Stripe",
        },
    }


async def _finish(server: _Server) -> float:
    """Give the seconds from the last reply until every run is finished."""
    began = time.perf_counter()
    while await asyncio.to_thread(server.unfinished):
        if time.perf_counter() - began > 3 * FINISH_SECONDS_MAX:
            break
        await asyncio.sleep(0.1)
    return time.perf_counter() - began
