"""What a workflow's rules read from events: versions that sort, whatever they were written as."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward import ConfigError, event
from onceward.core.rules import NO_RULES, Rules, checked_place, key_text, read, shown_version, version_text

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


def test_a_function_is_not_stored_and_says_so_where_it_is_not() -> None:
    again = Rules.from_text(Rules(version=lambda event: event.payload["n"]).to_text())

    assert again.version is not None
    with pytest.raises(ConfigError, match="a function that this process does not have"):
        read(again.version, {}, None)


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
        ("x" * 1_001, None),
        ("a\0", None),
        ("\ud800", None),
    ],
)
def test_a_key_is_a_text_or_a_whole_number_or_several(value: Any, text: str | None) -> None:
    assert key_text(value) == text


@pytest.mark.parametrize("place", ["updated", 7, event.payload["a"] == 1, int, event])
def test_what_is_no_place_is_refused(place: Any) -> None:
    with pytest.raises(ConfigError, match="The version of a workflow cannot be"):
        checked_place(place, "version")
