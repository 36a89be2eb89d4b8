"""Where in a delivery a text stands: a configuration value such as ``/data/id`` or ``header:X-Id``."""

from __future__ import annotations

import re
from typing import Any

from onceward.core.errors import ConfigError
from onceward.core.messages import HttpRequest
from onceward.sources.base import sole_text_header

_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")  # "token", RFC 9110
_BAD_ESCAPE = re.compile(r"~(?![01])")
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")


def is_header_name(text: str) -> bool:
    """Say whether a request can carry a header of that name."""
    return _HEADER_NAME.fullmatch(text) is not None


class Place:
    """One place, read from its text form.

    Args:
        text: a JSON pointer (RFC 6901) into the body, ``header:<name>``, or ``const:<text>`` for a
            sender whose every delivery has the same one.

    Raises:
        ConfigError: it is none of the three.
    """

    __slots__ = ("_const", "_path", "header", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.header: str | None = None
        self._const: str | None = None
        self._path: tuple[str, ...] = ()
        scheme, _, rest = text.partition(":")
        if text.startswith("/") and not _BAD_ESCAPE.search(text):
            self._path = tuple(part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/"))
        elif scheme == "header" and is_header_name(rest):
            self.header = rest
        elif scheme == "const" and rest:
            self._const = rest
        else:
            raise ConfigError(
                f"{text!r} is no place in a delivery.",
                means="It cannot be read from any request.",
                todo='Write a JSON pointer ("/data/id"), "header:<name>" or "const:<text>".',
            )

    def find(self, request: HttpRequest, body: Any) -> object:
        """Give what stands there, or None; `BodyMalformed` for a header that is absent or repeated."""
        if self._const is not None:
            return self._const
        if self.header is not None:
            return sole_text_header(request, self.header)
        value = body
        for part in self._path:
            if isinstance(value, dict):
                value = value.get(part)
            elif isinstance(value, list) and _INDEX.fullmatch(part) and int(part) < len(value):
                value = value[int(part)]
            else:
                return None
        return value
