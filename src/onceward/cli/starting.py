"""What commands do alike before an app, or a store without one, is opened."""

from __future__ import annotations

import gc
import os
from collections.abc import Mapping

from onceward.app import App
from onceward.cli import logs, target
from onceward.core import store_url
from onceward.core.errors import ConfigError
from onceward.core.ports import Store
from onceward.core.settings import SETTINGS, Settings, resolve


def prepared(name: str, given: Mapping[str, str | None], *, is_short: bool = False) -> App:
    """Give the app that *name* names, configured with what was *given* as options.

    Logging is set up before the app's module is imported, so that its records are shown; the level
    that its code chose holds from then on. *is_short* lines are for somebody who looks on.

    Raises:
        ConfigError: an option, a variable or the application cannot be used.
    """
    before = resolve(SETTINGS, given, os.environ)
    logs.configure(before.log_level, is_short=is_short, form=before.log_format)
    app = target.load(name)
    app.configure(**given)
    logs.configure(app.settings.log_level, is_short=is_short, form=app.settings.log_format)
    return app


YOUNG_OBJECTS_MAX = 10_000
"""Between two looks of the garbage collector; Python's default is 700, a few deliveries' worth."""


def spare_collections() -> None:
    """Let the garbage collector pass over what stays for as long as the process, and look less often.

    A delivery and its run make hundreds of short-lived objects and hardly any cycle; looking for
    cycles among them, and among all that was imported, is a seventh of the work (measured).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS_MAX, *gc.get_threshold()[1:])


def settings_of(name: str | None, given: Mapping[str, str | None]) -> Settings:
    """Give the settings of an app, or those of the options and the environment alone.

    Raises:
        ConfigError: as for `prepared`.
    """
    return resolve(SETTINGS, given, os.environ) if name is None else prepared(name, given).settings


def bare_store(settings: Settings) -> Store:
    """Give a store that is not open yet, without an app around it."""
    import random

    from onceward.runtime.clock import wall_ms
    from onceward.stores.choose import make_store

    return make_store(settings, now_ms=wall_ms, draw=random.random)


def refuse_memory(app: App, what: str) -> None:
    """Refuse a store that other processes cannot see, where there are to be several.

    Raises:
        ConfigError: the app's store is in memory.
    """
    found = app.settings.store and store_url.parse(app.settings.store)
    if isinstance(found, store_url.SqliteUrl) and found.is_memory:
        raise ConfigError(
            f"{what} with a store in memory.",
            means="Each process would have a store of its own, empty and unknown to the others.",
            todo="Use a file or PostgreSQL: --store sqlite:///shop.db",
        )
