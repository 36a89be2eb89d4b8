"""The JSON of a request's body, read strictly: from strangers, so every edge has a stated answer.

Sources call this after the signature has verified. A body is either read to a value that means the
same to everyone, or refused with a short reason; which of two equal keys counts, or what NaN is,
is never guessed.
"""

from __future__ import annotations

import codecs
import re
from typing import Any

import msgspec

from onceward.core.errors import BodyMalformed
from onceward.core.walk import DEPTH_MAX

_decode = msgspec.json.Decoder().decode
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')


def parse_body(raw: bytes, *, limit_depth: int = DEPTH_MAX) -> Any:
    """Give the value of a body that is one JSON text (RFC 8259) in UTF-8.

    A byte order mark in front is skipped, as the RFC allows: it says nothing that could be lost.
    Integers come back exact up to 4,300 digits, floats as the nearest double; NUL escapes, -0 and
    a bare ``null`` are JSON and are allowed.

    Raises:
        BodyMalformed: the body is empty, not UTF-8 or no JSON; it has NaN, Infinity, a number out
            of range, half a surrogate pair, or one key twice in an object; or it nests deeper than
            *limit_depth* levels. The message quotes nothing of the body.
    """
    text = raw.removeprefix(codecs.BOM_UTF8)
    if not text:
        raise _malformed("it is empty")
    try:
        value = _decode(text)
    except RecursionError:
        raise _malformed(f"it nests deeper than {limit_depth} levels") from None
    except (ValueError, msgspec.MsgspecError) as error:
        raise _malformed(_reason(text, error)) from None
    members = _count_members(value, limit_depth)
    # The decoder keeps the last of two equal keys. Outside of strings a colon stands after each
    # key and nowhere else, so more colons than members are keys that were swallowed.
    if _STRING.sub(b"", text).count(b":") != members:
        raise _malformed("an object has the same key twice")
    return value


def _count_members(value: Any, limit_depth: int) -> int:
    """Give how many members all objects in the value have together, level by level."""
    members = 0
    depth = 0
    level = [value] if isinstance(value, (dict, list)) else []
    while level:
        depth += 1
        if depth > limit_depth:
            raise _malformed(f"it nests deeper than {limit_depth} levels")
        below: list[Any] = []
        for node in level:
            members += len(node) if type(node) is dict else 0
            parts = node.values() if type(node) is dict else node
            below += [part for part in parts if type(part) is dict or type(part) is list]
        level = below
    return members


def _reason(text: bytes, error: Exception) -> str:
    try:
        text.decode()
    except UnicodeDecodeError as where:
        return f"it is not UTF-8 (byte {where.start})"
    if text.isspace():
        return "it is empty"
    words = str(error).removeprefix("JSON is malformed: ")
    return f"it is no JSON: {words[:1].lower()}{words[1:]}"


def _malformed(reason: str) -> BodyMalformed:
    return BodyMalformed(
        f"The body cannot be read: {reason}.",
        means="Nothing was stored.",
        todo="Send one JSON text in UTF-8.",
    )
