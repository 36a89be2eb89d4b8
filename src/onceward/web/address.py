"""The address that a sender called, which some of them sign: scheme, host, path and query.

What stands before the receiver may have changed scheme and host. Its headers about that are believed
only if it is one of the proxies that the setting ``trusted_proxies`` names; anybody can send them.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, MutableMapping
from typing import Any, TypeAlias

from onceward.core.errors import ConfigError

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

_HOST_CHARS_MAX = 255
_HOPS_MAX = 20


class Proxies:
    """Which peers' ``X-Forwarded-Proto`` and ``X-Forwarded-Host`` are believed.

    Args:
        named: addresses and networks, with commas or spaces between; ``*`` for every peer.

    Raises:
        ConfigError: one of them is no address.
    """

    def __init__(self, named: str | None = None) -> None:
        words = (named or "").replace(",", " ").split()
        self._all = "*" in words
        self._networks = tuple(_network(word) for word in words if word != "*")
        self._known: dict[str, bool] = {}
        self.are_any = bool(words)
        """Whether there are any."""

    def trusts(self, peer: str) -> bool:
        """Say whether *peer*, an address, is one of them; a socket that is a file has none and is not."""
        if self._all:
            return True
        found = self._known.get(peer)
        if found is None:
            if len(self._known) > 1_000:
                self._known.clear()
            found = self._known[peer] = self._is_in(peer)
        return found

    def _is_in(self, peer: str) -> bool:
        try:
            address = ipaddress.ip_address(peer.partition("%")[0])
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None)
        return any((mapped or address) in network for network in self._networks)


def _network(word: str) -> Network:
    try:
        return ipaddress.ip_network(word, strict=False)
    except ValueError as error:
        raise ConfigError(
            f"trusted_proxies names {word!r}, which is no address or network.",
            means="It is not clear whose X-Forwarded headers are to be believed.",
            todo='Write addresses as in "10.0.0.0/8 192.0.2.7", or "*".',
        ) from error


def url_of(
    scope: MutableMapping[str, Any], path: str, query: str, host: bytes | None, proxies: Proxies
) -> str:
    """Give the address that the sender called; empty where no host is known.

    Args:
        scope: the ASGI scope.
        path: as the sender wrote it.
        query: likewise.
        host: the ``Host`` header.
        proxies: whose word is believed.
    """
    scheme, named = _told(scope, None if host is None else host.decode("latin-1"), proxies)
    if named is None:
        named = _server_of(scope)
    if not named or len(named) > _HOST_CHARS_MAX:
        return ""
    address = f"{scheme}://{named}{path}"
    return f"{address}?{query}" if query else address


def origin_of(scope: MutableMapping[str, Any], proxies: Proxies) -> tuple[str, str]:
    """Give scheme and host by which a request came; the host is empty where none is known."""
    hosts = [value for found, value in scope["headers"] if found == b"host"]
    # Two are a trick by which one reader sees the one and another the other.
    host = hosts[0].decode("latin-1") if len(hosts) == 1 else None
    scheme, named = _told(scope, host, proxies)
    return scheme, named or ""


def peer_of(scope: MutableMapping[str, Any], proxies: Proxies) -> str:
    """Give the address of the client: the last one that no proxy of ours has; empty where none is known."""
    peer: str = (scope.get("client") or ("",))[0]
    if not proxies.are_any or not proxies.trusts(peer):
        return peer
    lines = [value for found, value in scope["headers"] if found == b"x-forwarded-for"]
    hops = b",".join(lines).decode("latin-1").split(",")[-_HOPS_MAX:]
    for hop in reversed([hop.strip() for hop in hops if hop.strip()]):
        try:
            ipaddress.ip_address(hop)
        except ValueError:
            return peer
        peer = hop
        if not proxies.trusts(hop):
            break
    return peer


def _told(scope: MutableMapping[str, Any], host: str | None, proxies: Proxies) -> tuple[str, str | None]:
    """Give scheme and host as the request says, or as a proxy that is believed says."""
    scheme: str = scope.get("scheme", "http")
    if proxies.are_any and proxies.trusts((scope.get("client") or ("",))[0]):
        headers = scope["headers"]
        # The last word is that of the proxy we know; what stands before it the sender may have sent.
        scheme = _last(headers, b"x-forwarded-proto") or scheme
        host = _last(headers, b"x-forwarded-host") or host
    return scheme, host


def _server_of(scope: MutableMapping[str, Any]) -> str:
    server = scope.get("server")
    if not server:
        return ""
    name = f"[{server[0]}]" if ":" in server[0] else server[0]
    return f"{name}:{server[1]}" if server[1] is not None else name


def _last(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> str:
    values = [value for found, value in headers if found == name]
    return values[-1].decode("latin-1").rpartition(",")[2].strip() if values else ""
