"""The backup and restore of the deploy page, by its own commands, on both stores."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from onceward import App, Context, RunState
from onceward.authoring.workflow import Workflow
from onceward.testing import check_invariants
from onceward.testing.server_programs import find_postgres
from onceward.testing.servers import PostgresAddress, unique_name
from tests.helpers import eventually_async
from tests.pages import ROOT, by_name

SECONDS_MAX = 60


def do(name: str, here: Mapping[str, str]) -> None:
    """Run a fence of the page, its places replaced by ours in the order given."""
    code = by_name(ROOT / "docs" / "deploy.md", name)
    for documented, ours in here.items():
        assert documented in code
        code = code.replace(documented, ours)
    path = os.pathsep.join([str(Path(sys.executable).parent), str(find_postgres()), os.environ["PATH"]])
    subprocess.run(
        ["bash", "-euo", "pipefail", "-c", code],
        check=True,
        timeout=SECONDS_MAX,
        env=os.environ | {"PATH": path},
    )


@dataclass
class Runs:
    """Runs of the time before the restore, by what had become of them at the backup."""

    ended: str
    asleep: str
    later: str


async def say(word: str) -> str:
    return word


def app_on(store: str) -> tuple[App, Workflow[[list[str]], list[str]]]:
    app = App(store, lease="1s", poll="100ms", linger="0s")

    @app.workflow
    async def slow(ctx: Context, words: list[str]) -> list[str]:
        said = [await ctx.step.run("say", say, word, item=word) for word in words]
        await ctx.step.sleep("pause", "1s")
        return said

    return app, slow


async def work(store: str, backup: Callable[[], None], leave: Callable[[], object] = lambda: None) -> Runs:
    """Make some runs, the backup, and one more run.

    Args:
        store: its URL.
        backup: called while a run sleeps.
        leave: called before the store is closed.
    """
    app, slow = app_on(store)
    async with app:
        ended = await app.start(slow, ["a"], id="ended")
        assert await ended.result("30s") == ["a"]
        asleep = await app.start(slow, ["b", "c"], id="asleep")
        await eventually_async(lambda: is_in(app, asleep.run_id, RunState.SLEEPING))
        backup()
        later = await app.start(slow, ["d"], id="later")
        await later.result("30s")
        leave()
    return Runs(ended.run_id, asleep.run_id, later.run_id)


async def go_on(store: str, before: Runs) -> None:
    """Go on from the backup; what came after it is forgotten and made again."""
    app, slow = app_on(store)
    async with app:
        assert await app.run(before.ended).result("30s") == ["a"]
        assert await app.run(before.asleep).result("30s") == ["b", "c"]
        assert (await app.start(slow, ["b", "c"], id="asleep")).run_id == before.asleep
        again = await app.start(slow, ["d"], id="later")
        assert not again.is_duplicate
        assert again.run_id != before.later
        assert await again.result("30s") == ["d"]
        assert check_invariants(app.worker.store) == []


async def is_in(app: App, run_id: str, state: RunState) -> bool:
    return await app.run(run_id).state() is state


def test_a_sqlite_store_goes_on_from_its_backup(tmp_path: Path) -> None:
    here = {"/var/lib/shop": str(tmp_path), "/backup": str(tmp_path / "backup")}
    store = f"sqlite:///{tmp_path}/shop.db"
    log, kept_log = tmp_path / "shop.db-wal", tmp_path / "kept"
    (tmp_path / "backup").mkdir()

    before = asyncio.run(
        work(store, lambda: do("sqlite-backup", here), leave=lambda: shutil.copy(log, kept_log))
    )
    shutil.copy(kept_log, log)  # as a killed process leaves it
    do("sqlite-restore", here)

    asyncio.run(go_on(store, before))


@pytest.mark.postgres
def test_a_postgres_store_goes_on_from_its_backup(postgres_server: PostgresAddress, tmp_path: Path) -> None:
    name, restored = unique_name(), unique_name("r")
    store, new_store = postgres_server.create_database(name), postgres_server.dsn(restored)
    dump = {"/backup/shop.dump": str(tmp_path / "shop.dump")}

    try:
        before = asyncio.run(
            work(store, lambda: do("postgres-backup", {"postgresql://shop@db/shop": store, **dump}))
        )
        do(
            "postgres-restore",
            {
                "postgresql://shop@db/postgres": postgres_server.dsn(),
                "postgresql://shop@db/shop_restored": new_store,
                "shop_restored": restored,
                **dump,
            },
        )

        asyncio.run(go_on(new_store, before))
    finally:
        postgres_server.drop_database(name)
        postgres_server.drop_database(restored)
