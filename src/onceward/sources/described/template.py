"""Text with markers in braces, filled as bytes in one pass.

One pass, because what is filled in comes from strangers: a marker inside it stays what it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from onceward.core.errors import ConfigError

_PART = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[^{}]+|[{}]")


class Template:
    """A template, read once.

    Args:
        text: literal text and markers: ``v0:{timestamp}:{body}``. ``{{`` and ``}}`` are braces.

    Raises:
        ConfigError: a brace stands alone.
    """

    __slots__ = ("_parts", "markers", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        parts: list[bytes | str] = []
        for found in _PART.finditer(text):
            whole, marker = found.group(), found.group(1)
            if whole in ("{", "}"):
                raise ConfigError(
                    f"The template {text!r} has a brace without its other half.",
                    means="It is not clear what is to be filled in.",
                    todo="Write {{ or }} for a brace that is meant.",
                )
            parts.append(marker if marker is not None else _literal(whole))
        self._parts = tuple(parts)
        self.markers = frozenset(part for part in parts if isinstance(part, str))

    def fill(self, value: Callable[[str], bytes]) -> bytes:
        """Give the text as bytes; *value* gives those of a marker."""
        return b"".join(part if isinstance(part, bytes) else value(part) for part in self._parts)


def _literal(text: str) -> bytes:
    return {"{{": b"{", "}}": b"}"}.get(text) or text.encode("utf-8")
