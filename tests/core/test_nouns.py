"""A number is said in one way, wherever a person reads it."""

from __future__ import annotations

import pytest

from onceward.core.nouns import counted


@pytest.mark.parametrize(
    ("number", "nouns", "said"),
    [
        (0, ("run",), "0 runs"),
        (1, ("run",), "1 run"),
        (2_000, ("run",), "2,000 runs"),
        (1, ("try", "tries"), "1 try"),
        (1_234_567, ("try", "tries"), "1,234,567 tries"),
    ],
)
def test_a_number_stands_with_its_noun_and_its_thousands_apart(
    number: int, nouns: tuple[str, ...], said: str
) -> None:
    assert counted(number, *nouns) == said
