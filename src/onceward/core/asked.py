"""What callers of the app hand in beside their payloads, checked before anything is done with it."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from onceward.core import errors
from onceward.core.model import AuditRow, Millis
from onceward.core.shown import shown
from onceward.core.states import RunState
from onceward.core.texts import NAME_CHARS_MAX, is_name

LIMIT_MAX = 1_000

LOOK_MAX = 10_000
"""Rows that one page looks at, at most, where a filter is by what no index has."""

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


class _Unset:
    """No value was given, which is another thing than None."""

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Any = _Unset()


def checked_state(state: RunState | str) -> RunState:
    """Give the state of that name."""
    try:
        return RunState(checked_text(state, "state"))
    except ValueError:
        raise errors.ConfigError(
            f"There is no state {shown(state)}.",
            means="No run could be in it.",
            todo=f"States are: {', '.join(RunState)}.",
        ) from None


DELIVERY_STATES = ("accepted", "duplicate", "clash", "unparsed")


def checked_delivery_state(state: str) -> str:
    """Give the state of a delivery if it is one."""
    if state not in DELIVERY_STATES:
        raise errors.ConfigError(
            f"There is no state {str(state)[:60]!r} of deliveries.",
            means="No delivery could be in it.",
            todo=f"States are: {', '.join(DELIVERY_STATES)}.",
        )
    return state


def checked_limit(limit: int) -> int:
    """Give the limit of a list if it is in range."""
    if type(limit) is not int or not 1 <= limit <= LIMIT_MAX:
        raise errors.ConfigError(
            f"limit={shown(limit)} is not between 1 and {LIMIT_MAX:,}.", todo="Page with before=."
        )
    return limit


def checked_text(value: str, what: str) -> str:
    """Give *value* if it is a text that a store can hold; whether anything is called so is seen later."""
    if not isinstance(value, str):
        raise errors.ConfigError(
            f"The {what} {shown(value)} is no text.", means="Nothing was done.", todo="Pass a str."
        )
    if not can_be_stored(value):
        raise errors.ConfigError(
            f"The {what} {shown(value)} holds a character that nothing stored can have.",
            means="Nothing was done.",
            todo="Leave out NUL and halves of surrogate pairs.",
        )
    return value


def can_be_stored(text: str) -> bool:
    """Say whether every store can hold a text."""
    return _UNSTORABLE.search(text) is None


def checked_texts(**values: str | None) -> dict[str, Any]:
    """Give the filters of a list if each is a text or None."""
    return {name: None if value is None else checked_text(value, name) for name, value in values.items()}


def checked_event_place(before: tuple[int, str, str] | None) -> tuple[int, str, str] | None:
    """Give the place in a list of events from which on the next page begins."""
    if before is None:
        return None
    if isinstance(before, tuple) and [type(part) for part in before] == [int, str, str]:
        return before
    raise errors.ConfigError(
        f"before={shown(before)} is no place in a list of events.",
        means="Nothing was listed.",
        todo="Pass (received_at, source, id) of the last event of the page before.",
    )


def checked_generation(generation: int | None) -> int | None:
    """Give the generation if there could be such a one."""
    if generation is not None and (type(generation) is not int or not 1 <= generation < 2**31):
        raise errors.ConfigError(
            f"generation={shown(generation)} cannot be one.",
            means="Nothing was read.",
            todo="Generations are counted from 1; None is the present one.",
        )
    return generation


def checked_actor(actor: str) -> str:
    """Give who asks, for the audit, if a person can read it there."""
    if not is_name(actor):
        raise errors.ConfigError(
            f"The actor {shown(actor)} cannot be kept.",
            means="Nothing was done.",
            todo=f"Pass a text of 1 to {NAME_CHARS_MAX} printable characters.",
        )
    return actor


def checked_time(at: datetime | None) -> Millis | None:
    """Give a time in Unix milliseconds."""
    if at is None:
        return None
    if not isinstance(at, datetime) or at.tzinfo is None or at.utcoffset() is None:
        raise errors.ConfigError(
            f"The time {shown(at)} cannot be used.",
            means="Without a time zone it means another moment on another machine. Nothing was stored.",
            todo="Pass a datetime with a time zone, such as datetime.now(UTC).",
        )
    return int(at.timestamp() * 1000)


def clash(source: str, event_id: str) -> errors.IdClash:
    """Give the error for an id that stands for other content."""
    return errors.IdClash(
        f"The event {event_id!r} of {source!r} exists with other content.",
        means="The first stays as it is; nothing was stored.",
        todo="Use another id for another fact, or leave the id out.",
    )


def other_request(request_id: str, entry: AuditRow) -> errors.StateConflict:
    """Give the error for a request id that asked for something else before, as its entry in the audit says."""
    # What a bulk action has for a detail is how it ended, all of it.
    many = "of many runs" if entry.verb.startswith("bulk ") else f"of {entry.detail or '(none)'}"
    was = f"of run {entry.run_id}" if entry.run_id else many
    return errors.StateConflict(
        f"The request {shown(request_id)} was {entry.verb} {was}.",
        means="One request is one action. Nothing was changed.",
        todo="Draw a new id for each request.",
    )
