"""Plain JSON values: what is stored comes back the same, and everything else is refused by place."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import enum
import math
import os
import sys
import threading
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceward.core.errors import NotStorable, StoreDamaged, ValueTooLarge
from onceward.core.json_plain import Role, decode_plain, encode_plain, round_trip_plain
from onceward.core.shown import shown
from tests.starts import ROOT, run

LIMIT = 1_000_000
WHAT = "The result of step 'charge'"

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(1 - 10**4_299, 10**4_300 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
plain_values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=30
)


def same(value: Any, other: Any) -> bool:
    """Compare types and values, part by part; keeps -0.0 and 0.0 apart."""
    if type(value) is not type(other):
        return False
    if isinstance(value, dict):
        return list(value) == list(other) and all(same(value[key], other[key]) for key in value)
    if isinstance(value, list):
        return len(value) == len(other) and all(map(same, value, other))
    return bool(repr(value) == repr(other) if isinstance(value, float) else value == other)


def nested(depth: int, innermost: Any = 1) -> Any:
    value = innermost
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


def refusal(value: Any, limit_bytes: int = LIMIT) -> str:
    with pytest.raises(NotStorable) as refused:
        encode_plain(value, what=WHAT, limit_bytes=limit_bytes)
    message = str(refused.value)
    assert message.startswith(f"{WHAT} ")
    assert len(message) < 900
    return message


@given(plain_values)
@settings(deadline=None)
def test_a_plain_value_comes_back_equal_and_of_the_same_types(value: Any) -> None:
    text = encode_plain(value, what=WHAT, limit_bytes=LIMIT)

    assert same(decode_plain(text), value)
    text.encode()


@given(plain_values)
@settings(deadline=None)
def test_a_round_trip_gives_the_text_and_a_value_that_shares_no_container(value: Any) -> None:
    text, back = round_trip_plain(value, what=WHAT, limit_bytes=LIMIT)

    assert text == encode_plain(value, what=WHAT, limit_bytes=LIMIT)
    assert same(back, value)
    assert back is not value or not isinstance(value, (list, dict))


@pytest.mark.parametrize(
    "value",
    [
        2**53 + 1,
        -(2**63) - 1,
        2**64,
        10**400,
        10**4_300 - 1,
        1 - 10**4_299,
        -0.0,
        5e-324,
        1.7976931348623157e308,
        0.1 + 0.2,
        "\x00",
        "a\x00b\u2028\ud7ff\U0010ffff\x7f",
        {"\x00": ["\x00"]},
        "",
        [],
        {},
        {"": None},
        nested(200),
        "x" * 500_000,
    ],
    ids=shown,
)
def test_a_value_at_the_edge_comes_back_exact(value: Any) -> None:
    assert same(decode_plain(encode_plain(value, what=WHAT, limit_bytes=LIMIT)), value)


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


class Size(enum.StrEnum):
    SMALL = "s"


class Text(str):
    __slots__ = ()


class Place(NamedTuple):
    x: int


@dataclasses.dataclass
class Order:
    id: int


class Broken:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


@pytest.mark.parametrize(
    ("value", "type_name"),
    [
        ((1, 2), "tuple"),
        ({1}, "set"),
        (frozenset(), "frozenset"),
        (b"x", "bytes"),
        (bytearray(b"x"), "bytearray"),
        (Decimal("1.0"), "decimal.Decimal"),
        (datetime(2024, 1, 1), "datetime.datetime"),  # noqa: DTZ001
        (date(2024, 1, 1), "datetime.date"),
        (UUID(int=1), "uuid.UUID"),
        (Colour.RED, "Colour"),
        (Level.LOW, "Level"),
        (Size.SMALL, "Size"),
        (Place(1), "Place"),
        (Order(1), "Order"),
    ],
    ids=shown,
)
def test_a_value_that_an_annotation_makes_storable_is_refused_with_that_advice(
    value: Any, type_name: str
) -> None:
    message = refusal({"lines": [0, 1, 2, {"qty": value}]})

    assert f"$.lines[3].qty is of type {type_name}" in message or f"{type_name}." in message
    assert "Annotate the function's return type" in message


@pytest.mark.parametrize(
    "make",
    [
        lambda: test_a_value_that_an_annotation_makes_storable_is_refused_with_that_advice,
        lambda: open(os.devnull),  # noqa: SIM115
        threading.Lock,
        lambda: (character for character in "x"),
        object,
        Broken,
        lambda: Text("x"),
        lambda: collections.OrderedDict(a=1),
        lambda: complex(1, 2),
        lambda: range(3),
        lambda: NotImplemented,
        lambda: int,
        lambda: ValueError("x"),
    ],
)
def test_a_value_that_is_no_data_is_refused_by_place_and_type(make: Callable[[], Any]) -> None:
    value = make()
    try:
        message = refusal(["first", value])
    finally:
        if hasattr(value, "close"):
            value.close()

    assert "$[1] is of type" in message
    assert type(value).__qualname__ in message
    assert "Return plain data" in message


@pytest.mark.parametrize(
    ("role", "advice"),
    [
        ("result", "return type with the type that should come back, e.g. `-> datetime`"),
        ("argument", "Annotate the parameter with the type that should come back, e.g. `: datetime`"),
        ("payload", "A payload is plain data"),
    ],
)
def test_the_advice_is_about_what_the_value_is_for(role: Role, advice: str) -> None:
    with pytest.raises(NotStorable) as refused:
        encode_plain({"at": datetime(2026, 1, 1, tzinfo=UTC)}, what="x", limit_bytes=100, role=role)

    assert advice in str(refused.value)


@pytest.mark.parametrize(
    ("role", "plain", "waiting"),
    [
        ("result", "Return plain data: ", "Await it before it is returned."),
        ("argument", "Pass plain data: ", "Await it first."),
        ("payload", "Pass plain data: ", "Await it first."),
    ],
)
def test_what_no_annotation_helps_is_to_be_plain_or_awaited(role: Role, plain: str, waiting: str) -> None:
    async def later() -> None: ...

    coroutine = later()
    try:
        for value, todo in ((object(), plain), (coroutine, waiting)):
            with pytest.raises(NotStorable) as refused:
                encode_plain([value], what="x", limit_bytes=100, role=role)
            assert refused.value.todo.startswith(todo)
    finally:
        coroutine.close()


def test_a_coroutine_is_refused_with_the_advice_to_await_it() -> None:
    coroutine = asyncio.sleep(0)
    try:
        message = refusal({"answer": coroutine})
    finally:
        coroutine.close()

    assert "$.answer is of type coroutine" in message
    assert "Await it" in message


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf], ids=str)
def test_a_float_that_json_does_not_have_is_refused(value: float) -> None:
    assert f"$ is {value}, which JSON does not have" in refusal(value)
    assert f"$.a[0] is {value}, which JSON does not have" in refusal({"a": [value]})
    assert f"$[0].a is {value}, which JSON does not have" in refusal([{"a": value}])


@pytest.mark.parametrize("key", [1, 1.5, None, True, (1,), Size.SMALL, b"a"], ids=repr)
def test_a_key_that_is_no_text_is_refused_by_its_dict(key: Any) -> None:
    message = refusal({"by id": {key: "x"}})

    assert f'$["by id"] has the key {key!r}' in message


@pytest.mark.parametrize("value", ["\ud800", "a\udfff", {"a": "\ud83d"}, {"\udc00": 1}], ids=ascii)
def test_text_that_is_not_unicode_is_refused(value: Any) -> None:
    assert "not Unicode" in refusal(value)


@pytest.mark.parametrize("value", [10**4_300, -(10**4_299), 10**50_000], ids=["positive", "negative", "huge"])
def test_an_integer_of_more_than_4300_digits_is_refused(value: int) -> None:
    assert "$.n is an integer of more than 4,300 digits" in refusal({"n": value})


LIFTED = """
import sys
from onceward.core.errors import NotStorable
from onceward.core.json_plain import encode_plain
sys.set_int_max_str_digits(0)
encode_plain([10**4299], what="x", limit_bytes=10**6)
try:
    encode_plain([10**4300], what="x", limit_bytes=10**6)
