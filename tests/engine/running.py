"""How these tests run an app: in an event loop of its own, within a time, quick to wake and leave."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

from onceward import App, Retry
from onceward.authoring.workflow import Workflow
from onceward.core.ports import Store
from onceward.core.settings import SETTINGS, resolve
from onceward.runtime.clock import wall_ms
from onceward.stores.choose import make_store
from tests.helpers import eventually_async

T = TypeVar("T")

SOON = Retry(base="10ms", cap="20ms")
"""Five tries without long waits between them."""

ONCE = Retry(max_tries=1)


def make_app(url: str, **settings: Any) -> App:
    """Give an app that polls often and does not keep waiting runs in memory for long."""
    return App(url, **{"poll": "50ms", "linger": "20ms", "drain": "2s", **settings})


def run_app(
    app: App,
    scenario: Callable[[], Coroutine[Any, Any, T]],
    *,
    within_s: float = 30,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> T:
    """Open *app*, do what *scenario* says, close it; fail when that takes too long."""

    async def main() -> T:
        async with asyncio.timeout(within_s), app:
            return await scenario()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(main())


def result_of(app: App, workflow: Workflow[..., T], *args: Any, within_s: float = 30) -> T:
    """Run one workflow in *app* and give its result."""

    async def scenario() -> T:
        return await (await app.start(workflow, *args)).result()

    return run_app(app, scenario, within_s=within_s)


async def evict(app: App, run_id: str) -> None:
    """Throw a run out of memory as if its process had died, save that nobody is charged."""
    execution = app.worker.executions.get(run_id)
    if execution is not None:
        execution.stop("release")
        await eventually_async(lambda: _is_away(app, execution), what=f"{run_id} leaves memory")


async def _is_away(app: App, execution: object) -> bool:
    return execution not in app.worker.executions.values()


@contextlib.contextmanager
def open_store(url: str) -> Iterator[Store]:
    """Give the store itself, to look into it."""
    settings = resolve(SETTINGS, {"store": url}, {})
    store = make_store(settings, now_ms=wall_ms, draw=random.random)
    store.open(migrate=True)
    try:
        yield store
    finally:
        store.close()
