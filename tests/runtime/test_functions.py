"""What is known of a function is remembered by what stays: its code, with its annotations."""

from __future__ import annotations

from typing import Any

from onceward.runtime import functions
from onceward.runtime.functions import facts_of


def returning(kind: Any) -> Any:
    """Give a function inside another, as bodies of steps often are."""

    async def body() -> None: ...

    body.__annotations__["return"] = kind
    return body


def test_a_function_inside_another_is_looked_at_once() -> None:
    def outer() -> Any:
        def body() -> int:
            return 1

        return body

    first = facts_of(outer())

    assert facts_of(outer()) is first
    assert functions._look(outer()) is not first


def test_the_same_code_with_other_annotations_is_another_function() -> None:
    texts, numbers = facts_of(returning(str)), facts_of(returning(int))

    assert texts.result is not numbers.result
    assert facts_of(returning(str)).result.decode('"a"') == "a"
    assert facts_of(returning(int)).result.decode("1") == 1
    assert facts_of(returning(int)).is_async
