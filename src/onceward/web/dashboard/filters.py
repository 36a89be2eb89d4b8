"""What stands in a page's address as the question that it is: filters that can be linked and kept.

Text that is no filter is refused by name and never ignored: a misspelt filter that shows everything
is worse than none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from urllib.parse import urlencode

from onceward.console.port import DeliveryQuery, EventQuery, RunQuery
from onceward.core import asked
from onceward.core.duration import to_ms
from onceward.core.errors import ConfigError
from onceward.core.model import Millis
from onceward.core.states import RunState

VALUE_CHARS_MAX = 1_000
PAGE = 50

RUN_FIELDS = (
    *("workflow", "state", "source", "event_id", "type", "subject", "key", "tag", "since", "until"),
    *("problems", "error", "parent", "after"),
)
EVENT_FIELDS = ("source", "type", "subject", "id", "since", "until", "without_runs", "after")
DELIVERY_FIELDS = ("source", "outcome", "since", "until", "after")
OUTCOMES = ("accepted", "duplicate", "clash", "unparsed")

SAVED: Sequence[tuple[str, dict[str, str]]] = (
    ("All", {}),
    ("Open problems", {"problems": "1"}),
    ("Held", {"state": "held"}),
    ("Failed", {"state": "failed"}),
    ("Running", {"state": "running"}),
    ("Queued", {"state": "queued"}),
    ("Backing off", {"state": "backoff"}),
    ("Asleep", {"state": "sleeping"}),
    ("Last hour", {"since": "1h"}),
)
"""Filters that somebody wants at night; each is a link, and so is every other one."""

Given = Mapping[str, str]


def given(params: Mapping[str, str], fields: Sequence[str], *, also: Sequence[str] = ()) -> dict[str, str]:
    """Give the filters that an address holds, without the empty ones of a form.

    Raises:
        ConfigError: there is one that this page does not know, or one that is far too long.
    """
    found = {}
    for name, value in params.items():
        value = value.strip()
        if name not in fields and name not in also:
            raise ConfigError(
                f"There is no filter {name[:100]!r} on this page.",
                means="Showing everything in its place would mislead.",
                todo=f"The filters are {', '.join(fields)}.",
            )
        if len(value) > VALUE_CHARS_MAX:
            raise ConfigError(
                f"The filter {name!r} has {len(value):,} characters.", todo="Filter by something shorter."
            )
        if not asked.can_be_stored(value):
            raise ConfigError(f"The filter {name!r} holds a character that nothing stored can have.")
        if value and name in fields:
            found[name] = value
    return found


def run_query(filters: Given, now: Millis, *, limit: int = PAGE) -> RunQuery:
    """Give the question about runs that *filters* ask.

    Raises:
        ConfigError: a state that there is none of, a time that cannot be read.
    """
    state = filters.get("state")
    if state is not None and state not in set(RunState):
        raise ConfigError(
            f"There is no state {state!r}.", todo=f"The states are {', '.join(sorted(RunState))}."
        )
    texts = {name: filters.get(name) for name in RUN_FIELDS if name not in ("since", "until", "problems")}
    return RunQuery(
        **texts,
        since=moment(filters.get("since"), now),
        until=moment(filters.get("until"), now),
        problems=flag(filters.get("problems"), "problems"),
        limit=limit,
    )


def event_query(filters: Given, now: Millis, *, limit: int = PAGE) -> EventQuery:
    """Give the question about events that *filters* ask; errors as of `run_query`."""
    return EventQuery(
        source=filters.get("source"),
        type=filters.get("type"),
        subject=filters.get("subject"),
        id=filters.get("id"),
        since=moment(filters.get("since"), now),
        until=moment(filters.get("until"), now),
        without_runs=flag(filters.get("without_runs"), "without_runs"),
        after=filters.get("after"),
        limit=limit,
    )


def delivery_query(filters: Given, now: Millis, *, limit: int = PAGE) -> DeliveryQuery:
    """Give the question about deliveries that *filters* ask; errors as of `run_query`."""
    outcome = filters.get("outcome")
    if outcome is not None and outcome not in OUTCOMES:
        raise ConfigError(
            f"There is no outcome {outcome!r}.", todo=f"The outcomes are {', '.join(OUTCOMES)}."
        )
    return DeliveryQuery(
        source=filters.get("source"),
        outcome=outcome,
        since=moment(filters.get("since"), now),
        until=moment(filters.get("until"), now),
        after=filters.get("after"),
        limit=limit,
    )


def flag(text: str | None, name: str) -> bool:
    """Read yes or no."""
    known = {None: False, "1": True, "true": True, "on": True, "0": False, "false": False}
    if text not in known:
        raise ConfigError(f"The filter {name!r} is {text!r}.", todo="Write 1, or leave it away.")
    return known[text]


def moment(text: str | None, now: Millis) -> Millis | None:
    """Read a time: how long ago (``24h``), ISO 8601, or Unix milliseconds.

    Raises:
        ConfigError: it is none of them.
    """
    if text is None:
        return None
    if re.fullmatch(r"[0-9]{12,14}", text):
        return int(text)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return now - to_ms(text, what="since or until")
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def query_string(filters: Given, **changes: str | None) -> str:
    """Give an address's query for *filters* with *changes*; None takes one away. Begins with ``?``."""
    merged = {name: value for name, value in {**filters, **changes}.items() if value is not None}
    return f"?{urlencode(merged, errors='replace')}" if merged else "?"
