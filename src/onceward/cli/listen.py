"""The socket that ``onceward serve`` receives on."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from collections.abc import Iterable

from onceward.core.errors import ConfigError
from onceward.sources.base import Source

BACKLOG = 2048  # uvicorn's own


def bound(host: str, port: int) -> socket.socket:
    """Give a socket bound to the address, not yet listening.

    Raises:
        ConfigError: the host has no address here, or the port is taken or not ours to take.
    """
    family, kind, protocol, _, address = _resolved(host, port)[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise cannot_listen(host, port, error) from error
    listener.set_inheritable(True)
    return listener


def listen(listener: socket.socket) -> None:
    """Let connections come in; they wait in the queue until a server accepts them.

    Raises:
        ConfigError: another process bound the same port and began to listen after our `bound`.
    """
    try:
        listener.listen(BACKLOG)
    except OSError as error:
        host, port = listener.getsockname()[:2]
        raise cannot_listen(host, port, error) from error


def cannot_listen(host: str, port: int, error: OSError) -> ConfigError:
    """Give the error for an address that cannot be listened on."""
    return ConfigError(
        f"The port {port} of {host} cannot be listened on: {error.strerror or error}.",
        means="Nothing can be received there.",
        todo="Choose another with --port (0 takes a free one), or end what listens there.",
    )


def address_of(listener: socket.socket) -> str:
    """Give the base URL that a socket is reached at."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def refuse_insecure(sources: Iterable[Source], host: str, *, is_accepted: bool) -> None:
    """Refuse to let strangers reach a source that checks nothing.

    Args:
        sources: the app's.
        host: where the receiver listens.
        is_accepted: the operator said that he means it.

    Raises:
        ConfigError: a source has ``insecure=True`` and the host is not a loopback address.
    """
    open_doors = [source.name for source in sources if source.insecure]
    if not open_doors or is_accepted or is_loopback(host):
        return
    raise ConfigError(
        f"Source {', '.join(map(repr, open_doors))} accepts deliveries without a check (insecure=True), "
        f"and {host} can be reached from outside.",
        means="Anyone who reaches it could start runs.",
        todo="Give it secrets=[…], listen on 127.0.0.1, or say --insecure where the network is trusted.",
    )


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach the host."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return all(ipaddress.ip_address(found[4][0]).is_loopback for found in _resolved(host, 0))


def _resolved(host: str, port: int) -> list[tuple[int, int, int, str, tuple[str, int]]]:
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)  # type: ignore[return-value]
    except OSError as error:
        raise ConfigError(
            f"The host {host!r} has no address here: {error.strerror or error}.",
            means="Nothing can be received there.",
            todo="Use 127.0.0.1 for this machine only, 0.0.0.0 for every network, or an address of this machine.",
        ) from error
