"""A real process with a SQLite store, driven by lines of JSON on its standard input.

Run as a program; ``Remote`` is the test's end. Each line is ``[command, *arguments]``, each reply
``{"ok": value}`` or ``{"error": class, "text": message}``.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.starts import start

if TYPE_CHECKING:
    from onceward.core.ports import Store
    from onceward.testing.store_scene import Process

ROOT = Path(__file__).resolve().parents[2]
QUIT_SECONDS = 20


class Remote:
    """The test's end of a process.

    Args:
        path: the database file.
        process_id: what it registers as, once told to ``join``.
    """

    def __init__(self, path: Path, process_id: str = "remote") -> None:
        arguments = ("-W", "error", __file__, str(path), process_id)
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
        pipe = subprocess.PIPE
        self._process = start(*arguments, cwd=ROOT, env=environment, stdin=pipe, stdout=pipe)
        self.pid = self._process.pid

    def send(self, command: str, *arguments: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([command, *arguments]).encode() + b"\n")
        self._process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        return json.loads(line) if line else {"error": "gone", "text": "the process ended"}

    def reply(self, command: str, *arguments: Any) -> dict[str, Any]:
        self.send(command, *arguments)
        return self.receive()

    def ask(self, command: str, *arguments: Any) -> Any:
        reply = self.reply(command, *arguments)
        assert "ok" in reply, reply
        return reply["ok"]

    def kill(self) -> None:
        self._process.kill()
        self.wait()

    def wait(self) -> int:
        return self._process.wait(QUIT_SECONDS)

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        if self._process.poll() is None:
            self._process.kill()
        self.wait()


class Commands:
    """What the process can be told to do."""

    def __init__(self, path: str, process_id: str) -> None:
        from onceward.testing.store_scene import Process
        from tests.stores.factories import SqliteFile

        self.path = path
        self.factory = SqliteFile(Path(path))
        self.new_process: Callable[[], Process] = lambda: Process(self.factory, process_id, store=self.store)
        self.store: Store | None = None
        self.process: Process | None = None
        self.raw: sqlite3.Connection | None = None

    def at(self, now: int) -> None:
        self.factory.now = now

    def open(self) -> None:
        self.store = self.factory.open()

    def join(self) -> None:
        self.process = self.new_process()

    def accept(self, *event_ids: str, size: int = 0) -> list[dict[str, str]]:
        from onceward.testing.store_scene import accept

        assert self.process is not None
        payload = json.dumps("x" * size)
        return [
            reply.runs
            for reply in self.process.accept(*(accept(event_id, payload=payload) for event_id in event_ids))
        ]

    def fill(self, size: int, count: int) -> dict[str, Any]:
        """Accept events of *size* bytes until one fails; say which were acknowledged."""
        from onceward.core import errors

        done: list[str] = []
        for number in range(count):
            try:
                self.accept(f"fill_{number}", size=size)
            except errors.StoreUnavailable as error:
                return {"done": done, "text": str(error)}
            done.append(f"fill_{number}")
        return {"done": done, "text": ""}

    def start(self, event_id: str) -> str:
        assert self.process is not None
        return self.process.start(event_id).run_id

    def finish_all(self) -> list[str]:
        """Claim and complete until nothing is due."""
        from onceward.core.states import RunState
        from onceward.testing.store_scene import step

        assert self.process is not None
        done: list[str] = []
        while self.process.next_due() is not None:
            for run in self.process.claim(3):
                assert self.process.save(run, step(output=json.dumps(self.process.process_id)))
                self.process.move(run, RunState.COMPLETED)
                done.append(run.run_id)
        return done

    def heartbeat(self) -> None:
        assert self.process is not None
        self.process.heartbeat()

    def autocheckpoint(self) -> int:
        assert self.process is not None
        connection = self.process.store._connections._writer  # type: ignore[attr-defined]
        pages: int = connection.execute("pragma wal_autocheckpoint").fetchone()[0]
        return pages

    def check(self) -> str:
        """Give what SQLite says about the file's soundness."""
        connection = sqlite3.connect(self.path)
        (text,) = connection.execute("pragma integrity_check").fetchone()
        connection.close()
        return str(text)

    def begin(self) -> None:
        """Hold the database's write lock."""
        self.raw = sqlite3.connect(self.path, isolation_level=None)
        self.raw.execute("begin immediate")

    def commit(self) -> None:
        assert self.raw is not None
        self.raw.execute("commit")

    def die_at(self, name: str) -> None:
        """Be killed when a failpoint is passed."""
        from onceward.core import failpoints

        def hook(passed: str, _detail: str) -> None:
            if passed == name:
                os.kill(os.getpid(), signal.SIGKILL)

        failpoints.arm(hook)

    def fork_unheard(self, script: str) -> str:
        """Do something in a child of which Python does not know that it was forked."""
        return self.fork(script, has_hooks=False)

    def limit(self, file_bytes: int) -> None:
        """Refuse writes beyond a size of each file, as a full disk would; 0 for no limit."""
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes or hard, hard))

    def obey_modes(self) -> None:
        """Give up root's right to write where the file's mode forbids it."""
        if sys.platform == "linux" and os.geteuid() == 0:
            header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this process
            none = (ctypes.c_uint32 * 6)()
            assert ctypes.CDLL(None, use_errno=True).capset(header, none) == 0, os.strerror(
                ctypes.get_errno()
            )

    def fork(self, script: str, *, has_hooks: bool = True) -> str:
        """Do something in a forked child; give the name of what it raised, or ``fine``.

        Args:
            script: what the child does.
            has_hooks: whether Python hears of the fork, as it does not of uWSGI's.
        """
        assert self.process is not None
        reading, writing = os.pipe()
        child = os.fork() if has_hooks else ctypes.PyDLL(None).fork()
        if child == 0:
            told = "fine"
            try:
                exec(script, {"store": self.process.store})
            except BaseException as error:  # noqa: BLE001 - told to the parent
                told = type(error).__name__
            os.write(writing, told.encode())
            os._exit(0)
        os.close(writing)
        told = os.read(reading, 1_000).decode()
        os.close(reading)
        os.waitpid(child, 0)
        return told


def main(path: str, process_id: str) -> None:
    commands = Commands(path, process_id)
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        try:
            reply = {"ok": getattr(commands, name)(*arguments)}
        except Exception as error:  # noqa: BLE001 - told to the test
            reply = {"error": type(error).__name__, "text": str(error)}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
