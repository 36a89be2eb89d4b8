"""Names, items and ids: what no store can keep or no person can read is refused where it is written."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from onceward.core.errors import ConfigError, StepMisuse
from onceward.core.texts import checked_name, checked_step, is_name, is_storable, name_of

NAMES = ["a", "charge", "Zahlung für März", "x" * 200]
NO_NAMES: list[Any] = ["", "x" * 201, "a\nb", "a\0", "\ud800", None, 7, b"a"]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_printable_and_not_too_long(name: str) -> None:
    assert is_name(name)
    assert checked_name(name, "step") == name
    checked_step(name, "x" * 500)
    checked_step(name, "")


@pytest.mark.parametrize("name", NO_NAMES, ids=range(8))
def test_what_is_no_name_is_refused(name: Any) -> None:
    assert not is_name(name)
    with pytest.raises(ConfigError, match=r"The workflow name .* cannot be used"):
        checked_name(name, "workflow")
    with pytest.raises(StepMisuse, match="cannot be the name of a step"):
        checked_step(name, "")


@pytest.mark.parametrize("item", ["x" * 501, "a\0", "\ud800"], ids=range(3))
def test_an_item_that_cannot_be_stored_is_refused(item: str) -> None:
    with pytest.raises(StepMisuse, match="cannot be the item of step 'charge'"):
        checked_step("charge", item)


def test_what_a_store_gives_back_may_have_lines_but_no_nul_and_no_halves_of_pairs() -> None:
    assert [is_storable(text, 3) for text in ("", "a\nb", "\U0001f600")] == [True] * 3
    assert [is_storable(text, 3) for text in ("abcd", "\0", "a\udfff", 7, None)] == [False] * 5


def test_a_function_is_named_by_itself_or_by_what_is_given() -> None:
    def charge() -> None: ...

    assert name_of(charge, None, "step") == "charge"
    assert name_of(charge, "pay", "step") == name_of(functools.partial(charge), "pay", "step") == "pay"
    for function in (lambda: None, functools.partial(charge)):
        with pytest.raises(ConfigError, match="has no name of its own"):
            name_of(function, None, "step")
    with pytest.raises(ConfigError, match="cannot be a workflow: it is not a function") as refused:
        name_of("order.paid", None, "workflow")
    assert "goes into on=" in refused.value.todo
    with pytest.raises(ConfigError, match="cannot be a step: it is not a function") as refused:
        name_of("order.paid", None, "step")
    assert "on=" not in refused.value.todo
