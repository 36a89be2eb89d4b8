"""What comes in while the soak lasts: deliveries of every kind, copies of them, what is refused, operators and onlookers.

What the app has to note of a delivery is known here before it is sent, and nowhere else.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, NamedTuple

from onceward.sources import Stripe
from tests.campaign.soak.client import Client

SECRET = "whsec_attack_attack_attack"
HOOK = "/hooks/stripe"
KEYS = 40
COPY_WITHIN_S = 30.0
LATENCIES_MAX = 1_000_000
TRIES_MAX = 60
PAGES_MAX = 1_000
PRUNED: list[dict[str, Any]] = [
    {"older_than": "5s", "payloads": True, "runs": True, "deliveries": True},
    {"older_than": "2m", "identity": True},
]
"""What operators prune, as the app itself does when it comes to it; a copy never comes that late."""

STRIPE = Stripe(secrets=[SECRET])


class Kind(NamedTuple):
    """One kind of delivery.

    Attributes:
        share: how many of them among all, without unit.
        notes: what the app notes of each that is accepted, in its step's words.
        is_quick: it ends by itself within a moment, so that a peak can be measured with it.
        runs: how many runs come of it.
    """

    share: int
    notes: tuple[str, ...] = ()
    is_quick: bool = False
    runs: int = 1


KINDS = {
    "steps": Kind(20, ("a", "b", "c"), is_quick=True),
    "plain": Kind(6, ("a", "b"), is_quick=True),
    "branches": Kind(4, tuple(f"branch {number}" for number in range(4)), is_quick=True),
    "large": Kind(2, ("large",), is_quick=True),
    "books": Kind(4, ("booked",), is_quick=True),
    "ensured": Kind(3, ("ticket",), is_quick=True),
    "sleeps": Kind(10, ("before", "after")),
    "waits": Kind(8, ("heard",)),
    "races": Kind(4, ("decided yes",)),
    "expires": Kind(3, ("gave up",)),
    "promises": Kind(3, ("approved",), is_quick=True),
    "retried": Kind(5, ("third",), is_quick=True),
    "backs_off": Kind(3, ("before", "after"), is_quick=True),
    "fails": Kind(3, ("before",), is_quick=True),
    "undone": Kind(2, ("held", "given back"), is_quick=True),
    "cancelled": Kind(2, ("reserved", "released")),
    "asks": Kind(1, ("asked", "answered")),
    "parent": Kind(4, ("child", "child", "detached", "consoled", "after"), is_quick=True, runs=4),
    "emits": Kind(4, ("emitted", "told", "told"), is_quick=True, runs=3),
    "queued": Kind(5, ("counted",), is_quick=True),
    "once": Kind(3, is_quick=True),
    "ordered": Kind(2, is_quick=True),
    "of no interest": Kind(2, runs=0),
}
"""Every kind that is accepted."""

UNWELCOME = {
    "copy": 8,
    "clash": 1,
    "forged": 2,
    "unreadable": 1,
    "nowhere": 2,
    "huge": 1,
    "cut off": 1,
}
"""What is sent beside every hundred or so of them, and starts nothing."""


class Delivery(NamedTuple):
    """A delivery that is to be sent."""

    kind: str
    id: str
    body: bytes


class Load:
    """Sends, and keeps in mind what has to come of it.

    Attributes:
        owed: how often each line has still to come into the ledger; below zero where it came more often, as
            it does when an operator restarts a run, or sooner than the reply.
        runs: how many came of what was accepted.
        statuses: replies by what was sent and status.
        latencies_s: of deliveries, from when they were due.
        faults: what should not have been answered so.
    """

    def __init__(self, client: Client, seed: int) -> None:
        self.client = client
        self.draw = random.Random(f"soak {seed}")
        self.owed: Counter[str] = Counter()
        self.runs = 0
        self.statuses: Counter[str] = Counter()
        self.latencies_s: deque[float] = deque(maxlen=LATENCIES_MAX)
        self.faults: list[str] = []
        self.sent = 0
        self._recent: deque[tuple[float, Delivery]] = deque(maxlen=500)
        self._numbers = itertools.count()
        self._orders = itertools.count()
        self._known_orders: set[str] = set()
        self._under_way: set[asyncio.Task[Any]] = set()

    # --- what is sent -------------------------------------------------------------------------

    def make(self, kind: str, **about: Any) -> Delivery:
        """Make a delivery that was not sent before."""
        number = next(self._numbers)
        event_id = f"evt_{kind.replace(' ', '_')}_{number}"
        subject = f"customer {number % KEYS}" if kind == "ordered" else event_id
        if kind in ("queued", "once"):
            order = (
                f"order_{next(self._orders) // 2}" if kind == "once" else f"key_{self.draw.randrange(KEYS)}"
            )
            about["key"] = order
        if kind == "ordered":
            about["version"] = number
        if kind == "sleeps":
            about["seconds"] = round(self.draw.choice((0.05, 0.5, 2.0, 5.0)), 3)
        if kind == "large":
            about["text"] = "y" * self.draw.choice((20_000, 60_000))
        payload = {"id": event_id, "type": f"soak.{kind}", "data": {"object": {"id": subject, **about}}}
        return Delivery(kind, event_id, json.dumps(payload).encode())

    async def at_rate(self, per_s: float, is_over: Callable[[], bool]) -> None:
        """Send so many deliveries a second, whatever the server does."""
        names = [*KINDS, *UNWELCOME]
        shares = [*(kind.share for kind in KINDS.values()), *UNWELCOME.values()]
        began = time.monotonic()
        for number in itertools.count():
            due = began + number / per_s
            if is_over():
                return
            wait = due - time.monotonic()
            if wait > 0:
                await asyncio.sleep(wait)
            kind = self.draw.choices(names, shares)[0]
            self.begin(self._unwelcome(kind) if kind in UNWELCOME else self.deliver(self.make(kind), due))

    async def as_fast_as_it_goes(self, count: int, kinds: Iterable[str], clients: int) -> None:
        """Send so many, each client the next one as soon as it has its reply."""
        names = list(kinds)
        shares = [KINDS[kind].share for kind in names]
        todo = iter(range(count))

        async def client() -> None:
            for _ in todo:
                await self.deliver(self.make(self.draw.choices(names, shares)[0]), None)

        await asyncio.gather(*(client() for _ in range(clients)))

    async def deliver(self, delivery: Delivery, due: float | None) -> None:
        """Send one and note what has to come of it."""
        reply = await self._post(HOOK, delivery.body)
        self.sent += 1
        if due is not None:
            self.latencies_s.append(time.monotonic() - due)
        self.statuses[f"{delivery.kind} {reply.status}"] += 1
        if not 200 <= reply.status < 300:
            return
        self.runs += KINDS[delivery.kind].runs
        self._recent.append((time.monotonic(), delivery))
        for note in KINDS[delivery.kind].notes:
            self.owe(f"{delivery.id} {note}")
        if delivery.kind == "once":
            order = json.loads(delivery.body)["data"]["object"]["key"]
            if order not in self._known_orders:
                self._known_orders.add(order)
                self.owe(f"{order} fulfilled")
        runs = [run for event in reply.json()["events"] for run in event["runs"]]
        if len(runs) != 1 and delivery.kind not in ("ordered", "of no interest"):
            self.faults.append(f"{delivery.id} was answered {reply.status} with {len(runs)} runs")
        if delivery.kind in ("waits", "races"):
            self.begin(self.pack(delivery.id, self.draw.choice((0.0, 0.3, 2.0))))

    async def pack(self, subject: str, after_s: float) -> None:
        """Send what a run waits for, until it is taken."""
        await asyncio.sleep(after_s)
        payload = {"id": f"packed_{subject}", "type": "soak.packed", "data": {"object": {"id": subject}}}
        await self._post_until_taken(json.dumps(payload).encode())

    async def probe(self, number: int, *, types: bool = False) -> str:
        """Have the app look into its own process, and give the id under which it notes what it sees."""
        event_id = f"probe_{number}"
        payload = {"id": event_id, "type": "soak.probe", "data": {"object": {"id": event_id, "types": types}}}
        await self._post_until_taken(json.dumps(payload).encode())
        return event_id

    async def settle(self) -> None:
        """Wait until everything that was begun is answered."""
        while self._under_way:
            await asyncio.gather(*self._under_way)

    def owe(self, line: str, times: int = 1) -> None:
        """Expect a line in the ledger so often more; less, when it was found there."""
        self.owed[line] += times
        if self.owed[line] == 0:
            del self.owed[line]

    def missing(self) -> list[str]:
        """Give the lines that have still to come."""
        return [line for line, times in self.owed.items() if times > 0]

    async def begin_to_wait(self, number: int) -> bool:
        """Have one more run wait for its own event; say whether it was accepted."""
        event_id = f"evt_waiting_{number}"
        payload = {"id": event_id, "type": "soak.waits", "data": {"object": {"id": event_id}}}
        reply = await self._post(HOOK, json.dumps(payload).encode())
        self.owe(f"{event_id} heard")
        return bool(200 <= reply.status < 300)

    # --- what starts nothing ------------------------------------------------------------------

    async def _unwelcome(self, kind: str) -> None:
        reply_status, allowed = await getattr(self, f"_{kind.replace(' ', '_')}")()
        self.statuses[f"{kind} {reply_status}"] += 1
        if reply_status not in allowed:
            self.faults.append(f"{kind} was answered {reply_status}")

    def _recent_one(self) -> Delivery | None:
        while self._recent and self._recent[0][0] < time.monotonic() - COPY_WITHIN_S:
            self._recent.popleft()
        return self.draw.choice(self._recent)[1] if self._recent else None

    async def _copy(self) -> tuple[int, tuple[int, ...]]:
        recent = self._recent_one() or self.make("of no interest")
        return (await self._post(HOOK, recent.body)).status, (200, 202, 503, 0)

    async def _clash(self) -> tuple[int, tuple[int, ...]]:
        recent = self._recent_one() or self.make("of no interest")
        return (await self._post(HOOK, recent.body + b" ")).status, (200, 202, 503, 0)

    async def _forged(self) -> tuple[int, tuple[int, ...]]:
        delivery = self.make("steps")
        headers = {**STRIPE.sign(delivery.body + b".", _now_ms()), "User-Agent": self._odd()}
        return (await self.client.ask("POST", HOOK, delivery.body, headers)).status, (400, 401, 403, 503, 0)

    async def _unreadable(self) -> tuple[int, tuple[int, ...]]:
        body = json.dumps({"neither": self._odd()}).encode()
        return (await self._post(HOOK, body)).status, (200, 202, 400, 422, 503, 0)

    async def _nowhere(self) -> tuple[int, tuple[int, ...]]:
        return (await self._post(f"/hooks/{self._odd()}", b"{}")).status, (404, 503, 0)

    async def _huge(self) -> tuple[int, tuple[int, ...]]:
        return (await self._post(HOOK, b"z" * 6_000_000)).status, (413, 503, 0)

    async def _cut_off(self) -> tuple[int, tuple[int, ...]]:
        delivery = self.make("steps")
        request = self.client.request("POST", HOOK, delivery.body, STRIPE.sign(delivery.body, _now_ms()))
        await self.client.drop(request[: -len(delivery.body) // 2], after_s=self.draw.random())
        return 0, (0,)

    def _odd(self) -> str:
        return f"odd-{self.draw.randrange(10**9)}"

    async def _post(self, path: str, body: bytes) -> Any:
        return await self.client.ask("POST", path, body, STRIPE.sign(body, _now_ms()))

    async def _post_until_taken(self, body: bytes) -> None:
        for _ in range(TRIES_MAX):
            if 200 <= (await self._post(HOOK, body)).status < 300:
                return
            await asyncio.sleep(1)
        self.faults.append(f"not taken in {TRIES_MAX} tries: {body.decode()}")

    def begin(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Do something beside the rest; `settle` waits for it."""
        task = asyncio.create_task(coroutine)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)


