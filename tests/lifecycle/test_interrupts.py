"""Ctrl-C and exits in an app that runs inside somebody's own program leave no half record (B082)."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from onceward import App, Context, Retry, RunFailed, RunState
from onceward.core.codec import codec_for
from onceward.testing import check_invariants
from tests.helpers import eventually
from tests.lifecycle.checks import looking_at
from tests.lifecycle.procs import ROOT
from tests.starts import start

PROGRAM = """
import asyncio, sys, threading
from pathlib import Path
from onceward import App, Context, Retry

store, notes, place = sys.argv[1:]
app = App(store, poll="50ms", lease="1s", drain="200ms")

def note(text):
    with open(notes, "a") as file:
        print(text, file=file, flush=True)

async def body():
    note("body")
    if place == "body":
        await asyncio.sleep(3600)
    if place == "pause":
        raise OSError("on purpose")

def plain_body():
    note("body")
    threading.Event().wait(2)

async def exits():
    note("body")
    sys.exit(3)

@app.workflow
async def flow(ctx: Context):
    await ctx.step.run("first", lambda: note("first"))
    chosen = {"thread": plain_body, "exit": exits}.get(place, body)
    await ctx.step.run("work", chosen, retry=Retry(max_tries=3, base="1h", cap="1h"))
    if place == "saving":
        await asyncio.sleep(3600)
    await ctx.step.run("last", lambda: note("last"))

async def main():
    async with app:
        await (await app.start(flow, id="1")).result()

asyncio.run(main())
"""


class Program:
    """Somebody's own program around an app."""

    def __init__(self, store: str, home: Path, place: str, failpoint: str = "") -> None:
        self.notes_path = home / "notes"
        self.notes_path.touch()
        env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        if failpoint:
            env["ONCEWARD_FAILPOINT"] = failpoint
        self.log = home / "log"
        with self.log.open("wb") as log:
            program = ("-c", PROGRAM, store, str(self.notes_path), place)
            self.process = start(*program, cwd=home, env=env, stdout=log, stderr=log)

    def notes(self) -> list[str]:
        return self.notes_path.read_text().split()

    def wait_for(self, note: str) -> None:
        def is_noted() -> bool:
            assert self.process.poll() is None or note in self.notes(), self.log.read_text()
            return note in self.notes()

        eventually(is_noted, 30, what=note)

    def interrupt(self, number: signal.Signals) -> None:
        self.process.send_signal(number)
        try:
            self.process.wait(30)
        finally:
            self.process.kill()


def records(store: str) -> dict[str, tuple[str, int, str | None]]:
    """Give state, tries and output of each saved step; the store keeps its promises."""
    with looking_at(store) as looked:
        assert [str(violation) for violation in check_invariants(looked)] == []
        return {
            row["name"]: (row["state"], row["tries"], row["output"]) for row in looked.dump("step")["step"]
        }


def go_on(store: str, tries: list[int], *, is_brought_forward: bool = False) -> RunState:
    """Carry the run to its end with code whose work succeeds; note the numbers of its tries."""
    app = App(store, poll="50ms", lease="1s")

    @app.workflow
    async def flow(ctx: Context) -> None:
        async def work() -> None:
            tries.append(ctx.try_number)

        await ctx.step.run("first", lambda: tries.append(-1))
        await ctx.step.run("work", work, retry=Retry(max_tries=3))
        await ctx.step.run("last", lambda: None)

    async def main() -> RunState:
        async with app:
            (row,) = await app.runs()
            handle = app.run(row.run_id)
            if is_brought_forward:
                await handle.retry()
            await handle.result("20s")
            assert (await handle.row()).failures == 0
            return await handle.state()

    return asyncio.run(main())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("place", ["body", "thread"])
def test_an_interrupted_body_runs_again_and_is_not_charged(
    store: str, tmp_path: Path, place: str, number: signal.Signals
) -> None:
    program = Program(store, tmp_path, place)
    program.wait_for("body")
    program.interrupt(number)

    saved = records(store)
    assert saved["first"][0] == "done"
    assert saved.get("work", ("open", 0, None))[0] in ("open", "done"), saved

    tries: list[int] = []
    assert go_on(store, tries) is RunState.COMPLETED
    assert tries == ([1] if saved.get("work", ("open",))[0] == "open" else [])


def test_an_interrupt_in_the_pause_between_two_tries_keeps_their_count(store: str, tmp_path: Path) -> None:
    program = Program(store, tmp_path, "pause")
    program.wait_for("body")
    eventually(lambda: "work" in records(store), what="the failed try is saved")
    program.interrupt(signal.SIGINT)

    assert records(store)["work"] == ("open", 1, None)
    tries: list[int] = []
    assert go_on(store, tries, is_brought_forward=True) is RunState.COMPLETED
    assert tries == [2]


def test_an_interrupt_while_an_outcome_is_being_saved_saves_it_whole_or_not(
    store: str, tmp_path: Path
) -> None:
    program = Program(store, tmp_path, "saving", failpoint="save.before_commit:pause:1")
    program.wait_for("first")
    eventually(lambda: is_stopped(program.process.pid), 30, what="it stands before the commit")
    program.process.send_signal(signal.SIGINT)
    program.interrupt(signal.SIGCONT)

    saved = records(store)
    tries: list[int] = []
    assert go_on(store, tries) is RunState.COMPLETED
    assert [number for number in tries if number > 0] == (
        [] if saved.get("work", ("",))[0] == "done" else [1]
    )


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"


def test_an_exit_in_a_body_is_its_failure_and_ends_no_program(store: str, tmp_path: Path) -> None:
    program = Program(store, tmp_path, "exit")
    program.wait_for("body")
    eventually(lambda: "work" in records(store), what="the failed try is saved")

    assert program.process.poll() is None
    assert records(store)["work"] == ("open", 1, None)
    program.interrupt(signal.SIGINT)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError])
@pytest.mark.parametrize("is_plain", [False, True])
def test_what_ends_programs_fails_the_workflow_that_raises_it_and_no_other(
    store: str, error: type[BaseException], is_plain: bool
) -> None:
    app = App(store, poll="50ms")

    @app.workflow
    async def raises(ctx: Context) -> None:
        await ctx.step.run("first", int)
        raise error

    @app.workflow
    def raises_plainly(ctx: Any) -> None:
        ctx.step.run("first", int)
        raise error

    @app.workflow
    async def fine(ctx: Context) -> str:
        return await ctx.step.run("work", lambda: "fine")

    async def main() -> str:
        async with app:
            bad = await app.start(raises_plainly if is_plain else raises)
            with pytest.raises(RunFailed) as failed:
                await bad.result("20s")
            # A coroutine cannot hand on a GeneratorExit that came out of a thread.
            name = "RuntimeError" if is_plain and error is GeneratorExit else error.__name__
            assert failed.value.error_type.rpartition(".")[2] == name
            return await (await app.start(fine)).result("20s")

    assert asyncio.run(main()) == "fine"
    assert records(store)["first"] == ("done", 1, codec_for(int).encode(0, what="", limit_bytes=10))
