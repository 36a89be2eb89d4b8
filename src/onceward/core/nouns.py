"""Numbers with what they count, as a person reads them: on a terminal, in a log, on a page."""

from __future__ import annotations


def counted(number: int, one: str, many: str = "") -> str:
    """Give a number with its noun: ``1 run``, ``2,000 runs``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