except NotStorable as error:
    print(error)
"""


def test_the_bound_on_integers_holds_where_the_program_lifted_pythons_own() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    ended = run("-c", LIFTED, cwd=ROOT, env=environment)

    assert "more than 4,300 digits" in ended.stdout


@pytest.mark.parametrize("depth", [201, 202, 1_000, 100_000])
def test_a_value_that_nests_deeper_than_200_levels_is_refused(depth: int) -> None:
    assert "nests deeper than 200 levels" in refusal(nested(depth))
    assert "nests deeper than 200 levels" in refusal(nested(depth - 1, []))
    assert "nests deeper than 200 levels" in refusal(nested(depth - 1, {}))


def test_a_value_that_contains_itself_is_refused() -> None:
    array: list[Any] = [1]
    array.append(array)
    mapping: dict[str, Any] = {}
    mapping["self"] = [mapping]

    assert "or contains itself" in refusal(array)
    assert "or contains itself" in refusal(mapping)


def test_a_small_value_that_would_grow_without_end_as_json_is_refused() -> None:
    value: list[Any] = []
    for _ in range(100):
        value = [value, value]

    with pytest.raises(ValueTooLarge, match="more than 1,000,000 bytes"):
        encode_plain(value, what=WHAT, limit_bytes=LIMIT)


def test_a_value_over_the_limit_is_refused_with_both_figures() -> None:
    with pytest.raises(ValueTooLarge, match=r"takes 1,002 bytes as JSON; the limit is 1,001"):
        encode_plain("x" * 1_000, what=WHAT, limit_bytes=1_001)
    with pytest.raises(ValueTooLarge, match="1,001"):
        encode_plain([0] * 1_002, what=WHAT, limit_bytes=1_001)

    assert encode_plain("x" * 1_000, what=WHAT, limit_bytes=1_002)


def test_the_limit_counts_utf_8_bytes() -> None:
    with pytest.raises(ValueTooLarge, match="takes 6 bytes"):
        encode_plain("€" + "x", what=WHAT, limit_bytes=5)


@pytest.mark.parametrize("text", ["", "{", '{"a":', "nul", "[1,]", '"\\ud800"', "[" * 100_000, "1" * 4_301])
def test_a_stored_text_that_is_damaged_is_named_as_that(text: str) -> None:
    with pytest.raises(StoreDamaged, match="cannot be read"):
        decode_plain(text)
