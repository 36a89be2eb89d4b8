"""What starts runs of a workflow, and the rules of its runs, in words: for the dashboard and the command line.

It reads what a store, or another app over the REST API, gives; what this version does not know is shown as it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from onceward.core import duration
from onceward.core.errors import ConfigError
from onceward.core.paths import from_data
from onceward.core.rules import ACTIVE, EVER, WINDOW
from onceward.core.triggers import Trigger

BY_NAME = "started by name"
"""What starts a workflow without triggers."""

_AFTERWARDS = {
    "return": "an event that finds it held gets that run",
    "reject": "an event that finds it held gets none",
    "replace": "an event that finds it held replaces that run",
    "queue": "an event that finds it held waits for its turn",
}


def starts_on(triggers: Sequence[Any]) -> list[str]:
    """Give each trigger as it is written: ``stripe invoice.*``, or the type alone for our own events."""
    return [_trigger(data) for data in triggers] or [BY_NAME]


def _trigger(data: Any) -> str:
    if (
        isinstance(data, Mapping)
        and isinstance(data.get("source"), str)
        and isinstance(data.get("type"), str)
    ):
        try:
            return Trigger(data["source"], data["type"]).show()
        except ConfigError:
            pass
    return _as_it_is(data)


def rules_told(rules: Any) -> list[str]:
    """Give each rule as a phrase, as `onceward.core.rules.Rules` stores them; none of None."""
    if rules is None:
        return []
    if not isinstance(rules, Mapping):
        return [_as_it_is(rules)]
    rest = dict(rules)
    told = []
    if (key := rest.pop("key", None)) is not None:
        once, window_ms, clash = (
            rest.pop("once", EVER),
            rest.pop("window_ms", None),
            rest.pop("clash", "return"),
        )
        told.append(f"one run for each {_place(key)}, {_held(once, window_ms)}: {_after(clash)}")
    if (version := rest.pop("version", None)) is not None:
        late = "gets no run" if rest.pop("drops_stale", True) is True else "gets a run that is marked"
        told.append(f"the newest of a subject by {_place(version)}: an event that is not newer {late}")
    if rest.pop("retries_on_redelivery", False) is True:
        told.append("a redelivery retries its failed run")
    return [*told, *([_as_it_is(rest)] if rest else [])]


def _place(data: Any) -> str:
    """Give a place in an event as it is written in code."""
    if data == "code":
        return "value of a function"
    try:
        return repr(from_data(data))
    except ConfigError:
        return _as_it_is(data)


def _held(once: Any, window_ms: Any) -> str:
    if once == WINDOW and isinstance(window_ms, int):
        return f"held for {duration.show(window_ms)}"
    return {EVER: "held for good", ACTIVE: "held until it has ended"}.get(
        str(once), f"held {_as_it_is(once)}"
    )


def _after(clash: Any) -> str:
    return _AFTERWARDS.get(str(clash), f"then {_as_it_is(clash)}")


def _as_it_is(data: Any) -> str:
    # Not the codec's own JSON, which refuses half a surrogate pair.
    return data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
