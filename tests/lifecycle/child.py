"""The fork server of the tests and what its children do: play a scenario, or work until told to stop.

Started as ``python -m tests.lifecycle.child``. It imports everything once, then forks a child for
each order that it reads, which takes a few milliseconds where a fresh interpreter takes 300.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import signal
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import onceward.core.failpoints as failpoints
import onceward.stores.postgres.store
import onceward.stores.sqlite.store  # noqa: F401
import tests.lifecycle.scenarios as scenarios
from onceward.core.errors import StoreUnavailable
from tests.helpers import eventually_async
from tests.lifecycle.shop import Shop

LOOK_S = 0.01


def main() -> None:
    """Read orders, one JSON object a line; answer each with one line."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        order = json.loads(line)
        answer = _fork(order) if order["op"] == "fork" else _wait(order)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _fork(order: dict[str, Any]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            _become(order)
            code = asyncio.run(_play(order)) or 0
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
