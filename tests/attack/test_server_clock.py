"""The clock of a PostgreSQL server is set while processes work: they go by it, and take nothing from each other."""

from __future__ import annotations

import psycopg
import pytest

from tests.attack.site import Site

HOUR_S = 3600

FAKED = """
create schema faked;
create table faked.shift (seconds int);
insert into faked.shift values (0);
create function faked.clock_timestamp() returns timestamptz language sql volatile as
  'select pg_catalog.clock_timestamp() + make_interval(secs => (select seconds from faked.shift))';
"""
"""A clock that can be set, found before the real one by everybody who connects later."""


@pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S], ids=["ahead", "back"])
def test_a_servers_clock_that_is_set_ends_no_living_lease(
    postgres_site: Site, postgres_store: str, jump_s: int
) -> None:
    site = postgres_site
    with psycopg.connect(postgres_store, autocommit=True) as outside:
        outside.execute(FAKED.encode())
        database = postgres_store.rpartition("/")[2]
        outside.execute(f'alter database "{database}" set search_path = faked, pg_catalog'.encode())
        workers = [site.worker(), site.worker()]
        shop = site.desk()
        runs = [shop.app.sync.start(shop.three, f"o{number}", 1.5) for number in range(8)]
        site.wait_note("start a o7")

        outside.execute(b"update faked.shift set seconds = %d" % jump_s)
        for worker in workers:
            worker.wait_for("the store's clock moved")
        workers.append(site.worker())

        assert [run.result("40s") for run in runs] == [f"c o{number}" for number in range(8)]
        assert set(site.counts().values()) == {1}, site.notes()
        assert "took over" not in site.logs()
        # And who dies by the new time is found out by it.
        later = [shop.app.sync.start(shop.three, f"p{number}", 0.5) for number in range(6)]
        site.wait_note("start a p5")
        workers[0].kill()
        assert [run.result("40s") for run in later] == [f"c p{number}" for number in range(6)]
        site.check(shop.app)
