"""A Python that has imported what Onceward's commands need, and forks a process for each order.

Started by `tests.starts`, which says what it is for. It has one thread and no settings of ours in its
environment. A child takes its descriptors, folder, environment and arguments from the order, then does
what ``python`` does with such arguments, and ends as that does: it leaves this program's loop and falls
out of its end. Whoever ordered it is its parent: it is forked twice, and adopted.
"""

from __future__ import annotations

import builtins
import errno
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import time
import types
import warnings
from importlib.util import find_spec
from typing import Any

ADOPTED_WITHIN_S = 20.0
ORDER_BYTES = 1 << 20

COMMANDS = "onceward.cli.main"
IMPORTED = (
    "concurrent.futures.thread",
    "encodings.idna",
    "http.client",
    "onceward.cli.banner",
    "onceward.cli.console.reach",
    "onceward.cli.heads",
    "onceward.cli.receiving",
    "onceward.cli.starting",
    "onceward.console.local",
    "onceward.console.remote",
    "onceward.core.pydantic_models",
    "onceward.sources",
    "onceward.stores.postgres.store",
    "onceward.stores.sqlite.store",
    "onceward.web.dashboard.site",
    "onceward.web.metrics",
    "onceward.web.site",
    "onceward.web.worker_site",
    "psycopg",
    "rich.console",
    "rich.table",
    "uvicorn.lifespan.on",
    "uvicorn.loops.auto",
    "uvicorn.protocols.http.httptools_impl",
    "uvloop",
)
"""What a command imports when it runs, beside the commands' own modules."""


def main() -> dict[str, Any]:
    """Fork a child for each order, until there is nobody left to give one; in a child, give its order."""
    descriptor, ours = int(sys.argv[1]), sys.argv[2]
    connection = socket.socket(fileno=descriptor)
    # Ctrl-C is for the tests, which end this program by leaving it alone.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _import_all()
    base = [place for place in sys.path[1:] if place != ours]
    assert len(os.listdir("/proc/self/task")) == 1, "a process with threads cannot be forked"
    gc.collect()
    gc.freeze()
    _tell(connection, pid=os.getpid())
    while (order := _received(connection)) is not None:
        child = os.fork()
        if child == 0:
            if os.fork():
                os._exit(0)
            try:
                _become(order, base)
            except OSError as error:
                _tell(connection, errno=error.errno, file=error.filename)
                os._exit(1)
            _tell(connection, pid=os.getpid())
            connection.close()
            return order
        _, status = os.waitpid(child, 0)
        assert status == 0, "no process can be forked"
        for number in order["descriptors"]:
            os.close(number)
    os._exit(0)


def _import_all() -> None:
    commands = importlib.import_module(COMMANDS).COMMANDS
    for name in (*IMPORTED, *(module.partition(":")[0] for module in commands.values())):
        if find_spec(name.partition(".")[0]) is not None:
            importlib.import_module(name)


def _received(connection: socket.socket) -> dict[str, Any] | None:
    """Give the next order with the three descriptors that came with it, None when there is none."""
    data, numbers, _, _ = socket.recv_fds(connection, ORDER_BYTES, 3)
    while data and not data.endswith(b"\n"):
        more = connection.recv(ORDER_BYTES)
        data = data + more if more else b""
    if not data:
        return None
    order: dict[str, Any] = json.loads(data)
    return order | {"descriptors": numbers}


def _tell(connection: socket.socket, **reply: Any) -> None:
    connection.sendall(json.dumps(reply).encode() + b"\n")


def _become(order: dict[str, Any], base: list[str]) -> None:
    """Make a forked child what a process is that was started.

    Raises:
        OSError: its folder cannot be entered, or its parent has not adopted it in time.
    """
    for number, descriptor in enumerate(order["descriptors"]):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(order["cwd"])
    if order["start_new_session"]:
        os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(order["env"])
    time.tzset()
    sys.warnoptions[:] = order["warnings"]
    for _ in order["warnings"]:
        warnings.simplefilter("error")
    path = order["env"].get("PYTHONPATH")
    first = [os.path.abspath(place) for place in path.split(os.pathsep)] if path else []
    sys.path[:] = dict.fromkeys([*first, *base])
    importlib.invalidate_caches()
    _be_adopted(order["parent"])


def _be_adopted(parent: int) -> None:
    """Return when whoever gave the order is this process's parent: the one between them has ended then."""
    between = os.getppid()
    if between != parent:
        try:
            end = os.pidfd_open(between)
        except ProcessLookupError:
            pass  # it has ended
        else:
            select.select([end], [], [], ADOPTED_WITHIN_S)
            os.close(end)
    if os.getppid() != parent:
        raise TimeoutError(errno.ETIMEDOUT, "not adopted", f"process {parent}")


def run(kind: str, what: str, arguments: list[str]) -> None:
    """Do what ``python`` does with ``-m <module> …``, ``-c <code> …`` and ``<file> …``."""
    program = types.ModuleType("__main__")
    program.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = program
    sys.argv[:] = [what if kind == "file" else kind, *arguments]
    if kind == "-m":
        sys.path.insert(0, os.getcwd())
        runpy._run_module_as_main(what)  # type: ignore[attr-defined]  # what python itself calls for -m
        return
    name = "<string>"
    if kind == "file":
        program.__file__ = name = os.path.abspath(what)
        with open(name, "rb") as file:
            what = file.read().decode()
    sys.path.insert(0, os.path.dirname(name))
    exec(compile(what, name, "exec", dont_inherit=True), program.__dict__)


if __name__ == "__main__":
    _ordered = main()
    run(*_ordered["program"])
