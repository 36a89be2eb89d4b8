"""What a decoded body must hold, and the error for one that does not."""

from __future__ import annotations

from typing import Any

from onceward.core.errors import BodyMalformed

_FORMAT = "Compare the source's format with what the sender is set to send."


def malformed(fault: str, *, todo: str = _FORMAT) -> BodyMalformed:
    """Give the error for a delivery that is genuine and not understood.

    Args:
        fault: why, e.g. ``the form is not UTF-8``.
        todo: where its operator should look.
    """
    return BodyMalformed(
        f"The delivery cannot be read: {fault}.",
        means="It was genuine but cannot be understood; nothing was stored.",
        todo=todo,
    )


def object_of(value: object, where: str) -> dict[str, Any]:
    """Give a JSON object; `BodyMalformed` for anything else, which names *where* it stands."""
    if not isinstance(value, dict):
        raise malformed(f"{where} is {_kind(value)}, not an object")
    return value


def list_of(value: object, where: str) -> list[Any]:
    """Give a JSON list; `BodyMalformed` for anything else, which names *where* it stands."""
    if not isinstance(value, list):
        raise malformed(f"{where} is {_kind(value)}, not a list")
    return value


def _kind(value: object) -> str:
    return "missing" if value is None else f"a {type(value).__name__}"
