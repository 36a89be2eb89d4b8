"""What callers may ask with, and how they are told what they may not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from onceward.core import asked, texts
from onceward.core.errors import ConfigError
from onceward.core.states import RunState


@pytest.mark.parametrize(
    ("check", "value", "said"),
    [
        (asked.checked_state, "asleep", "States are: queued, running"),
        (asked.checked_limit, 0, "between 1 and 1,000"),
        (asked.checked_limit, 1_001, "between 1 and 1,000"),
        (texts.checked_id, "", "1 to 255 characters"),
        (texts.checked_id, "x" * 256, "1 to 255 characters"),
        (texts.checked_id, "a\0b", "without NUL"),
        (texts.checked_id, 7, "1 to 255 characters"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_with_what_can(
    check: Callable[[Any], object], value: object, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        check(value)


def test_what_can_be_asked_for_comes_back() -> None:
    assert asked.checked_state("held") is RunState.HELD
    assert asked.checked_state(RunState.HELD) is RunState.HELD
    assert asked.checked_limit(1_000) == 1_000
    assert texts.checked_id("x" * 255) == "x" * 255
