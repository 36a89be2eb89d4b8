"""The PostgreSQL store's statements: named parameters to positions, values to the wire's text.

The wire takes text for every parameter and the server infers its type, so that no value passes
through an adapter: what is sent is bytes that we made, most of them one JSON document of rows.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import msgspec

from onceward.core import errors
from onceward.stores.rows import COLUMN_MACROS
from onceward.stores.statements import load, postgres_macros

_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)")

_PLANNED_ANEW = frozenset({"winners"})
"""Statements whose plan hangs on statistics, however they are written, and is made for each call."""

_FILES_KEPT = 64
"""How many files stay rendered: those of some stores in as many schemas; most programs have one."""

Parameter = bytes | None
"""A value as the wire takes it; None is null."""

encode_rows = msgspec.json.Encoder().encode
"""Gives the JSON of a list of structs; bytes become base64."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement with ``$1``-style placeholders."""

    key: bytes  # its name on connections where it is prepared
    sql: bytes
    parameters: tuple[str, ...]
    is_preparable: bool  # its plan stays right whatever becomes of the tables

    def bind(self, values: Mapping[str, Parameter]) -> Call:
        """Give the statement with the values that it names; others are not looked at."""
        return self, [values[name] for name in self.parameters]


Call = tuple[Statement, list[Parameter]]


def statement(name: str, sql: str) -> Statement:
    """Make a statement of text with ``:name`` placeholders."""
    names: list[str] = []

    def position(match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in names:
            names.append(name)
        return f"${names.index(name) + 1}"

    text = _PARAMETER.sub(position, sql)
    return Statement(f"onceward_{name}".encode(), text.encode(), tuple(names), name not in _PLANNED_ANEW)


@functools.lru_cache(maxsize=_FILES_KEPT)
def load_statements(file: str, schema: str, *, skip_locked: bool) -> Mapping[str, Statement]:
    """Give the named statements of one file of the ``sql`` folder, rendered once for all stores of a schema.

    Args:
        file: its name.
        schema: a checked identifier.
        skip_locked: whether claims pass over rows that another claim has locked. Without it they
            wait for them; the outcome is the same.
    """
    macros = {
        **postgres_macros(schema),
        **COLUMN_MACROS,
        "skip_locked": "skip locked" if skip_locked else "",
    }
    return MappingProxyType({name: statement(name, sql) for name, sql in load(file, macros).items()})


def parameter(value: str | int | None) -> Parameter:
    """Give one value as the wire takes it.

    Raises:
        StoreError: a text that PostgreSQL cannot hold.
    """
    if value is None:
        return None
    if isinstance(value, int):
        return b"%d" % value
    return wire_text(value)


def wire_text(value: str) -> bytes:
    """Give a text as the wire takes it, which would cut it short at a NUL.

    Raises:
        StoreError: it holds a NUL or a lone surrogate.
    """
    try:
        encoded = value.encode()
    except UnicodeEncodeError as error:
        raise unwritable(error) from error
    if b"\0" in encoded:
        raise unwritable(ValueError(f"a NUL in {value[:80]!r}"))
    return encoded


def unwritable(error: Exception) -> errors.StoreError:
    """Give the error for a value that the database cannot hold."""
    return errors.StoreError(
        f"A value cannot be written as UTF-8 text or a 64-bit number: {error}.",
        means="PostgreSQL cannot hold it; nothing of this commit was written.",
        todo="Look for NUL characters, lone surrogates or huge numbers in it.",
    )


def parameters(**values: Any) -> dict[str, Parameter]:
    """Give several values as the wire takes them."""
    return {name: parameter(value) for name, value in values.items()}


def text_array(values: Sequence[str]) -> bytes:
    """Give the text of an array of texts.

    Raises:
        StoreError: one of them PostgreSQL cannot hold.
    """
    quoted = ['"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"' for value in values]
    return wire_text("{" + ",".join(quoted) + "}")
