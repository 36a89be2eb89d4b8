"""Waiters and events race, 400 times on each store: no wake-up is lost, no event counts twice."""

from __future__ import annotations

import asyncio
import os
import subprocess
from typing import Any

import pytest

from onceward import Context
from onceward import event as e
from tests.engine.running import make_app, open_store, run_app
from tests.starts import ROOT, SRC, start

RACES = 400
AT_ONCE = 40

SENDER = """
import asyncio, sys
from onceward import App

async def main():
    app = App(sys.argv[1], poll="50ms")
    loop = asyncio.get_running_loop()
    await app.open(runs=False)
    print("ready", flush=True)
    tasks = set()
    while line := (await loop.run_in_executor(None, sys.stdin.readline)).strip():
        subject, delay_ms = line.split()
        task = asyncio.ensure_future(send(app, subject, int(delay_ms)))
        tasks.add(task)
    await asyncio.gather(*tasks)
    await app.close()

async def send(app, subject, delay_ms):
    await asyncio.sleep(delay_ms / 1000)
    for number in range(2):
        await app.emit("packed", {"n": number, "of": subject}, subject=subject)
        await app.emit("line", {"n": number, "of": subject})

asyncio.run(main())
"""


def sender(url: str) -> subprocess.Popen[bytes]:
    """Another process that emits; what it reads says about what, and when."""
    environment, pipe = {**os.environ, "PYTHONPATH": SRC}, subprocess.PIPE
    return start("-c", SENDER, url, cwd=ROOT, env=environment, stdin=pipe, stdout=pipe)


@pytest.mark.parametrize("notify", [True, False])
def test_four_hundred_races_lose_and_double_nothing(store_url: str, notify: bool) -> None:
    """Each run waits, in parallel, for two events about its subject and one found by a condition."""
    app = make_app(store_url, notify=notify, concurrency=200)

    @app.workflow()
    async def flow(ctx: Context, subject: str) -> list[Any]:
        first, second, line = await asyncio.gather(
            ctx.step.wait_for("packed", "packed", subject=subject, item="a", timeout="60s"),
            ctx.step.wait_for("packed", "packed", subject=subject, item="b", timeout="60s"),
            ctx.step.wait_for("line", "line", where=e.payload["of"] == subject, timeout="60s"),
        )
        return [first.payload, second.payload, line.payload]

    async def scenario(process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        handles = {}
        for begin in range(0, RACES, AT_ONCE):
            for number in range(begin, begin + AT_ONCE):
                subject = f"o-{number}"
                handles[subject] = await app.start(flow, subject)
                # Some of them before the wait is open, some while it opens, some when the run has left.
                process.stdin.write(f"{subject} {number % 20 * 3}\n".encode())
            process.stdin.flush()
            await asyncio.gather(*(handle.result("90s") for handle in handles.values()))
        for subject, handle in handles.items():
            first, second, line = await handle.result()
            assert sorted((first["n"], second["n"])) == [0, 1]
            assert {one["of"] for one in (first, second, line)} == {subject}

    with sender(store_url) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        run_app(app, lambda: scenario(process), within_s=150)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(20) == 0

    with open_store(store_url) as store:
        assert store.dump("wait") == {"wait": []}
