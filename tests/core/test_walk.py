"""Walks over values: the first difference and the first fault, by place."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from onceward.core.walk import DEPTH_MAX, first_difference, first_fault, path_text

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


class Unlike:
    """Equal to nothing, or raising when compared, as arrays and mocks are."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    def __eq__(self, other: object) -> bool:
        if self.error is not None:
            raise self.error
        return False

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("value", "decoded", "path"),
    [
        (1, True, "$"),
        (1.0, 1, "$"),
        (Decimal("1.0"), Decimal("1.00"), "$"),
        (NOON, NOON.astimezone(timezone(timedelta(hours=1))), "$"),
        (time(1, tzinfo=UTC), time(1), "$"),
        ([1, [2]], [1, [2, 3]], "$[1]"),
        ({"a": {"b": (1,)}}, {"a": {"b": [1]}}, "$.a.b"),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, "$"),
        ({1}, {2}, "$"),
        ({1}, {True}, "$"),
        ({1, 2}, {1, 2, 3}, "$"),
        (Unlike(), Unlike(), "$"),
        ([Unlike(ValueError("ambiguous"))], [Unlike()], "$[0]"),
    ],
    ids=range(13),
)
def test_a_difference_that_python_or_a_sloppy_check_would_miss_is_found(
    value: Any, decoded: Any, path: str
) -> None:
    found = first_difference(value, decoded)

    assert found is not None
    assert found.path == path


@pytest.mark.parametrize(("nested", "is_a_key"), [(frozenset, False), (tuple, True), (tuple, False)])
def test_what_nests_too_deeply_is_found_in_keys_elements_and_parts(
    nested: Callable[[list[Any]], Any], is_a_key: bool
) -> None:
    def deep(levels: int) -> Any:
        value: Any = 1
        for _ in range(levels):
            value = nested([value])
        return {value: 1} if is_a_key else value

    most = DEPTH_MAX - is_a_key
    assert first_difference(deep(most), deep(most)) is None
    assert first_difference(deep(most + 1), deep(most + 1)) is not None


def test_the_same_values_have_no_difference() -> None:
    value = {"a": [1, 2.5, None, "x", {3, 4}, (Decimal("1.0"), NOON)]}

    assert first_difference(value, {"a": [1, 2.5, None, "x", {4, 3}, (Decimal("1.0"), NOON)]}) is None
    assert first_difference(value, value) is None


def test_the_fault_nearest_to_the_top_is_found() -> None:
    value = {"deep": [[[None]]], "near": None}

    found = first_fault(value, reason=lambda part: "is nothing" if part is None else None)

    assert found is not None
    assert (found.path, found.reason) == ("$.near", "is nothing")


def test_a_property_that_raises_is_a_fault_and_not_an_error() -> None:
    def reason(part: Any) -> str | None:
        if part == 1:
            raise RuntimeError("no")
        return None

    found = first_fault([0, 1], reason=reason)

    assert found is not None
    assert (found.path, found.reason) == ("$[1]", "cannot be looked at (RuntimeError)")


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([], "$"),
        (["lines", 3, "qty"], "$.lines[3].qty"),
        (["odd key", ""], '$["odd key"][""]'),
        (["a\x00\ud800"], '$["a\\u0000\\ud800"]'),
        (["\u00e4"], '$["\\u00e4"]'),
        ([(1, 2)], "$[(1, 2)]"),
    ],
    ids=repr,
)
def test_a_place_is_shown_as_it_would_be_written(steps: list[Any], expected: str) -> None:
    assert path_text(steps) == expected


def test_a_long_place_keeps_its_beginning_and_end() -> None:
    text = path_text(["first", *range(1_000), "last", "x" * 50])

    assert len(text) <= 201
    assert text.startswith("$.first[0]")
    assert text.endswith("[999].last." + "x" * 50)
