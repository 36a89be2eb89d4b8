"""What is done to runs: to those that are named, or to all that filters find, after a look."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self, TypeVar

import click

from onceward.cli.console.finding import filters, query_of
from onceward.cli.console.listing import print_runs
from onceward.cli.console.reach import Reach, acting, reaching
from onceward.core.nouns import counted

if TYPE_CHECKING:
    from onceward.console.port import Action, Console, RunQuery
    from onceward.console.views import ActionReply, BulkReply
    from onceward.core.errors import OncewardError

F = TypeVar("F", bound=Callable[..., Any])
Refused = TypeVar("Refused", bound="OncewardError")

AGAIN = "would do again, outside"
"""What a restart or a replay says that asks for its plan, here or over the API."""

ANEW = ("restart", "replay")
"""Verbs that run again what was done, and ask whether they may."""

STEERING: list[click.Command] = []
"""The commands, for the group ``runs``."""


def _steers(name: str, short_help: str) -> Callable[[Callable[..., None]], click.Command]:
    """Give the decorator of a verb: on runs by id, or on all that filters find."""

    def decorate(function: Callable[..., None]) -> click.Command:
        for option in (
            click.argument("run_ids", metavar="[RUN]...", nargs=-1),
            filters,
            click.option(
                "--except",
                "without",
                multiple=True,
                metavar="RUN",
                help="Leave this one alone, of those that filters find; repeatable.",
            ),
            click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing."),
            click.option("--yes", is_flag=True, help="Do not ask, for what is done to many."),
            click.option("--request", "request_id", metavar="ID", help="The same id does it once."),
            acting,
            reaching,
        )[::-1]:
            function = option(function)
        made = click.command(name, short_help=short_help)(function)
        STEERING.append(made)
        return made

    return decorate


@_steers("retry", "Begin the next attempt.")
def retry(**options: Any) -> None:
    """Begin the next attempt; saved steps are kept.

    Name runs, or filter them: then you are told how many there are, and asked.
    """
    _steer("retry", options)


def _choosing(function: F) -> F:
    """Give a command the options that say which steps are kept."""
    for option in (
        click.option("--drop", multiple=True, metavar="STEP", help="Keep every step but this; repeatable."),
        click.option("--keep", multiple=True, metavar="STEP", help="Keep this step; repeatable."),
        click.option("--from-step", metavar="STEP", help="Keep what was saved before this step."),
    ):
        function = option(function)
    return function


def _chosen(options: dict[str, Any]) -> dict[str, Any]:
    """Give what was chosen, which is taken out of the options."""
    given = {name: options.pop(name) for name in ("from_step", "keep", "drop")}
    return {name: list(value) if name != "from_step" else value for name, value in given.items() if value}


def _consenting(function: F) -> F:
    """Give a command the option that agrees to what happens again."""
    return click.option(
        "--acknowledge", is_flag=True, help="Whatever is done outside again; else you are asked."
    )(function)


def _consent(is_given: bool) -> dict[str, Any]:
    """Give what stands for a plan where somebody means it without one."""
    from onceward.console.port import ACKNOWLEDGED

    return {"plan": ACKNOWLEDGED} if is_given else {}


@_steers("restart", "Run every step again.")
@_choosing
@_consenting
def restart(acknowledge: bool, **options: Any) -> None:
    """Begin a new generation: every step runs again.

    Name runs, or filter them: then you are told how many there are, and asked.
    """
    more = _chosen(options)
    _steer("restart", options, **more, **_consent(acknowledge))


@_steers("cancel", "End a run.")
def cancel(**options: Any) -> None:
    """End a run from outside; its clean-up steps still run.

    Name runs, or filter them: then you are told how many there are, and asked.
    """
    _steer("cancel", options)


@_steers("resume", "Let a held run go on.")
def resume(**options: Any) -> None:
    """Let a held run go on: answer it with `retry`.

    Name runs, or filter them: then you are told how many there are, and asked.
    """
    _steer("resume", options)


@_steers("dismiss", "Take off the list of problems.")
def dismiss(**options: Any) -> None:
    """Take a failed run off the list of problems.

    Name runs, or filter them: then you are told how many there are, and asked.
    """
    _steer("dismiss", options)


@_steers("replay", "Make a new run of the same event.")
@_choosing
@click.option("--payload", metavar="JSON", help="Put in place of the event's; @FILE reads a file.")
@_consenting
def replay(payload: str | None, acknowledge: bool, **options: Any) -> None:
    """Make a new run of the same event, in which every step runs again.

    Name runs, or filter them: then you are told how many there are, and asked.
    """
    more = _chosen(options)
    if payload is not None:
        more["payload"] = json_of(payload, "--payload")
    _steer("replay", options, **more, **_consent(acknowledge))


@_steers("answer", "Answer a held run.")
@click.option(
    "--with",
    "answer",
    metavar="WORD",
    required=True,
    help="The answer: retry or fail; to a step's question happened, did_not_happen or fail.",
)
@click.option("--step", metavar="STEP", help="About which step, where there are several questions.")
@click.option("--result", metavar="JSON", help="Of a step that happened: what it gave; @FILE reads a file.")
def answer(answer: str, step: str | None, result: str | None, **options: Any) -> None:
    """Answer a held run: retry goes on, fail gives up; a step's question says what can be answered.

    Name runs, or filter them: then you are told how many there are, and asked.
    """
    more: dict[str, Any] = {} if step is None else {"step": step}
    if result is not None:
        more["result"] = json_of(result, "--result")
    _steer("answer", options, answer=answer, **more)


def json_of(given: str, option: str) -> Any:
    """Give the JSON that an option holds, or the file that it names."""
    import json
    from pathlib import Path

    try:
        return json.loads(Path(given[1:]).read_text("utf-8") if given.startswith("@") else given)
    except (OSError, ValueError) as error:
        raise click.BadParameter(
            f"it is no JSON: {error}. A text has quotes of its own: '\"letter 12\"'.", param_hint=option
        ) from error


_CALLED = re.compile(r"\b(result|step|keep|drop|from_step|payload)=(?:\[[^\]]*\])?")
_ANSWERED = re.compile(r"\banswer\('(\w+)'\)")


def typed(words: str) -> str:
    """Give advice of the library as it is typed here: ``--result`` for ``result=``."""
    words = _CALLED.sub(lambda found: f"--{found[1].replace('_', '-')}", words)
    return _ANSWERED.sub(r"answer --with \1", words)


def as_typed(error: Refused) -> Refused:
    """Give the same error, whose advice names the options of the command line."""
    # Only the advice: what happened quotes names of users' steps.
    error.todo = typed(error.todo)
    error.args = (" ".join(part for part in (error.what, error.means, error.todo) if part),)
    return error


def _steer(verb: str, options: dict[str, Any], **more: Any) -> None:
    import msgspec

    from onceward.cli.console.reach import actor_of
    from onceward.console.acting import is_narrowed
    from onceward.console.port import Action, BulkQuery

    reach: Reach = options["reach"]
    query = query_of(options)
    run_ids: tuple[str, ...] = options["run_ids"]
    without: tuple[str, ...] = options["without"]
    if bool(run_ids) == is_narrowed(query):
        raise click.UsageError("Name runs, or filter them, and not both.")
    if run_ids and without:
        raise click.UsageError("--except goes with filters; where runs are named, name only those meant.")
    query = BulkQuery(**{**msgspec.structs.asdict(query), "without": list(without)})
    action = Action(verb=verb, actor=actor_of(options["actor"]), request_id=options["request_id"], **more)
    if run_ids:
        is_well = _each(reach, run_ids, action, is_dry=options["dry_run"])
    else:
        is_well = _many(reach, query, action, is_dry=options["dry_run"], is_sure=options["yes"])
    if not is_well:
        raise click.exceptions.Exit(1)


def _each(reach: Reach, run_ids: tuple[str, ...], action: Action, *, is_dry: bool) -> bool:
    """Act on runs by id; say whether none was refused."""
    import sys

    import msgspec

    from onceward.cli.console.plans import print_plan
    from onceward.cli.console.words import print_json, say
    from onceward.cli.refusal import Refusal
    from onceward.core.errors import ConfigError, NotFound, StateConflict

    replies: list[ActionReply | dict[str, Any]] = []

    async def one(console: Console, run_id: str) -> bool:
        request_id = action.request_id
        if request_id is not None and len(run_ids) > 1:
            request_id = f"{request_id}/{run_id}"
        try:
            if is_dry:
                told, plan, is_allowed = await _would(console, run_id, action)
                replies.append({"run_id": run_id, "verb": action.verb, "would": told, "plan": plan})
                if not reach.as_json:
                    say(f"{run_id} would be: {told}")
                    if plan is not None:
                        print_plan(plan)
                return is_allowed
            one_action = msgspec.structs.replace(action, request_id=request_id)
            if action.verb in ANEW and action.plan is None and sys.stdin.isatty():
                one_action = await _agreed(console, run_id, one_action)
            reply = await console.act(run_id, one_action)
        except (NotFound, StateConflict) as error:
            told = str(as_typed(error))
            if AGAIN in error.what:
                told = f"{error.what} Nothing was changed. Look with --dry-run, then say --acknowledge."
            replies.append({"run_id": run_id, "verb": action.verb, "error": told})
            if not reach.as_json:
                say(f"{run_id} {told}", "red")
            return False
        except ConfigError as error:
            raise Refusal(as_typed(error)) from error
        replies.append(reply)
        if not reach.as_json:
            new = f" {reply.run_id}" if reply.run_id != run_id else ""
            say(f"{run_id} {reply.text}{new}")
        return True

    async def each(console: Console) -> bool:
        return all([await one(console, run_id) for run_id in run_ids])

    is_well = reach.run(each)
    if reach.as_json:
        print_json(replies)
    return is_well


async def _would(console: Console, run_id: str, action: Action) -> tuple[str, Any, bool]:
    """Give what an action would do in words, its plan where it has one, and whether it is allowed."""
    from onceward.cli.console.plans import as_dict

    detail = await console.run(run_id)
    verb = "answer" if action.verb == "resume" else action.verb
    view = next(view for view in detail.verbs if view.verb == verb)
    if not view.is_allowed:
        return f"refused: {view.reply}; {typed(view.hint)}", None, False
    if verb not in ("retry", "restart", "replay", "answer"):
        return view.reply, None, True
    plan = await console.plan(run_id, action)
    return as_dict(plan)["text"], plan, True


async def _agreed(console: Console, run_id: str, action: Action) -> Action:
    """Show what a restart or a replay does outside again, and ask; give the action with the plan's token."""
    import msgspec

    from onceward.cli.console.plans import as_dict, print_plan

    plan = as_dict(await console.plan(run_id, action))
    if not plan["needs_consent"]:
        return action
    print_plan(plan)
    if not click.confirm(f"{action.verb.capitalize()} {run_id} all the same?", err=True):
        raise click.exceptions.Exit(1)
    return msgspec.structs.replace(action, plan=plan["token"])


