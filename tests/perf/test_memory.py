"""What finished runs leave in memory: nothing that only the garbage collector could free."""

from __future__ import annotations

import asyncio
import gc

from onceward.runtime.execution import Execution
from tests.engine.running import run_app
from tests.perf.counting import CountedApp, saturate, three_steps

RUNS, IN_FLIGHT = 40, 8


def test_a_finished_run_leaves_nothing_to_the_garbage_collector(url: str) -> None:
    """The collector looks through everything that lives, so cycles of each run cost a quarter of the time."""
    app = CountedApp(url)
    three = three_steps(app)

    async def scenario() -> int:
        gc.collect()
        gc.disable()
        try:
            before = _loaded()
            await saturate(app, three, RUNS, IN_FLIGHT)
            await asyncio.sleep(0)
            return _loaded() - before
        finally:
            gc.enable()

    assert run_app(app, scenario) == 0


def _loaded() -> int:
    return sum(type(thing) is Execution for thing in gc.get_objects())
