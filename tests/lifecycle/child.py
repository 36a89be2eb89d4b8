"""The fork server of the tests and what its children do: play a scenario, or work until told to stop.

Started as ``python -m tests.lifecycle.child MODULE ...``. It imports those modules and everything of its
own once, then forks a child for each order that it reads, which takes a few milliseconds where a fresh
interpreter takes 300.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import inspect
import json
import logging
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import onceward.core.failpoints as failpoints
import tests.lifecycle.scenarios as scenarios
from onceward.core.errors import StoreUnavailable
from onceward.core.settings import SETTINGS, resolve
from onceward.stores.choose import make_store
from tests.helpers import eventually_async
from tests.lifecycle.shop import Shop

LOOK_S = 0.01


def main() -> None:
    """Read orders, one JSON object a line; answer each with one line."""
    for module in sys.argv[1:]:
        importlib.import_module(module)
    asyncio.run(_warm_up())
    assert threading.active_count() == 1, "a child would have the locks of these threads and not the threads"
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        order = json.loads(line)
        answer = _fork(order) if order["op"] == "fork" else _wait(order)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


async def _warm_up() -> None:
    """Have statements rendered and modules imported that every child would need to by itself."""
    make_store(resolve(SETTINGS, {"store": "postgresql:///none"}, {}), now_ms=lambda: 0, draw=lambda: 0.0)
    with tempfile.TemporaryDirectory() as home:
        shop = Shop(f"sqlite:///{home}/shop.db", Path(home) / "ledger")
        await shop.app.open()
        await scenarios.SCENARIOS["steps"].play(shop)
        await shop.app.close()


def _fork(order: dict[str, Any]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            _become(order)
            code = _call(order) if "function" in order else asyncio.run(_play(order))
        except BaseException:  # noqa: BLE001 - the exit code says so, the log says more
            traceback.print_exc()
            code = 1
        sys.stderr.flush()
        os._exit(code)
    return pid


def _wait(order: dict[str, Any]) -> int | str:
    """Give the exit code, the negative signal, ``stopped``, or ``alive`` when the time is over."""
    deadline = time.monotonic() + order["within_s"]
    while True:
        pid, status = os.waitpid(order["pid"], os.WNOHANG | (os.WUNTRACED if order["stopped"] else 0))
        if pid:
            return "stopped" if os.WIFSTOPPED(status) else os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            return "alive"
        signal.sigtimedwait({signal.SIGCHLD}, LOOK_S)


def _become(order: dict[str, Any]) -> None:
    """Make a forked child a process of its own: no pipes of its parent, its log, its environment."""
    log = os.open(order["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    os.environ.update(order["env"])
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stderr,
        format="%(asctime)s.%(msecs)03d %(process)d %(name)s %(message)s",
        datefmt="%H:%M:%S",
    )


def _call(order: dict[str, Any]) -> int:
    """Call a function of a module, also one that is a coroutine function."""
    module, _, name = order["function"].partition(":")
    called = getattr(importlib.import_module(module), name)(*order["arguments"])
    if inspect.iscoroutine(called):
        asyncio.run(called)
    return 0


async def _play(order: dict[str, Any]) -> int:
    loop = asyncio.get_running_loop()
    shop = Shop(order["store"], Path(order["ledger"]), **order["settings"])
    for name in filter(None, os.environ.get("SHOP_WITHOUT", "").split(",")):
        del shop.app._workflows[name]
    stopped = asyncio.Event()

    def stop() -> None:
        logging.getLogger("child").info("draining")
        if stopped.is_set():
            os._exit(75)  # asked twice: at once
        stopped.set()

    loop.add_signal_handler(signal.SIGTERM, stop)
    passes: Counter[str] = Counter()
    await scenarios.persist(shop.app.open)
    if order["passes"]:
        failpoints.arm(lambda name, _: passes.update([name]))
    mode = order["mode"]
    if mode == "deaf":
        failpoints.arm(_fail_heartbeat)
    if mode in ("work", "deaf"):
        await stopped.wait()
    elif mode == "drain":
        scenario = asyncio.create_task(_quietly(scenarios.SCENARIOS[order["scenario"]].play(shop)))
        await eventually_async(lambda: _has_begun(shop), 10, what="a body")
        scenario.cancel()
    else:
        await scenarios.SCENARIOS[order["scenario"]].play(shop)
    await shop.app.close(order["grace"])
    if order["passes"]:
        await asyncio.to_thread(Path(order["passes"]).write_text, json.dumps(passes))
    return 0


def _fail_heartbeat(name: str, _: str) -> None:
    if name == "heartbeat.before_renew":
        raise StoreUnavailable("the network is gone")


async def _quietly(story: Any) -> None:
    with contextlib.suppress(Exception):
        await story


async def _has_begun(shop: Shop) -> bool:
    return bool(shop.ledger.lines(what="start"))


if __name__ == "__main__":
    main()
