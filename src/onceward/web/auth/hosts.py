"""Which names this server answers to.

A page of a stranger can let its own name point to a loopback address and then read what is served
there, as if it were its own (DNS rebinding). The browser still sends the stranger's name, so what
comes under a name that nobody gave us is refused.
"""

from __future__ import annotations

import ipaddress
import re

from onceward.core.errors import ConfigError
from onceward.core.shown import shown

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")

_PATTERN = re.compile(r"(\*\.)?[a-z0-9]([a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\]|\*")
_HOST = re.compile(r"([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?", re.ASCII)


class Hosts:
    """The names that a request may come under, whatever the port.

    Args:
        named: names with commas or spaces between; ``*.example.com`` for every name below it, ``*`` for
            every name there is; None for the loopback names.
        listening: the address that the server listens on, which is one of its names unless it is all
            addresses at once.

    Raises:
        ConfigError: one of them is no name.
    """

    def __init__(self, named: str | None = None, *, listening: str | None = None) -> None:
        patterns = [_checked(word) for word in (named or "").lower().replace(",", " ").split()]
        self.names = tuple(dict.fromkeys([*patterns, *LOOPBACK, *_own(listening)]))

    def allows(self, host: str) -> bool:
        """Say whether a ``Host`` header names this server."""
        found = _HOST.fullmatch(host.lower())
        if found is None:
            return False
        name = found[1].removesuffix(".")
        return any(_is_match(name, pattern) for pattern in self.names)


def _is_match(name: str, pattern: str) -> bool:
    if pattern.startswith("*."):
        return name.endswith(pattern[1:]) and len(name) > len(pattern) - 1
    return pattern in ("*", name)


def _checked(word: str) -> str:
    if not _PATTERN.fullmatch(word):
        raise ConfigError(
            f"allowed_hosts names {shown(word)}, which is no name of a host.",
            means="Nothing could come under it.",
            todo='Write names without scheme and port: "runs.example.com *.internal.example.com".',
        )
    return word


def _own(listening: str | None) -> list[str]:
    if listening is None:
        return []
    try:
        address = ipaddress.ip_address(listening)
    except ValueError:
        return [listening.lower()]
    if address.is_unspecified:
        return []
    return [f"[{address.compressed}]" if address.version == 6 else address.compressed]
