"""What a crash matrix is given, looked at before it begins and before it calls anything safe."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from onceward.core.errors import ConfigError
from onceward.core.shown import shown
from onceward.testing.kit.outside import Outside
from onceward.testing.kit.sends import Sent

if TYPE_CHECKING:
    from onceward.app import App
    from onceward.authoring.workflow import Workflow


def listed(sent: Sent | Iterable[Sent]) -> list[Sent]:
    """Give one or several as a list."""
    return list(sent) if isinstance(sent, Iterable) else [sent]


def checked(app: App, workflow: Workflow[..., Any], events: Sent | Iterable[Sent]) -> list[Sent]:
    """Give the events, where app, workflow and events can be tried.

    Raises:
        ConfigError: they cannot.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        raise ConfigError(
            "crash_matrix was called where an event loop runs.",
            means="It runs loops of its own, one for each life of the process.",
            todo="Call it in a plain `def` test.",
        )
    if app.is_open:
        raise ConfigError(
            "crash_matrix was given an app that is open.",
            means="It would be taken from whoever uses it.",
            todo="Close it first, or give the test an app of its own.",
        )
    if not hasattr(workflow, "name"):
        raise ConfigError(
            f"crash_matrix was given {shown(workflow)} as the workflow.",
            means="It is none.",
            todo="Pass a function decorated with @app.workflow.",
        )
    if app.workflows.get(workflow.name) is not workflow:
        raise ConfigError(
            f"The workflow {workflow.name!r} is none of this app.",
            means="No event would start it.",
            todo="Pass the app on which it is registered.",
        )
    chosen = listed(events)
    if not chosen:
        raise ConfigError(
            "crash_matrix was given no event.",
            means="Nothing would run.",
            todo="Pass delivery(…), emitted(…) or started(…).",
        )
    for sent in chosen:
        if not hasattr(sent, "send"):
            raise ConfigError(
                f"crash_matrix was given {shown(events)} as its event.",
                means="It says neither who sends it nor of what type it is.",
                todo="Pass delivery(…), emitted(…) or started(…).",
            )
    return chosen


def check_tables(outside: Outside) -> None:
    """Refuse to call safe what was never looked at: a name that is misspelt has no rows, either.

    Raises:
        ConfigError: a watched table was never there.
    """
    for table in outside.tables:
        if not table.was_there:
            raise ConfigError(
                f"The test watches the table {table.name!r}, and there was none.",
                means="What is written elsewhere was not seen, so it is not known to be safe.",
                todo="Compare the name and the connection with those of the app.",
            )
