"""A ceiling: the smallest engine with group commit, without leases, retries or anything else.

It keeps three rules of the real one: a start is acknowledged when it is durable; the body of a step
begins when the steps before it are durable; an end is reported when it is durable. Whatever gathers
while a commit is under way shares the next one. Every write checks the run's owner.
"""

from __future__ import annotations

import asyncio
import json
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import msgspec

from benchmarks import job as jobs
from benchmarks.measure import latencies_ms, sqlite_path
from benchmarks.payload import payload
from benchmarks.works.common import WARM_UP_RUNS, at_a_time, loop_name, run_loop

IN_FLIGHT = 64

Row = tuple[Any, ...]
Commit = Callable[[list[Row], list[Row], list[Row]], None]

TABLES = (
    "create table run (id {id} primary key, event text unique, input {bytes}, state int, owner text, output {bytes}){run}",
    "create table step (run {id}, seq int, name text, output {bytes}, primary key (run, seq)){step}",
)
ON_SQLITE = {"id": "blob", "bytes": "blob", "run": " without rowid", "step": " without rowid"}
ON_POSTGRES = {"id": "uuid", "bytes": "bytea", "run": " with (fillfactor = 70)", "step": ""}


class Database(Protocol):
    """Opens its connection in the thread that commits; gives what commits a batch."""

    def open(self) -> Commit: ...

    def key(self, drawn: bytes) -> bytes | str: ...


class Sqlite:
    def __init__(self, path: str) -> None:
        self._path = path

    def key(self, drawn: bytes) -> bytes:
        return drawn

    def open(self) -> Commit:
        connection = sqlite3.connect(self._path, isolation_level=None)
        for pragma in ("journal_mode = wal", "synchronous = full", "wal_autocheckpoint = 4000"):
            connection.execute(f"pragma {pragma}")
        for table in TABLES:
            connection.execute(table.format(**ON_SQLITE))

        def commit(starts: list[Row], steps: list[Row], ends: list[Row]) -> None:
            connection.execute("begin immediate")
            connection.executemany("insert into run values (?, ?, ?, 1, 'me', null)", starts)
            connection.executemany(
                "insert into step select ?1, ?2, ?3, ?4 from run where id = ?1 and owner = 'me'", steps
            )
            connection.executemany(
                "update run set state = 2, output = ?2 where id = ?1 and owner = 'me'", ends
            )
            connection.execute("commit")

        return commit


class Postgres:
    STATEMENT = """
        with started as (insert into run
            select id, event, input, 1, 'me', null
            from unnest(%s::text[]::uuid[], %s::text[], %s::bytea[]) as new (id, event, input)),
        saved as (insert into step
            select new.* from unnest(%s::text[]::uuid[], %s::int[], %s::text[], %s::bytea[]) as new (run, seq, name, output)
            join run on run.id = new.run and run.owner = 'me')
        update run set state = 2, output = new.output from unnest(%s::text[]::uuid[], %s::bytea[]) as new (id, output)
        where run.id = new.id and run.owner = 'me'"""

    def __init__(self, url: str) -> None:
        self._url = url

    def key(self, drawn: bytes) -> str:
        return drawn.hex()

    def open(self) -> Commit:
        import psycopg

        connection = psycopg.connect(self._url, autocommit=True)
        for table in TABLES:
            connection.execute(table.format(**ON_POSTGRES).encode())
        # A planner that knows nothing yet of young tables would scan them whole for every batch.
        for setting in ("enable_seqscan", "enable_hashjoin", "enable_mergejoin"):
            connection.execute(f"set {setting} = off".encode())
        connection.execute("set plan_cache_mode = force_generic_plan")

        def columns(rows: list[Row], width: int) -> list[list[Any]]:
            return [list(column) for column in zip(*rows, strict=True)] if rows else [[]] * width

        def commit(starts: list[Row], steps: list[Row], ends: list[Row]) -> None:
            arrays = [*columns(starts, 3), *columns(steps, 4), *columns(ends, 2)]
            connection.execute(self.STATEMENT, arrays, prepare=True)

        return commit


