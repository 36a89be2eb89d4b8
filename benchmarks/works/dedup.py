"""A storm of redeliveries: 200 events, each delivered 20 times at once, over HTTP to three processes.

The deliveries are signed as Stripe signs them. Exactly one run of each event may come of it, and
every reply must be 2xx. Runs are counted in the store, bodies by a ledger outside it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks import ledger
from benchmarks.job import Job
from benchmarks.measure import latencies_ms
from benchmarks.payload import payload
from benchmarks.works.common import CountedApp, loop_name, make_app, run_loop
from onceward import Context, Event, RunState
from onceward.sources import Stripe

COPIES = 20
PROCESSES = 3
SECRET = "whsec_benchmarks"
FINISH_SECONDS_MAX = 60


def run(job: Job) -> dict[str, Any]:
    """Measure one round, or be one of its servers."""
    return run_loop(_serve(job) if job.phase else _storm(job))


def _make_app(job: Job) -> CountedApp:
    app = make_app(job)
    stripe = app.source(Stripe(secrets=[SECRET]))
    book = ledger.Ledger(Path(job.directory) / "ledger")

    @app.workflow(on=stripe["*"])
    async def paid(ctx: Context, event: Event) -> None:
        async def body() -> None:
            book.begin(event.id)
            book.end(event.id)

        await ctx.step.run("body", body)

    return app


# --- a server -----------------------------------------------------------------------------------


async def _serve(job: Job) -> dict[str, Any]:
    """Serve until standard input is closed."""
    import uvicorn

    app = _make_app(job)
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app.asgi(), log_level="error", access_log=False)
    server = uvicorn.Server(config)

    def announce_and_wait() -> None:
        deadline = time.monotonic() + FINISH_SECONDS_MAX
        while not server.started and time.monotonic() < deadline:
            time.sleep(0.01)
        print(listening.getsockname()[1], flush=True)
        sys.stdin.read()
        server.should_exit = True

    threading.Thread(target=announce_and_wait, daemon=True).start()
    await server.serve(sockets=[listening])
    return {"batches": app.counts.batches}


# --- the senders --------------------------------------------------------------------------------


def _request(number: int) -> bytes:
    body = json.dumps(payload(number)).encode()
    signed_at = int(time.time())
    signature = hmac.new(SECRET.encode(), f"{signed_at}.".encode() + body, hashlib.sha256).hexdigest()
    head = (
        "POST /hooks/stripe HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        f"stripe-signature: t={signed_at},v1={signature}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def _send(port: int, todo: Any, statuses: list[int], took: list[float]) -> None:
    """Send what is left to do, one after the other over one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for request in todo:
        began = time.perf_counter()
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line.split(b":")[1])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length")
        )
        await reader.readexactly(length)
        statuses.append(int(head.split(b" ", 2)[1]))
        took.append(time.perf_counter() - began)
    writer.close()


async def _storm(job: Job) -> dict[str, Any]:
    with contextlib.ExitStack() as stack:
        servers = [
            stack.enter_context(
                job.start_phase(f"serve{number}", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            )
            for number in range(PROCESSES)
        ]
        ports = [int(server.stdout.readline()) for server in servers if server.stdout is not None]
        requests = [_request(number) for number in range(job.runs)]
        # In order, so that the copies of an event are under way together, over all connections.
        todo = (request for request in requests for _ in range(COPIES))
        statuses: list[int] = []
        took: list[float] = []
        with job.window().measure() as window:
            await asyncio.gather(
                *(_send(port, todo, statuses, took) for port in ports for _ in range(COPIES))
            )
        runs, finished = await _count(job)
        ended = [server.communicate(input="")[0] for server in servers]
    book = ledger.read(Path(job.directory) / "ledger")
    deliveries = job.runs * COPIES
    batches = sum(json.loads(output.splitlines()[-1])["batches"] for output in ended)
    good = sum(200 <= status < 300 for status in statuses)
    return {
        "accepted_per_s": round(deliveries / window.wall_s, 1),
        **latencies_ms(took),
        "deliveries": deliveries,
        "replies_2xx": good,
        "events": job.runs,
        "runs": runs,
        "finished": finished,
        "bodies": book.begins.total(),
        "is_right": good == len(statuses) == deliveries and runs == finished == job.runs,
        "batches_per_delivery": round(batches / deliveries, 3),
        "others_cpu_share": window.others_share(),
        "settings": {
            "processes": PROCESSES,
            "copies": COPIES,
            "connections": PROCESSES * COPIES,
            "loop": loop_name(),
            "signed": "Stripe",
        },
    }


async def _count(job: Job) -> tuple[int, int]:
    """Give how many runs there are in the store, and how many of them are finished."""
    app = _make_app(job._replace(phase="count"))
    await app.open(runs=False)
    try:
        deadline = time.monotonic() + FINISH_SECONDS_MAX
        while True:
            runs = await app.runs(limit=1_000)
            finished = sum(row.state is RunState.COMPLETED for row in runs)
            if finished == len(runs) or time.monotonic() > deadline:
                return len(runs), finished
            await asyncio.sleep(0.05)
    finally:
        await app.close()