def _many(reach: Reach, query: RunQuery, action: Action, *, is_dry: bool, is_sure: bool) -> bool:
    """Act on all runs that a query finds, after a look and a question; say whether it was done to each."""
    import secrets
    import sys

    import msgspec

    from onceward.cli.console.words import print_json

    if not is_dry and not is_sure:
        if not sys.stdin.isatty():
            raise click.UsageError("Many runs would be changed: look with --dry-run, then say --yes.")
        found = reach.run(lambda console: console.bulk(query, action, dry_run=True))
        _print_dry(found)
        if not found.matched or not click.confirm(
            f"{action.verb} {counted(found.matched - found.refused, 'run')}?", err=True
        ):
            return False
    request_id = None
    if is_dry:
        reply = reach.run(lambda console: console.bulk(query, action, dry_run=True))
    else:
        if action.request_id is None:
            action = msgspec.structs.replace(action, request_id=secrets.token_hex(12))
            request_id = action.request_id
        with _Bar(action.verb, reach, request_id) as bar:
            reply = reach.run(lambda console: console.bulk(query, action, dry_run=False, progress=bar.show))
    if reach.as_json:
        print_json(reply)
    elif is_dry:
        _print_dry(reply)
    else:
        _print_done(reply)
    return not reply.refused and not reply.is_interrupted


