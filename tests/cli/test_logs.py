"""The command line's log: a record is a line, whatever strangers put into it."""

from __future__ import annotations

import logging
import re
import sys

from onceward.cli.logs import OneLine

FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


def line_of(message: str, *args: object, exc_info: bool = False) -> str:
    info = sys.exc_info() if exc_info else None
    record = logging.LogRecord("onceward.test", logging.WARNING, __file__, 1, message, args, info)
    return OneLine(FORMAT).format(record)


def test_a_record_has_time_level_logger_and_message() -> None:
    line = line_of("delivery refused: source=%s", "'stripe'")

    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z WARNING onceward\.test: delivery refused: source='stripe'",
        line,
    )


def test_line_ends_and_escapes_in_a_message_are_shown_not_done() -> None:
    line = line_of("id=%s", "a\r\n2026-01-01 CRITICAL forged: \x1b[2Jline")

    assert line.endswith(r"id=a\r\n2026-01-01 CRITICAL forged: \x1b[2Jline")


def test_a_traceback_is_part_of_the_line() -> None:
    try:
        raise ValueError("with\nits own line")
    except ValueError:
        line = line_of("it failed", exc_info=True)

    assert "\n" not in line
    assert line.endswith(r"ValueError: with\nits own line")
