"""What the seed decides: orders, pushes, who is sent when and how often, and when the shop dies."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

ORDERS = (8, 14)
DEPLOYS = (3, 6)
COPIES = (2, 6)
"""How many deliveries an event has; two of them at the same instant."""
BAD_DELIVERIES = (7, 12)
SPREAD_SECONDS = 2.5
"""The time over which everything is sent."""

CURRENCY = "eur"


class Kind(StrEnum):
    """What is true or false about a delivery."""

    GENUINE = "genuine"
    FORGED = "forged"
    """Signed by somebody who does not know the secret."""
    ALTERED = "altered"
    """Signed by the provider, then changed on its way."""
    STALE = "stale"
    """Signed by the provider long ago, and sent again by somebody who kept it."""
    UNSIGNED = "unsigned"


@dataclass(frozen=True)
class PlannedEvent:
    """An event as its provider will tell of it."""

    source: str
    id: str
    type: str
    payload: Mapping[str, Any]

    @property
    def body(self) -> bytes:
        """Give the request's body."""
        return json.dumps(self.payload).encode()


@dataclass(frozen=True)
class PlannedDelivery:
    """One delivery of an event, *at* seconds after the sending begins."""

    event: PlannedEvent
    at: float
    kind: Kind = Kind.GENUINE


@dataclass(frozen=True)
class Plan:
    """The whole story before it happens.

    Attributes:
        amounts: what each order costs, in cents, by the order's id.
        events: one for each order and each deploy.
        deliveries: the genuine ones and the others, in the order of their times.
        kill_at: the shop dies when this many charges have ended, before the last of them is saved.
    """

    seed: int
    amounts: Mapping[str, int]
    events: tuple[PlannedEvent, ...]
    deliveries: tuple[PlannedDelivery, ...]
    kill_at: int

    def count(self, *, genuine: bool) -> int:
        """Give how many deliveries are genuine, or are not."""
        return sum((delivery.kind is Kind.GENUINE) == genuine for delivery in self.deliveries)

    @property
    def wrongs(self) -> list[str]:
        """Give what is wrong with the deliveries that are not genuine, each kind once."""
        seen = {delivery.kind for delivery in self.deliveries}
        return [kind.value for kind in Kind if kind in seen and kind is not Kind.GENUINE]


def planned(seed: int, now_seconds: int) -> Plan:
    """Give the plan of a seed; only the times written into the events depend on *now_seconds*."""
    draw = random.Random(seed)  # noqa: S311 (a story, not a secret)
    first = draw.randrange(1_000, 9_000)
    amounts = {f"order-{first + step}": draw.randrange(500, 25_000) for step in range(draw.randint(*ORDERS))}
    events = [_order(draw, order, amount, now_seconds) for order, amount in amounts.items()]
    events += [_deploy(draw) for _ in range(draw.randint(*DEPLOYS))]
    deliveries = [delivery for event in events for delivery in _copies(draw, event)]
    deliveries += [_bad(draw, events, now_seconds) for _ in range(draw.randint(*BAD_DELIVERIES))]
    return Plan(
        seed=seed,
        amounts=amounts,
        events=tuple(events),
        deliveries=tuple(sorted(deliveries, key=lambda delivery: delivery.at)),
        kill_at=draw.randint(1, len(amounts)),
    )


def _copies(draw: random.Random, event: PlannedEvent) -> Iterator[PlannedDelivery]:
    first = draw.uniform(0, SPREAD_SECONDS * 0.7)
    yield PlannedDelivery(event, first)
    yield PlannedDelivery(event, first)
    for _ in range(draw.randint(*COPIES) - 2):
        yield PlannedDelivery(event, draw.uniform(first, SPREAD_SECONDS))


def _bad(draw: random.Random, events: list[PlannedEvent], now_seconds: int) -> PlannedDelivery:
    kind = draw.choice([kind for kind in Kind if kind is not Kind.GENUINE])
    # GitHub signs no time, so nothing of it is ever stale. Whoever sends an old delivery again has
    # a genuine event; the others would make a new one, and a charge, if they were believed.
    if kind is Kind.STALE:
        event = draw.choice([event for event in events if event.source == "stripe"])
    elif draw.random() < 0.7:
        event = _order(draw, f"order-{draw.randrange(10_000, 99_999)}", 99_900, now_seconds)
    else:
        event = _deploy(draw)
    return PlannedDelivery(event, draw.uniform(0, SPREAD_SECONDS), kind)


def _order(draw: random.Random, order: str, amount: int, now_seconds: int) -> PlannedEvent:
    event_id = f"evt_{_letters(draw, 24)}"
    session = {
        "id": f"cs_test_{_letters(draw, 32)}",
        "object": "checkout.session",
        "client_reference_id": order,
        "amount_total": amount,
        "currency": CURRENCY,
        "payment_status": "paid",
    }
    payload = {
        "id": event_id,
        "object": "event",
        "type": "checkout.session.completed",
        "created": now_seconds,
        "livemode": False,
        "data": {"object": session},
    }
    return PlannedEvent("stripe", event_id, "checkout.session.completed", payload)


def _deploy(draw: random.Random) -> PlannedEvent:
    delivery_id = str(uuid.UUID(int=draw.getrandbits(128), version=4))
    payload: dict[str, Any] = {"repository": {"full_name": "acme/shop"}, "sender": {"login": "octocat"}}
    if draw.random() < 0.3:
        tag = f"v{draw.randint(1, 9)}.{draw.randint(0, 40)}.{draw.randint(0, 9)}"
        payload |= {"action": "published", "release": {"tag_name": tag}}
        return PlannedEvent("github", delivery_id, "release.published", payload)
    payload |= {"ref": "refs/heads/main", "after": f"{draw.getrandbits(160):040x}", "commits": []}
    return PlannedEvent("github", delivery_id, "push", payload)


def _letters(draw: random.Random, count: int) -> str:
    return "".join(draw.choices("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", k=count))
