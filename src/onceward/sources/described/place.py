"""Where in a delivery something stands: a configuration value such as ``/data/id`` or ``header:X-Id``."""

from __future__ import annotations

import re
from typing import Any

from onceward.core.errors import BodyMalformed, ConfigError
from onceward.core.messages import HttpRequest
from onceward.sources.parts.forms import form_fields, is_urlencoded

_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")  # "token", RFC 9110
_POINTER = re.compile(r"(?:/(?:[^~/]|~[01])*)*", re.DOTALL)  # RFC 6901
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")


def is_header_name(text: str) -> bool:
    """Say whether a request can carry a header of that name."""
    return _HEADER_NAME.fullmatch(text) is not None


class Place:
    """One place, read from its text form.

    Args:
        text: one of

            - ``/data/id``: a JSON pointer (RFC 6901) into the event: the body, or one item of a
              batch. A form body is an object of its fields.
            - ``item:`` the whole event; ``item:/id`` is the same as ``/id``.
            - ``body:/id``: a JSON pointer into the whole body, also in a batch; ``body:`` all of it.
            - ``form:<field>``: a field of a form body.
            - ``header:<name>``, ``query:<name>``.
            - ``const:<text>`` for a sender whose every delivery has the same one.

    Raises:
        ConfigError: it is none of these.
    """

    __slots__ = ("_name", "_path", "kind", "text")

    def __init__(self, text: str) -> None:
        kind, colon, rest = text.partition(":")
        if text.startswith("/"):
            kind, colon, rest = "item", ":", text
        is_known = bool(colon) and (
            (kind in {"item", "body"} and _POINTER.fullmatch(rest) is not None)
            or (kind == "header" and is_header_name(rest))
            or (kind in {"form", "query", "const"} and bool(rest))
        )
        if not is_known:
            raise ConfigError(
                f"{text!r} is no place in a delivery.",
                means="It cannot be read from any request.",
                todo='Write a JSON pointer ("/data/id"), "header:<name>", "form:<field>", "query:<name>", '
                '"body:<pointer>" or "const:<text>".',
            )
        self.text = text
        self.kind = kind
        self._name = rest
        self._path = (rest,) if kind == "form" else _parts(rest) if kind in {"item", "body"} else ()

    @property
    def header(self) -> str | None:
        """The name of the header it is, or None."""
        return self._name if self.kind == "header" else None

    @property
    def path(self) -> tuple[str, ...] | None:
        """The steps into the event, or None for a place outside it."""
        return self._path if self.kind == "item" else None

    @property
    def is_in_body(self) -> bool:
        """Whether it is a place in the body."""
        return self.kind in {"item", "body", "form"}

    def needs_body(self, request: HttpRequest) -> bool:
        """Say whether the body of a request has to be read to find it."""
        return self.kind in {"item", "body"} or (self.kind == "form" and is_urlencoded(request))

    def find(self, request: HttpRequest, body: Any, item: Any) -> object:
        """Give what stands there, or None where nothing does.

        Args:
            request: as it came.
            body: the value of the whole body.
            item: the event in it; *body* itself where it is no batch.

        Raises:
            BodyMalformed: a header or parameter of that name is there more than once.
        """
        if self.kind == "const":
            return self._name
        if self.kind == "header":
            return _sole(request.header_values(self._name), f"{self._name} headers", "latin-1")
        if self.kind == "query":
            return _sole(query_values(request, self._name), f"{self._name} parameters in its address")
        if self.kind == "form" and not is_urlencoded(request):
            return None
        value = item if self.kind == "item" else body
        for part in self._path:
            if isinstance(value, dict):
                value = value.get(part)
            elif isinstance(value, list) and _INDEX.fullmatch(part) and int(part) < len(value):
                value = value[int(part)]
            else:
                return None
        return value


def query_values(request: HttpRequest, name: str) -> list[bytes]:
    """Give every value of a parameter of the address, decoded; none where it cannot be read."""
    pairs = form_fields(request.query) or ()
    return [value.encode("utf-8", "surrogatepass") for found, value in pairs if found == name]


def _parts(pointer: str) -> tuple[str, ...]:
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:])


def _sole(values: list[bytes], what: str, encoding: str = "utf-8") -> str | None:
    if len(values) > 1:
        raise BodyMalformed(
            f"The delivery has {len(values)} {what}.",
            means="It is not clear which one counts; nothing was stored.",
            todo="Look at the proxies between the sender and this receiver.",
        )
    return values[0].decode(encoding, "replace") if values else None
