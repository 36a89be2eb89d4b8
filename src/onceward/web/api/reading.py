"""Reads what a call says: the query into a struct, the body into another; nothing is ignored."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any, TypeVar, get_args
from urllib.parse import parse_qsl

import msgspec

from onceward.core.errors import BodyMalformed, ConfigError
from onceward.core.shown import shown

T = TypeVar("T", bound=msgspec.Struct)

FIELDS_MAX = 100
QUERY_BYTES_MAX = 16_384
INT_MAX = 2**53 - 1
"""The largest number that every JSON reader keeps as it is."""

_INT = re.compile(r"-?[0-9]{1,16}")
_FLAGS = {"true": True, "1": True, "false": False, "0": False}
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def query_of(query: bytes, into: type[T]) -> T:
    """Give the query of an address as a struct: every parameter is one of its fields.

    Raises:
        ConfigError: a parameter is unknown, repeated, missing or no such value.
    """
    return struct_of(_pairs(query), into)


def _pairs(query: bytes) -> list[tuple[str, str]]:
    if len(query) > QUERY_BYTES_MAX:
        raise ConfigError("The query is too long.", todo=f"Use at most {QUERY_BYTES_MAX} bytes.")
    try:
        return parse_qsl(
            query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=FIELDS_MAX
        )
    except ValueError as error:
        raise ConfigError(
            "The query cannot be read.", todo="Write name=value with & between, percent-encoded UTF-8."
        ) from error


def struct_of(pairs: list[tuple[str, str]], into: type[T]) -> T:
    """Give name and value pairs as a struct; see `query_of`."""
    fields = {field.name: field for field in msgspec.structs.fields(into)}
    values: dict[str, Any] = {}
    for name, text in pairs:
        if name not in fields:
            raise _unknown(name, fields)
        if _UNSTORABLE.search(text):
            raise ConfigError(f"The parameter {name} holds a character that nothing stored can have.")
        kind = fields[name].type
        if list[str] in (kind, *get_args(kind)):
            values.setdefault(name, []).append(text)
        elif name in values:
            raise ConfigError(f"The parameter {name} comes twice.", todo="Give it once.")
        else:
            values[name] = _value(name, text, kind)
    missing = [name for name, field in fields.items() if field.required and name not in values]
    if missing:
        raise ConfigError(f"The parameter {missing[0]} is missing.", todo=f"Add {missing[0]}=….")
    return into(**values)


def _value(name: str, text: str, kind: Any) -> Any:
    kinds = (kind, *get_args(kind))
    if bool in kinds:
        if text.lower() not in _FLAGS:
            raise ConfigError(f"The parameter {name} cannot be {shown(text)}.", todo="Write true or false.")
        return _FLAGS[text.lower()]
    if int in kinds:
        if not _INT.fullmatch(text) or abs(int(text)) > INT_MAX:
            raise ConfigError(f"The parameter {name} cannot be {shown(text)}.", todo="Write a whole number.")
        return int(text)
    return text


def _unknown(name: str, known: Mapping[str, object]) -> ConfigError:
    close = difflib.get_close_matches(name[:100], known, n=1)
    there = f"There are: {', '.join(known)}." if known else "There are none."
    return ConfigError(
        f"There is no parameter {shown(name)}.",
        means="It would have no effect.",
        todo=f"Did you mean {close[0]}?" if close else there,
    )


def body_of(body: bytes, into: type[T]) -> T:
    """Give a JSON body as a struct; none at all is an empty object.

    Raises:
        BodyMalformed: it is no JSON, a field is unknown, missing or no such value.
    """
    try:
        return msgspec.json.decode(body or b"{}", type=into)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        said = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise BodyMalformed(
            f"The body cannot be read: {said[:300]}.",
            means="Nothing was done.",
            todo=f"Send a JSON object with fields of: {', '.join(into.__struct_fields__) or 'none'}.",
        ) from error
