"""The address that the sender called, for schemes that sign it.

It is the one registered with the sender, not what the application sees behind proxies. A configured
public base URL therefore wins; path and query are taken as they came and never decoded and encoded.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from onceward.core.errors import ConfigError, SignatureInvalid
from onceward.core.messages import HttpRequest


def checked_public_url(public_url: str | None, *, source: str) -> str | None:
    """Give a configured public URL without a slash at its end.

    Raises:
        ConfigError: it is no http(s) address, or has a fragment.
    """
    if public_url is None:
        return None
    try:
        parts = urlsplit(public_url)
        is_usable = (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and not parts.fragment
            and public_url.isascii()
            and public_url.isprintable()
            and " " not in public_url
        )
    except (ValueError, AttributeError):
        parts, is_usable = None, False
    if parts is None or not is_usable:
        raise ConfigError(
            f"Source {source!r} has public_url={public_url!r}.",
            means="The sender signs the address that it calls, and no delivery can have come to this one.",
            todo="Give the address as the sender knows it, e.g. https://example.com, or with its path.",
        )
    return public_url if parts.query else public_url.rstrip("/")


def called_urls(request: HttpRequest, public_url: str | None) -> list[bytes]:
    """Give the addresses that the sender may have called, most likely first; seldom more than one.

    Args:
        request: as it came.
        public_url: as `checked_public_url` gave it: scheme and host, to which the request's path is
            added; with a path, the base that a proxy cuts off or the whole registered address. Its query
            counts where the request has none; a sender calls with the one that is registered, and more.

    Raises:
        SignatureInvalid: neither the configuration nor the request says it.
    """
    if public_url is None:
        if not request.url:
            raise SignatureInvalid("the address that was called is not known; set public_url")
        return [_as_sent(request.url)]
    parts = urlsplit(public_url)
    query = request.query or parts.query
    query = f"?{query}" if query else ""
    public_url = public_url.partition("?")[0].rstrip("/")
    origin, base_path = f"{parts.scheme}://{parts.netloc}", parts.path
    if not base_path:
        return [_as_sent(f"{origin}{request.path}{query}")]
    candidates = [public_url + query]
    if request.path == base_path or request.path.startswith(f"{base_path}/"):
        candidates.insert(0, f"{origin}{request.path}{query}")
    else:
        candidates.append(f"{public_url}{request.path}{query}")
    return list(dict.fromkeys(_as_sent(candidate) for candidate in candidates))


def _as_sent(url: str) -> bytes:
    # Surrogates stand for bytes that some servers let through; they match nothing and raise nothing.
    return url.encode("utf-8", "surrogatepass")