class Engine:
    """Gathers rows, and commits what has gathered when the last commit is done."""

    def __init__(self, database: Database) -> None:
        self._loop = asyncio.get_running_loop()
        self._database = database
        self._batches: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._new()
        self._is_busy = False
        self.batches = 0
        self._thread = threading.Thread(target=self._commit_all, daemon=True)
        self._thread.start()

    def _new(self) -> None:
        self._rows: tuple[list[Row], list[Row], list[Row]] = ([], [], [])
        self._futures: list[asyncio.Future[None]] = []

    def _commit_all(self) -> None:
        commit = self._database.open()
        while (batch := self._batches.get()) is not None:
            rows, futures = batch
            try:
                commit(*rows)
            except BaseException:
                self._loop.call_soon_threadsafe(self._loop.stop)  # it has no other answer to a fault
                raise
            self._loop.call_soon_threadsafe(self._done, futures)

    def _put(self, kind: int, row: Row) -> asyncio.Future[None]:
        future = self._loop.create_future()
        self._rows[kind].append(row)
        self._futures.append(future)
        if not self._is_busy:
            self._is_busy = True
            self._loop.call_soon(self._flush)
        return future

    def _flush(self) -> None:
        self.batches += 1
        self._batches.put((self._rows, self._futures))
        self._new()

    def _done(self, futures: list[asyncio.Future[None]]) -> None:
        for future in futures:
            future.set_result(None)
        self._is_busy = bool(self._futures)
        if self._is_busy:
            self._loop.call_soon(self._flush)

    async def run(self, workflow: Callable[[Run, Any], Coroutine[Any, Any, Any]], event: Any) -> Any:
        run_id = self._database.key((time.time_ns() // 1_000_000).to_bytes(6, "big") + os.urandom(10))
        await self._put(0, (run_id, event["id"], msgspec.json.encode(event)))
        run = Run(self, run_id)
        output = await workflow(run, event)
        await self._put(2, (run_id, msgspec.json.encode(output)))
        return output

    def save(self, run: Run, name: str, output: Any) -> asyncio.Future[None]:
        return self._put(1, (run.run_id, run.steps, name, msgspec.json.encode(output)))


class Run:
    def __init__(self, engine: Engine, run_id: bytes | str) -> None:
        self.run_id = run_id
        self.steps = 0
        self._engine = engine
        self._saved: asyncio.Future[None] | None = None

    async def step(self, name: str, body: Callable[..., Coroutine[Any, Any, Any]], *args: Any) -> Any:
        if self._saved is not None:
            await self._saved  # what came before is durable before this body begins
        self.steps += 1
        output = await body(*args)
        self._saved = self._engine.save(self, name, output)
        return output


async def body(_: Any) -> dict[str, int]:
    return {"ok": 1}


async def three(run: Run, event: Any) -> dict[str, Any]:
    for name in ("first", "second", "third"):
        await run.step(name, body, event)
    return {"done": event["id"]}


async def measure(job: jobs.Job) -> dict[str, Any]:
    """Measure runs of three steps, as our own side does."""
    clients = IN_FLIGHT if job.work == "three-step" else 1
    database = Postgres(job.url) if job.is_postgres else Sqlite(sqlite_path(job.url))
    engine = Engine(database)
    took: list[float] = []

    async def one(number: int) -> None:
        began = time.perf_counter()
        assert await engine.run(three, payload(number)) == {"done": payload(number)["id"]}
        took.append(time.perf_counter() - began)

    await at_a_time(clients, range(-WARM_UP_RUNS, 0), one)
    took.clear()
    batches = engine.batches
    with job.window().measure() as window:
        await at_a_time(clients, range(job.runs), one)
    return {
        **window.per_run(job.runs),
        **latencies_ms(took),
        "batches_per_run": round((engine.batches - batches) / job.runs, 3),
        "settings": {"loop": loop_name(), "in_flight": clients, "runs": job.runs},
    }


if __name__ == "__main__":
    print(json.dumps(run_loop(measure(jobs.parse("benchmarks.prototype")))), flush=True)
