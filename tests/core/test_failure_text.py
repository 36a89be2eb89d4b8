"""Exceptions as text: the facts survive, the size is bounded, and nothing is ever raised."""

from __future__ import annotations

import pickle
import socket
import traceback
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import onceward
from onceward.core.errors import StepFailed
from onceward.core.failure_text import describe_error


def raised(error: Exception, cause: BaseException | None = None) -> Exception:
    try:
        raise error from cause
    except Exception as caught:  # noqa: BLE001 (it is the one that was asked for)
        return caught


def test_type_message_and_place_are_kept() -> None:
    described = describe_error(raised(StepFailed("charge", "ValueError", "no")))

    assert described["type"] == "onceward.StepFailed"
    assert described["message"] == "Step 'charge' failed after 1 try: ValueError: no"
    assert "test_failure_text.py" in described["traceback"]
    assert "in raised" in described["traceback"]


def test_a_builtin_type_needs_no_module() -> None:
    assert describe_error(ValueError("x"))["type"] == "ValueError"


def test_the_traceback_reads_like_pythons() -> None:
    cause = raised(KeyError("k"))
    error = raised(ValueError("two\nlines"), cause)
    error.add_note("seen at noon")

    text = describe_error(error)["traceback"]

    for line in traceback.format_exception(error):
        if line.startswith("  File"):
            assert line in text
    assert text.index("KeyError: 'k'") < text.index("direct cause") < text.index("ValueError: two\nlines")
    assert text.endswith("seen at noon\n")


def test_an_error_alone_is_told_without_a_word_about_causes() -> None:
    assert describe_error(ValueError("x"))["traceback"] == "ValueError: x\n"
    assert describe_error(raised(ValueError("x")))["traceback"].startswith("Traceback (most recent")


def test_an_error_while_handling_another_shows_both_unless_suppressed() -> None:
    try:
        try:
            raise KeyError("first")
        except KeyError:
            raise ValueError("second")  # noqa: B904
    except ValueError as caught:
        error = caught
    assert "During handling" in describe_error(error)["traceback"]

    error.__suppress_context__ = True
    assert "first" not in describe_error(error)["traceback"]


class TwoArguments(Exception):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)


