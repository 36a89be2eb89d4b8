"""Walks over values: the first difference and the first fault, by place."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from onceward.core.walk import DEPTH_MAX, field_names, first_difference, first_fault, parts, path_text

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


@dataclass
class Point:
    """Two fields."""

    x: Any
    y: Any


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


class Colour(enum.Enum):
    RED = 1


class ColourAgain(enum.Enum):
    RED = 1


@pytest.mark.parametrize(
    ("value", "decoded", "reason"),
    [
        (1, True, "is of type int and would come back as bool"),
        (2.5, 2, "is of type float and would come back as int"),
        (1, 2.0, "is of type int and would come back as float"),
        (math.nan, None, "is nan, which JSON does not have"),
        (math.nan, math.nan, "is nan, which JSON does not have"),
        (2.5, 3.5, "is 2.5 and would come back as 3.5"),
        (1, 2, "is 1 and would come back as 2"),
        ([1], [1, 2], "is [1] and would come back as [1, 2]"),
        ({"a": 1}, {}, "has 1 keys and would come back with 0"),
        ({"a": 1}, {"b": 1}, "has the key 'a', which would come back as 'b'"),
        ({1}, {2}, "has the element 1, which would not come back equal"),
        ({1}, {1, 2}, "is {1} and would come back as {1, 2}"),
        (Decimal("1.0"), Decimal("1.00"), "is Decimal('1.0'), which would not come back equal"),
        (Decimal("NaN"), Decimal("NaN"), "is Decimal('NaN'), which would not come back equal"),
        (NOON.replace(tzinfo=ZoneInfo("Europe/Berlin")), NOON, "is in the time zone Europe/Berlin, of which"),
        (time(1), time(2), "is datetime.time(1, 0) and would come back as datetime.time(2, 0)"),
        (Point(1, 2), Point(1, 3), "is 2 and would come back as 3"),
    ],
    ids=range(17),
)
def test_it_is_said_what_would_come_back(value: Any, decoded: Any, reason: str) -> None:
    found = first_difference(value, decoded)

    assert found is not None
    assert found.reason.startswith(reason)


def test_an_int_may_come_back_as_the_equal_float_and_an_element_of_an_enum_as_itself() -> None:
    assert first_difference(1, 1.0) is None
    assert first_difference({1, 2}, {1.0, 2.0}) is None
    assert first_difference({1.0}, {1}) is not None
    assert first_difference(Colour.RED, Colour.RED) is None
    assert first_difference(Colour.RED, ColourAgain.RED) is not None
    assert first_difference(Point(1, [2]), Point(1, [2])) is None
    assert first_difference(NOON, NOON) is first_difference(time(1), time(1)) is None


@dataclass
class Closed:
    """One field, at which nobody may look."""

    x: int = 1

    def __getattribute__(self, name: str) -> Any:
        if name == "x":
            raise RuntimeError("closed")
        return super().__getattribute__(name)


def test_what_cannot_be_looked_at_is_a_difference_of_the_whole() -> None:
    found = first_difference([Closed.__new__(Closed)], [Closed.__new__(Closed)])

    assert found is not None
    assert (found.path, found.reason) == ("$", "cannot be compared with what would come back (RuntimeError)")


def test_parts_are_found_in_containers_and_in_objects_whose_fields_are_known() -> None:
    assert parts({"a": 1}) == [("a", 1)]
    assert parts([5, 6]) == parts((5, 6)) == [(0, 5), (1, 6)]
    assert parts(Point(1, 2)) == [("x", 1), ("y", 2)]
    assert parts("ab") == parts(7) == parts(object()) == []
    assert field_names(Point) == ("x", "y")
    assert field_names(int) is None


def test_what_is_too_deep_is_a_fault_at_its_place() -> None:
    def nested(levels: int, value: Any) -> Any:
        for _ in range(levels):
            value = [value]
        return value

    def fault(value: Any) -> Any:
        return first_fault(value, reason=lambda _: None)

    assert fault(nested(DEPTH_MAX, 1)) is None
    assert fault(nested(DEPTH_MAX, ())) is None
    for value in (nested(DEPTH_MAX, []), nested(DEPTH_MAX, {}), nested(DEPTH_MAX, (1,))):
        assert fault(value).reason == "nests deeper than 200 levels, or contains itself"
        assert "[0]" in fault(value).path


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


@pytest.mark.parametrize(
    ("length", "shown"),
    [
        (198, "$." + "x" * 100 + "['" + "x" * 0),
    ],
)
def test_placeholder(length: int, shown: str) -> None: ...


def test_a_place_of_two_hundred_characters_is_shown_whole() -> None:
    whole, cut = (path_text(["x" * 99, "y" * count]) for count in (98, 99))

    assert whole == f"$.{'x' * 99}.{'y' * 98}"
    assert cut == f"$.{'x' * 98}….{'y' * 99}"


def test_a_long_place_keeps_its_beginning_and_end() -> None:
    text = path_text(["first", *range(1_000), "last", "x" * 50])

    assert len(text) <= 201
    assert text.startswith("$.first[0]")
    assert text.endswith("[999].last." + "x" * 50)
