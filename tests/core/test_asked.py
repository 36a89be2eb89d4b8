"""What callers may ask with, and how they are told what they may not."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any

import pytest

from onceward.core import asked, texts
from onceward.core.errors import ConfigError, StateConflict
from onceward.core.model import AuditRow
from onceward.core.states import RunState


class NoOffset(tzinfo):
    """A zone that does not know how far it is from UTC."""

    def utcoffset(self, at: datetime | None) -> timedelta | None:
        return None

    dst = utcoffset

    def tzname(self, at: datetime | None) -> None:
        return None


@pytest.mark.parametrize(
    ("check", "value", "said"),
    [
        (asked.checked_state, "asleep", "States are: queued, running"),
        (asked.checked_limit, 0, "between 1 and 1,000"),
        (asked.checked_limit, 1_001, "between 1 and 1,000"),
        (texts.checked_id, "", "1 to 255 characters"),
        (texts.checked_id, "x" * 256, "1 to 255 characters"),
        (texts.checked_id, "a\0b", "without NUL"),
        (texts.checked_id, 7, "1 to 255 characters"),
        (texts.checked_subject, "x" * 501, "up to 500 characters"),
        (texts.checked_subject, 7, "up to 500 characters"),
        (asked.checked_limit, True, "between 1 and 1,000"),
        (asked.checked_delivery_state, "lost", "States are: accepted, duplicate, clash, unparsed"),
        (asked.checked_state, 7, "The state 7 is no text"),
        (asked.checked_state, "he\0ld", "holds a character"),
        (asked.checked_event_place, (1, "stripe"), "no place in a list of events"),
        (asked.checked_event_place, (1, "stripe", 2), "no place in a list of events"),
        (asked.checked_event_place, [1, "stripe", "evt"], "no place in a list of events"),
        (asked.checked_generation, 0, "cannot be one"),
        (asked.checked_generation, 2**31, "cannot be one"),
        (asked.checked_generation, True, "cannot be one"),
        (asked.checked_actor, "", "cannot be kept"),
        (asked.checked_actor, "a\nb", "cannot be kept"),
        (asked.checked_time, "2024-01-01", "cannot be used"),
        (asked.checked_time, datetime(2024, 1, 1), "cannot be used"),  # noqa: DTZ001
        (asked.checked_time, datetime(2024, 1, 1, tzinfo=NoOffset()), "cannot be used"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_with_what_can(
    check: Callable[[Any], object], value: object, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        check(value)


def test_what_can_be_asked_for_comes_back() -> None:
    assert asked.checked_state("held") is RunState.HELD
    assert asked.checked_state(RunState.HELD) is RunState.HELD
    assert asked.checked_limit(1_000) == 1_000
    assert asked.checked_limit(1) == 1
    assert texts.checked_id("x" * 255) == "x" * 255
    assert [texts.checked_subject(one) for one in (None, "", "x" * 500)] == [None, "", "x" * 500]
    for state in ("accepted", "duplicate", "clash", "unparsed"):
        assert asked.checked_delivery_state(state) == state
    assert asked.checked_texts(workflow="buy", state=None) == {"workflow": "buy", "state": None}
    assert asked.checked_event_place(None) is None
    assert asked.checked_event_place((1, "stripe", "evt")) == (1, "stripe", "evt")
    assert [asked.checked_generation(one) for one in (None, 1, 2**31 - 1)] == [None, 1, 2**31 - 1]
    assert asked.checked_actor("ann") == "ann"


def test_a_time_is_told_in_unix_milliseconds_whatever_its_zone() -> None:
    noon = datetime(2024, 1, 1, 12, 0, 0, 250_000, tzinfo=UTC)

    assert asked.checked_time(None) is None
    assert asked.checked_time(noon) == 1_704_110_400_250
    assert asked.checked_time(noon.astimezone(timezone(timedelta(hours=5)))) == 1_704_110_400_250


@pytest.mark.parametrize(
    ("run_id", "verb", "detail", "was"),
    [
        ("run_1", "retry", None, "was retry of run run_1."),
        ("", "bulk retry", "3 of 3", "was bulk retry of many runs."),
        ("", "prune", "cus_1", "was prune of cus_1."),
        ("", "prune", None, "was prune of (none)."),
    ],
)
def test_a_request_that_asked_for_something_else_before_is_told_for_what(
    run_id: str, verb: str, detail: str | None, was: str
) -> None:
    error = asked.other_request("r-1", AuditRow("aud_1", 1, run_id, verb, "ann", detail))

    assert isinstance(error, StateConflict)
    assert error.what == f"The request 'r-1' {was}"


def test_an_id_that_stands_for_other_content_is_named_with_its_source() -> None:
    assert asked.clash("stripe", "evt_1").what == "The event 'evt_1' of 'stripe' exists with other content."
