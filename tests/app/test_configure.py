"""An app's settings before and after it is opened."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from onceward import App
from onceward.core.errors import ConfigError


def test_what_is_configured_wins_over_the_code_and_none_changes_nothing() -> None:
    app = App("sqlite:///a.db", concurrency=3, namespace="blue")

    app.configure(store="sqlite:///b.db", concurrency="7", namespace=None)

    assert (app.settings.store, app.settings.concurrency, app.settings.namespace) == (
        "sqlite:///b.db",
        7,
        "blue",
    )


def test_what_cannot_be_is_refused_and_changes_nothing() -> None:
    app = App("sqlite:///a.db")

    with pytest.raises(ConfigError, match="'lease' cannot be"):
        app.configure(lease="1ms")

    assert app.settings.lease_ms == 10_000


async def opened(path: Path) -> None:
    async with App(f"sqlite:///{path}") as app:
        with pytest.raises(
            ConfigError, match="The settings concurrency were changed after the app was opened"
        ):
            app.configure(concurrency=3)
        described = await app.describe()
        assert described["store"] == f"sqlite {path}"
        assert len(await app.processes()) == 1


def test_an_open_app_keeps_its_settings_and_describes_its_store(tmp_path: Path) -> None:

    asyncio.run(opened(tmp_path / "a.db"))
