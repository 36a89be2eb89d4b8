"""What the receiver stands between: the server's side of it, the engine's, and the bounds it keeps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeAlias

from onceward.core.arrival import Accepted, Incoming, LooseProof, Verified
from onceward.core.messages import HttpRequest
from onceward.sources.base import Source

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Hook: TypeAlias = Callable[[], Awaitable[None]]


class Intake(Protocol):
    """What the receiver needs from the engine behind it."""

    @property
    def sources(self) -> Mapping[str, Source]:
        """The app's sources by name."""
        ...

    async def accept(
        self, source: str, request: HttpRequest, incoming: Sequence[Incoming], verified: Verified
    ) -> Accepted:
        """Store a delivery with its events and their runs, and return once all of it is durable.

        Called with an empty list as well, when a delivery held no event.

        Raises:
            StoreUnavailable: nothing is known to be stored; the sender is asked to try again.
            NotStorable: a payload can never be stored as the source gave it.
        """
        ...

    async def is_first_under(self, source: str, proof: LooseProof) -> bool:
        """Say whether nothing else came under a signature that covers nothing, and have it remembered.

        Raises:
            StoreUnavailable: nothing is known to be stored.
        """
        ...

    async def keep_unparsed(
        self, source: str, request: HttpRequest, verified: Verified, error: str, told_by: Sequence[str]
    ) -> None:
        """Keep a genuine delivery that its source failed to read, and return once it is durable.

        Args:
            source: the source's name.
            request: as it was verified.
            verified: what the source made of the signature.
            error: why, without what the delivery holds.
            told_by: headers that ``normalize`` looked at.

        Raises:
            StoreUnavailable: nothing is known to be stored.
        """
        ...

    def refused(self, source: str, status: int, check: str, **more: Any) -> None:
        """Count a refused delivery; *more* as of `onceward.refusals.Refusals.note`."""
        ...

    async def healthy(self) -> bool:
        """Say whether deliveries can be accepted at present."""
        ...

    def now_ms(self) -> int:
        """Give the time, Unix milliseconds."""
        ...


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds on what strangers can make the receiver hold and wait for.

    Attributes:
        body_bytes_max: the largest body, sent or inflated; 413 beyond it. GitHub sends up to 25 MB,
            most others stay below 1 MB.
        body_seconds_max: the longest time from the head of a request to the end of its body; 408.
        header_count_max: the most header lines; 431.
        header_bytes_max: the most bytes in all names and values together; 431.
        held_bytes_max: the most bytes of bodies that are being read or accepted at once; 503.
        deliveries_max: the most deliveries that are being verified and stored at once; 503.
        verify_seconds_max: the longest time a source that waits for the network may take; 503.
        health_seconds_max: the longest time to wait for the engine's word on its health.
    """

    body_bytes_max: int = 5 * 1024 * 1024
    body_seconds_max: float = 30.0
    header_count_max: int = 128
    header_bytes_max: int = 32 * 1024
    held_bytes_max: int = 256 * 1024 * 1024
    deliveries_max: int = 4096
    verify_seconds_max: float = 10.0
    health_seconds_max: float = 5.0

    @classmethod
    def of(cls, body_bytes_max: int) -> Self:
        """Give the limits for bodies of that size: several of them are held at once."""
        return cls(body_bytes_max=body_bytes_max, held_bytes_max=max(cls.held_bytes_max, 4 * body_bytes_max))
