"""Microsoft Graph change notifications: a secret of yours, ``clientState``, in every item.

Nothing is signed. A subscription begins with a question that carries a ``validationToken`` and no
secret, answered with the token as plain text.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar, Literal
from urllib.parse import parse_qsl

import msgspec

from onceward.core.arrival import UNVERIFIED, Incoming, Verified
from onceward.core.errors import ConfigError, SignatureInvalid
from onceward.core.messages import HttpRequest, HttpResponse
from onceward.sources.base import Source, derived_id, identifier, parse_object, subject_or_none
from onceward.sources.parts.replies import plain_text
from onceward.sources.parts.secret import matching_text
from onceward.sources.parts.shape import list_of, object_of
from onceward.sources.parts.unsigned_body import object_to_verify, text_bytes

ITEMS_MAX = 1000
_TOKEN_CHARS_MAX = 4096
_QUERY_FIELDS_MAX = 32
# Change from one delivery of a notification to the next, or tell nothing about it.
_NOT_IDENTITY = frozenset({"clientState", "subscriptionExpirationDateTime"})
# Lifecycle events that are about a state of the subscription, so that the same again is the same.
_STATES = frozenset({"reauthorizationRequired", "subscriptionRemoved"})


class MicrosoftGraph(Source):
    """Change and lifecycle notifications of Microsoft Graph subscriptions.

    Args:
        name: see `Source`.
        secrets: the ``clientState`` of your subscriptions; several subscriptions may have several.
        insecure: see `Source`.

    The type is ``changeType`` (``created``, ``updated``, ``deleted``) or ``lifecycleEvent``, the
    subject the resource. The id is the item's ``id``, else derived from what changed and its
    ``@odata.etag``. An item with neither says only "something changed": each delivery of it is an
    event of its own, since the next one may be about the next change. ``clientState`` is taken out of
    the payload. Encrypted content stays encrypted, and its validation tokens are not looked at.
    """

    kind: ClassVar[str] = "microsoft_graph"
    docs_url: ClassVar[str] = "https://learn.microsoft.com/graph/change-notifications-delivery-webhooks"
    docs_date: ClassVar[str] = "2026-10-31"
    retry_horizon: ClassVar[timedelta | None] = timedelta(hours=4)
    reply_deadline: ClassVar[timedelta | None] = timedelta(seconds=3)
    is_batching: ClassVar[bool] = True
    handshake_phase: ClassVar[Literal["verified", "unverified"]] = "unverified"

    def handshake(self, request: HttpRequest, now_ms: int) -> HttpResponse | None:
        """Answer a ``validationToken`` with itself, as plain text that no browser runs."""
        try:
            fields = parse_qsl(
                request.query, keep_blank_values=True, errors="strict", max_num_fields=_QUERY_FIELDS_MAX
            )
            tokens = [value for name, value in fields if name == "validationToken"]
            if len(tokens) != 1 or not 0 < len(tokens[0]) <= _TOKEN_CHARS_MAX:
                return None
        except ValueError:
            return None
        return plain_text(tokens[0])

    def verify(self, request: HttpRequest, now_ms: int) -> Verified:
        """Check the ``clientState`` of every item; Graph signs nothing."""
        if self.insecure:
            return UNVERIFIED
        items = object_to_verify(request.body).get("value")
        if not isinstance(items, list) or not items:
            raise SignatureInvalid("no item with a clientState")
        if len(items) > ITEMS_MAX:
            raise SignatureInvalid(f"{len(items)} items, at most {ITEMS_MAX} are verified")
        indexes = []
        for item in items:
            given = item.get("clientState") if isinstance(item, dict) else None
            indexes.append(matching_text(self.secrets, text_bytes(given, "clientState in an item")))
        return Verified(indexes[0])

    def normalize(self, request: HttpRequest) -> list[Incoming]:
        """Give an event for each item."""
        items = list_of(parse_object(request.body).get("value"), 'the field "value"')
        return [_event(item, place, request.received_at_ms) for place, item in enumerate(items)]

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
        """Refuse: the secret stands in the body. Use `signed_request`."""
        raise ConfigError(
            f"Source {self.name!r} cannot sign with headers.",
            means="Graph's clientState stands in the body.",
            todo="Use signed_request(), which gives the whole request.",
        )

    def signed_request(
        self,
        body: bytes,
        now_ms: int,
        *,
        event_id: str = "",
        event_type: str = "",
        secret_index: int = 0,
        url: str = "",
    ) -> HttpRequest:
        """Give the request with the secret put into each item."""
        state = self.signing_key(secret_index).decode()
        parsed = parse_object(body)
        parsed["value"] = [item | {"clientState": state} for item in parsed["value"]]
        headers = {"Content-Type": "application/json"}
        return HttpRequest.of(msgspec.json.encode(parsed), headers, url=url, received_at_ms=now_ms)


def _event(found: object, place: int, received_at_ms: int) -> Incoming:
    item = object_of(found, "an item")
    lifecycle = item.get("lifecycleEvent")
    payload: dict[str, Any] = {name: value for name, value in item.items() if name != "clientState"}
    data = item.get("resourceData")
    is_state = isinstance(lifecycle, str) and lifecycle in _STATES
    is_distinct = isinstance(data, dict) and isinstance(data.get("@odata.etag"), str)
    if item.get("id") is not None:
        event_id = identifier(item["id"], "an item's id")
    elif is_state:
        event_id = derived_id("graph", payload)
    else:
        identity = {name: value for name, value in payload.items() if name not in _NOT_IDENTITY}
        event_id = derived_id("graph", identity, None if is_distinct else [received_at_ms, place])
    return Incoming(
        id=event_id,
        type=identifier(item.get("changeType") if lifecycle is None else lifecycle, "an item's changeType"),
        payload=payload,
        subject=subject_or_none(item.get("resource")) or subject_or_none(item.get("subscriptionId")),
        id_is_signed=False,
        id_is_derived=item.get("id") is None,
    )
