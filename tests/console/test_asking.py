"""What is looked for in the text of errors, and places in lists as texts."""

from __future__ import annotations

import pytest

from onceward.console.asking import cursor, error_hint, fits_error, read_cursor
from onceward.core.errors import ConfigError

TEXTS = ("builtins.TimeoutError", 'No reply from "api.example" for order-17 after 1 try', None)


@pytest.mark.parametrize(
    "wanted",
    ["timeout", "TIMEOUTERROR", "order-17", "order-1", "reply api.ex", "no  reply", "17", "", "try order"],
)
def test_words_are_found_by_how_they_begin(wanted: str) -> None:
    assert fits_error(wanted, *TEXTS)
    assert error_hint(wanted) in " ".join(text.lower() for text in TEXTS if text)


@pytest.mark.parametrize("wanted", ["imeout", "order-7", "order-11", "reply nobody", "reply-api"])
def test_other_words_are_not(wanted: str) -> None:
    assert not fits_error(wanted, *TEXTS)


def test_a_place_in_a_list_comes_back_from_its_text() -> None:
    assert read_cursor(cursor(5, "stripe", "evt_ü"), int, str, str) == (5, "stripe", "evt_ü")


@pytest.mark.parametrize(
    "text",
    ["", "x", "W10", cursor("a"), cursor(1, 2), "é", cursor(2**63, "a"), cursor(-1, "a"), cursor(1, "\0")],
)
def test_another_text_is_no_place(text: str) -> None:
    with pytest.raises(ConfigError):
        read_cursor(text, int, str)
