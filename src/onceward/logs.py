"""Filters and a formatter for `logging`: records that say which run and step they belong to.

For the handlers of any application; the command line's own handler has them. They are for handlers and
not for loggers, since a logger's filter does not see what its children log. What runs is found in context
variables, so a handler that passes records to another thread needs the filters itself.
"""

from __future__ import annotations

import json
import logging
import math
from datetime import UTC, datetime
from typing import Any

from onceward.authoring.current import frame_var, session_var

FIELDS = ("run_id", "workflow", "attempt", "step", "try_number")
"""What `RunFields` sets, in the order in which `JsonLines` writes it."""

TEXT_CHARS_MAX = 10_000
"""The longest text of `JsonLines`; collectors cut longer lines in two, and neither half can be read."""

_OURS = "onceward"
_STANDARD = frozenset(vars(logging.LogRecord("", 0, "", 0, "", (), None))) | {
    "message",
    "asctime",
    "taskName",
}


class RunFields(logging.Filter):
    """Sets on every record which run and step logged it; None where there is none. Drops nothing.

    The attributes are ``run_id``, ``workflow``, ``attempt`` (counted from 1), and inside a step's body
    ``step`` and ``try_number``. What a record has already, by ``extra=``, stays.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Set them."""
        session, frame = session_var.get(), frame_var.get()
        found = record.__dict__
        for name in FIELDS:
            found.setdefault(name, None)
        if session is not None and found["run_id"] is None:
            found["run_id"] = session.run_id
            found["workflow"] = session.workflow_name
            found["attempt"] = session.attempt
        if frame is not None and found["step"] is None:
            found["step"] = str(frame.key)
            found["try_number"] = frame.try_number
        return True


class QuietOnRecall(logging.Filter):
    """Drops what code between steps logs again while saved answers are handed out to it.

    After a crash, a sleep or a wait the code of a run goes through from the top; up to where it was, it
    logged the same before. Bodies of steps are always heard, as are Onceward's own loggers. Heard twice is
    what the code logged behind the last thing that is saved, since nobody knows any more that it did.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether the record is to be seen."""
        if record.name == _OURS or record.name.startswith(f"{_OURS}."):
            return True
        session = session_var.get()
        return session is None or frame_var.get() is not None or not session.is_recalling


class JsonLines(logging.Formatter):
    """Gives a record as one line of JSON, in ASCII.

    It has ``at`` (ISO 8601, UTC), ``level``, ``logger``, ``message``; what `RunFields` found; the record's
    ``extra=`` as far as it is text, a number or a truth value; and ``traceback``.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Give the line."""
        at = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, Any] = {
            "at": f"{at:%Y-%m-%dT%H:%M:%S}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage()[:TEXT_CHARS_MAX],
        }
        extra = {name: value for name, value in vars(record).items() if name not in _STANDARD}
        for name in (*FIELDS, *extra):
            value = extra.get(name)
            if name not in line and _is_plain(value):
                line[name] = value[:TEXT_CHARS_MAX] if isinstance(value, str) else value
        if record.exc_info or record.exc_text:
            text = record.exc_text or self.formatException(record.exc_info)  # type: ignore[arg-type] # its own
            line["traceback"] = text[-TEXT_CHARS_MAX:]
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)[-TEXT_CHARS_MAX:]
        return json.dumps(line)


def _is_plain(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, str | int)
