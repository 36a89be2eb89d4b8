"""Lengths of time: what is read, what is refused, and that showing and reading agree."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceward.core.duration import DURATION_MS_MAX, Duration, show, to_ms
from onceward.core.errors import ConfigError
from onceward.core.shown import shown


@pytest.mark.parametrize(
    ("value", "expected_ms"),
    [
        ("7d", 604_800_000),
        ("2w", 1_209_600_000),
        ("1h30m", 5_400_000),
        ("1h 30m", 5_400_000),
        (" 90s ", 90_000),
        ("250ms", 250),
        ("1m", 60_000),
        ("1m1ms", 60_001),
        ("1w2d3h4m5s6ms", 788_645_006),
        ("0s", 0),
        ("36525d", DURATION_MS_MAX),
        (0, 0),
        (-0.0, 0),
        (30, 30_000),
        (0.1, 100),
        (1.1, 1_100),
        (0.0005, 1),
        (0.0004, 1),
        (1e-12, 1),
        (5e-324, 1),
        (timedelta(hours=1), 3_600_000),
        (timedelta(microseconds=1), 1),
        (timedelta(microseconds=1_499), 1),
        (timedelta(microseconds=1_500), 2),
        (timedelta(0), 0),
    ],
)
def test_a_length_is_read_in_whole_milliseconds(value: Duration, expected_ms: int) -> None:
    assert to_ms(value, what="timeout") == expected_ms


@pytest.mark.parametrize(
    "value",
    [
        -1,
        -0.0001,
        -1e-12,
        timedelta(microseconds=-1),
        timedelta.min,
        timedelta.max,
        math.nan,
        math.inf,
        -math.inf,
        1e308,
        -1e308,
        10**5_000,
        36_525 * 86_400 + 1,
        "36526d",
        "999999999999999w",
        "9999999999999999s",
        True,
        False,
        None,
        b"7d",
        [7],
        "",
        "  ",
        "7",
        "7.5h",
        "-7d",
        "7D",
        "7 d",
        "d",
        "P1D",
        "P-1D",
        "30m1h",
        "1h1h",
        "1h\x00",
        "1h,30m",
        "\u0667d",
        "nan",
        "inf",
        "1" * 1_000_000 + "s",
        " " * 1_000_000,
    ],
    ids=shown,
)
def test_a_length_that_is_no_length_is_refused_by_name(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"^The timeout of step 'charge' cannot be ") as refused:
        to_ms(value, what="timeout of step 'charge'")

    assert len(str(refused.value)) < 400


@pytest.mark.parametrize(
    ("value", "means"),
    [
        (math.nan, "It would never end."),
        (math.inf, "It would never end."),
        (-math.inf, "It would never end."),
        (1e308, "The most is 100 years."),
        ("36526d", "The most is 100 years."),
        (-1e308, "A length of time is never below zero."),
        (timedelta(microseconds=-1), "A length of time is never below zero."),
        ("soon", "A text is numbers with the units w d h m s ms, from big to small."),
        (True, "A bool is no length of time."),
    ],
)
def test_it_is_said_why_a_length_is_none(value: Any, means: str) -> None:
    with pytest.raises(ConfigError) as refused:
        to_ms(value, what="timeout")

    assert refused.value.means == means
    assert ("timedelta" in refused.value.todo) is not isinstance(value, str)


def test_a_text_has_at_most_a_hundred_characters() -> None:
    assert to_ms("90s".ljust(100), what="timeout") == 90_000
    with pytest.raises(ConfigError):
        to_ms("90s".ljust(101), what="timeout")


@given(st.integers(0, DURATION_MS_MAX))
@settings(deadline=None)
def test_what_is_shown_reads_back_as_the_same_length(ms: int) -> None:
    assert to_ms(show(ms), what="x") == ms


@given(st.integers(0, DURATION_MS_MAX // 1_000 - 1), st.integers(0, 999))
@settings(deadline=None)
def test_the_three_forms_of_one_length_agree(seconds: int, ms: int) -> None:
    expected = seconds * 1_000 + ms

    assert to_ms(timedelta(seconds=seconds, milliseconds=ms), what="x") == expected
    assert to_ms(f"{seconds}s{ms}ms", what="x") == expected
    assert to_ms(seconds + ms / 1_000, what="x") == expected


@given(st.text(max_size=20))
@settings(deadline=None)
def test_any_text_is_read_or_refused_and_nothing_else_escapes(text: str) -> None:
    try:
        ms = to_ms(text, what="x")
    except ConfigError:
        return
    assert 0 <= ms <= DURATION_MS_MAX


@pytest.mark.parametrize(
    ("ms", "expected"),
    [
        (0, "0s"),
        (250, "250ms"),
        (5_400_000, "1h 30m"),
        (604_800_000, "7d"),
        (90_061_001, "1d 1h 1m 1s 1ms"),
        (-1_500, "-1s 500ms"),
    ],
)
def test_a_length_is_shown_from_days_to_milliseconds(ms: int, expected: str) -> None:
    assert show(ms) == expected


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("5minutes", "5m"),
        ("5 Minutes", "5m"),
        ("1 hour, 30 min", "1h30m"),
        ("90", "90s"),
        ("2 weeks 1 day", "2w1d"),
        ("300 millis", "300ms"),
    ],
)
def test_a_text_that_shows_what_was_meant_is_told_how_to_write_it(text: str, meant: str) -> None:
    with pytest.raises(ConfigError) as refused:
        to_ms(text, what="setting 'drain'")

    assert refused.value.todo == f'Write "{meant}".'
    assert to_ms(meant, what="advice")


@pytest.mark.parametrize(
    "text", ["", "soon", "-5m", "5 fortnights", "P-1D", "1m 1h", "1.5h", "½h", "٣", "9" * 300]
)
def test_a_text_that_does_not_is_given_examples(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        to_ms(text, what="setting 'drain'")

    assert refused.value.todo == 'Write for example "90s", "1h30m" or "7d".'
