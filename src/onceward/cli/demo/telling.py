"""Tells the story to a person or to a machine, from the title to the exit status."""

from __future__ import annotations

import asyncio
import json
import shlex
import shutil
import signal
import sys
from pathlib import Path

import click

from onceward.cli.demo.screen import Screen, home_relative
from onceward.cli.demo.story import Options, Told, tell
from onceward.cli.demo.verdict import Verdict, as_json, judged
from onceward.core.errors import OncewardError
from onceward.core.store_url import masked
from onceward.version import __version__

STORY_SECONDS_MAX = 120
"""Far beyond what it takes, so that a story that hangs ends and is told as such."""

DOCS = Path(__file__).parents[4] / "docs"
"""The documentation in the repository; a package that was installed has none."""

INTERRUPTED, TERMINATED = 130, 143

_TITLE = "A shop dies between a charge and its checkpoint, and finishes all the same."
_TAKEN_OUT = {
    "no-dedup": "Taken out: each delivery looks like an event that was never seen.",
    "no-key": "Taken out: the shop sends no idempotency key with a charge.",
}


def run(options: Options, *, to_json: bool) -> int:
    """Tell the story and give the exit status: 0 if everything is as promised, else 1.

    Raises:
        OncewardError: the story could not be told to its end.
    """
    screen = Screen(to_stderr=to_json)
    taken_out = [_TAKEN_OUT[options.sabotage]] if options.sabotage else []
    screen.title(f"Onceward {__version__}, the story of seed {options.seed}", _TITLE, *taken_out)
    try:
        told = asyncio.run(_told(options, screen))
    except KeyboardInterrupt:
        screen.say("Interrupted; every process was ended.")
        return INTERRUPTED
    except asyncio.CancelledError:
        return TERMINATED
    verdict = judged(told.plan, told.counted)
    screen.table(verdict)
    _conclude(screen, options, told, verdict)
    if to_json:
        click.echo(json.dumps(as_json(told.plan, told.counted, verdict) | {"store": told.store}))
    return 0 if verdict.is_right else 1


async def _told(options: Options, screen: Screen) -> Told:
    task = asyncio.current_task()
    assert task is not None
    # Ctrl-C cancels the task by itself; being terminated leaves as little behind.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        async with asyncio.timeout(STORY_SECONDS_MAX):
            with screen.working():
                return await tell(options, screen)
    except TimeoutError as error:
        raise OncewardError(
            f"The story did not end within {STORY_SECONDS_MAX} s.",
            means="Nothing can be said about the promises.",
            todo="Try it again on a machine that is less busy; --keep leaves the logs behind.",
        ) from error


def _conclude(screen: Screen, options: Options, told: Told, verdict: Verdict) -> None:
    if verdict.is_right:
        screen.verdict("As promised: each event has one run, each order was charged once.", is_right=True)
    else:
        are = "is" if len(verdict.wrong) == 1 else "are"
        what = f"{len(verdict.wrong)} of {len(verdict.checks)} counts {are} wrong"
        screen.verdict(f"NOT as promised: {what}.", is_right=False)
        if options.sabotage:
            screen.verdict(
                f"That is what --break {options.sabotage} takes out, and what it is there for.",
                is_right=False,
            )
    screen.hint("the app", home_relative(str(Path(__file__).with_name("shop.py"))))
    for label, page in (("promises", "concepts.md"), ("begin", "get-started.md")):
        if (DOCS / page).is_file():
            screen.hint(label, home_relative(str(DOCS / page)))
    if not DOCS.is_dir():  # installed as a package, without the repository around it
        screen.hint("begin", "python -m pydoc onceward.App")
    if options.keep:
        kept = ["shop.db"] if options.store == "sqlite" else []
        screen.hint("kept", str(told.folder), ", ".join([*kept, "ledger.jsonl", "shop.log"]))
        if options.store == "postgres":
            screen.hint("", "The PostgreSQL server was the story's own, and is gone with its data.")
        elif options.store != "sqlite":
            screen.hint("store", told.store, f"namespace {told.namespace}")
    else:
        kept = ["store"] if options.store == "sqlite" else []
        screen.hint(
            "look", f"{_again(options)} --keep", f"leaves {', '.join([*kept, 'ledger and log'])} behind"
        )


def _again(options: Options) -> str:
    """Give the command that tells this story again, as it can be typed here."""
    program = Path(sys.argv[0])
    is_found = program.name != "onceward" or shutil.which("onceward") is not None
    # `make demo` runs it from an environment that is not active.
    command = ["onceward" if is_found else home_relative(str(program)), "demo", "--seed", str(options.seed)]
    if options.store != "sqlite":
        command += ["--store", masked(options.store)]
    if options.sabotage:
        command += ["--break", options.sabotage]
    return shlex.join(command)
