"""Fixtures for every test: one PostgreSQL for the whole session, an empty store for each test."""

from __future__ import annotations

import fcntl
import gc
import json
import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadGroupScheduling
from xdist.workermanage import WorkerController

from onceward.cli.starting import spare_collections
from onceward.testing.servers import PgBouncer, PostgresAddress, PostgresServer, unique_name
from tests.engine.running import open_store
from tests.recycled import catalog_of, emptied, hang_up

SCHEMA = "onceward"
"""The store's, where its URL names none."""

_WITH_PAGES = ("acting", "inert", "keys", "live", "looks", "on_postgres", "reading", "site")
WITH_PAGES = {f"tests/dashboard/test_{what}.py": "browser" for what in _WITH_PAGES}
"""Modules whose tests open pages, which need a browser."""

TOGETHER = {
    **WITH_PAGES,
    "tests/campaign/test_power.py": "recording",
    "tests/lifecycle/test_transaction_kills.py": "drivers",
}
"""Modules whose tests share what takes seconds to make: a browser, a recording, an interpreter with every driver."""

_SIM = "tests/sim/test_"
WORLDS = {
    f"{_SIM}simulation.py::test_every_promise_is_kept[0]": "first part",
    f"{_SIM}simulation.py::test_every_kind_of_fault_happens_and_a_seed_mixes_a_dozen": "first part",
    f"{_SIM}keys.py::test_every_promise_is_kept_about_keys": "keys",
    f"{_SIM}keys.py::test_keys_are_taken_and_given_on_in_these_worlds": "keys",
    f"{_SIM}waits.py::test_every_promise_is_kept_about_waits": "waits",
    f"{_SIM}waits.py::test_runs_wait_and_are_told_in_these_worlds": "waits",
    f"{_SIM}unknown.py::test_every_promise_is_kept_about_unknown_outcomes": "unknown outcomes",
    f"{_SIM}unknown.py::test_there_is_something_to_ask_and_to_undo_in_these_worlds": "unknown outcomes",
}
"""Tests that look at the same simulated worlds, which run once where they go together."""

# xdist gives its processes the width of the terminal that it runs in, and what is piped is whole without one.
os.environ.pop("COLUMNS", None)

# The suite of stores is not a test module, and its assertions should read like those of one.
pytest.register_assert_rewrite("onceward.testing.store_checks", "onceward.testing.store_scene")

# A shell that runs the tests in the background has them ignore Ctrl-C, and every process of theirs too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples on every run of a commit; new ones, many, in a campaign.
settings.register_profile("commit", derandomize=True, deadline=None, print_blob=True)
settings.register_profile(
    "campaign",
    max_examples=20_000,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("ONCEWARD_TEST_TIER", "commit"))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector from walking through twelve thousand tests, while they are made and after."""
    gc.disable()
    try:
        return (yield)
    finally:
        spare_collections()
        gc.enable()


class Together(LoadGroupScheduling):  # type: ignore[misc]
    """Gives tests that share something costly to one process, which makes it once.

    A mark cannot say so: pytest 9.2 does not show xdist 3.8 the group of a test. It also forgets what is
    done: xdist 3.8 counts all that a process has ever been given, after each of twelve thousand tests.
    """

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        super().__init__(config, log)
        self._places: dict[str, int] = {}

    def _split_scope(self, nodeid: str) -> str:
        module = nodeid.partition("::")[0]
        group = TOGETHER.get(module) or WORLDS.get(nodeid)
        return group or str(super()._split_scope(nodeid))

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        """Note the end of a test; with the last one of what was given together, all of that is forgotten."""
        nodeid = self.registered_collections[node][item_index]
        scope = self._split_scope(nodeid)
        given = self.assigned_work[node]
        given[scope][nodeid] = True
        if all(given[scope].values()):
            del given[scope]
        self._reschedule(node)

    def _assign_work_unit(self, node: WorkerController) -> None:
        """Give a process the next tests, whose numbers are known and not looked for."""
        if not self._places:  # which are the same in each of them
            self._places = {nodeid: place for place, nodeid in enumerate(self.registered_collections[node])}
        scope, unit = self.workqueue.popitem(last=False)
        self.assigned_work[node][scope] = unit
        node.send_runtest_some([self._places[nodeid] for nodeid, is_done in unit.items() if not is_done])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Together | None:
    """Spread tests over processes as `Together` says, where ``--dist loadgroup`` is given."""
    return Together(config, log) if config.getvalue("dist") == "loadgroup" else None


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name bytes by their argument: those that are compressed differ from second to second."""
    return argname if isinstance(val, bytes) else None


@pytest.fixture(scope="session")
def session_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that all processes of this test session share."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session")
def postgres_server(session_directory: Path) -> Iterator[PostgresAddress]:
    """The session's PostgreSQL, started by the first process that asks and shared by all.

    Tests that stop a server, or that measure durability, start one of their own.
    """
    under_xdist = "PYTEST_XDIST_WORKER" in os.environ
    if not under_xdist:
        with PostgresServer(durable=False) as server:
            yield server.address
            hang_up()
        return
    note = session_directory / "postgres.json"
    with (session_directory / "postgres.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not note.exists():
            # Owned by xdist's controller: it outlives each of the workers.
            server = PostgresServer(durable=False, owner_pid=os.getppid()).start()
            note.write_text(json.dumps({"host": server.address.host, "port": server.address.port}))
    yield PostgresAddress(**json.loads(note.read_text()))
    hang_up()


@pytest.fixture
def postgres_dsn(postgres_server: PostgresAddress) -> Iterator[str]:
    """The URL of an empty database that only this test has."""
    name = unique_name()
    yield postgres_server.create_database(name)
    postgres_server.drop_database(name)


@pytest.fixture(scope="session")
def used_stores(postgres_server: PostgresAddress) -> Iterator[list[tuple[str, str]]]:
    """Databases with an empty store that a test of this process has used, each with its catalog."""
    used: list[tuple[str, str]] = []
    yield used
    for dsn, _ in used:
        postgres_server.drop_database(dsn.rsplit("/", 1)[1])


@pytest.fixture
def postgres_store(postgres_server: PostgresAddress, used_stores: list[tuple[str, str]]) -> Iterator[str]:
    """The URL of a database with an empty store, migrated, that no other test uses meanwhile."""
    if used_stores:
        dsn, catalog = used_stores.pop()
    else:
        dsn = postgres_server.create_database(unique_name())
        with open_store(dsn):
            catalog = catalog_of(dsn, SCHEMA, is_alone=True)
    yield dsn
    if emptied(dsn, SCHEMA, catalog, is_alone=True):
        used_stores.append((dsn, catalog))
    else:
        postgres_server.drop_database(dsn.rsplit("/", 1)[1])


@pytest.fixture(scope="session")
def pgbouncer(postgres_server: PostgresAddress) -> Iterator[PgBouncer]:
    """PgBouncer in transaction mode with two server connections, before the session's PostgreSQL."""
    with PgBouncer(postgres_server) as bouncer:
        yield bouncer
