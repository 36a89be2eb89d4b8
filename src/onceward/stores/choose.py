"""Picks the store that a URL names; drivers are imported when they are needed."""

from __future__ import annotations

import time
from collections.abc import Callable

from onceward.core import errors
from onceward.core.model import Millis
from onceward.core.ports import Store
from onceward.core.settings import Settings
from onceward.core.store_url import SqliteUrl, parse


def make_store(settings: Settings, *, now_ms: Callable[[], Millis], draw: Callable[[], float]) -> Store:
    """Give the store that *settings* name, not yet opened.

    Args:
        settings: which, and how it is used.
        now_ms: this host's time in Unix milliseconds; PostgreSQL brings its own.
        draw: gives numbers in [0, 1), for the jitter of retries.

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
    try:
        from onceward.stores.postgres import PostgresStore
    except ModuleNotFoundError as error:
        raise errors.ConfigError(
            f"The driver for {url.show()} is not installed: {error}.",
            means="The store cannot be opened.",
            todo="Install onceward[postgres].",
        ) from error
    return PostgresStore(
        url.dsn,
        namespace=settings.namespace,
        schema=url.schema,
        lease_ms=settings.lease_ms,
        pooler=settings.pooler,
        notify=settings.notify,
        monotonic_ms=lambda: time.monotonic() * 1000,
        draw=draw,
        sleep=time.sleep,
    )
