"""Real processes for tests: forked from one warm interpreter, killed, stopped and continued."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg

from onceward.core.store_url import PostgresUrl, parse
from tests.lifecycle.shop import Shop

ROOT = Path(__file__).parents[2]
WITHIN_S = 30.0


class ForkServer:
    """A warm interpreter that forks workers.

    Args:
        modules: what it imports besides its own before it forks.
    """

    def __init__(self, *modules: str) -> None:
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
        environment.pop("ONCEWARD_FAILPOINT", None)
        self._lock = threading.Lock()
        self._server = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "tests.lifecycle.child", *modules],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, **order: Any) -> Any:
        """Send an order and give the answer."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        with self._lock:
            self._server.stdin.write(json.dumps(order) + "\n")
            self._server.stdin.flush()
            return json.loads(self._server.stdout.readline())

    def call(self, function: str, *arguments: str, log: Path, failpoint: str = "") -> Child:
        """Fork a process that calls a function, named ``module:function``, and ends."""
        env = {"ONCEWARD_FAILPOINT": failpoint} if failpoint else {}
        pid = self.ask(op="fork", function=function, arguments=arguments, log=str(log), env=env)
        return Child(self, pid, log)

    def close(self) -> None:
        """End the server; its children were ended by their tests."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.close()
        self._server.stdout.close()
        self._server.wait(WITHIN_S)


class Child:
    """A forked process."""

    def __init__(self, server: ForkServer, pid: int, log: Path) -> None:
        self._server = server
        self.pid = pid
        self.log = log
        self.code: int | None = None

    def wait(self, within_s: float = WITHIN_S) -> int:
        """Give the exit code, negative for a signal; fail when it has not ended in time."""
        if self.code is None:
            found = self._server.ask(op="wait", pid=self.pid, within_s=within_s, stopped=False)
            assert isinstance(found, int), f"process {self.pid} is {found} after {within_s} s\n{self.text()}"
            self.code = found
        return self.code

    def wait_stopped(self, within_s: float = WITHIN_S) -> bool:
        """Wait until it is stopped; False when it ended instead."""
        found = self._server.ask(op="wait", pid=self.pid, within_s=within_s, stopped=True)
        assert found != "alive", f"process {self.pid} was not stopped within {within_s} s\n{self.text()}"
        if found != "stopped":
            self.code = found
        return found == "stopped"  # type: ignore[no-any-return]

    def has_ended(self, within_s: float = 0) -> bool:
        """Say whether it has ended, or does in time."""
        if self.code is None:
            found = self._server.ask(op="wait", pid=self.pid, within_s=within_s, stopped=False)
            if isinstance(found, int):
                self.code = found
        return self.code is not None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        if not self.has_ended():
            os.kill(self.pid, number)

    def text(self) -> str:
        """Give what it logged."""
        return self.log.read_text() if self.log.exists() else "(no log)"


@dataclass
class Nursery:
    """Forks the processes of one test on one store, and ends whatever is left of them.

    Attributes:
        store: the store's URL.
        home: the test's directory: the ledger and the logs.
        settings: settings of every process.
    """

    server: ForkServer
    store: str
    home: Path
    settings: dict[str, Any]
    children: list[Child] = field(default_factory=list)

    @property
    def ledger(self) -> Path:
        """Give the ledger's file."""
        return self.home / "ledger"

    @property
    def is_sqlite(self) -> bool:
        """Say which kind of store it is."""
        return self.store.startswith("sqlite")

    def fork(
        self,
        scenario: str = "",
        *,
        mode: str = "",
        failpoint: str = "",
        grace: str = "5s",
        passes: Path | None = None,
        env: dict[str, str] | None = None,
        **settings: Any,
    ) -> Child:
        """Start a process: it plays a scenario, or without one works until it is told to stop."""
        log = self.home / f"{len(self.children)}.log"
        pid = self.server.ask(
            op="fork",
            mode=mode or ("play" if scenario else "work"),
            scenario=scenario,
            store=self.store,
            ledger=str(self.ledger),
            log=str(log),
            settings={**self.settings, **settings},
            env={**({"ONCEWARD_FAILPOINT": failpoint} if failpoint else {}), **(env or {})},
            passes=str(passes) if passes else None,
            grace=grace,
        )
        child = Child(self.server, pid, log)
        self.children.append(child)
        return child

    def forget_process(self, child: Child) -> None:
        """Delete a process's row behind the engine's back."""
        self._edit(f"delete from {{t}}process where pid = {child.pid}")

    def let_due(self, at: int) -> None:
        """Move the time at which whatever sleeps goes on, behind the engine's back."""
        self._edit(f"update {{t}}step set wake_at = {at} where wake_at is not null")
        self._edit(f"update {{t}}queue set due_at = {at} where process_id is null")

    def _edit(self, statement: str) -> None:
        """Make one statement; ``{t}`` in it stands before the name of a table."""
        if self.is_sqlite:
            with closing(sqlite3.connect(self.store.removeprefix("sqlite:///"))) as connection, connection:
                connection.execute(statement.format(t="onceward_"))
            return
        url = parse(self.store)
        assert isinstance(url, PostgresUrl)
        with psycopg.connect(url.dsn, autocommit=True) as postgres:
            postgres.execute(statement.format(t=f'"{url.schema}".').encode())

    @asynccontextmanager
    async def client(self, **settings: Any) -> AsyncIterator[Shop]:
        """Give the shop in this process, open: it starts, steers and looks, and runs nothing."""
        shop = Shop(self.store, self.ledger, **{**self.settings, **settings})
        await shop.app.open(runs=False)
        try:
            yield shop
        finally:
            await shop.app.close()

    def logs(self) -> str:
        """Give all logs, for the text of a failure."""
        return "\n".join(f"--- {child.log.name}\n{child.text()}" for child in self.children)

    def __enter__(self) -> Self:
        """Give itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End every process that is left."""
        for child in self.children:
            child.signal(signal.SIGKILL)
        for child in self.children:
            child.wait()
