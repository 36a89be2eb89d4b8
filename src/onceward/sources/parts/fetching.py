"""Certificates and key sets that senders publish at an address: fetched with care, kept for a while.

The address often stands in the delivery itself, so a stranger chooses it. Sources therefore check
its host first, and `Documents` bounds how often, how much and how long anything is fetched. The port
is one function, so that tests and closed networks can put their own in its place.
"""

from __future__ import annotations

import ssl
import threading
import time
import urllib.request
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeAlias

from onceward.core.errors import KeyUnavailable

Fetch: TypeAlias = Callable[[str], bytes]
"""Gives what stands at an https address; it may raise anything."""

DOCUMENT_BYTES_MAX = 256 * 1024
FETCH_SECONDS_MAX = 5.0
KEPT_MAX = 32
KEPT_MS = 24 * 3_600_000
# An address that failed is not asked again at once, and all addresses together not without end.
PAUSE_AFTER_FAILURE_MS = 10_000
FETCHES_MAX_A_MINUTE = 20
_MINUTE_MS = 60_000


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def fetch_https(url: str, *, context: ssl.SSLContext | None = None) -> bytes:
    """Give what stands at an https address, following no redirect.

    Args:
        url: the address.
        context: whom to trust, where it is not whom the system trusts.

    Raises:
        OSError: it cannot be had in `FETCH_SECONDS_MAX`.
        ValueError: the address is no https one, or what stands there is larger than
            `DOCUMENT_BYTES_MAX`.
    """
    if not url.startswith("https://"):
        raise ValueError("only https addresses are fetched")
    until = time.monotonic() + FETCH_SECONDS_MAX
    opener = urllib.request.build_opener(_NoRedirect, urllib.request.HTTPSHandler(context=context))
    content = b""
    with opener.open(url, timeout=FETCH_SECONDS_MAX) as reply:
        while chunk := reply.read1(65_536):
            content += chunk
            if len(content) > DOCUMENT_BYTES_MAX:
                raise ValueError(f"more than {DOCUMENT_BYTES_MAX} bytes")
            if time.monotonic() > until:
                raise TimeoutError(f"more than {FETCH_SECONDS_MAX} s")
    return content


class Documents:
    """What was fetched lately, by address; safe to use from several threads.

    Args:
        fetch: the port; None means `fetch_https`.
        kept_ms: for how long a document counts as fresh. A stale one is used on when its address
            does not answer.
    """

    def __init__(self, fetch: Fetch | None = None, *, kept_ms: int = KEPT_MS) -> None:
        self._fetch = fetch or fetch_https
        self._kept_ms = kept_ms
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, tuple[bytes, int]] = OrderedDict()
        self._failed_at_ms: OrderedDict[str, int] = OrderedDict()
        self._fetched_at_ms: list[int] = []

    def get(self, url: str, now_ms: int, *, fresh_ms: int | None = None) -> bytes:
        """Give what stands at *url*, fetched or kept.

        Args:
            url: an https address whose host the caller has checked.
            now_ms: Unix milliseconds.
            fresh_ms: how old a kept document may be; by default as old as this object says.

        Raises:
            KeyUnavailable: it cannot be had now.
        """
        kept_ms = self._kept_ms if fresh_ms is None else fresh_ms
        with self._lock:
            found = self._kept.get(url)
            if found is not None:
                self._kept.move_to_end(url)
                if abs(now_ms - found[1]) < kept_ms:
                    return found[0]
            is_allowed = self._may_fetch(url, now_ms)
        if is_allowed:
            # Outside the lock: a slow address must not hold back the deliveries of others.
            try:
                content = self._fetch(url)
            except Exception:  # noqa: BLE001 (the port is anyone's; whatever it raises, there is no key)
                self._remember_failure(url, now_ms)
            else:
                if isinstance(content, bytes) and len(content) <= DOCUMENT_BYTES_MAX:
                    self._remember(url, content, now_ms)
                    return content
                self._remember_failure(url, now_ms)
        if found is not None:
            return found[0]
        raise KeyUnavailable("the sender's key could not be fetched")

    def _may_fetch(self, url: str, now_ms: int) -> bool:
        failed_at_ms = self._failed_at_ms.get(url)
        if failed_at_ms is not None and abs(now_ms - failed_at_ms) < PAUSE_AFTER_FAILURE_MS:
            return False
        self._fetched_at_ms = [at for at in self._fetched_at_ms if abs(now_ms - at) < _MINUTE_MS]
        if len(self._fetched_at_ms) >= FETCHES_MAX_A_MINUTE:
            return False
        self._fetched_at_ms.append(now_ms)
        return True

    def _remember(self, url: str, content: bytes, now_ms: int) -> None:
        with self._lock:
            self._failed_at_ms.pop(url, None)
            self._kept[url] = (content, now_ms)
            self._kept.move_to_end(url)
            while len(self._kept) > KEPT_MAX:
                self._kept.popitem(last=False)

    def _remember_failure(self, url: str, now_ms: int) -> None:
        with self._lock:
            self._failed_at_ms[url] = now_ms
            self._failed_at_ms.move_to_end(url)
            while len(self._failed_at_ms) > KEPT_MAX:
                self._failed_at_ms.popitem(last=False)
