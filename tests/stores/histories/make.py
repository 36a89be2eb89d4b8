"""Makes the file of histories of this Onceward: ``python -m tests.stores.histories.make``.

Run once for each release. A worker brings each run to where its story says that it stood, and stops; operators
and the outside do their part while nobody runs; then the worker is killed, the store is taken down, gone on with once, and written
together with what became of it. The file is never edited, nor made again once it is released.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

from onceward import App
from onceward.authoring.current import frame_var
from onceward.core.takeover import CRASH_LIMIT
from tests.helpers import eventually_async
from tests.lifecycle.ledger import Ledger
from tests.stores.histories import keeping
from tests.stores.histories.going_on import found_run, go_on
from tests.stores.histories.stories_0_1_0 import STORIES, Story, deliver
from tests.stores.histories.works_0_1_0 import SETTINGS, TABLE, VERSION, Works

FILE = keeping.HERE / f"{VERSION}.jsonl"
WITHIN_S = 60
KILLER = "kills its processes"
DAMAGED = "has a damaged step"


def main() -> None:
    """Make the file."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        store = home / "left.db"
        with contextlib.closing(sqlite3.connect(store)) as connection:
            connection.execute(TABLE)
        for _ in range(CRASH_LIMIT):
            phase("kill", home, -signal.SIGKILL)
        worker = begun("work", home)
        try:
            _, status = os.waitpid(worker.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status), status
            phase("away", home, 0)
        finally:
            worker.kill()
            worker.wait()
        with contextlib.closing(sqlite3.connect(store)) as connection, connection:
            run_id = connection.execute(
                "select run_id from onceward_run where event_id = ?", (DAMAGED,)
            ).fetchone()[0]
            connection.execute(
                "update onceward_step set output = '{\"cut' where run_id = ? and name = 'a'", (run_id,)
            )
        kept = keeping.take_down(store, VERSION)
        for story in STORIES:
            check_standing(kept, story)
        again = home / "again.db"
        keeping.put_up(kept, f"sqlite:///{again}", (TABLE,))
        ending = go_on(kept, f"sqlite:///{again}", home)
        print(*ending.repeated, *ending.violations, sep="\n")
        kept.ends = ending.ends
        kept.write(FILE)


def check_standing(kept: keeping.Kept, story: Story) -> None:
    """See that a run was left where its story says."""
    states = [
        row["state"]
        for row in kept.tables["run"]
        if (row["event_id"], row["workflow"]) == (story.name, story.workflow) and row["replay_of"] is None
    ]
    if states != ([story.stood] if story.stood else []):
        print(f"{story.name!r} stands at {states}, not at {story.stood}")


def phase(name: str, home: Path, code: int) -> None:
    """Play one part in a process of its own, that does not end well."""
    found = begun(name, home).wait(120)
    assert found == code, f"{name} ended with {found}"


def begun(name: str, home: Path) -> subprocess.Popen[bytes]:
    """Begin a part in a process of its own."""
    return subprocess.Popen([sys.executable, "-m", "tests.stores.histories.make", name, str(home)])


def works_in(home: Path, reached: set[tuple[str, str]] | None = None) -> Works:
    """Give the app on the store; bodies that hang are noted in *reached*."""
    hanging = {(story.name, word) for story in STORIES for word in story.words}

    def hang(story: str, what: str) -> bool:
        frame = frame_var.get()
        assert frame is not None
        generation = frame.session.generation
        word = what if generation == 1 else f"{generation} {what}"
        if what == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if reached is None or (story, word) not in hanging:
            return False
        reached.add((story, word))
        return True

    app = App(
        f"sqlite:///{home / 'left.db'}", lease="1h", poll="50ms", linger="20ms", concurrency=200, **SETTINGS
    )
    return Works(app, Ledger(home / "made"), hang)


# --- the parts ------------------------------------------------------------------------------------


async def kill(home: Path) -> None:
    """Die of the run that kills whatever process runs it."""
    works = works_in(home)
    await works.app.open()
    (story,) = (story for story in STORIES if story.name == KILLER)
    await begin(works, story)
    await asyncio.sleep(WITHIN_S)


async def work(home: Path) -> None:
    """Bring every run to where it stood."""
    reached: set[tuple[str, str]] = set()
    works = works_in(home, reached)
    await works.app.open()
    for story in STORIES:
        if not story.is_begun_away:
            await begin(works, story)
            if story.name == "holds a key":
                await has_reached(reached, story, "b")
    for story in STORIES:
        if not story.is_begun_away:
            await arrive(works, story, reached)
    # It stands still and holds what it has, until it is killed: nobody takes anything over.
    os.kill(os.getpid(), signal.SIGSTOP)


async def begin(works: Works, story: Story) -> None:
    """Accept the event of a run."""
    if story.event == "delivery":
        await deliver(works, "charge.succeeded", story.name, "ch_1")
    elif story.event:
        await works.app.emit(story.event, story.payload, subject="s", id=story.name)
    else:
        await works.app.start(works.workflows[story.workflow], story.name, id=story.name)


async def arrive(works: Works, story: Story, reached: set[tuple[str, str]]) -> None:
    """Wait until a run has come to where it is to be left, with what has to be done for that."""
    run = await found_run(works, story)

    async def is_in(state: str) -> bool:
        return (await run.state()).value == state and run.run_id not in works.app.worker.executions

    async def stands(state: str) -> None:
        await eventually_async(lambda: is_in(state), WITHIN_S, what=f"{story.name} is {state}")

    if story.name == "has its event":
        await stands("waiting")
        await works.app.emit("packed", {"boxes": 1}, subject=story.name, id=f"packed {story.name}")
    if story.name == "cleans up":
        await stands("sleeping")
        await run.cancel()
    if story.name == "is restarted":
        await stands("completed")
        await run.restart(acknowledge=True)
    for word in story.words:
        await has_reached(reached, story, word)
    if not story.words or "doubt" in story.words:
        await stands(STOOD_BEFORE.get(story.name, story.stood))


STOOD_BEFORE = {
    "was answered": "held",
    "is cancelled asleep": "sleeping",
    "is cancelled and to be undone": "sleeping",
    "failed and was retried": "failed",
    "was restarted": "completed",
    "was restarted from a step": "completed",
}
"""Where the worker leaves those that are steered to somewhere else."""


async def has_reached(reached: set[tuple[str, str]], story: Story, word: str) -> None:
    """Wait until a body hangs."""

    async def is_there() -> bool:
        return (story.name, word) in reached

    await eventually_async(is_there, WITHIN_S, what=f"{story.name} at {word}")


async def away(home: Path) -> None:
    """Do what operators and the outside do while no process runs."""
    works = works_in(home)
    await works.app.open(runs=False)
    for story in STORIES:
        if story.is_begun_away and not story.is_in_outbox:
            await begin(works, story)
        if story.steered is not None:
            await story.steered(works, await found_run(works, story))
    with contextlib.closing(works.connect()) as connection:
        for story in STORIES:
            if story.is_in_outbox:
                await works.app.emit(story.event, story.payload, id=story.name, within=connection)
        connection.commit()
        os._exit(0)  # before anything is made of what stands in the outbox


PHASES = {"kill": kill, "work": work, "away": away}


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(PHASES[sys.argv[1]](Path(sys.argv[2])))
    else:
        main()
