"""From a query to what the store is asked: checked, bounded, with the place where a page begins."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from onceward.console.port import PAGE_MAX, DeliveryQuery, EventQuery, RunQuery
from onceward.core import asked, ids
from onceward.core.asked import LOOK_MAX as LOOK_MAX
from onceward.core.errors import ConfigError
from onceward.core.looks import EventLook, RunLook
from onceward.core.model import Millis
from onceward.core.ports import DeliveryFilter
from onceward.core.shown import shown
from onceward.core.states import OPEN_PROBLEM
from onceward.core.states import RunState as S

FAR_LOOK_MAX = 4_000
"""Rows that one page looks at where they are far apart, or each asks for a row of another table."""

ERROR_LOOK_MAX = 2_000
"""Failures that one page looks into, at most: their texts are long."""

ID_SLACK_MS = 60_000
"""How far the time in a run's id may be from the time when it was accepted: the id is drawn later."""

_WORD = re.compile(r"\w+")
_ASCII_WORD = re.compile(r"[a-z0-9]+")
_NO_RANDOM = bytes(10)


def run_look(query: RunQuery, tagged: Sequence[str] = ()) -> RunLook:
    """Give what to look for; one more than the page has room for.

    Args:
        query: what is asked.
        tagged: the workflows that have the tag that is asked for, if one is.

    Raises:
        ConfigError: a filter, the limit or the cursor cannot be used, or filters do not go together.
    """
    texts = asked.checked_texts(
        workflow=query.workflow,
        source=query.source,
        event_id=query.event_id,
        type=query.type,
        subject=query.subject,
        key=query.key,
        parent=query.parent,
        error=query.error,
        after=query.after,
    )
    state = None if query.state is None else asked.checked_state(query.state)
    if query.event_id is not None and query.source is None:
        raise ConfigError(
            "Runs are wanted of an event id without its source.",
            means="Two senders may use the same id.",
            todo="Name the source as well.",
        )
    if query.error is not None and not query.problems and state not in OPEN_PROBLEM:
        raise ConfigError(
            "An error's text is looked for among runs that have not failed.",
            means="Only failed and held runs are kept apart by it.",
            todo="Add problems, or the state failed or held.",
        )
    for at in (query.since, query.until):
        if at is not None:
            checked_time(at)
    limit = checked_limit(query.limit)
    before = texts["after"]
    if query.until is not None:
        bound = run_id_at(query.until + ID_SLACK_MS)
        before = bound if before is None else min(before, bound)
    # A list of everything, or of all problems, takes as many rows as it shows.
    unfiltered = RunQuery(problems=query.problems, since=query.since, until=query.until, limit=limit)
    look = limit + 1
    if msgspec.structs.replace(query, after=None) != unfiltered:
        is_far = query.problems or (state is not None and state not in (S.COMPLETED, S.CANCELLED))
        look = FAR_LOOK_MAX if is_far else LOOK_MAX
        look = look if query.error is None else ERROR_LOOK_MAX
    return RunLook(
        workflow=query.workflow,
        workflows=None if query.tag is None else sorted(tagged),
        state=state,
        source=query.source,
        event_id=query.event_id,
        key=query.key,
        before=before,
        limit=limit + 1,
        problems=query.problems,
        since="" if query.since is None else run_id_at(max(query.since - ID_SLACK_MS, 0)),
        created_since=0 if query.since is None else query.since,
        created_until=2**62 if query.until is None else query.until,
        type=query.type,
        subject=query.subject,
        parent=query.parent,
        error=None if query.error is None else error_hint(query.error),
        look=look,
    )


def event_look(query: EventQuery) -> EventLook:
    """Give what to look for; one more than the page has room for.

    Raises:
        ConfigError: a filter, the limit or the cursor cannot be used.
    """
    asked.checked_texts(source=query.source, type=query.type, subject=query.subject, id=query.id)
    limit = checked_limit(query.limit)
    before = None if query.after is None else read_cursor(query.after, int, str, str)
    if query.until is not None:
        # Nothing sorts before the empty source: all of that millisecond and later is left out.
        bound = (checked_time(query.until), "", "")
        before = bound if before is None else min(before, bound)
    is_filtered = query.without_runs or any(
        value is not None for value in (query.source, query.type, query.subject, query.id)
    )
    return EventLook(
        source=query.source,
        type=query.type,
        subject=query.subject,
        before=before,
        limit=limit + 1,
        id=query.id,
        since=0 if query.since is None else checked_time(query.since),
        without_runs=query.without_runs,
        look=(FAR_LOOK_MAX if query.without_runs else LOOK_MAX) if is_filtered else limit + 1,
    )