def _print_dry(reply: BulkReply) -> None:
    from onceward.cli.console.words import say

    print_runs(reply.sample)
    if reply.matched > len(reply.sample):
        say(f"… and {reply.matched - len(reply.sample):,} more")
    for one in reply.again:
        outside = ", outside AGAIN" if one.is_outside else ""
        say(f"  {one.step} runs again in {one.runs} of the {len(reply.sample)} above{outside}")
    say(
        f"{reply.verb} of {counted(reply.matched, 'run')}; {reply.refused:,} would be refused{_reasons(reply)}"
    )


def _print_done(reply: BulkReply) -> None:
    from onceward.cli.console.words import say

    say(
        f"{reply.verb}: {reply.done:,} of {counted(reply.matched, 'run')} done, {reply.refused:,} refused{_reasons(reply)}"
    )
    if reply.is_interrupted:
        say(f"It stopped early. To go on: the same with --request {reply.bulk_id}", "red")


def _reasons(reply: BulkReply) -> str:
    return f": {'; '.join(reply.reasons)}" if reply.reasons else ""


class _Bar:
    """A progress bar on a terminal, nothing elsewhere; and the id, if it was drawn, with which the rest can be done.

    It is said as soon as something is done and something is left: who is killed in the middle cannot say it any
    more. And whatever ends it in the middle.
    """

    def __init__(self, verb: str, reach: Reach, request_id: str | None) -> None:
        from rich.progress import Progress

        from onceward.cli.console.words import terminal

        out = terminal(is_error=True)
        self._bar = Progress(console=out, disable=not out.is_terminal or reach.as_json, transient=True)
        self._task = self._bar.add_task(verb, total=None)
        self._untold = request_id
        self._has_begun = False

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        self._bar.stop()
        if error is not None and self._has_begun:
            self._tell()

    def show(self, reply: BulkReply) -> None:
        """Show how far it has come."""
        self._bar.update(self._task, total=reply.matched, completed=reply.done + reply.refused)
        gone = reply.done + reply.refused
        self._has_begun = gone < reply.matched
        if reply.done and gone < reply.matched:
            self._tell()

    def _tell(self) -> None:
        if self._untold is not None:
            click.echo(f"If this is cut off, it goes on with --request {self._untold}", err=True)
            self._untold = None
