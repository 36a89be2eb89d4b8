"""Picks the store that a URL names; drivers are imported when they are needed."""

from __future__ import annotations

from collections.abc import Callable

from onceward.core import errors
from onceward.core.model import Millis
from onceward.core.ports import Store
from onceward.core.settings import Settings
from onceward.core.store_url import SqliteUrl, parse


def make_store(
    settings: Settings, *, now_ms: Callable[[], Millis], random_bytes: Callable[[int], bytes]
) -> Store:
    """Give the store that *settings* name, not yet opened.

    Raises:
        ConfigError: no store is named, the URL cannot be read, or its driver is not installed.
    """
    if settings.store is None:
        raise errors.ConfigError(
            "No store is named.",
            means="There is nowhere to keep events and runs.",
            todo='Write App("sqlite:///orders.db"), or set ONCEWARD_STORE.',
        )
    url = parse(settings.store)
    if isinstance(url, SqliteUrl):
        from onceward.stores.sqlite import SqliteStore

        return SqliteStore(url.path, namespace=settings.namespace, now_ms=now_ms)
    raise errors.ConfigError("PostgreSQL is not wired yet.")
