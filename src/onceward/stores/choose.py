"""Picks the store that a URL names; drivers are imported when they are needed."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from onceward.core import errors
from onceward.core.model import Millis
from onceward.core.ports import Store
from onceward.core.settings import Settings
from onceward.core.store_url import SqliteUrl, StoreUrl, parse
from onceward.stores import migrate
from onceward.stores.statements import SQLITE_MACROS, postgres_macros


def make_store(settings: Settings, *, now_ms: Callable[[], Millis], draw: Callable[[], float]) -> Store:
    """Give the store that *settings* name, not yet opened.

    Args:
        settings: which, and how it is used.
        now_ms: this host's time in Unix milliseconds; PostgreSQL brings its own.
        draw: gives numbers in [0, 1), for the jitter of retries.

    Raises:
        ConfigError: no store is named, the URL cannot be read, or its driver is not installed.
    """
    url = _url(settings)
    if isinstance(url, SqliteUrl):
        from onceward.stores.sqlite.host_clock import HostClock
        from onceward.stores.sqlite.store import SqliteStore

        host = None if url.is_memory else HostClock.here()
        return SqliteStore(url.path, namespace=settings.namespace, now_ms=now_ms, host=host)
    try:
        from onceward.stores.postgres.store import PostgresStore
    except ImportError as error:  # psycopg is there and its C library is not: no ModuleNotFoundError
        raise errors.ConfigError(
            f"The driver for {url.show()} cannot be imported: {' '.join(str(error).split())}.",
            means="The store cannot be opened.",
            todo=f"Install it: {sys.executable} -m pip install 'onceward[postgres]'",
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


def migration_script(settings: Settings, *, now_ms: Millis) -> str:
    """Give the migrations of the store that *settings* name as SQL text; connects to nothing.

    Raises:
        ConfigError: no store is named, or the URL cannot be read.
    """
    url = _url(settings)
    if isinstance(url, SqliteUrl):
        return migrate.script(SQLITE_MACROS, now_ms=now_ms, begin="begin immediate")
    return migrate.script(
        postgres_macros(url.schema), now_ms=now_ms, setup=(f'create schema if not exists "{url.schema}"',)
    )


def _url(settings: Settings) -> StoreUrl:
    if settings.store is None:
        raise errors.ConfigError(
            "No store is named.",
            means="There is nowhere to keep events and runs.",
            todo='Write App("sqlite:///orders.db"), or set ONCEWARD_STORE.',
        )
    return parse(settings.store)