class StrRaises(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


class StrExits(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class StrRecurses(Exception):
    def __str__(self) -> str:
        return str(self)


class NotText(Exception):
    def __str__(self) -> Any:
        return 7


class Nameless(type(Exception)):  # type: ignore[misc]
    def __getattribute__(cls, name: str) -> Any:
        if name in ("__qualname__", "__module__"):
            raise RuntimeError(name)
        return super().__getattribute__(name)


class OfNamelessType(Exception, metaclass=Nameless):
    pass


def with_notes(notes: Any) -> Exception:
    error = ValueError("noted")
    error.__notes__ = notes
    return error


def cyclic() -> BaseException:
    first, second = raised(ValueError("one")), raised(KeyError("two"))
    first.__cause__, second.__cause__ = second, first
    return first


def long_chain() -> BaseException:
    error: BaseException = ValueError("innermost")
    for _ in range(50_000):
        outer = ValueError("outer")
        outer.__cause__ = error
        error = outer
    return error


def deep_group() -> BaseException:
    error: Exception = ValueError("innermost")
    for level in range(500):
        error = ExceptionGroup(f"level {level}", [error] * 3)
    return error


def broad_group() -> BaseException:
    error: Exception = raised(ValueError("innermost"))
    for _ in range(20):
        error = raised(ExceptionGroup("many", [error] * 10), error)
    return error


def deep_recursion() -> BaseException:
    def again() -> None:
        again()

    try:
        again()
    except RecursionError as error:
        return error
    raise AssertionError


AWKWARD = [
    TwoArguments(7, "x"),
    StrRaises(),
    StrExits(),
    StrRecurses(),
    NotText(),
    OfNamelessType("x"),
    with_notes(7),
    with_notes([StrRaises(), 7]),
    cyclic(),
    long_chain(),
    ExceptionGroup("both", [ValueError("left"), StrRaises()]),
    BaseExceptionGroup("stop", [KeyboardInterrupt()]),
    deep_group(),
    broad_group(),
    ExceptionGroup("wide", [ValueError(str(index)) for index in range(10_000)]),
    deep_recursion(),
    ValueError("x" * 10_000_000),
    ValueError("\ud800\udfff"),
    ValueError("a\x00b"),
    type("T" * 100_000, (Exception,), {})("x"),
    KeyboardInterrupt(),
    SystemExit(1),
    SyntaxError("bad", ("file.py", 1, 2, "text", 1, 3)),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "why"),
    OSError(2, "gone", "\udc80name"),
]


@pytest.mark.parametrize("error", AWKWARD, ids=range(len(AWKWARD)))
def test_any_exception_gives_bounded_text_that_can_be_stored(error: BaseException) -> None:
    described = describe_error(error, limit_chars=2_000)

    assert list(described) == ["type", "message", "traceback"]
    for text in described.values():
        assert type(text) is str
        assert len(text) <= 2_000
        text.encode()
    assert described["type"]


def test_a_socket_among_the_arguments_is_only_shown() -> None:
    with socket.socket() as held:
        described = describe_error(ValueError("broken", held))

    assert "socket" in described["message"]


def test_a_message_that_cannot_be_shown_names_what_was_raised_instead() -> None:
    assert "ValueError" in describe_error(StrRaises())["message"]
    assert "SystemExit" in describe_error(StrExits())["message"]


def test_nul_stays_and_halves_of_surrogate_pairs_are_replaced() -> None:
    assert describe_error(ValueError("a\x00\ud800b"))["message"] == "a\x00\ufffdb"


def test_a_long_message_keeps_its_beginning_and_its_end() -> None:
    message = describe_error(ValueError(f"begin{'x' * 10_000_000}end"), limit_chars=500)["message"]

    assert message.startswith("begin")
    assert message.endswith("end")
    kept = len(message) - len("\n… 9,999,550 characters are not shown …\n")
    assert f"{10_000_008 - kept:,} characters are not shown" in message


def test_a_long_message_leaves_room_for_the_last_frames() -> None:
    # By two functions in turn: of one, Python would fold the repeated frames.
    def deeper(levels: int) -> None:
        if levels:
            and_deeper(levels - 1)
        raise ValueError("x" * 10_000_000)

    def and_deeper(levels: int) -> None:
        deeper(levels)

    with pytest.raises(ValueError, match="xx") as failed:
        deeper(30)
    line = failed.traceback[-1].lineno + 1

    assert f"line {line}, in deeper" in describe_error(failed.value)["traceback"]


def test_causes_in_a_circle_are_shown_once() -> None:
    text = describe_error(cyclic())["traceback"]

    assert text.count("ValueError: one") == 1
    assert text.count("KeyError: 'two'") == 1


def test_of_a_long_chain_the_nearest_causes_are_shown() -> None:
    text = describe_error(long_chain(), limit_chars=1_000_000)["traceback"]

    assert text.count("ValueError: outer") == 21


def test_of_deep_groups_the_outer_ones_are_shown() -> None:
    text = describe_error(deep_group(), limit_chars=1_000_000)["traceback"]

    assert "level 499" in text
    assert "level 494" in text
    assert "level 493" not in text


def test_of_wide_groups_ten_members_are_shown_and_how_many_there_are() -> None:
    text = describe_error(ExceptionGroup("wide", [ValueError(f"<{n}>") for n in range(12)]))["traceback"]

    assert text.count("of 12 ---") == 10
    assert ("10 of 12" in text, "<9>" in text, "<10>" in text) == (True, True, False)


def test_of_many_notes_twenty_are_shown_and_of_a_long_one_a_thousand_characters() -> None:
    few = describe_error(with_notes([f"<{n}>" for n in range(21)]))["traceback"]
    long = describe_error(with_notes(["x" * 1_000, "y" * 1_001]))["traceback"]

    assert ("<19>" in few, "<20>" in few) == (True, False)
    assert "x" * 1_000 in long
    assert len(long.splitlines()[2].strip("y")) == 0
    assert "characters are not shown" in long
    assert "characters are not shown" not in few


def test_of_a_deep_stack_the_fifty_frames_nearest_to_the_error_are_shown() -> None:
    def deeper(levels: int) -> None:
        if levels:
            deeper(levels - 1)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no") as failed:
        deeper(80)
    text = describe_error(failed.value, limit_chars=1_000_000)["traceback"]

    assert text.count("  File ") == text.count(", in deeper\n") == 50
    assert '    raise ValueError("no")\n' in text


def test_a_type_has_at_most_three_hundred_characters() -> None:
    whole, cut = (type("T" * count, (Exception,), {"__module__": "builtins"})("x") for count in (300, 301))

    assert describe_error(whole)["type"] == "T" * 300
    assert "characters are not shown" in describe_error(cut)["type"]
    assert "characters are not shown" in describe_error(whole, limit_chars=299)["type"]


def test_of_what_is_cut_a_quarter_is_of_the_beginning() -> None:
    mark = "\n… 1,600 characters are not shown …\n"
    limit_chars = 400 + len(mark)

    message = describe_error(ValueError("a" * 1_000 + "b" * 1_000), limit_chars=limit_chars)["message"]

    assert message == "a" * 100 + mark + "b" * 300


def test_the_members_of_a_group_are_shown_with_their_tracebacks() -> None:
    group = ExceptionGroup("both", [ValueError("left"), raised(KeyError("right"))])

    text = describe_error(group)["traceback"]

    assert "1 of 2" in text
    assert "ValueError: left" in text
    assert "\n  Traceback" in text
    assert "KeyError: 'right'" in text


@given(st.text(), st.integers(1, 300))
@settings(deadline=None)
def test_any_message_stays_within_any_limit(message: str, limit_chars: int) -> None:
    described = describe_error(ValueError(message), limit_chars=limit_chars)

    assert all(len(text) <= limit_chars for text in described.values())
    if len(message) <= limit_chars:
        assert described["message"] == message


def test_our_own_errors_are_named_by_where_users_import_them_from() -> None:
    for name in onceward.__all__:
        value = getattr(onceward, name)
        if isinstance(value, type) and issubclass(value, BaseException):
            assert f"{value.__module__}.{value.__qualname__}" == f"onceward.{name}"
    error = onceward.ValueTooLarge("too large")
    assert describe_error(error)["type"] == "onceward.ValueTooLarge"
    assert type(pickle.loads(pickle.dumps(error))) is onceward.ValueTooLarge
