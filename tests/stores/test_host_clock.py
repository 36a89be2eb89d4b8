"""The clock of a SQLite file does not follow a wall clock that is set."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from onceward.core.settings import SETTINGS, resolve
from onceward.stores.choose import make_store
from onceward.stores.sqlite.host_clock import HostClock
from onceward.stores.sqlite.store import SqliteStore

HOUR_MS = 3_600_000
WALL = 1_800_000_000_000


class Host(HostClock):
    def since_boot_ms(self) -> int:
        return 5_000


def opened(path: Path, wall_ms: int, boot_id: str = "boot-1") -> SqliteStore:
    store = SqliteStore(str(path), namespace="default", now_ms=lambda: wall_ms, host=Host(boot_id))
    store.open(migrate=True)
    return store


def test_processes_of_one_boot_agree_on_the_time_though_the_wall_clock_was_set(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = opened(tmp_path / "a.db", WALL)
    with caplog.at_level(logging.WARNING, "onceward.clock"):
        second = opened(tmp_path / "a.db", WALL + HOUR_MS)

    assert first.now_ms() == second.now_ms() == WALL
    assert "+3600.0 s" in caplog.text
    first.close()
    second.close()


def test_a_new_boot_takes_the_wall_clock_again(tmp_path: Path) -> None:
    opened(tmp_path / "a.db", WALL).close()
    after = opened(tmp_path / "a.db", WALL + HOUR_MS, boot_id="boot-2")

    assert after.now_ms() == WALL + HOUR_MS
    after.close()


def test_a_host_that_cannot_tell_its_boots_uses_the_wall_clock(tmp_path: Path) -> None:
    store = opened(tmp_path / "a.db", WALL, boot_id="")

    assert store.now_ms() == WALL
    store.close()


def test_an_app_keeps_its_files_clock_when_the_wall_clock_is_set(
    tmp_path: Path,
) -> None:
    settings = resolve(SETTINGS, {"store": f"sqlite:///{tmp_path / 'a.db'}"}, {})
    first = make_store(settings, now_ms=lambda: WALL, draw=lambda: 0.5)
    first.open(migrate=True)
    second = make_store(settings, now_ms=lambda: WALL + HOUR_MS, draw=lambda: 0.5)
    second.open(migrate=True)

    assert abs(second.now_ms() - first.now_ms()) < HOUR_MS / 2
    first.close()
    second.close()
