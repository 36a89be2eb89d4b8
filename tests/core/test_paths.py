"""Expressions over events: they become data and come back, and mean the same everywhere."""

from __future__ import annotations

import copy
import json
import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceward.core.errors import ConfigError, PathMissing
from onceward.core.paths import DEPTH_MAX, Expr, evaluate, event, from_data, holds, to_data
from onceward.core.shown import shown

EVENT = {
    "source": "stripe",
    "id": "evt_1",
    "type": "order.paid",
    "subject": "order-7",
    "occurred_at": 1_700_000_000_000,
    "payload": {
        "order": "7",
        "amount": 25,
        "rate": 1.0,
        "paid": True,
        "note": None,
        "lines": [{"sku": "a"}, {"sku": "b", "tags": ["x"]}],
        "odd key": {"": {"0": "zero"}},
        "order2": "7",
    },
}


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (event.type, "order.paid"),
        (event.source, "stripe"),
        (event.id, "evt_1"),
        (event.subject, "order-7"),
        (event.occurred_at, 1_700_000_000_000),
        (event.payload, EVENT["payload"]),
        (event.payload["order"], "7"),
        (event.payload["note"], None),
        (event.payload["lines"][1]["tags"][0], "x"),
        (event.payload["lines"][-1]["sku"], "b"),
        (event.payload["odd key"][""]["0"], "zero"),
    ],
    ids=repr,
)
def test_a_place_gives_what_stands_there(expr: Expr, expected: object) -> None:
    assert evaluate(expr, EVENT) == expected


@pytest.mark.parametrize(
    "expr",
    [
        event.received_at,
        event.payload["none"],
        event.payload["order"]["deeper"],
        event.payload["order"][0],
        event.payload["lines"][2],
        event.payload["lines"][-3],
        event.payload["lines"]["0"],
        event.payload["odd key"][0],
        event.payload["note"]["x"],
        event.payload["lines"][2**62],
    ],
    ids=repr,
)
def test_a_place_that_is_missing_is_named_and_makes_every_comparison_false(expr: Expr) -> None:
    with pytest.raises(PathMissing) as missing:
        evaluate(expr, EVENT)

    assert repr(expr) in str(missing.value)
    for comparison in (expr == "7", expr != "7", expr < 1, expr >= 1, expr.in_([None, "7"]), expr == expr):
        assert evaluate(comparison, EVENT) is False
        assert evaluate(~comparison, EVENT) is True


amount, order = event.payload["amount"], event.payload["order"]


@pytest.mark.parametrize(
    "expr",
    [
        event.type == "order.paid",
        event.type != "order.pai",
        order == event.payload["order2"],
        order.in_(["6", "7"]),
        amount.in_([1, 25.0]),
        amount == 25.0,
        amount >= 25,
        amount <= 25,
        amount > 24.5,
        amount < 26,
        26 > amount,  # noqa: SIM300
        25 == amount,  # noqa: SIM300
        event.type < "order.paie",
        event.payload["paid"] == True,  # noqa: E712
        event.payload["note"] == None,  # noqa: E711
        event.payload["note"].in_([None]),
        event.payload["lines"] != "x",
        event.payload["lines"] == event.payload["lines"],
        event.payload["rate"] == 1,
        (event.type == "order.paid") & (amount > 20),
        (event.type == "other") | (amount > 20),
        ~(event.type == "other") & ~(event.type == "another"),
        event.payload["paid"] & (amount > 20),
        event.payload["nothing"] | (amount > 20),
        ~event.payload["nothing"],
    ],
    ids=repr,
)
def test_a_condition_that_is_so(expr: Expr) -> None:
    assert evaluate(expr, EVENT) is True
    assert holds(expr, EVENT)
    assert not holds(~expr, EVENT)


@pytest.mark.parametrize(
    "expr",
    [
        event.type == "other",
        event.type != "order.paid",
        order == 7,
        order < 8,
        amount < "26",
        amount > 25,
        amount.in_([]),
        order.in_([7]),
        event.payload["paid"] == 1,
        event.payload["rate"] == True,  # noqa: E712
        event.payload["paid"] > 0,
        event.payload["paid"].in_([1]),
        event.payload["note"] < 1,
        event.payload["lines"] == "x",
        event.payload["lines"] > 0,
        (event.type == "order.paid") & (amount > 30),
        (event.type == "other") | (amount > 30),
        event.payload["nothing"] & (amount > 20),
        event.payload["amount"] & (amount > 20),
    ],
    ids=repr,
)
def test_a_condition_that_is_not_so(expr: Expr) -> None:
    assert evaluate(expr, EVENT) is False
    assert holds(~expr, EVENT)


def test_a_place_holds_only_if_its_value_is_true() -> None:
    assert holds(event.payload["paid"], EVENT)
    assert not holds(event.payload["amount"], EVENT)
    assert not holds(event.payload["nothing"], EVENT)


# --- as data --------------------------------------------------------------------------------------