def delivery_filter(query: DeliveryQuery) -> DeliveryFilter:
    """Give what to look for; one more than the page has room for.

    Raises:
        ConfigError: a filter, the limit or the cursor cannot be used.
    """
    asked.checked_texts(source=query.source, after=query.after)
    outcome = None if query.outcome is None else asked.checked_delivery_state(query.outcome)
    before = query.after
    if query.until is not None:
        bound = delivery_id_at(query.until)
        before = bound if before is None else min(before, bound)
    return DeliveryFilter(
        source=query.source,
        outcome=outcome,
        before=before,
        since="" if query.since is None else delivery_id_at(query.since),
        limit=checked_limit(query.limit) + 1,
    )


def checked_limit(limit: int) -> int:
    """Give the size of a page if it is in range."""
    if type(limit) is not int or not 1 <= limit <= PAGE_MAX:
        raise ConfigError(
            f"limit={shown(limit)} is not between 1 and {PAGE_MAX}.",
            means="Nothing was listed.",
            todo="Page with after=.",
        )
    return limit


def checked_time(at: Millis) -> Millis:
    """Give a time in Unix milliseconds if it can be one."""
    if type(at) is not int or not 0 <= at < 2**47:
        raise ConfigError(
            f"The time {shown(at)} cannot be one.",
            means="Nothing was listed.",
            todo="Times are Unix milliseconds.",
        )
    return at


def run_id_at(at: Millis) -> str:
    """Give what sorts before every run that was accepted at this time or later."""
    return ids.run_id(checked_time(at), _NO_RANDOM)


def delivery_id_at(at: Millis) -> str:
    """Give what sorts before every delivery that was stored at this time or later."""
    return ids.DELIVERY_ID_PREFIX + run_id_at(at).removeprefix(ids.RUN_ID_PREFIX)


# --- the text of errors ---------------------------------------------------------------------------


def error_hint(error: str) -> str:
    """Give letters and digits that must be in the text of what is looked for, whatever surrounds them."""
    return max(_ASCII_WORD.findall(error.lower()), key=len, default="")


def fits_error(wanted: str, *texts: str | None) -> bool:
    """Say whether each of the *wanted* words begins a word of the texts, in any case of letters.

    What is written without white space, such as ``order-7``, must stand together.
    """
    known = [word for text in texts if text for word in _WORD.findall(text.lower())]
    return all(_stands(_WORD.findall(part), known) for part in wanted.lower().split())


def _stands(parts: list[str], known: list[str]) -> bool:
    """Say whether the parts follow each other among the known words, the last one perhaps cut short."""
    count = len(parts)
    return not parts or any(
        known[at : at + count - 1] == parts[:-1] and known[at + count - 1].startswith(parts[-1])
        for at in range(len(known) - count + 1)
    )


# --- cursors ----------------------------------------------------------------------------------------


def cursor(*place: Any) -> str:
    """Give a place in a list as a text that nobody needs to read."""
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def _can_be_stored(part: int | str) -> bool:
    if isinstance(part, int):
        return 0 <= part < 2**63
    return asked.can_be_stored(part)


def read_cursor(text: str, *types: type) -> Any:
    """Give the place that `cursor` wrote.

    Raises:
        ConfigError: it did not write it.
    """
    try:
        padded = asked.checked_text(text, "after") + "=" * (-len(text) % 4)
        place = tuple(msgspec.json.decode(base64.urlsafe_b64decode(padded)))
    except (ValueError, TypeError, RecursionError):
        place = ()
    if [type(part) for part in place] != list(types) or not all(map(_can_be_stored, place)):
        raise ConfigError(
            f"after={shown(text)} is no place in this list.",
            means="Nothing was listed.",
            todo="Pass the next of the page before, or leave it out.",
        )
    return place
