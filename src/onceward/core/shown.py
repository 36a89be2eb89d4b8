"""A user's value as it stands in an error message: short, and never a second error.

Messages quote what was wrong. The value is not ours, so its ``repr`` may raise, or be ten
megabytes long, or be an integer that Python refuses to print.
"""

from __future__ import annotations

from collections.abc import Sequence

SHOWN_CHARS_MAX = 100
LISTED_MAX = 10


def shown(value: object) -> str:
    """Give ``repr(value)``, cut to a hundred characters; the type's name where ``repr`` fails."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 (the value's own code: anything can come out of it)
        return f"<{type_name(value)}>"
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}…"


def type_name(value: object) -> str:
    """Give the name of a value's type, qualified unless it is a builtin: ``decimal.Decimal``."""
    return class_name(type(value))


def class_name(cls: type) -> str:
    """Give a class's name, qualified unless it is a builtin."""
    name = str(cls.__qualname__)
    return name if cls.__module__ == "builtins" else f"{cls.__module__}.{name}"


def listed(names: Sequence[str]) -> str:
    """Give the names of steps for a sentence; of very many the first."""
    more = f" and {len(names) - LISTED_MAX} more" if len(names) > LISTED_MAX else ""
    return ", ".join(repr(name) for name in names[:LISTED_MAX]) + more