def test_the_stored_form_is_stable() -> None:
    expr = (event.payload["lines"][0]["sku"] == "a") & ~event.type.in_(["x", None, 1.5]) | event.payload[
        "paid"
    ]

    assert to_data(expr) == [
        "|",
        [
            "&",
            ["==", ["event", "payload", "lines", 0, "sku"], ["value", "a"]],
            ["~", ["in", ["event", "type"], ["value", "x"], ["value", None], ["value", 1.5]]],
        ],
        ["event", "payload", "paid"],
    ]
    assert repr(expr) == (
        "((event.payload['lines'][0]['sku'] == 'a') & (~(event.type.in_(['x', None, 1.5])))) | event.payload['paid']"
    )


scalars = (
    st.none()
    | st.booleans()
    | st.integers(1 - 2**63, 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
places = st.builds(
    lambda field, steps: from_data(["event", field, *steps]),
    st.sampled_from(["type", "payload", "subject"]),
    st.lists(
        st.sampled_from(["order", "amount", "lines", "sku", "paid"]) | st.integers(-2, 2) | st.text(),
        max_size=3,
    ),
)
OPERATORS: list[Callable[[Any, Any], Any]] = [
    lambda a, b: a == b,
    lambda a, b: a != b,
    lambda a, b: a < b,
    lambda a, b: a <= b,
    lambda a, b: a > b,
    lambda a, b: a >= b,
]
comparisons = st.builds(
    lambda make, left, right: make(left, right), st.sampled_from(OPERATORS), places, places | scalars
) | st.builds(lambda place, values: place.in_(values), places, st.lists(scalars, max_size=3))
expressions = st.recursive(
    places | comparisons,
    lambda inner: (
        st.builds(lambda a, b: a & b, inner, inner)
        | st.builds(lambda a, b: a | b, inner, inner)
        | st.builds(lambda a: ~a, inner)
    ),
    max_leaves=10,
)


@given(expressions)
@settings(deadline=None)
def test_an_expression_comes_back_from_json_as_it_was_and_means_the_same(expr: Expr) -> None:
    data = to_data(expr)

    again = from_data(json.loads(json.dumps(data)))

    assert to_data(again) == data
    assert repr(again) == repr(expr)
    assert holds(again, EVENT) is holds(expr, EVENT)


@given(expressions, expressions)
@settings(deadline=None)
def test_conditions_combine_as_truth_values_do(left: Expr, right: Expr) -> None:
    assert evaluate(left & right, EVENT) is (holds(left, EVENT) and holds(right, EVENT))
    assert evaluate(left | right, EVENT) is (holds(left, EVENT) or holds(right, EVENT))
    assert evaluate(~left, EVENT) is not holds(left, EVENT)


def test_copies_and_pickles_are_the_same_expression() -> None:
    expr = (event.type == "a") & event.payload["paid"]

    for again in (copy.copy(expr), copy.deepcopy(expr), pickle.loads(pickle.dumps(expr))):
        assert to_data(again) == to_data(expr)


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        "event",
        {"event": 1},
        ["event"],
        ["event", "secret"],
        ["event", 0],
        ["event", "payload", None],
        ["event", "payload", 1.5],
        ["event", "payload", True],
        ["event", "payload", ["x"]],
        ["event", "payload", "\ud800"],
        ["event", "payload", *["x"] * 50],
        ["value", 1],
        ["==", ["event", "type"]],
        ["==", ["event", "type"], "x"],
        ["==", ["event", "type"], ["value"]],
        ["==", ["event", "type"], ["value", [1]]],
        ["==", ["event", "type"], ["value", 2**63]],
        ["==", ["event", "type"], ["~", ["event", "type"]]],
        ["in", ["event", "type"], "x"],
        ["in", ["value", 1], ["value", 1]],
        ["in"],
        ["&", ["event", "type"]],
        ["&", ["event", "type"], ["value", True]],
        ["~", ["event", "type"], ["event", "type"]],
        ["eval", "1"],
        [["event"], "type"],
        json.loads('["~",' * 300 + '["event","type"]' + "]" * 300),
        json.loads("[" * 900 + "]" * 900),
    ],
    ids=lambda data: shown(data)[:50],
)
def test_data_that_is_no_expression_is_refused(data: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        from_data(data)

    assert len(str(refused.value)) < 500


def test_data_that_nests_beyond_pythons_recursion_is_refused() -> None:
    data: Any = ["event", "type"]
    for _ in range(5_000):
        data = ["~", data]

    with pytest.raises(ConfigError, match="No expression can be read"):
        from_data(data)


# --- mistakes that Python would not notice ---------------------------------------------------------


@pytest.mark.parametrize(
    "mistake",
    [
        lambda: (event.type == "a") and (event.subject == "b"),
        lambda: (event.type == "a") or (event.subject == "b"),
        lambda: not event.payload["paid"],
        lambda: 1 < event.payload["amount"] < 5,
        lambda: event.type in ("a", "b"),
        lambda: "x" in event.payload["tags"],
        lambda: (event.type == "a") == (event.subject == "b"),
        lambda: (event.type == "a") == True,  # noqa: E712
        lambda: event.type == "a" & event.subject,
        lambda: event.payload["amount"] == 5 | event.payload["paid"],
        lambda: (event.type == "a") & "b",
        lambda: (event.type == "a") & True,
        lambda: (event.type == "a").in_([True]),
        lambda: (event.type == "a")["b"],
        lambda: f"order-{event.payload['order']}",
        lambda: str(event.payload["order"]),
        lambda: "order-%s" % event.payload["order"],  # noqa: UP031
        lambda: event.type == ["a"],
        lambda: event.type == {"a"},
        lambda: event.type == b"a",
        lambda: event.payload["amount"] == math.nan,
        lambda: event.payload["amount"] == 10**5_000,
        lambda: event.payload["amount"] == "\ud800",
        lambda: event.payload["amount"] == "x" * 100_000,
        lambda: event.type.in_("abc"),
        lambda: event.type.in_(event.payload),  # type: ignore[arg-type]
        lambda: event.type.in_(5),  # type: ignore[arg-type]
        lambda: event.type.in_([["a"]]),  # type: ignore[list-item]
        lambda: event.type.in_(range(2_000)),
        lambda: event.payload[None],  # type: ignore[index]
        lambda: event.payload[1.5],  # type: ignore[index]
        lambda: event.payload[True],
        lambda: event.payload[0:2],  # type: ignore[index]
        lambda: event.payload["\ud800"],
        lambda: event.payload[2**64],
    ],
)
def test_a_mistake_is_refused_where_it_is_written(mistake: Callable[[], object]) -> None:
    with pytest.raises(ConfigError) as refused:
        mistake()

    assert len(str(refused.value)) < 500


def test_the_refusal_of_and_says_what_to_write() -> None:
    with pytest.raises(ConfigError, match=r"Use &, \| and ~ with parentheses"):
        bool(event.type == "a")


def test_an_expression_cannot_be_iterated_or_hashed_or_changed() -> None:
    with pytest.raises(TypeError):
        list(event.payload["lines"])  # type: ignore[call-overload]
    with pytest.raises(TypeError):
        hash(event.type)
    with pytest.raises(AttributeError, match="does not change"):
        event.type.op = "~"


def test_an_attribute_that_does_not_exist_says_what_to_write() -> None:
    with pytest.raises(AttributeError, match=r"for a key write event.payload\['order'\]"):
        event.payload.order  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match="an event has no 'kind'; it has namespace, source"):
        event.kind  # type: ignore[attr-defined]  # noqa: B018


