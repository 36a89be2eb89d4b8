"""What a function says it returns is found behind every wrapper, and named when it cannot be."""

from __future__ import annotations

import functools
import math
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, ParamSpec, TypeVar

import pytest

from onceward.core.annotations import parameter_annotation, return_annotation
from onceward.core.errors import ConfigError

if TYPE_CHECKING:
    from somewhere import OnlyForCheckers  # type: ignore[import-not-found]

P = ParamSpec("P")
R = TypeVar("R")


@dataclass
class Receipt:
    id: int

    def total(self) -> Decimal:
        return Decimal(self.id)

    @classmethod
    def empty(cls) -> Receipt:
        return cls(0)

    @staticmethod
    def zero() -> int:
        return 0


class Callable_:  # noqa: N801 (the name must not hide collections.abc's)
    def __call__(self, x: OnlyForCheckers) -> Receipt:
        return Receipt(1)


def logged(function: Callable[P, R]) -> Callable[P, R]:
    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        return function(*args, **kwargs)

    return wrapper


def plain(x: OnlyForCheckers) -> list[Receipt]:
    return []


async def coroutine() -> Receipt | None:
    return None


def hands_on() -> Coroutine[Any, Any, Receipt | None]:
    return coroutine()


def awaitable() -> Awaitable[Receipt]: ...  # type: ignore[empty-body]


def bare_awaitable() -> Awaitable: ...  # type: ignore[type-arg, empty-body]


def silent(x: int):  # type: ignore[no-untyped-def]
    return x


def nothing() -> None: ...


def never() -> NoReturn:
    raise SystemExit


def annotated() -> Annotated[int, "cents"]:
    return 1


def unresolved() -> OnlyForCheckers:
    return 1


def plain_receipt() -> Receipt:
    return Receipt(1)


def taking(order: OnlyForCheckers, cents: int, note=None) -> None: ...  # type: ignore[no-untyped-def]


@logged
@logged
def wrapped() -> Receipt:
    return Receipt(1)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (plain, list[Receipt]),
        (coroutine, Receipt | None),
        (hands_on, Receipt | None),
        (awaitable, Receipt),
        (bare_awaitable, Any),
        (silent, Any),
        (nothing, type(None)),
        (never, NoReturn),
        (annotated, Annotated[int, "cents"]),
        (wrapped, Receipt),
        (functools.partial(plain, None), list[Receipt]),
        (functools.partial(functools.partial(wrapped)), Receipt),
        (Receipt, Receipt),
        (Receipt.empty, Receipt),
        (Receipt.zero, int),
        (Receipt(1).total, Decimal),
        (functools.partial(Receipt(1).total), Decimal),
        (Callable_(), Receipt),
        (functools.lru_cache(wrapped), Receipt),
        (len, Any),
        (math.sqrt, Any),
        ("text".upper, Any),
        (dict, dict),
        (lambda: 1, Any),
    ],
)
def test_the_annotation_is_found(function: Callable[..., Any], expected: Any) -> None:
    assert return_annotation(function) == expected


def test_a_name_that_the_function_takes_from_around_it_is_found() -> None:
    @dataclass
    class Local:
        x: int

    def make() -> Local:
        return Local(1)

    assert return_annotation(make) is Local


def test_an_annotation_that_cannot_be_resolved_is_refused_by_name() -> None:
    with pytest.raises(
        ConfigError,
        match=r"The return annotation 'OnlyForCheckers' of unresolved cannot be resolved: name .* is not defined",
    ):
        return_annotation(unresolved)
    with pytest.raises(ConfigError, match="The annotation of 'order', 'OnlyForCheckers' of taking cannot be"):
        parameter_annotation(taking, "order")
    assert parameter_annotation(taking, "cents") is int
    assert parameter_annotation(taking, "note") is Any


def test_an_annotation_that_is_no_type_is_refused() -> None:
    def broken() -> 1 / 0:  # type: ignore[valid-type]
        return 1

    with pytest.raises(ConfigError, match="division by zero"):
        return_annotation(broken)


@pytest.mark.parametrize(("wrappers", "expected"), [(99, Receipt), (100, Receipt), (101, Any)])
def test_a_hundred_wrappers_are_looked_through(wrappers: int, expected: Any) -> None:
    class Wrapper:
        def __init__(self, wrapped: Any) -> None:
            self.__wrapped__ = wrapped

        def __call__(self) -> Any: ...

    function: Any = plain_receipt
    for _ in range(wrappers):
        function = Wrapper(function)

    assert return_annotation(function) == expected


def test_wrappers_without_end_are_followed_only_so_far() -> None:
    class Endless:
        @property
        def __wrapped__(self) -> Endless:
            return Endless()

        def __call__(self) -> int:
            return 1

    assert return_annotation(Endless()) is int
