"""Idempotency keys on outgoing requests: clients that add ``Idempotency-Key`` inside a step's body.

For httpx and its successor httpx2, for aiohttp and for requests; none of them is needed to import
this module. Requests outside a step's body, and ones that change nothing (GET, HEAD, OPTIONS,
TRACE), are left as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from types import MappingProxyType
from typing import Any, TypeVar

from onceward.authoring.current import frame_var
from onceward.core import errors
from onceward.core.shown import type_name

HEADER = "Idempotency-Key"

NO_KEY: Mapping[str, str] = MappingProxyType({HEADER: ""})
"""Headers for one request that is to have no key: ``client.post(url, headers=NO_KEY)``."""

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})

ClientT = TypeVar("ClientT")


def keyed(client: ClientT) -> ClientT:
    """Give the same client, whose requests inside a step's body carry the step's idempotency key.

    The first request of a body has the key that the step hands out anywhere else; later ones have
    keys of their own, the same at every try. A header that the caller gives is left alone.

    Args:
        client: an ``httpx.Client`` or ``AsyncClient`` (also of httpx2), an ``aiohttp.ClientSession``
            or a ``requests.Session``. Adapters that are mounted on a session later add no key.

    Raises:
        ConfigError: it is none of these.
    """
    given: Any = client
    if hasattr(given, "event_hooks"):
        hooks = {name: list(functions) for name, functions in given.event_hooks.items()}
        ours = key_request_async if hasattr(given, "aclose") else key_request
        if ours not in hooks.setdefault("request", []):
            hooks["request"].append(ours)
        given.event_hooks = hooks
    elif hasattr(given, "trace_configs"):
        given.trace_configs.append(trace_config())
    elif hasattr(given, "adapters") and hasattr(given, "mount"):
        for prefix, adapter in list(given.adapters.items()):
            if not isinstance(adapter, KeyingAdapter):
                given.mount(prefix, KeyingAdapter(adapter))
    else:
        raise errors.ConfigError(
            f"keyed() was given something of type {type_name(client)}.",
            means="It knows the clients of httpx, httpx2, aiohttp and requests.",
            todo="Send the key yourself: give the step a parameter of type IdempotencyKey.",
        )
    return client


def add_key(headers: MutableMapping[str, Any], method: str, url: str) -> None:
    """Add the key of the step whose body runs to a request's headers.

    Args:
        headers: as the client will send them, names in any case.
        method: of the request.
        url: where it goes; tells the requests of one body apart.
    """
    name = next((name for name in headers if name.lower() == HEADER.lower()), None)
    if name is not None:
        if headers[name] in ("", b""):
            del headers[name]
        return
    frame = frame_var.get()
    if frame is None or frame.is_over or method.upper() in SAFE_METHODS:
        return
    headers[HEADER] = frame.request_key(method.upper(), url)


def key_request(request: Any) -> None:
    """Add the key to a request of httpx: ``Client(event_hooks={"request": [key_request]})``."""
    add_key(request.headers, request.method, str(request.url))


async def key_request_async(request: Any) -> None:
    """Add the key to a request of httpx: ``AsyncClient(event_hooks={"request": [key_request_async]})``."""
    key_request(request)


def trace_config() -> Any:
    """Give what adds the key to requests of aiohttp: ``ClientSession(trace_configs=[trace_config()])``."""
    import aiohttp

    async def on_request_start(_session: object, _context: object, params: Any) -> None:
        add_key(params.headers, params.method, str(params.url))

    config = aiohttp.TraceConfig()
    config.on_request_start.append(on_request_start)
    config.freeze()
    return config


class KeyingAdapter:
    """Adds the key to requests of requests: ``session.mount("https://", KeyingAdapter(HTTPAdapter()))``.

    Args:
        adapter: what sends them.
    """

    def __init__(self, adapter: Any) -> None:
        self._adapter = adapter

    def send(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """Send a prepared request with the key."""
        add_key(request.headers, request.method or "", request.url or "")
        return self._adapter.send(request, *args, **kwargs)

    def close(self) -> None:
        """Close the adapter that sends."""
        self._adapter.close()

    def __getattr__(self, name: str) -> Any:
        """Be the adapter that sends in everything else."""
        if name == "_adapter":  # not set yet, as while a session is copied
            raise AttributeError(name)
        return getattr(self._adapter, name)
