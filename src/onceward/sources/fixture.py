"""Realistic deliveries, one file a kind in ``fixtures/``, for tests and for ``onceward send``."""

from __future__ import annotations

import copy
from importlib.resources import files
from random import Random
from string import ascii_lowercase, ascii_uppercase, digits
from typing import Any
from urllib.parse import parse_qsl, urlencode

import msgspec

from onceward.core.errors import ConfigError
from onceward.sources.parts.forms import URLENCODED

# Of an id this many characters at its end are drawn anew; what stands before tells its kind.
_FRESH_CHARS = 12


class Fixture(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One delivery, not yet signed.

    Attributes:
        body: a JSON value, or the text of a body that is none, e.g. a form.
        headers: that the sender sends beside those of its signature.
        fresh: places in the body, JSON pointers, that differ from one event to the next.
    """

    body: Any
    headers: dict[str, str] = {}
    fresh: list[str] = []


class Body(msgspec.Struct, frozen=True):
    """A fixture's body, opened so that parts of it can be changed.

    Attributes:
        value: the JSON value; of a form its fields, those opened that hold JSON.
        is_form: whether it is written as a form.
        tail: what stands behind the JSON; a sender that signs a line end there sends one.
    """

    value: Any
    is_form: bool = False
    tail: str = ""

    @classmethod
    def of(cls, body: Any) -> Body:
        """Give the body of a fixture opened."""
        if not isinstance(body, str):
            return cls(body)
        if body[:1] in "[{":
            text = body.rstrip()
            return cls(msgspec.json.decode(text), tail=body[len(text) :])
        return cls({name: _opened(text) for name, text in parse_qsl(body, keep_blank_values=True)}, True)

    @property
    def content_type(self) -> str:
        """What the sender says of it, where a source says nothing else."""
        return URLENCODED if self.is_form else "application/json"

    def written(self, value: Any) -> bytes:
        """Give the bytes of the body with another value."""
        if not self.is_form:
            return msgspec.json.encode(value) + self.tail.encode()
        texts = {
            name: part if isinstance(part, str) else msgspec.json.encode(part).decode()
            for name, part in value.items()
        }
        return urlencode(texts).encode()


def _opened(text: str) -> Any:
    try:
        return msgspec.json.decode(text) if text[:1] in ("{", "[") else text
    except ValueError:
        return text


_decoder = msgspec.json.Decoder(dict[str, Fixture])


def fixtures_of(kind: str) -> dict[str, Fixture]:
    """Give the deliveries of a kind of source by the type of their event; none where there is no file."""
    file = files("onceward.sources").joinpath("fixtures", f"{kind}.json")
    return _decoder.decode(file.read_bytes()) if file.is_file() else {}


def with_value(body: Any, path: str, value: Any) -> Any:
    """Give a copy of a JSON value with *value* at a place; missing objects on the way are made.

    Args:
        body: a JSON value.
        path: a JSON pointer (``/data/object/id``) or the same with dots (``data.object.id``).
        value: a JSON value.

    Raises:
        ConfigError: there is no such place.
    """
    *parents, last = _parts(path)
    changed = copy.deepcopy(body)
    node = changed
    for part in parents:
        node = node.setdefault(part, {}) if isinstance(node, dict) else _element(node, part, path)
    if isinstance(node, dict):
        node[last] = value
    else:
        _element(node, last, path)
        node[int(last)] = value
    return changed


def value_at(body: Any, path: str) -> Any:
    """Give what stands at a place; `ConfigError` when nothing does."""
    node = body
    for part in _parts(path):
        if isinstance(node, dict):
            if part not in node:
                raise _no_place(path)
            node = node[part]
        else:
            node = _element(node, part, path)
    return node


def renewed(body: Any, places: list[str], random: Random) -> Any:
    """Give a copy of a JSON value in which the ids at *places* are another event's, alike in form."""
    for place in places:
        body = with_value(body, place, _another(value_at(body, place), random))
    return body


def _another(value: Any, random: Random) -> Any:
    if isinstance(value, int):
        size = len(str(value))
        return random.randrange(10 ** (size - 1), 10**size)
    text, left, drawn = str(value), _FRESH_CHARS, []
    for char in reversed(text):
        alphabet = next((some for some in (digits, ascii_lowercase, ascii_uppercase) if char in some), "")
        # Letters that are hexadecimal stay so: many ids are.
        alphabet = alphabet[:6] if alphabet[:6] and char in alphabet[:6] else alphabet
        alphabet = digits if char in digits else alphabet
        is_drawn = bool(alphabet) and left > 0
        drawn.append(random.choice(alphabet) if is_drawn else char)
        left -= is_drawn
    return "".join(reversed(drawn))


def _parts(path: str) -> list[str]:
    if path.startswith("/"):
        return [part.replace("~1", "/").replace("~0", "~") for part in path[1:].split("/")]
    return path.split(".")


def _element(node: Any, part: str, path: str) -> Any:
    if not isinstance(node, list) or not part.isdecimal() or int(part) >= len(node):
        raise _no_place(path)
    return node[int(part)]


def _no_place(path: str) -> ConfigError:
    return ConfigError(
        f"There is no place {path!r} in the body.",
        means="Nothing can be put there.",
        todo="Write a JSON pointer (/data/object/id), or the same with dots.",
    )
