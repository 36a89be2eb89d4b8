"""One setting: its name, how its value is read and shown, what it refuses.

The table of them all is in ``settings.py``. Values come as Python arguments or as text from the
environment and the command line; both are read by the same function.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from onceward.core import duration, store_url
from onceward.core.errors import ConfigError
from onceward.core.notices import NoticeAddress, read_addresses
from onceward.core.promises import read_secrets
from onceward.core.shown import shown

PREFIX = "ONCEWARD_"
KIB, MIB = 1024, 1024 * 1024

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_SIZE = re.compile(r"([0-9]{1,12})\s*(KiB|MiB)?")
_FLAGS = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}


class Kind(StrEnum):
    """How a setting's value is read."""

    STORE = "URL"
    NAME = "name"
    TEXT = "text"
    SECRETS = "secrets"
    COUNT = "number"
    SIZE = "bytes"
    DURATION = "duration"
    FLAG = "on or off"
    CHOICE = "choice"
    NOTICES = "addresses"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting.

    ``default``, ``minimum`` and ``maximum`` are in the setting's unit: milliseconds for
    durations, bytes for sizes. Every number has its bounds; what is none has none.
    """

    name: str
    kind: Kind
    default: str | int | bool | None
    help: str
    minimum: int = 0
    maximum: int = 0
    choices: tuple[str, ...] = ()

    @property
    def env(self) -> str:
        """The environment variable."""
        return PREFIX + self.name.upper()

    @property
    def unit(self) -> str:
        """The unit of the stored value; empty where it has none."""
        return {Kind.DURATION: "ms", Kind.SIZE: "bytes"}.get(self.kind, "")

    @property
    def field(self) -> str:
        """The attribute of `Settings`: the name, with the unit of a duration."""
        return f"{self.name}_ms" if self.kind is Kind.DURATION else self.name

    def show(self, value: object) -> str:
        """Give a resolved value as it could be written, a password in an address masked."""
        if value is None:
            return "none"
        if isinstance(value, bool):
            return "on" if value else "off"
        if isinstance(value, int) and self.kind is Kind.DURATION:
            return duration.show(value)
        if isinstance(value, int) and self.kind is Kind.SIZE:
            return show_size(value)
        if isinstance(value, tuple):
            return ", ".join(address.shown for address in value)
        return store_url.masked(str(value))

    def read(self, value: object) -> object:
        """Give an argument's value in the setting's unit.

        Raises:
            ConfigError: it cannot be read, or is out of range.
        """
        return self._checked(value, f"setting {self.name!r}")

    def read_variable(self, text: str) -> object:
        """Give the environment variable's value in the setting's unit.

        Raises:
            ConfigError: it is empty, cannot be read, or is out of range.
        """
        if not text.strip():
            raise ConfigError(
                f"The variable {self.env} is empty.",
                means="It cannot be told whether the default was meant.",
                todo=f"Unset it for the default ({self.show(self.default)}), or give it a value.",
            )
        return self._checked(text.strip(), f"variable {self.env}")

    def _checked(self, value: object, what: str) -> object:
        read = _READERS[self.kind](self, value, what)
        if isinstance(read, bool) or not isinstance(read, int):
            return read
        if not self.minimum <= read <= self.maximum:
            low, high = self.show(self.minimum), self.show(self.maximum)
            raise _refused(what, value, f"It goes from {low} to {high}.", self)
        return read


def show_size(size: int) -> str:
    """Give a size as people and the settings read it: ``"5MiB"``, ``"1000"``."""
    for unit, factor in (("MiB", MIB), ("KiB", KIB)):
        if size and size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)


def _duration(_: Setting, value: object, what: str) -> int:
    return duration.to_ms(value, what=what)  # type: ignore[arg-type]  # it refuses other types itself


def _count(setting: Setting, value: object, what: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,12}", value):
        return int(value)
    raise _refused(what, value, "It is a whole number.", setting)


def _size(setting: Setting, value: object, what: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    found = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise _refused(what, value, "It is a number of bytes, or a text such as '512KiB' or '5MiB'.", setting)
    return int(found[1]) * {"KiB": KIB, "MiB": MIB, None: 1}[found[2]]


def _flag(setting: Setting, value: object, what: str) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in _FLAGS:
        return _FLAGS[value.lower()]
    raise _refused(what, value, "It is on or off (also 1 and 0, true and false, yes and no).", setting)


def _choice(setting: Setting, value: object, what: str) -> str:
    if isinstance(value, str) and value.lower() in setting.choices:
        return value.lower()
    raise _refused(what, value, f"It is one of {', '.join(setting.choices)}.", setting)


def _name(setting: Setting, value: object, what: str) -> str:
    if isinstance(value, str) and _NAME.fullmatch(value):
        return value
    raise _refused(
        what, value, "It is up to 100 letters, digits and . _ - and begins with one of the former.", setting
    )


def _text(setting: Setting, value: object, what: str) -> str:
    if isinstance(value, str) and value and value.isprintable():
        return value
    raise _refused(what, value, "It is a text of one line.", setting)


def _secrets(_: Setting, value: object, what: str) -> str:
    if not isinstance(value, str) or not value.isprintable():
        # It is not shown: a secret with a mistake in it is one all the same.
        raise ConfigError(
            f"The {what} is no text of one line.",
            means="It cannot be used.",
            todo="Give it 32 random characters or more.",
        )
    read_secrets(value, what)
    return value


def _notices(_: Setting, value: object, what: str) -> tuple[NoticeAddress, ...]:
    return read_addresses(value, what=what)


def _store(setting: Setting, value: object, what: str) -> str:
    if not isinstance(value, str):
        raise _refused(what, type(value), f"It is a URL: {store_url.FORMS}.", setting)
    store_url.parse(value)
    return value


_READERS: Mapping[Kind, Callable[[Setting, object, str], object]] = {
    Kind.STORE: _store,
    Kind.NAME: _name,
    Kind.TEXT: _text,
    Kind.SECRETS: _secrets,
    Kind.COUNT: _count,
    Kind.SIZE: _size,
    Kind.DURATION: _duration,
    Kind.FLAG: _flag,
    Kind.CHOICE: _choice,
    Kind.NOTICES: _notices,
}


def _refused(what: str, value: object, means: str, setting: Setting) -> ConfigError:
    default = "" if setting.default is None else f", or leave it out for {setting.show(setting.default)}"
    return ConfigError(
        f"The {what} cannot be {shown(value)}.", means=means, todo=f"Give it such a value{default}."
    )
