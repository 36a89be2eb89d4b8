"""A client in a process of its own: does what it is told, several things at once, and writes down what it saw.

``python -m tests.campaign.histories.client <socket> <record>``. Each line that comes over the socket names
the file of a script; when it is done, a line goes back. Each call is written down before it is made, and
its reply as soon as it is there, each in one append, so that a SIGKILL leaves what was seen until then.
"""

from __future__ import annotations

import faulthandler
import http.client
import importlib
import itertools
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from onceward import (
    AlreadyCompleted,
    IdClash,
    KeyTaken,
    NotFound,
    OncewardError,
    PromiseOver,
    RunFailed,
    RunWasCancelled,
    StateConflict,
    StoreUnavailable,
)

HTTP_TIMEOUT_S = 20
NOTHING_WRITTEN = ("Nothing was stored.", "Nothing was written.")
"""What an error of a store says where nothing has happened; after others it may have."""

HELD_OPTIONS = {"happened": {"result": "yes"}}


class Nothing(Exception):
    """Nothing was asked, or nothing is known of it: no reply of a look, no run to ask about."""


class Lost(Exception):
    """It was asked, and nobody knows what became of it."""


class NotDone(Exception):
    """It was asked, and answered that nothing was done."""


class Record:
    """Where what was seen is written."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, **what: object) -> None:
        os.write(self._descriptor, json.dumps(what).encode() + b"\n")

    def close(self) -> None:
        os.close(self._descriptor)


class Doors:
    """What a client can ask, through the library and over HTTP.

    Args:
        module: the app's module; its app is open.
        ports: where instances listen.
        token: an operator's.
    """

    def __init__(self, module: Any, ports: list[int], token: str) -> None:
        self.app = module.app.sync
        self.module = module
        self.ports = ports
        self.token = token
        self.turns = itertools.count()

    # --- the library ------------------------------------------------------------------------

    def start(self, *, workflow: str, args: list[Any], id: str, **_: Any) -> list[Any]:
        target = self.module.keyed.get(workflow) or getattr(self.module, workflow)
        try:
            handle = self.app.start(target, *args, id=id)
        except KeyTaken as taken:
            return ["taken", taken.holder_run_id]
        return ["run", handle.run_id, handle.is_duplicate]

    def emit(self, *, type: str, payload: Any, id: str, subject: str | None = None, **_: Any) -> list[Any]:
        try:
            emitted = self.app.emit(type, payload, id=id, subject=subject)
        except IdClash:
            return ["clash"]
        return ["runs", [run.run_id for run in emitted.runs], emitted.is_duplicate]

    def steer(self, verb: str, run: str, args: dict[str, Any]) -> list[Any]:
        handle = self.app.run(run)
        options: dict[str, Any] = {}
        if verb == "restart":
            options = {"acknowledge": True, "request_id": args.get("request")}
        given: tuple[Any, ...] = ()
        if verb == "answer":
            given, options = (args["word"],), HELD_OPTIONS.get(args["word"], {})
        try:
            reply = getattr(handle, verb)(*given, **options)
        except (KeyTaken, StateConflict):
            return ["conflict"]
        return ["reply", str(reply.effect), str(reply.state), reply.generation]

    def state(self, run: str) -> list[Any]:
        row = self.app.run(run).row()
        return ["state", str(row.state), row.generation]

    def steps(self, run: str) -> list[Any]:
        rows = self.app.run(run).steps()
        return ["steps", *([row.name, row.output] for row in rows if row.state == "done")]

    def result(self, run: str, timeout: str = "100ms") -> list[Any]:
        try:
            found = self.app.run(run).result(timeout)
        except TimeoutError:
            raise Nothing from None
        except RunWasCancelled:
            return ["cancelled"]
        except RunFailed as failed:
            return ["run failed", failed.error_type]
        return ["result", found]

    def look(self, *, source: str, id: str) -> list[Any]:
        try:
            return ["body", self.app.event(source, id).payload["data"]["object"]["body"]]
        except NotFound:
            return ["body", None]

    def settle(self, verb: str, token: str, value: str) -> list[Any]:
        try:
            if verb == "complete":
                done = self.app.complete_promise(token, value)
            else:
                done = self.app.fail_promise(token, value)
        except AlreadyCompleted:
            return ["already"]
        except PromiseOver:
            return ["over"]
        return ["done", done.is_duplicate]

    # --- HTTP --------------------------------------------------------------------------------

    def ask(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str]
    ) -> tuple[int, dict[str, Any]]:
        """Ask an instance over HTTP; one after the other takes its turn.

        Raises:
            NotDone: it could not be reached.
            Lost: there was no answer, or none that tells.
        """
        port = self.ports[next(self.turns) % len(self.ports)]
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HTTP_TIMEOUT_S)
        try:
            try:
                connection.connect()
            except OSError as error:
                raise NotDone(str(error)) from error
            try:
                connection.request(method, path, body, headers)
                answer = connection.getresponse()
                text = answer.read()
            except (OSError, http.client.HTTPException) as error:
                raise Lost(repr(error)) from error
        finally:
            connection.close()
        if answer.status >= 500:
            if answer.status != 503:
                raise AssertionError(f"{method} {path} was answered {answer.status}: {text[:500]!r}")
            raise Lost(f"503: {text[:200]!r}")
        return answer.status, json.loads(text)

    def api(self, method: str, path: str, body: object = None) -> tuple[int, dict[str, Any]]:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        status, found = self.ask(method, f"/api/v1{path}", data, headers)
        if status not in (200, 202, 409, 410):
            raise AssertionError(f"{method} {path} was answered {status}: {found}")
        return status, found

    def emit_http(self, *, type: str, payload: Any, id: str, subject: str | None, **_: Any) -> list[Any]:
        asked = {"type": type, "payload": payload, "id": id, "subject": subject}
        status, found = self.api("POST", "/events", asked)
        if status == 409:
            return ["clash"]
        runs = [run["run_id"] for run in found["runs"]]
        runs += [one["holder_run_id"] for one in found["skipped"] if one["reason"] == "returned"]
        return ["runs", runs, found["is_duplicate"]]

    def steer_http(self, verb: str, run: str, args: dict[str, Any]) -> list[Any]:
        body: dict[str, Any] = {}
        if verb == "restart":
            body = {"plan": "acknowledged", "request_id": args.get("request")}
        if verb == "answer":
            body = {"answer": args["word"], **HELD_OPTIONS.get(args["word"], {})}
        status, found = self.api("POST", f"/runs/{run}/{verb}", body)
        if status == 409:
            return ["conflict"]
        return ["reply", found["effect"], found["state"], found["generation"]]

    def state_http(self, run: str) -> list[Any]:
        _, found = self.api("GET", f"/runs/{run}")
        return ["state", found["run"]["state"], found["run"]["generation"]]

    def settle_http(self, verb: str, token: str, value: str) -> list[Any]:
        path, body = f"/promises/{quote(token)}", json.dumps(value)
        if verb == "fail":
            path, body = f"{path}/fail", json.dumps({"reason": value})
        status, found = self.ask("POST", path, body.encode(), {"Content-Type": "application/json"})
        if status == 409:
            return ["already"]
        if status == 410:
            return ["over"]
        if status != 200:
            raise AssertionError(f"{path} was answered {status}: {found}")
        return ["done", found["duplicate"]]

    def deliver(self, *, id: str, body: str, **_: Any) -> list[Any]:
        event = {"id": id, "type": "history.told", "data": {"object": {"body": body}}}
        data = json.dumps(event).encode()
        headers = dict(self.module.SENDER.sign(data, time.time_ns() // 1_000_000))
        status, found = self.ask("POST", "/hooks/stripe", data, headers)
        if status != 202:
            raise AssertionError(f"a delivery was answered {status}: {found}")
        (told,) = found["events"]
        return ["runs", told["runs"], told["duplicate"]]


LOOKS = frozenset({"state", "steps", "result", "taken", "stale", "look"})
"""What changes nothing, so that it does not matter whether it happened when its answer is lost."""


class Client:
    """Does scripts.

    Args:
        doors: what it can ask.
        record: where it writes down what it saw.
        name: of this process.
    """

    def __init__(self, doors: Doors, record: Record, name: str) -> None:
        self.doors = doors
        self.record = record
        self.name = name
        self.numbers = itertools.count()
        self.last: dict[str, str] = {}

    def do_script(self, script: list[list[dict[str, Any]]]) -> None:
        """Do lists of calls, each list in a thread of its own."""
        threads = [
            threading.Thread(target=self._do_list, args=(number, calls))
            for number, calls in enumerate(script)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _do_list(self, number: int, calls: list[dict[str, Any]]) -> None:
        for call in calls:
            threading.Event().wait(call["pause_ms"] / 1000)
            self.do(f"{self.name}.{number}", **call)

    def do(
        self, by: str, *, object: str, verb: str, door: str = "", args: dict[str, Any], **_: Any
    ) -> list[Any] | None:
        """Do one call and write down what was seen; give the answer, if there is one."""
        known = self.last.get(object)
        if args.get("run") == "last":
            if known is None:
                return None
            args = {**args, "run": known}
        number = f"{self.name}/{next(self.numbers)}"
        seen = {"number": number, "object": object, "verb": verb, "args": args, "by": by}
        self.record.write(**seen, door=door, call=time.monotonic_ns())
        try:
            answer = self._ask(verb, door, args)
        except (Nothing, NotDone) as error:
            self.record.write(number=number, nothing=repr(error))
        except (Lost, OncewardError) as error:
            if isinstance(error, StoreUnavailable) and error.means in NOTHING_WRITTEN:
                self.record.write(number=number, nothing=repr(error))
                return None
            self.record.write(number=number, lost=repr(error))
        except BaseException as error:
            self.record.write(number=number, odd=repr(error))
            raise
        else:
            self.record.write(number=number, reply=time.monotonic_ns(), answer=answer)
            run = next((one for one in _flat(answer) if str(one).startswith("run_")), None)
            if run is not None:
                self.last[object] = run
            return answer
        return None

    def _ask(self, verb: str, door: str, args: dict[str, Any]) -> list[Any]:
        doors, is_http = self.doors, door == "http"
        if verb in ("start", "deliver"):
            return getattr(doors, verb)(**args)  # type: ignore[no-any-return]
        if verb == "emit":
            return doors.emit_http(**args) if is_http else doors.emit(**args)
        if verb in ("complete", "fail"):
            settle: Callable[..., list[Any]] = doors.settle_http if is_http else doors.settle
            return settle(verb, args["token"], args["value"])
        if verb == "state":
            return doors.state_http(args["run"]) if is_http else doors.state(args["run"])
        if verb == "steps":
            return doors.steps(args["run"])
        if verb == "look":
            return doors.look(**args)
        if verb == "result":
            return doors.result(args["run"], args.get("timeout", "100ms"))
        steer: Callable[..., list[Any]] = doors.steer_http if is_http else doors.steer
        return steer(verb, args["run"], args)


def _flat(answer: Any) -> list[Any]:
    """Give what a list has, also in lists of its own."""
    return [one for part in answer for one in _flat(part)] if isinstance(answer, list | tuple) else [answer]


def main() -> None:
    """Do the scripts that come over the socket, until it is closed."""
    address, record, name = sys.argv[1:]
    faulthandler.register(signal.SIGUSR1)
    # Beside the store, by a link; it reads the store's address when it is imported.
    ordered = importlib.import_module("ordered")

    ordered.app.sync.open(runs=False)
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(address)
        told = line.makefile("rw")
        print(name, file=told, flush=True)
        for number, path in enumerate(told):
            script = json.loads(Path(path.strip()).read_text())
            written = Record(Path(record))
            Client(Doors(ordered, script["ports"], script["token"]), written, f"{name}.{number}").do_script(
                script["lists"]
            )
            written.close()
            print("done", file=told, flush=True)
    ordered.app.sync.close("0s")


if __name__ == "__main__":
    main()