class People:
    """Operators who act and onlookers who look, over API and dashboard.

    Args:
        load: knows which runs want a person.
        token: an admin's.
        cookie: of a session that is logged in.
    """

    def __init__(self, load: Load, client: Client, token: str, cookie: str) -> None:
        self.load = load
        self.client = client
        self.looks = 0
        self.actions = 0
        self.faults: list[str] = []
        self._draw = random.Random(str(load.draw.random()))
        self._token = {"Authorization": f"Bearer {token}"}
        self._cookie = {"Cookie": cookie}

    async def forever(self, every_s: float) -> None:
        """Look and act, one after the other, until cancelled."""
        turns: list[Callable[[], Coroutine[Any, Any, None]]] = [
            self.read_api,
            self.view,
            self.watch,
            self.act,
            self.read_api,
            self.view,
        ]
        for number in itertools.count():
            await turns[number % len(turns)]()
            if number % 40 == 7:
                await self.prune()
            await asyncio.sleep(every_s * self._draw.uniform(0.5, 1.5))

    async def read_api(self) -> None:
        """Ask the API one thing."""
        run_id = await self._some_run()
        path = self._draw.choice(
            [
                *(
                    "/overview",
                    "/counts",
                    "/runs?limit=50",
                    "/runs?state=failed",
                    "/runs?workflow=parent",
                    "/events",
                ),
                *("/deliveries", "/sources", "/refusals", "/workers", "/workflows", "/audit", "/notices"),
                *(f"/runs/{run_id}", f"/runs/{run_id}/plan?verb=restart", "/export?workflow=asks"),
            ]
        )
        await self._get(f"/api/v1{path}", self._token, (200, 404, 409))
        await self._get("/metrics", self._token, (200,))

    async def view(self) -> None:
        """Open a page of the dashboard."""
        run_id = await self._some_run()
        path = self._draw.choice(
            [
                *("/", "/runs", "/events", "/deliveries", "/dead", "/sources", "/workers", "/workflows"),
                *("/audit", "/help", f"/runs/{run_id}", f"/runs/{run_id}/restart", "/search?q=evt_steps_1"),
            ]
        )
        await self._get(path, self._cookie, (200, 303, 302, 404, 409))

    async def watch(self) -> None:
        """Open a stream of each kind and go away after a while."""
        length = self._draw.choice((0.1, 1.0, 3.0))
        self.looks += 2
        api = self.client.request(
            "GET", "/api/v1/changes", b"", self._token | {"Accept": "text/event-stream"}
        )
        live = self.client.request("GET", "/live", b"", self._cookie | {"Accept": "text/event-stream"})
        await asyncio.gather(
            self.client.drop(api, after_s=length), self.client.drop(live, after_s=length / 2)
        )

    async def act(self, *, is_curious: bool = True) -> None:
        """Do what wants doing: answers, cancels, dismissals; and a restart, a replay and a retry that nobody needs."""
        for run_id in await self._runs("?state=held&limit=200"):
            await self._do(f"/runs/{run_id}/answer", {"answer": "happened", "result": None})
        for run_id in await self._runs("?workflow=cancelled&state=sleeping&limit=200"):
            await self._do(f"/runs/{run_id}/cancel", {})
        await self.dismiss()
        if not is_curious:
            return
        if run_id := await self._some_run("completed"):
            verb = self._draw.choice(("replay", "restart"))
            body = {"plan": "acknowledged"} if verb == "restart" else {}
            await self._do(f"/runs/{run_id}/{verb}", body)
        if run_id := await self._some_run("failed"):
            await self._do(f"/runs/{run_id}/retry", {})

    async def dismiss(self) -> None:
        """Take all failures off the list of open problems."""
        body = {"query": {"state": "failed"}, "action": {"verb": "dismiss"}, "dry_run": False}
        await self._do("/runs/bulk", body)

    async def prune(self) -> None:
        """Prune page after page, as an operator who is in a hurry."""
        for what in PRUNED:
            after: str | None = None
            for _ in range(PAGES_MAX):
                body = {**what, "dry_run": False, "after": after}
                reply = await self.client.ask(
                    "POST", "/api/v1/prune", json.dumps(body).encode(), self._json()
                )
                self.actions += 1
                if reply.status != 200:
                    self.faults.append(f"prune was answered {reply.status}: {reply.body[:300]!r}")
                    return
                after = reply.json()["next"]
                if after is None:
                    break

    async def counts(self) -> dict[str, int]:
        """Give how many runs stand in which live state."""
        reply = await self.client.ask("GET", "/api/v1/counts", b"", self._token)
        return dict(reply.json()["states"])

    async def _runs(self, query: str) -> list[str]:
        reply = await self.client.ask("GET", f"/api/v1/runs{query}", b"", self._token)
        return [run["run_id"] for run in reply.json()["items"]] if reply.status == 200 else []

    async def _some_run(self, state: str = "") -> str:
        found = await self._runs(f"?limit=20&state={state}" if state else "?limit=20")
        return self._draw.choice(found) if found else ""

    async def _get(self, path: str, headers: dict[str, str], allowed: tuple[int, ...]) -> None:
        reply = await self.client.ask("GET", path, b"", headers)
        self.looks += 1
        if reply.status not in allowed:
            self.faults.append(f"GET {path} was answered {reply.status}: {reply.body[:300]!r}")

    async def _do(self, path: str, body: dict[str, Any]) -> None:
        reply = await self.client.ask("POST", f"/api/v1{path}", json.dumps(body).encode(), self._json())
        self.actions += 1
        # What is looked at may have gone on, or have been pruned; bulk actions stand in line.
        if reply.status not in (200, 202, 404, 409, 410, 429):
            self.faults.append(f"POST {path} was answered {reply.status}: {reply.body[:300]!r}")

    def _json(self) -> dict[str, str]:
        return {**self._token, "Content-Type": "application/json"}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
