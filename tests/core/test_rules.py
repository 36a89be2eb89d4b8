"""What a workflow's rules read from events: versions that sort, whatever they were written as."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward import ConfigError, event
from onceward.core.duration import DURATION_MS_MAX
from onceward.core.model import EventRow
from onceward.core.paths import FIELDS
from onceward.core.rules import (
    CLASHES,
    FAR_MS,
    NO_RULES,
    STALE,
    Rules,
    checked_place,
    fields_of,
    key_text,
    read,
    shown_version,
    version_text,
)

numbers = st.integers(-(10**19), 10**19) | st.decimals(-(10**19), 10**19, allow_nan=False, places=9)


@given(numbers, numbers)
def test_texts_of_numbers_sort_as_the_numbers_do(one: int | Decimal, other: int | Decimal) -> None:
    texts = version_text(one), version_text(other)

    assert None not in texts
    assert (one < other) == (texts[0] < texts[1])  # type: ignore[operator]
    assert (one == other) == (texts[0] == texts[1])


@given(st.datetimes(timezones=st.timezones()), st.datetimes(timezones=st.timezones()))
def test_times_sort_as_times_whatever_their_zone(one: datetime, other: datetime) -> None:
    texts = version_text(one.isoformat()), version_text(other)

    assert (one.astimezone(UTC) < other.astimezone(UTC)) == (texts[0] < texts[1])  # type: ignore[operator]


AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    "value",
    [
        AT,
        AT.astimezone(timezone(timedelta(hours=-5))),
        "2026-01-02T03:04:05Z",
        "2026-01-02T04:04:05.000+01:00",
        "2026-01-02 03:04:05",
        int(AT.timestamp()),
        str(int(AT.timestamp())),
        AT.timestamp(),
    ],
)
def test_one_moment_is_one_version(value: Any) -> None:
    assert version_text(value) == version_text(AT)


@pytest.mark.parametrize(
    "value", [None, True, "", "v7", "abc", [], {}, float("nan"), float("inf"), 10**20, b"1"]
)
def test_what_cannot_be_compared_is_no_version(value: Any) -> None:
    assert version_text(value) is None


@pytest.mark.parametrize(
    ("value", "text"), [(7, "7"), (-3, "-3"), ("1700000000.25", "1700000000.25"), (0, "0")]
)
def test_a_version_is_shown_as_a_number(value: Any, text: str) -> None:
    written = version_text(value)

    assert written is not None
    assert shown_version(written) == text


def test_rules_with_expressions_are_read_back_equal() -> None:
    rules = Rules(version=event.payload["updated"], drops_stale=False)

    again = Rules.from_text(rules.to_text())

    assert again.version is not None
    assert read(again.version, {"payload": {"updated": 5}}, None) == 5
    assert again.drops_stale is False
    assert Rules.from_text(NO_RULES.to_text()) is NO_RULES


def test_all_rules_are_read_back() -> None:
    key = event.payload["order"]
    rules = Rules(key=key, once="window", window_ms=5_000, clash="queue", retries_on_redelivery=True)

    again = Rules.from_text(rules.to_text())

    assert again.key is not None
    assert read(again.key, {"payload": {"order": "o-1"}}, None) == "o-1"
    assert (again.once, again.window_ms, again.clash) == ("window", 5_000, "queue")
    assert again.retries_on_redelivery is True
    assert Rules.from_text(Rules(retries_on_redelivery=True).to_text()).retries_on_redelivery is True


@pytest.mark.parametrize(
    ("rules", "may"),
    [
        (Rules(), True),
        (Rules(version=event.subject), True),
        (Rules(version=event.subject, drops_stale=False), False),
        (Rules(drops_stale=False), True),
        (Rules(key=event.subject, clash="return"), True),
        (Rules(key=event.subject, clash="reject"), True),
        (Rules(key=event.subject, once="active", clash="queue"), False),
        (Rules(key=event.subject, once="active", clash="replace"), False),
        (Rules(key=event.subject, version=event.subject, drops_stale=False), False),
    ],
    ids=range(9),
)
def test_a_run_begins_at_once_where_the_store_can_make_nothing_else_of_it(rules: Rules, may: bool) -> None:
    """A stale run is marked, and one whose key is held waits or takes the other's place."""
    assert rules.may_begin_at_once is may


@pytest.mark.parametrize("what", ["version", "key"])
def test_a_function_is_not_stored_and_says_so_where_it_is_not(what: str) -> None:
    place: Any = {what: lambda event: event.payload["n"]}
    again = getattr(Rules.from_text(Rules(**place).to_text()), what)

    with pytest.raises(
        ConfigError, match=f"The {what} of this workflow is a function that this process does"
    ):
        read(again, {}, None)


@pytest.mark.parametrize("payload", ['{"a":1}', None])
def test_an_expression_finds_everything_that_is_stored_of_an_event(payload: str | None) -> None:
    row = EventRow("stripe", "evt_1", "order.paid", payload, 1_000, subject="o-1", occurred_at=900)

    fields = fields_of(row, "staging", 7)

    assert tuple(fields) == FIELDS
    assert fields == {
        "namespace": "staging",
        "source": "stripe",
        "id": "evt_1",
        "type": "order.paid",
        "subject": "o-1",
        "payload": None if payload is None else {"a": 1},
        "occurred_at": 900,
        "received_at": 1_000,
        "version": 7,
    }


def test_an_async_function_is_refused() -> None:
    async def later(event: Any) -> int:
        return 1

    with pytest.raises(ConfigError, match="The key of a workflow is an async function"):
        checked_place(later, "key")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", "a"),
        (7, "7"),
        ("7", "7"),
        (["eu", 7], '["eu","7"]'),
        (("a",), '["a"]'),
        (None, None),
        ("", None),
        (True, None),
        (1.5, None),
        ([], None),
        (["a", None], None),
        ({"a": 1}, None),
        ("x" * 1_000, "x" * 1_000),
        ("x" * 1_001, None),
        ("a\0", None),
        ("\ud800", None),
    ],
)
def test_a_key_is_a_text_or_a_whole_number_or_several(value: Any, text: str | None) -> None:
    assert key_text(value) == text


def test_only_where_a_key_comes_free_can_an_event_wait_for_it_or_take_its_place() -> None:
    """The words that users write (RULINGS 14)."""
    always, free_again = ("return", "reject"), ("return", "reject", "replace", "queue")

    assert {"ever": always, "active": free_again, "window": free_again} == CLASHES
    assert STALE == ("drop", "mark")


def test_a_run_that_waits_for_its_key_is_due_later_than_any_length_of_time() -> None:
    assert FAR_MS > DURATION_MS_MAX


@pytest.mark.parametrize("place", [event.subject, event.payload["a"][0], lambda event: 1, len])
def test_a_place_in_an_event_and_a_function_of_it_are_places(place: Any) -> None:
    assert checked_place(place, "version") is place


@pytest.mark.parametrize("place", ["updated", 7, event.payload["a"] == 1, int, event])
def test_what_is_no_place_is_refused(place: Any) -> None:
    with pytest.raises(ConfigError, match="The version of a workflow cannot be"):
        checked_place(place, "version")
