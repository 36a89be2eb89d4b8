"""What is known of a function is remembered by what stays: its code, with its annotations."""

from __future__ import annotations

import gc
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


def test_functions_that_read_the_same_in_two_modules_are_told_apart() -> None:
    source = "async def body() -> 'Amount': ..."
    texts: dict[str, Any] = {"Amount": str, "__name__": "texts"}
    numbers: dict[str, Any] = {"Amount": int, "__name__": "numbers"}
    for module in (texts, numbers):
        exec(compile(source, "<same>", "exec"), module)

    assert facts_of(texts["body"]).result.annotation is str
    assert facts_of(numbers["body"]).result.annotation is int


def test_what_is_known_of_a_function_is_forgotten_with_it() -> None:
    namespace: dict[str, Any] = {}
    exec("async def body(): ...", namespace)
    place = id(namespace["body"].__code__)
    facts_of(namespace["body"])
    assert place in functions._known

    namespace.clear()
    gc.collect()

    assert place not in functions._known
