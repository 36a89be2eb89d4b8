"""Senders of webhooks: genuinely signed, delivered to several processes at once, delivered again until answered."""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from onceward.sources import Stripe
from tests.attack.site import pause
from tests.campaign.chaos.evidence import Reply, Row, Sent
from tests.campaign.chaos.fleet import Fleet
from tests.campaign.chaos.shape import SUBSCRIBED

REPLY_S_MAX = 15.0
OPEN_STATUSES = (0, 503)
"""Of which a sender learns nothing, and sends again."""

WEIGHTS = {
    "charge.succeeded": 10,
    "charge.failed": 1,
    "payout.paid": 3,
    "invoice.paid": 2,
    "order.placed": 4,
    "stock.changed": 3,
    "cart.changed": 2,
    "transfer.created": 3,
}
COPIES = (1, 1, 1, 2, 3)


class Senders:
    """Events, and what became of their deliveries.

    Args:
        fleet: where to.
        secret: of the source.
        types: of events that are sent.
        is_open: asked before each new event: whether the store can take more.
        pause_s: the longest wait of a sender between two events.
    """

    def __init__(
        self,
        fleet: Fleet,
        secret: str,
        types: list[str],
        seed: str,
        is_open: Callable[[], bool],
        pause_s: float,
        count: int,
    ) -> None:
        self.fleet = fleet
        self.sent: list[Sent] = []
        self.found: list[str] = []
        self.deliveries = 0
        self._source = Stripe(secrets=[secret])
        self._types, self._seed, self._is_open, self._pause_s = types, seed, is_open, pause_s
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._pool = ThreadPoolExecutor(16, thread_name_prefix="delivery")
        self._threads = [threading.Thread(target=self._run, args=(n,), daemon=True) for n in range(count)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Send nothing new any more."""
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def settle(self, within_s: float, rng: random.Random) -> None:
        """Deliver what was not answered 2xx, until it is; and a tenth of the others once more."""
        deadline = time.monotonic() + within_s
        owed = [sent for sent in self.sent if not sent.accepted or rng.random() < 0.1]
        goals = {sent.event_id: len(sent.accepted) + 1 for sent in owed}
        while owed and time.monotonic() < deadline:
            list(self._pool.map(lambda sent: self.deliver(sent, rng), owed))
            owed = [sent for sent in owed if len(sent.accepted) < goals[sent.event_id]]
            if owed:
                pause(0.1)
        self._pool.shutdown()

    # --- one event --------------------------------------------------------------------------------

    def _run(self, number: int) -> None:
        rng = random.Random(f"{self._seed}/sender {number}")
        mine: list[Sent] = []
        try:
            while not self._is_over.wait(rng.uniform(0, self._pause_s)):
                if self._is_open():
                    sent = self._event(f"evt_{number}_{len(mine)}", rng)
                    mine.append(sent)
                    with self._lock:
                        self.sent.append(sent)
                    self._send(sent, rng)
                owed = [sent for sent in mine[-50:] if not sent.accepted]
                if owed and rng.random() < 0.5:
                    self._send(rng.choice(owed), rng)
                if mine and rng.random() < 0.15:
                    self._send(rng.choice(mine[-200:]), rng)  # a redelivery of what was answered long ago
        except Exception as error:  # noqa: BLE001 - a sender that has ended sends nothing
            self.found.append(f"sender {number} stopped: {error!r}")

    def _event(self, event_id: str, rng: random.Random) -> Sent:
        kind = rng.choices(self._types, [WEIGHTS[name] for name in self._types])[0]
        order = event_id
        if kind == "order.placed":
            order = f"order{len(self.sent) // 8}-{rng.randrange(2)}"
        elif kind in ("stock.changed", "cart.changed"):
            order = f"{kind[:5]}{len(self.sent) // 100}-{rng.randrange(3)}"
        about = {
            "id": order,
            "order": order,
            "seconds": round(rng.choice((0.0, 0.0, 0.01, 0.05, 0.3)), 3),
            "nap": round(rng.choice((0.05, 0.3, 1.0, 2.5)), 3),
            "fails": rng.choice((0, 0, 0, 1, 2, 3)),
        }
        return Sent(event_id, kind, about)

    def _send(self, sent: Sent, rng: random.Random) -> None:
        copies = rng.choice(COPIES)
        if copies == 1:
            self.deliver(sent, rng)
        else:
            list(self._pool.map(lambda _: self.deliver(sent, rng), range(copies)))

    def deliver(self, sent: Sent, rng: random.Random) -> None:
        """Make one delivery to any process, and keep its reply."""
        event = {"id": sent.event_id, "type": sent.type, "data": {"object": sent.about}}
        body = json.dumps(event).encode()
        headers = self._source.sign(body, time.time_ns() // 1_000_000)
        servers = [slot for slot in self.fleet.slots if slot.port]
        if not servers:
            pause(0.05)
            return
        slot = rng.choice(servers)
        port = slot.port
        status, told = call(port, "POST", "/hooks/stripe", body, headers)
        if not 200 <= status < 300 and status not in OPEN_STATUSES:
            if slot.port == port and slot.process and slot.process.is_alive():
                self.found.append(f"a delivery of {sent.event_id} was answered {status}: {told}")
            status = 0  # another program took the port
        runs = tuple(run for event in told["events"] for run in event["runs"]) if 200 <= status < 300 else ()
        with self._lock:
            self.deliveries += 1
            sent.replies.append(Reply(status, runs))


def call(port: int, method: str, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, Any]:
    """Make a request; the status is 0 where there is no reply."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=REPLY_S_MAX)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read() or b"null")
    except (OSError, http.client.HTTPException, ValueError):
        return 0, None
    finally:
        connection.close()


def types_of(store: str) -> list[str]:
    """Give the types of events whose workflows a kind of store can run."""
    return [name for name in SUBSCRIBED if store == "postgres" or name != "transfer.created"]


def payload_of(about: Row) -> Row:
    """Give what a run takes that is started by hand with what it is about."""
    return {"data": {"object": about}}
