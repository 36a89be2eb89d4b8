"""Unexpected exceptions of sources and of ours, told without what a delivery holds."""

from __future__ import annotations

import logging
import traceback

from onceward.core.errors import ConfigError, StoreError

LOGGED_CHARS_MAX = 200
"""Of a text that a stranger chose, in a line of the log."""

log = logging.getLogger("onceward.receiver")


def place_of(error: Exception) -> str:
    """Give an unexpected exception's type and place; its text may hold payload."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{type(error).__name__} in {frames[-1].filename}, line {frames[-1].lineno}"


def log_fault(source: str, error: Exception) -> None:
    """Log where an unexpected exception came from; its text, which may hold payload, only at DEBUG.

    Errors about the set-up and the store are ours, hold none, and say what to do.
    """
    if isinstance(error, ConfigError | StoreError):
        text = " ".join(str(error).split())
        log.error("delivery failed: source=%s error=%s", ascii(source[:LOGGED_CHARS_MAX]), text)
        return
    log.error(
        "delivery failed: source=%s error=%s\n%s",
        ascii(source[:LOGGED_CHARS_MAX]),
        type(error).__name__,
        "".join(traceback.format_tb(error.__traceback__)).rstrip(),
        exc_info=error if log.isEnabledFor(logging.DEBUG) else None,
    )
