"""The address that a sender called, for schemes that sign it.

What the app sees behind proxies is often not what was called, so a configured base wins over it.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from onceward.core.errors import ConfigError
from onceward.core.messages import HttpRequest


def checked_public_url(text: str | None, *, source: str) -> str | None:
    """Give *text* without a slash at its end when it can be the base of an address.

    Raises:
        ConfigError: it is no http or https address, or has a query or a fragment.
    """
    if text is None:
        return None
    try:
        parts = urlsplit(text)
        fits = parts.scheme in ("http", "https") and parts.netloc and not (parts.query or parts.fragment)
    except (ValueError, AttributeError):
        fits = False
    if fits:
        return text.rstrip("/")
    raise ConfigError(
        f"Source {source!r} has the public_url {text!r}.",
        means="The sender signs the address it calls, and this cannot be the start of one.",
        todo="Write the base under which the sender reaches this app, e.g. https://hooks.example.com.",
    )


def called_urls(request: HttpRequest, base: str | None) -> list[str]:
    """Give the addresses that the sender may have called; none where nothing is known.

    Args:
        request: its path and query are used as they came, never decoded.
        base: what stands before the path that the app sees; may also be the whole address.
    """
    if base is None:
        return [request.url] if request.url else []
    query = f"?{request.query}" if request.query else ""
    urls = [f"{base}{request.path}{query}"]
    if request.path != "/" and urlsplit(base).path == request.path.rstrip("/"):
        urls.append(f"{base}{request.path[len(request.path.rstrip('/')) :]}{query}")
    elif request.path == "/":
        urls.append(f"{base}{query}")
    return urls
