"""The console over a store of each kind; `store_url` as for the engine."""

from tests.engine.conftest import sqlite_url, store_url

__all__ = ["sqlite_url", "store_url"]
