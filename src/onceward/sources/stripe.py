"""Stripe: ``Stripe-Signature: t=<seconds>,v1=<hex>[,v1=<hex>…][,v0=…]`` over ``t.body``.

The id and type stand in the signed body. Snapshot events (``evt_…`` with ``data.object``) and thin
events of API v2 (``v2.core.event``, with ``related_object``) are both read.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import ClassVar

from onceward.core.arrival import UNVERIFIED, Incoming, Verified
from onceward.core.duration import Duration
from onceward.core.errors import ConfigError
from onceward.core.messages import HttpRequest
from onceward.sources.base import identifier, parse_object, subject_or_none
from onceward.sources.parts.fields import iso_or_none, seconds_ms
from onceward.sources.signing import hex_hmac, matching_secret, sole_header, time_and_signatures, unix_ms
from onceward.sources.timed import TimedSource

HEADER = "Stripe-Signature"
_API_KEYS = (b"sk_", b"rk_", b"pk_")


class Stripe(TimedSource):
    """Events of one Stripe account or Connect endpoint.

    Args:
        name: see `Source`.
        secrets: the endpoint's signing secrets (``whsec_…``), used as they are, prefix included.
        insecure: see `Source`.
        tolerance: see `TimedSource`; five minutes by default, as Stripe recommends.

    An event's subject is the id of the object it is about (``data.object.id``, or
    ``related_object.id`` of a thin event).
    """

    kind: ClassVar[str] = "stripe"
    docs_url: ClassVar[str] = "https://docs.stripe.com/webhooks"
    docs_date: ClassVar[str] = "2026-11-29"
    # In live mode; a sandbox tries three times over hours.
    retry_horizon: ClassVar[timedelta | None] = timedelta(days=3)
    retry_docs: ClassVar[str] = docs_url

    def __init__(
        self,
        *,
        name: str | None = None,
        secrets: str | Sequence[str] = (),
        insecure: bool = False,
        tolerance: Duration | None = None,
    ) -> None:
        super().__init__(name=name, secrets=secrets, insecure=insecure, tolerance=tolerance)
        for secret in self.secrets:
            if secret.key.startswith(_API_KEYS):
                raise ConfigError(
                    f"Source {self.name!r} was given one of Stripe's API keys as a secret.",
                    means="It signs no delivery, so none could be verified with it.",
                    todo="Give it the endpoint's signing secret, which begins with whsec_.",
                )

    def verify(self, request: HttpRequest, now_ms: int) -> Verified:
        """Check one of the ``v1`` signatures, then the age; other schemes are ignored.

        ``v0`` is Stripe's scheme for test events and would be a way around ``v1``.
        """
        if self.insecure:
            return UNVERIFIED
        parts = sole_header(request, HEADER).split(b",")
        timestamp, signatures = time_and_signatures(
            parts, header=HEADER, time_field=b"t", signature_field=b"v1"
        )
        sent_at_ms = unix_ms(timestamp)
        # The age comes last, so that an operator reads "stale" only of genuine deliveries.
        index = matching_secret(self.secrets, b"%b.%b" % (timestamp, request.body), signatures)
        self.check_age(sent_at_ms, now_ms)
        return Verified(index, sent_at_ms)

    def normalize(self, request: HttpRequest) -> list[Incoming]:
        """Give the one event of the body; it must have an ``id`` and a ``type``."""
        body = parse_object(request.body)
        data = body.get("data")
        about = (
            data.get("object") if isinstance(data, dict) and "object" in data else body.get("related_object")
        )
        return [
            Incoming(
                id=identifier(body.get("id"), 'the field "id"'),
                type=identifier(body.get("type"), 'the field "type"'),
                payload=body,
                payload_is_body=True,
                subject=subject_or_none(about.get("id")) if isinstance(about, dict) else None,
                occurred_at_ms=_occurred_at_ms(body.get("created")),
            )
        ]

    def sign(
        self,
        body: bytes,
        now_ms: int,
        *,
        event_id: str = "",
        event_type: str = "",
        secret_index: int = 0,
        url: str = "",
    ) -> dict[str, str]:
        """Give the headers of a Stripe delivery; id and type stand in the body."""
        seconds = b"%d" % (now_ms // 1000)
        signature = hex_hmac(self.signing_key(secret_index), b"%b.%b" % (seconds, body))
        return {
            "Content-Type": "application/json; charset=utf-8",
            HEADER: f"t={seconds.decode()},v1={signature.decode()}",
        }


def _occurred_at_ms(created: object) -> int | None:
    """Read ``created``: Unix seconds in snapshot events, ISO 8601 text in thin ones."""
    return seconds_ms(created) if type(created) is int else iso_or_none(created)
