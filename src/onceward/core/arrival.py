"""What a delivery becomes: its events as a source read them, and what accepting them gave.

Sources make `Verified` and `Incoming`; the engine turns them into rows and answers `Accepted`.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from onceward.core.shown import type_name
from onceward.core.texts import ID_CHARS_MAX, SUBJECT_CHARS_MAX, is_storable

Outcome: TypeAlias = Literal["accepted", "duplicate", "refused", "malformed", "busy"]
"""What became of a delivery, for senders that want a reply of their own kind: all its events are
new or some are; all were there already; it is not genuine; it cannot be read; send it again later."""


PROOF_MARGIN_MS = 3_600_000
"""How much longer than it would be taken a loose proof is remembered: clocks differ, and are put right."""


class LooseProof(msgspec.Struct, frozen=True):
    """A signature that does not cover what came with it.

    Whoever captured one could send any event under it. So the receiver has the store remember what
    came first under it, and refuses anything else; the same again is a retry.

    Attributes:
        proof_hash: tells the signature, or what it signs, from others of the source.
        content_hash: tells what came with it.
        until_ms: from when on it is refused for its age, Unix milliseconds; None where never.
    """

    proof_hash: str
    content_hash: str
    until_ms: int | None = None


class Verified(msgspec.Struct, frozen=True):
    """A delivery that its source trusts.

    Attributes:
        secret_index: position of the secret that matched in the source's list, so that an operator
            sees when an old one falls silent; None when nothing was checked (``insecure=True``).
        sent_at_ms: the time that the sender signed, Unix milliseconds, for the operator's view of
            clock skew; None where it signs none.
        loose_proof: where the signature does not cover the events; the receiver then checks that
            nothing else came under it.
    """

    secret_index: int | None = None
    sent_at_ms: int | None = None
    loose_proof: LooseProof | None = None


UNVERIFIED = Verified()


class Incoming(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a delivery, as its source normalised it.

    Attributes:
        id: what the provider calls this event; the same on every redelivery. Where it names none,
            one derived from what stays the same between its attempts.
        type: the kind of event that triggers match, e.g. ``checkout.session.completed``.
        payload: the decoded JSON value that workflows see.
        payload_is_body: *payload* is the request's whole body, so the body's text can be stored as
            it is, once, and need not be encoded again.
        subject: what the event is about, e.g. an order's id; None when the source cannot say.
        occurred_at_ms: when it happened by the provider's clock, Unix milliseconds, or None.
        version: a time or sequence by which events of one subject are ordered, or None.
        id_is_signed: False when the id stands outside the signature. Whoever captured one delivery
            can then send it again under new ids; the body's hash, kept beside the id, shows that.
        id_is_derived: the provider gives no id, and *id* was computed from the event's content.
    """

    id: str
    type: str
    payload: Any
    payload_is_body: bool = False
    subject: str | None = None
    occurred_at_ms: int | None = None
    version: int | None = None
    id_is_signed: bool = True
    id_is_derived: bool = False


class AcceptedEvent(msgspec.Struct, frozen=True, rename={"event_id": "id", "run_ids": "runs"}):
    """An event that is stored, and its runs: the same ones for every redelivery.

    Encodes as it stands in the reply to the sender: ``{"id", "duplicate", "runs"}``.
    """

    event_id: str
    duplicate: bool
    run_ids: list[str]


class Accepted(msgspec.Struct, frozen=True):
    """The events of one delivery, durable; in the order in which the source gave them."""

    events: list[AcceptedEvent]

    @property
    def outcome(self) -> Outcome:
        """Give the outcome for the sender: a duplicate only when every event was there already."""
        for event in self.events:
            if not event.duplicate:
                return "accepted"
        return "duplicate" if self.events else "accepted"


EVENTS_MAX = 5_000
"""Events in one delivery, which share one transaction. The largest senders stay at 1,000."""

_TYPE_CHARS_MAX = 255


def fault_of(incoming: object) -> str | None:
    """Say what is wrong with what a source's ``normalize`` gave; None when it is a list of events.

    A plug-in may give anything; a store must not be the first to notice.
    """
    if not isinstance(incoming, (list, tuple)):
        return f"normalize gave {type_name(incoming)}, not a list"
    if len(incoming) > EVENTS_MAX:
        return f"normalize gave {len(incoming)} events, more than {EVENTS_MAX}"
    for one in incoming:
        if not isinstance(one, Incoming):
            return f"normalize gave {type_name(one)} in its list, not an Incoming"
        if not (one.id and is_storable(one.id, ID_CHARS_MAX)):
            return f"normalize gave an event whose id is not a text of 1 to {ID_CHARS_MAX} characters"
        if not (one.type and is_storable(one.type, _TYPE_CHARS_MAX)):
            return f"normalize gave an event whose type is not a text of 1 to {_TYPE_CHARS_MAX} characters"
        if one.subject is not None and not is_storable(one.subject, SUBJECT_CHARS_MAX):
            return (
                f"normalize gave an event whose subject is not a text of up to {SUBJECT_CHARS_MAX} characters"
            )
        if not (_is_integer_or_none(one.occurred_at_ms) and _is_integer_or_none(one.version)):
            name = "version" if _is_integer_or_none(one.occurred_at_ms) else "occurred_at_ms"
            return f"normalize gave an event whose {name} is not a whole number of 64 bits"
    return None


def _is_integer_or_none(number: object) -> bool:
    return number is None or (type(number) is int and -(2**63) <= number < 2**63)
