"""Clients that start, steer and wake runs, by the library and over HTTP, and ask again where no reply came."""

from __future__ import annotations

import functools
import json
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from onceward import App, NotFound, StateConflict
from onceward.core.errors import StoreError
from tests.attack.site import pause
from tests.campaign.chaos.evidence import Action, Sent
from tests.campaign.chaos.fleet import Fleet
from tests.campaign.chaos.senders import Senders, call, payload_of
from tests.campaign.chaos.shape import CANCELLED, REPLAYED, RESTARTED

AGAIN_S = 0.1
VERBS = {"start": 5, "start by key": 2, "go": 8, "cancel": 4, "restart": 3, "replay": 2, "retry": 3}
RECENT = 60
"""How many of the newest events clients choose from; older runs have ended for long."""


Answered = tuple[bool, str, str, int, str, int]
"""Of an `Action` from ``is_refused`` to ``ns``."""


class Refused(Exception):
    """The answer to a verb that does not apply."""


class NoReply(Exception):
    """Nothing is known of what was asked, and it may be asked again."""


class Clients:
    """Threads that act on runs.

    Args:
        works: the module of the app, open in this process, where it runs no workflow.
        token: of the REST API.
        ledger: beside it are the marks that something is mended.
    """

    def __init__(
        self,
        works: Any,
        fleet: Fleet,
        senders: Senders,
        token: str,
        seed: str,
        ledger: Path,
        *,
        pause_s: float,
        count: int,
    ) -> None:
        self.actions: list[Action] = []
        self.found: list[str] = []
        self.started: list[str] = []
        self._works, self._app, self._fleet, self._senders = works, works.app, fleet, senders
        self._token, self._seed, self._ledger, self._pause_s = token, seed, ledger, pause_s
        self._went: set[str] = set()
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._no_more_at = float("inf")
        self._threads = [threading.Thread(target=self._run, args=(n,), daemon=True) for n in range(count)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self, within_s: float) -> None:
        """Begin nothing new, and wait until what was asked has a reply."""
        self._no_more_at = time.monotonic() + within_s
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    # --- what they do ------------------------------------------------------------------------------

    def _run(self, number: int) -> None:
        rng = random.Random(f"{self._seed}/client {number}")
        done = 0
        try:
            while not self._is_over.wait(rng.uniform(0, self._pause_s)):
                verb = rng.choices(list(VERBS), list(VERBS.values()))[0]
                done += 1
                self._act(verb, f"{verb.replace(' ', '-')}-{number}-{done}", rng)
        except Exception as error:  # noqa: BLE001 - one that has ended does nothing
            self.found.append(f"client {number} stopped: {error!r}")

    def _act(self, verb: str, request_id: str, rng: random.Random) -> None:
        if verb == "start":
            self._start(request_id, rng)
        elif verb == "start by key":
            order = f"order{len(self._senders.sent) // 8}-{rng.randrange(2)}"
            payload = payload_of({"id": order, "order": order})
            self._begin(lambda: self._app.sync.start(self._works.order, payload, id=request_id), request_id)
            self.go(order)
        elif verb == "go":
            waiting = self._orders()
            if waiting:
                self.go(rng.choice(waiting[:20]))
        elif verb == "cancel":
            run_id = self._choose(CANCELLED, rng, self.started)
            if run_id:
                self._steer("cancel", run_id, request_id, rng)
        elif verb == "restart":
            run_id = self._choose(RESTARTED, rng, self.started)
            if run_id:
                self._steer("restart", run_id, request_id, rng)
        elif verb == "replay":
            run_id = self._choose(REPLAYED, rng, [])
            if run_id:
                self._steer("replay", run_id, request_id, rng)
        elif verb == "retry":
            self._mend(request_id, rng)

    def _choose(self, types: tuple[str, ...], rng: random.Random, more: list[str]) -> str:
        sent = [one for one in self._senders.sent[-RECENT:] if one.type in types and one.accepted]
        runs = [run_id for one in sent for run_id in one.accepted[0].runs] + more[-5:]
        return rng.choice(runs) if runs else ""

    def _start(self, request_id: str, rng: random.Random) -> None:
        seconds = rng.choice((0.0, 0.02, 0.1, 0.3))
        for _ in range(rng.choice((1, 1, 2))):
            run_id = self._begin(
                lambda: self._app.sync.start(self._works.slow, request_id, seconds, id=request_id), request_id
            )
        if run_id:
            self.started.append(run_id)

    def _begin(self, start: Callable[[], Any], request_id: str) -> str:
        try:
            run_id = str(self.insist(start).run_id)
        except NoReply:
            run_id = ""
        self._keep(Action("start", run_id, request_id, made=run_id, is_known=bool(run_id)))
        return run_id

    def go(self, order: str, word: str = "go") -> None:
        """Say the word that the run of an order waits for, once."""
        if order not in self._went:
            self._went.add(order)
            given: dict[str, Any] = {"id": f"{word}-{order}", "subject": order}
            try:
                self.insist(lambda: self._app.sync.emit("works.go", {"order": order}, **given))
            except NoReply:
                self._went.discard(order)

    def go_again(self, order: str, word: str) -> None:
        """Say it anew, for a run that began after it was said."""
        self._went.discard(order)
        self.go(order, word)

    def _orders(self) -> list[str]:
        return [order for order in orders_of(self._senders.sent) if order not in self._went]

    def _mend(self, request_id: str, rng: random.Random) -> None:
        broken = [
            sent
            for sent in self._senders.sent[-5 * RECENT :]
            if sent.type == "charge.failed" and sent.accepted
        ]
        if not broken:
            return
        sent = rng.choice(broken)
        Path(f"{self._ledger}.{sent.about['order']}.mended").touch()
        for run_id in sent.accepted[0].runs:
            self._steer("retry", run_id, request_id, rng)

    def _steer(self, verb: str, run_id: str, request_id: str, rng: random.Random) -> None:
        """Do it once or twice, each time by the library or over HTTP; verbs with an id are then done once."""
        for _ in range(rng.choice((1, 1, 1, 2))):
            by = self._by_library if rng.random() < 0.5 else self._by_http
            try:
                reply = self.insist(functools.partial(by, verb, run_id, request_id))
            except Refused:
                self._keep(Action(verb, run_id, request_id, is_refused=True))
            except NoReply:
                self._keep(Action(verb, run_id, request_id, is_known=False))
            else:
                self._keep(Action(verb, run_id, request_id, *reply))

    def _by_library(self, verb: str, run_id: str, request_id: str) -> Answered:
        handle = self._app.sync.run(run_id)
        if verb == "replay":
            made = handle.replay(request_id=request_id).run_id
            return False, "", "", 0, made, time.monotonic_ns()
        if verb == "restart":
            reply = handle.restart(acknowledge=True, request_id=request_id)
        else:
            reply = getattr(handle, verb)()
        return False, str(reply.effect), str(reply.state), reply.generation, "", time.monotonic_ns()

    def _by_http(self, verb: str, run_id: str, request_id: str) -> Answered:
        asked: dict[str, Any] = {"request_id": request_id} if verb in ("restart", "replay") else {}
        if verb == "restart":
            asked["plan"] = "acknowledged"
        told = self.ask("POST", f"/runs/{run_id}/{verb}", asked)
        made = str(told["run_id"]) if verb == "replay" else ""
        state, generation = told["state"] or "", told["generation"] or 0
        return False, told["effect"], state, generation, made, time.monotonic_ns()

    def ask(self, method: str, path: str, body: Any) -> Any:
        """Make one call of the REST API at any server.

        Raises:
            NoReply: there was none.
            Refused: the state of the run does not allow it.
        """
        servers = [slot for slot in self._fleet.slots if slot.port]
        if not servers:
            raise NoReply
        slot = random.choice(servers)
        port = slot.port
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        status, told = call(port, method, f"/api/v1{path}", json.dumps(body).encode(), headers)
        if 200 <= status < 300:
            return told
        if status == 409:
            raise Refused(told["code"])
        if status not in (0, 429, 503) and slot.port == port and slot.process and slot.process.is_alive():
            self.found.append(f"{method} {path} was answered {status}: {told}")
        raise NoReply

    def insist(self, ask: Callable[[], Any]) -> Any:
        """Ask until there is an answer.

        Raises:
            Refused: that is the answer.
            NoReply: there was none until the end.
        """
        while True:
            try:
                return ask()
            except NotFound as error:
                raise AssertionError(f"a run that a reply named is not there: {error}") from error
            except StateConflict as error:
                raise Refused from error
            except (StoreError, NoReply, OSError):
                if time.monotonic() > self._no_more_at:
                    raise NoReply from None
                pause(AGAIN_S)

    def _keep(self, action: Action) -> None:
        with self._lock:
            self.actions.append(action)


def orders_of(sent: list[Sent]) -> list[str]:
    """Give the orders of which a delivery was accepted, the newest first."""
    found = [one.about["order"] for one in list(sent) if one.type == "order.placed" and one.accepted]
    return list(dict.fromkeys(reversed(found)))


def app_of(works: Any) -> App:
    """Give the app of the works."""
    app: App = works.app
    return app
