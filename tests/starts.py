"""Starts Python programs as processes of their own, forked from one that has imported what they need.

A start of ``python -m onceward`` imports for a third of a second before it does anything. Where a test
only needs a process beside its own, `start` has it forked from `tests.fork_server`, of which each
process of the tests has one, in a few milliseconds. What it gives is a child of the tests' process in
every respect, and a ``subprocess.Popen``: its pipes, exit codes and signals are the system's. What
Python reads from the environment when it starts cannot be given by a fork: where such a variable
differs, a Python is started afresh. A campaign starts all of them afresh.

What is about the start itself asks for one afresh, or calls `subprocess`: the first thing that a command
imports, its signals while it does, the interpreter's options.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import inspect
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, AnyStr

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = ROOT / "tests" / "fork_server.py"
SRC = str(ROOT / "src")

_HERE = dict(os.environ)
_PR_SET_CHILD_SUBREAPER = 36
_READ_AT_START = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_")
"""How the variables begin that count before a program does."""

_HEEDED = {"PYTHONPATH", "PYTHONWARNINGS"}
"""Those of them that a forked process heeds, too."""

_CAN_FORK = sys.platform == "linux" and os.environ.get("ONCEWARD_TEST_TIER") != "campaign"


def start(
    *arguments: str,
    cwd: Path,
    env: Mapping[str, str],
    stdin: IO[Any] | int | None = None,
    stdout: IO[Any] | int | None = None,
    stderr: IO[Any] | int | None = None,
    start_new_session: bool = False,
    is_afresh: bool = False,
) -> subprocess.Popen[bytes]:
    """Start ``python`` with arguments: ``-m <module> …``, ``-c <code> …`` or ``<file> …``.

    What is left out is as ``subprocess.Popen`` has it; with *is_afresh* nothing is forked.
    """
    can_fork = not is_afresh and _program(arguments, env) is not None
    kind: type[subprocess.Popen[bytes]] = Forked if can_fork else subprocess.Popen
    return kind(
        [sys.executable, *arguments],
        cwd=cwd,
        env=env,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        start_new_session=start_new_session,
    )


def run(
    *arguments: str, cwd: Path, env: Mapping[str, str], stdin: str | None = None, timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """Run ``python`` with arguments to its end, as ``subprocess.run`` does, and give what it said."""
    process = start(
        *arguments,
        cwd=cwd,
        env=env,
        stdin=None if stdin is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        try:
            said = process.communicate(None if stdin is None else stdin.encode(), timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, *(text.decode() for text in said))


class Forked(subprocess.Popen[AnyStr]):
    """A process that was forked where another would be executed; all else is ``subprocess.Popen``'s."""

    def _execute_child(self, *given: Any) -> None:
        names = list(inspect.signature(subprocess.Popen._execute_child).parameters)[1:]  # type: ignore[attr-defined]
        order = dict(zip(names, given, strict=True))
        env = dict(os.environ if order["env"] is None else order["env"])
        program = _program(order["args"][1:], env)
        assert program is not None, f"{order['args']} cannot be forked in this environment"
        streams = (order["p2cread"], order["c2pwrite"], order["errwrite"])
        self.pid = _server().fork(
            {
                **program,
                "cwd": os.fspath(order["cwd"] or os.getcwd()),
                "env": env,
                "start_new_session": order["start_new_session"],
            },
            [number if stream == -1 else stream for number, stream in enumerate(streams)],
        )
        self._child_created = True
        ends = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(order[end] for end in ends))  # type: ignore[attr-defined]


def _program(arguments: Sequence[str], env: Mapping[str, str]) -> dict[str, Any] | None:
    """Give what a forked process is told to do, or None where only Python itself can do it."""
    differing = {name for name in env.keys() | _HERE.keys() if env.get(name) != _HERE.get(name)}
    if not _CAN_FORK or any(name.startswith(_READ_AT_START) for name in differing - _HEEDED):
        return None
    filters = [env["PYTHONWARNINGS"]] if env.get("PYTHONWARNINGS") else []
    while arguments[0] == "-W":
        filters.append(arguments[1])
        arguments = arguments[2:]
    kind, what = arguments[0], arguments[1:]
    if set(filters) - {"error"} or (kind.startswith("-") and kind not in ("-m", "-c")):
        return None
    program = (kind, *what[:1], what[1:]) if kind.startswith("-") else ("file", kind, what)
    return {"program": program, "warnings": filters}


class _Server:
    """This process's fork server."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection, theirs = socket.socketpair()
        environment = {name: value for name, value in _HERE.items() if not name.startswith("ONCEWARD_")}
        environment |= {"PYTHONPATH": SRC, "PYTHONWARNINGS": ""}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(PROGRAM), str(theirs.fileno()), SRC],
                env=environment,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        self._replies = self._connection.makefile("r")
        assert self._replies.readline(), "the fork server could not start; its own error says why"
        self._prctl = ctypes.CDLL(None, use_errno=True).prctl

    def fork(self, order: Mapping[str, Any], descriptors: Sequence[int]) -> int:
        """Give the id of a new child of this process."""
        with self._lock:
            self._adopt(True)
            try:
                text = json.dumps({**order, "parent": os.getpid()}).encode() + b"\n"
                sent = socket.send_fds(self._connection, [text], descriptors)
                self._connection.sendall(text[sent:])
                reply = self._replies.readline()
            finally:
                self._adopt(False)
        assert reply, "the fork server has ended; its own error says why"
        told = json.loads(reply)
        if "errno" in told:
            raise OSError(told["errno"], os.strerror(told["errno"]), told["file"])
        return int(told["pid"])

    def _adopt(self, is_on: bool) -> None:
        """Have orphans among this process's descendants become its own children, or no longer."""
        done = self._prctl(_PR_SET_CHILD_SUBREAPER, int(is_on), 0, 0, 0)
        assert done == 0, os.strerror(ctypes.get_errno())

    def close(self) -> None:
        """End it; what it forked goes on."""
        self._replies.close()
        self._connection.close()
        self._process.kill()
        self._process.wait()


@functools.cache
def _server() -> _Server:
    server = _Server()
    atexit.register(server.close)
    return server
