"""Plays the providers: signs as they do, sends at the planned times, sends again what got no 2xx.

What it counts is what came back, and nothing else.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from onceward.cli.demo.exchange import Reply, Unanswered, exchange
from onceward.cli.demo.plan import Kind, PlannedDelivery
from onceward.core.errors import OncewardError
from onceward.core.nouns import counted
from onceward.sources import Source

STALE_MS = 15 * 60_000
ROUND_PAUSE_SECONDS = 0.2
ROUNDS_MAX = 50
_SIGNATURES = ("Stripe-Signature", "X-Hub-Signature-256")


@dataclass
class Tally:
    """What the sender counted.

    Attributes:
        delivered: deliveries that were answered 2xx.
        duplicates: of these, the ones that brought an event which was there already.
        refused: deliveries that were answered 4xx, by what was false about them.
        unanswered: requests without a reply or with 5xx; each was sent again.
        runs: the runs that the replies named, by source and event id.
        surprises: replies that a sender should not have got.
    """

    delivered: int = 0
    duplicates: int = 0
    refused: Counter[Kind] = field(default_factory=Counter)
    unanswered: int = 0
    runs: dict[tuple[str, str], set[tuple[str, ...]]] = field(default_factory=dict)
    surprises: list[str] = field(default_factory=list)


class Sender:
    """Sends deliveries to a receiver.

    Args:
        port: where it listens.
        sources: by name, with the secrets that the receiver knows.
        strangers: by name, with secrets that it does not.
    """

    def __init__(self, port: int, sources: Mapping[str, Source], strangers: Mapping[str, Source]) -> None:
        self._port = port
        self._sources = sources
        self._strangers = strangers
        self.tally = Tally()

    async def send(self, deliveries: Iterable[PlannedDelivery]) -> list[PlannedDelivery]:
        """Send each at its time, and give those that were not answered."""
        missed: list[PlannedDelivery] = []

        async def send_at_its_time(delivery: PlannedDelivery) -> None:
            await asyncio.sleep(delivery.at)
            if not await self._is_answered(delivery):
                missed.append(delivery)

        async with asyncio.TaskGroup() as group:
            for delivery in deliveries:
                group.create_task(send_at_its_time(delivery))
        return missed

    async def send_again(self, missed: Sequence[PlannedDelivery]) -> None:
        """Send these until each is answered, as providers do, only more often.

        Raises:
            OncewardError: some stay unanswered.
        """
        for _ in range(ROUNDS_MAX):
            answered = await asyncio.gather(*map(self._is_answered, missed))
            missed = [one for one, is_answered in zip(missed, answered, strict=True) if not is_answered]
            if not missed:
                return
            await asyncio.sleep(ROUND_PAUSE_SECONDS)
        raise OncewardError(
            f"{counted(len(missed), 'delivery', 'deliveries')} had no answer in {ROUNDS_MAX} rounds.",
            means="The shop does not receive; the story cannot go on.",
            todo="Look at its log with --keep.",
        )

    async def _is_answered(self, delivery: PlannedDelivery) -> bool:
        headers, body = self.written(delivery, now_ms=time.time_ns() // 1_000_000)
        path = f"/hooks/{delivery.event.source}"
        try:
            reply = await exchange(self._port, "POST", path, headers=headers, body=body)
        except Unanswered:
            self.tally.unanswered += 1
            return False
        if reply.status >= 500:
            self.tally.unanswered += 1
            return False
        self._count(delivery, reply)
        return True

    def _count(self, delivery: PlannedDelivery, reply: Reply) -> None:
        tally, event = self.tally, delivery.event
        is_genuine = delivery.kind is Kind.GENUINE
        if 200 <= reply.status < 300:
            tally.delivered += 1
            for found in reply.json()["events"]:
                tally.duplicates += found["duplicate"]
                tally.runs.setdefault((event.source, event.id), set()).add(tuple(found["runs"]))
        else:
            tally.refused[delivery.kind] += 1
        if is_genuine != (200 <= reply.status < 300):
            tally.surprises.append(f"{delivery.kind} delivery from {event.source}: {reply.status}")

    def written(self, delivery: PlannedDelivery, *, now_ms: int) -> tuple[dict[str, str], bytes]:
        """Give the headers and body as sent now; a provider signs each delivery anew."""
        event, kind = delivery.event, delivery.kind
        source = (self._strangers if kind is Kind.FORGED else self._sources)[event.source]
        sent_ms = now_ms - STALE_MS if kind is Kind.STALE else now_ms
        body = event.body
        headers = source.sign(body, sent_ms, event_id=event.id, event_type=event.type)
        if kind is Kind.ALTERED:
            body = body.replace(b'"amount_total": 99900', b'"amount_total": 1').replace(
                b"octocat", b"mallory"
            )
            assert body != event.body, "nothing was altered"
        if kind is Kind.UNSIGNED:
            headers = {name: value for name, value in headers.items() if name not in _SIGNATURES}
        return headers, body