def test_an_expression_is_bounded_in_depth_and_size() -> None:
    deep: Expr = event.payload["paid"]
    for _ in range(DEPTH_MAX - 1):
        deep = ~deep
    with pytest.raises(ConfigError, match="65 levels deep"):
        _ = ~deep

    assert to_data(from_data(to_data(deep))) == to_data(deep)
    assert isinstance(holds(deep, EVENT), bool)


def test_an_expression_has_at_most_a_thousand_parts() -> None:
    assert event.type.in_(range(998)).size == 1_000
    with pytest.raises(ConfigError, match="has 1001 parts and is 2 levels deep"):
        event.type.in_(range(999))


def test_texts_numbers_and_steps_are_bounded() -> None:
    text = "x" * 10_000
    assert holds(event.payload["a"] == text, {"payload": {"a": text}})
    assert evaluate(event.payload[text], {"payload": {text: 1}}) == 1
    assert holds(event.payload["a"] == -(2**63 - 1), {"payload": {"a": -(2**63 - 1)}})
    assert holds(event.payload["a"] == 2**63 - 1, {"payload": {"a": 2**63 - 1}})
    assert to_data(event.payload[2**63 - 1][1 - 2**63]) == ["event", "payload", 2**63 - 1, 1 - 2**63]
    place = event.payload
    for _ in range(49):  # the first is the payload
        place = place[0]
    too_much: list[Callable[[], object]] = [
        lambda: event.payload["a"] == text + "x",
        lambda: event.payload[text + "x"],
        lambda: event.payload["a"] == 2**63,
        lambda: event.payload["a"] == -(2**63),
        lambda: event.payload[-(2**63)],
        lambda: event.payload[2**63],
        lambda: place[0],
    ]
    for written in too_much:
        with pytest.raises(ConfigError):
            written()


def test_an_expression_that_holds_itself_many_times_is_bounded_in_size() -> None:
    def doubled(times: int) -> Expr:
        expr: Expr = event.type == "a"
        for _ in range(times):
            expr = expr & expr
        return expr

    assert len(json.dumps(to_data(doubled(7)))) < 10_000
    with pytest.raises(ConfigError, match=r"has 1\d\d\d parts"):
        doubled(20)
