"""What a failure looks like in the log."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from onceward.core.duration import to_ms
from onceward.core.errors import NotStorable, StepFailed
from onceward.runtime.records import LOGGED_CHARS_MAX, one_line


def test_what_to_do_stands_in_the_log_also_inside_a_steps_failure() -> None:
    cause = NotStorable("x" * 200, means="y" * 100, todo="Annotate the function's return type.")
    failure = StepFailed("charge the customer's card", "onceward.NotStorable", str(cause))

    assert one_line(failure).endswith("Annotate the function's return type.")


def test_a_failure_is_one_bounded_line_that_forges_nothing() -> None:
    line = one_line(ValueError("first\r\n2026-01-01 ERROR forged\x1b[31m\u2028next " + "x" * 5_000))

    assert line.startswith("ValueError: first 2026-01-01 ERROR forged?[31m next x")
    assert line.isprintable()
    assert len(line) <= LOGGED_CHARS_MAX + len("ValueError: ")
    assert "characters are not shown" in line


@pytest.mark.parametrize(
    "fails",
    [
        lambda: {"id": 1}["order"],
        lambda: json.loads("{"),
        lambda: to_ms("soon", what="pause"),
        lambda: subprocess.run([sys.executable, "-c", "raise SystemExit(3)"], check=True),
    ],
    ids=["the app", "the standard library", "onceward", "both"],
)
def test_it_ends_with_the_line_of_the_app_that_it_comes_from(fails: Callable[[], Any]) -> None:
    with pytest.raises(Exception) as caught:
        fails()

    line = fails.__code__.co_firstlineno
    assert one_line(caught.value).endswith(f" (test_records.py, line {line})")


def test_what_nobody_raised_has_no_place() -> None:
    assert one_line(KeyError("order")) == "KeyError: 'order'"
