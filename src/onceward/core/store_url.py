"""Where the store is, read from one URL; the only place that knows the URL's forms.

``App``, the command line and ``ONCEWARD_STORE`` all take the same text. It may hold a password,
and it ends in banners, logs and error messages: whatever is shown passes through `masked`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import unquote

from onceward.core.errors import ConfigError

MEMORY = ":memory:"
SCHEMA_DEFAULT = "onceward"
FORMS = "sqlite:///orders.db (a file), sqlite:///:memory: (lost at exit) or postgresql://user@host/database"

_IDENTIFIER = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_USER_AND_PASSWORD = re.compile(r"^((?>(?:[^:@]*://)?)[^:]*:).*@", re.DOTALL)
_PASSWORD_WORD = re.compile(r"(password\s*=\s*)('(?:[^'\\]|\\.)*'|[^&\s]*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SqliteUrl:
    """A store in one SQLite file, or in memory."""

    path: str

    @property
    def is_memory(self) -> bool:
        """Whether the store is lost when the process ends."""
        return self.path == MEMORY

    def show(self) -> str:
        """Give the URL for people."""
        return f"sqlite:///{self.path}"


@dataclass(frozen=True, slots=True)
class PostgresUrl:
    """A store in one schema of a PostgreSQL database.

    ``dsn`` is for the driver alone: it may hold a password, and is not in the ``repr``.
    """

    dsn: str = field(repr=False)
    schema: str = SCHEMA_DEFAULT

    def show(self) -> str:
        """Give the URL for people, the password masked."""
        separator = "&" if "?" in self.dsn else "?"
        schema = "" if self.schema == SCHEMA_DEFAULT else f"{separator}schema={self.schema}"
        return f"{masked(self.dsn)}{schema}"


StoreUrl = SqliteUrl | PostgresUrl


def parse(url: str) -> StoreUrl:
    """Read a store's URL.

    Args:
        url: ``sqlite:///relative/path``, ``sqlite:////absolute/path``, ``sqlite:///:memory:``, or
            ``postgresql://`` as libpq reads it, with ``schema=`` as one more parameter.

    Raises:
        ConfigError: it is of another form; the message never holds a password.
    """
    scheme, separator, rest = url.partition("://")
    if "\0" in url or not separator:
        raise _unreadable(url, "It is no URL.")
    if scheme == "sqlite":
        return _sqlite(url, rest)
    if scheme in {"postgresql", "postgres"}:
        return _postgres(url, rest)
    if scheme.partition("+")[0] in {"postgresql", "postgres", "sqlite"}:
        raise _unreadable(url, f"The scheme {scheme!r} names a driver; Onceward brings its own.")
    raise _unreadable(url, "SQLite and PostgreSQL are the stores there are.")


def masked(text: str) -> str:
    """Give a text that may be a store's URL with whatever could be a password masked.

    Masks too much rather than too little: from the first colon to the last ``@``, so that a
    password with an unescaped ``@``, ``/`` or ``?`` does not show its end.
    """
    return _PASSWORD_WORD.sub(r"\g<1>***", _USER_AND_PASSWORD.sub(r"\g<1>***@", text))


def _sqlite(url: str, rest: str) -> SqliteUrl:
    host, slash, path = rest.partition("/")
    if rest == MEMORY or (not host and unquote(path) == MEMORY):
        return SqliteUrl(MEMORY)
    if host or not slash:
        raise _unreadable(url, "The path follows three slashes, or four when it is absolute.")
    if not path or path.endswith("/"):
        raise _unreadable(url, "It names no file.")
    if "?" in path or "#" in path:
        raise _unreadable(url, "A SQLite store has no parameters; write ? as %3F and # as %23 in a path.")
    return SqliteUrl(unquote(path))


def _postgres(url: str, rest: str) -> PostgresUrl:
    base, _, query = rest.partition("?")
    # Taken out as text: libpq reads "+" and escapes in its own way, so the rest stays as it is.
    parts = query.split("&") if query else []
    schemas = [unquote(part.partition("=")[2]) for part in parts if part.partition("=")[0] == "schema"]
    if len(schemas) > 1 or not all(_IDENTIFIER.fullmatch(schema) for schema in schemas):
        raise _unreadable(url, "schema= is one plain lower-case name, such as onceward.")
    kept = "&".join(part for part in parts if part.partition("=")[0] != "schema")
    return PostgresUrl(f"postgresql://{base}{'?' if kept else ''}{kept}", *schemas)


def _unreadable(url: str, means: str) -> ConfigError:
    return ConfigError(f"The store {masked(url)!r} cannot be read.", means=means, todo=f"Write {FORMS}.")
