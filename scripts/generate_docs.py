"""Write the pages of the documentation that come from code into ``docs/generated``.

What is in a table of the code is not written down a second time: settings, errors, states and
failpoints, and the list of public names.
"""

from __future__ import annotations

import importlib
import inspect
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from onceward.core import errors, failpoints, settings, states

ROOT = Path(__file__).resolve().parents[1]
GENERATED = ROOT / "docs" / "generated"
PUBLIC_PACKAGES = ("onceward", "onceward.sources", "onceward.testing")
VERBS = list(states.Verb)


def settings_page() -> str:
    """Give the page of settings."""
    return f"""# Settings

An argument of `App` or an option of the command line wins over the variable, which wins over the
default. A name that is not here is an error, and so is a pair of values that contradict each other.

Lengths of time are written `"10s"`, `"1h30m"` or `"7d"`; as arguments also as a `timedelta` or a
number of seconds. Sizes are a number of bytes, or `"512KiB"` and `"5MiB"`.

{settings.settings_markdown()}
These pairs are refused: {"; ".join(f"`{pair.smaller}` above `{pair.larger}`" for pair in settings.CONTRADICTIONS)}.
"""


def errors_page() -> str:
    """Give the page of errors: a section for each class that users can meet."""
    sections = [
        f"### {error.__name__}\n\n"
        f"{error.title}. Code `{error.code}`, HTTP status {error.http_status}.\n\n{text_of(error)}\n"
        for error in all_errors()
        if error is not errors.OncewardError
    ]
    raised_by_users = [
        f"### {name}\n\n{text_of(value)}\n"
        for name, value in vars(errors).items()
        if inspect.isclass(value)
        and issubclass(value, BaseException)
        and value.__module__ == errors.__name__
        and not issubclass(value, errors.OncewardError)
    ]
    return (
        "# Errors\n\n"
        "Every error has a stable code, and a message in three parts: what happened, what it means,\n"
        "what to do. Over HTTP it is a problem document (RFC 9457) with that code.\n\n"
        "## Raised by Onceward\n\n"
        + "\n".join(sections)
        + "\n## Raised by your code, or through it\n\n"
        + "\n".join(raised_by_users)
    )


def all_errors() -> Iterator[type[errors.OncewardError]]:
    """Give the error classes in the order in which they are defined."""
    for value in vars(errors).values():
        if inspect.isclass(value) and issubclass(value, errors.OncewardError):
            yield value


def text_of(documented: object) -> str:
    """Give a docstring without its section of arguments."""
    return (inspect.getdoc(documented) or "").partition("\n\nArgs:")[0].replace("``", "`")


def states_page() -> str:
    """Give the page of states: what each means, how a run moves, what each verb does."""
    meanings = [f"| **{state}** | {states.MEANING[state]} |" for state in states.RunState]
    moves = [f"| {state} | {move} | {target} |" for (state, move), target in states.MOVES.items()]
    header = f"| a run that is | {' | '.join(VERBS)} |\n|{' --- |' * (len(VERBS) + 1)}"
    table = [
        f"| **{state}** | {' | '.join(shown_cell(states.TABLE[state, verb]) for verb in VERBS)} |"
        for state in states.RunState
    ]
    newline = "\n"
    return f"""# States

A run is in exactly one state. The last three are terminal: only a person's or a program's verb
leaves them.

| state | meaning |
| --- | --- |
{newline.join(meanings)}

## What each verb does

The same verb has the same effect in the library, on the command line and over HTTP. A refusal is
the error `state_conflict` (409); it says what to do instead.

{header}
{newline.join(table)}

## Why a verb is refused

| verb | when the run is | because | instead |
| --- | --- | --- | --- |
{newline.join(refusals())}

## How a run moves by itself

| from | by | to |
| --- | --- | --- |
{newline.join(moves)}
"""


def shown_cell(cell: states.Cell) -> str:
    """Give one cell of the table of verbs."""
    return "refused" if cell.effect is states.Effect.REFUSE else cell.reply


def refusals() -> Iterator[str]:
    """Give a row for each reason to refuse a verb, with the states that share it."""
    for verb in VERBS:
        reasons: dict[tuple[str, str], list[str]] = {}
        for state in states.RunState:
            cell = states.TABLE[state, verb]
            if cell.effect is states.Effect.REFUSE:
                reasons.setdefault((cell.reply, cell.hint), []).append(state)
        for (reply, hint), refused in reasons.items():
            yield f"| {verb} | {', '.join(refused)} | {reply} | {hint} |"


def failpoints_page() -> str:
    """Give the page of failpoints."""
    rows = [f"| `{name}` | {sentence} |" for name, sentence in failpoints.REGISTRY.items()]
    newline = "\n"
    return f"""# Failpoints

Places at which a test can make the world go wrong. They are off unless one is armed:
`ONCEWARD_FAILPOINT=name[@detail]:kill|raise|drop-reply|pause[:n]` arms one in a real process, at its *n*-th
passing (the first when not given).

| name | where it lies |
| --- | --- |
{newline.join(rows)}
"""


def api_page() -> str:
    """Give the page of public names, by package."""
    parts = ["# API\n"]
    for package in PUBLIC_PACKAGES:
        module = importlib.import_module(package)
        names = list(getattr(module, "__all__", ()))
        parts.append(f"## {package}\n\n{inspect.getdoc(module)}\n")
        parts += [f"```{{eval-rst}}\n{directive(module, package, name)}\n```\n" for name in names]
    return "\n".join(parts)


def directive(module: object, package: str, name: str) -> str:
    """Give the autodoc directive of one public name."""
    value = getattr(module, name)
    if inspect.isclass(value):
        return f".. autoclass:: {package}.{name}\n   :members:"
    if callable(value):
        return f".. autofunction:: {package}.{name}"
    return f".. py:data:: {package}.{name}\n   :type: {type(value).__name__}"


PAGES: dict[str, Callable[[], str]] = {
    "api": api_page,
    "errors": errors_page,
    "failpoints": failpoints_page,
    "settings": settings_page,
    "states": states_page,
}


def main() -> int:
    """Write every page anew."""
    shutil.rmtree(GENERATED, ignore_errors=True)
    GENERATED.mkdir(parents=True)
    for name, page in PAGES.items():
        (GENERATED / f"{name}.md").write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
