"""An engine at the receiver's port that stores in a dict, and two sources that misbehave on demand."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from onceward.core.arrival import Accepted, AcceptedEvent, Incoming, LooseProof, Verified
from onceward.core.messages import HttpRequest, HttpResponse
from onceward.sources import GitHub, Source, Stripe
from onceward.sources.signing import matching_secret, sole_header

NOW_MS = 1_760_000_000_000
STRIPE_SECRET = "whsec_receiver_0123456789"
GITHUB_SECRET = "a secret for the receiver"
CUSTOM_SECRET = "custom"
# By name, since a traceback shows source lines.
CARD = "4242-4242-4242-4242"
PLANTED = "\nforged log line"


class FakeIntake:
    """Remembers what was accepted; each event has one run, named after it."""

    def __init__(self) -> None:
        self._sources: dict[str, Source] = {
            "stripe": Stripe(secrets=[STRIPE_SECRET]),
            "github": GitHub(secrets=[GITHUB_SECRET]),
            "custom": Custom(secrets=[CUSTOM_SECRET]),
        }
        self.events: dict[tuple[str, str], Incoming] = {}
        self.requests: list[tuple[str, HttpRequest, Verified]] = []
        self.proofs: dict[tuple[str, str], str] = {}
        self.unparsed: list[tuple[str, HttpRequest, str, list[str]]] = []
        self.refusals: list[tuple[str, int, str, dict[str, Any]]] = []
        self.fault: Exception | None = None
        self.health: bool | Exception | None = True

    @property
    def sources(self) -> Mapping[str, Source]:
        return self._sources

    async def accept(
        self, source: str, request: HttpRequest, incoming: Sequence[Incoming], verified: Verified
    ) -> Accepted:
        if self.fault is not None:
            raise self.fault
        self.requests.append((source, request, verified))
        accepted = []
        for event in incoming:
            duplicate = (source, event.id) in self.events
            self.events.setdefault((source, event.id), event)
            accepted.append(AcceptedEvent(event.id, duplicate, [f"run-of-{event.id}"]))
        await asyncio.sleep(0)
        return Accepted(accepted)

    async def is_first_under(self, source: str, proof: LooseProof) -> bool:
        if self.fault is not None:
            raise self.fault
        key = (source, proof.proof_hash)
        return self.proofs.setdefault(key, proof.content_hash) == proof.content_hash

    async def keep_unparsed(
        self, source: str, request: HttpRequest, verified: Verified, error: str, told_by: Sequence[str]
    ) -> None:
        if self.fault is not None:
            raise self.fault
        self.unparsed.append((source, request, error, sorted(told_by)))

    def refused(self, source: str, status: int, check: str, **more: Any) -> None:
        self.refusals.append((source, status, check, more))

    async def healthy(self) -> bool:
        if isinstance(self.health, Exception):
            raise self.health
        if self.health is None:
            await asyncio.Event().wait()
        return bool(self.health)

    def now_ms(self) -> int:
        return NOW_MS


class Custom(Source):
    """A user's plug-in that fails where the body says so, or sends several events, or asks."""

    kind = "custom"

    def verify(self, request: HttpRequest, now_ms: int) -> Verified:
        if request.header("x-fail") == "verify":
            raise KeyError(CARD)
        given = sole_header(request, "x-custom-signature")
        return Verified(matching_secret(self.secrets, request.body, [given]))

    def handshake(self, request: HttpRequest, now_ms: int) -> HttpResponse | None:
        if request.query == "empty":
            return HttpResponse.of(204)
        return HttpResponse.of(200, request.body, {"Content-Type": "text/plain"}) if request.query else None

    def normalize(self, request: HttpRequest) -> list[Incoming]:
        if request.body == b"fail":
            raise ValueError(CARD + PLANTED)
        ids = request.body.decode().split()
        return [Incoming(id=event_id, type="custom.event", payload=None) for event_id in ids]
