"""The command line's logging: one line a record, whatever is in it.

The library itself only logs under ``onceward.*`` and installs nothing. Lines go to the standard
error: time in UTC, level, logger, message; or JSON, which also says which run and step. A traceback
becomes part of its record's line. What code between steps logs again on its way back up is not shown.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from onceward.cli.plain import plain
from onceward.logs import JsonLines, QuietOnRecall, RunFields


class OneLine(logging.Formatter):
    """Gives a record as one line without control characters."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802 (logging's)
        """Give the record's time by ISO 8601, in UTC with milliseconds."""
        at = datetime.fromtimestamp(record.created, UTC)
        return f"{at:%Y-%m-%dT%H:%M:%S}.{int(record.msecs):03d}Z"

    def format(self, record: logging.LogRecord) -> str:
        """Give the line."""
        return plain(super().format(record))


class Short(OneLine):
    """Gives a record as a line for somebody who looks on: the time of day here, and what is said."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802 (logging's)
        """Give the time of day in this place."""
        return f"{datetime.fromtimestamp(record.created).astimezone():%H:%M:%S}"


def configure(level: str, *, is_short: bool = False, form: str = "text") -> None:
    """Send everything from *level* up to the standard error; call it again to change the level.

    Args:
        level: as in the setting ``log_level``.
        is_short: lines of text are for somebody who looks on.
        form: as in the setting ``log_format``.
    """
    handler = logging.StreamHandler()
    handler.addFilter(QuietOnRecall())
    handler.addFilter(RunFields())
    if form == "json":
        handler.setFormatter(JsonLines())
    elif is_short:
        handler.setFormatter(Short("%(asctime)s  %(levelname)-9s  %(message)s"))
    else:
        handler.setFormatter(OneLine("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    number = logging.getLevelNamesMapping()[level.upper()]
    logging.basicConfig(level=number, handlers=[handler], force=True)
    # The server tells of its own start and stop what the banner and our last line say better.
    logging.getLogger("uvicorn").setLevel(logging.WARNING if number > logging.DEBUG else number)
