"""Mailgun: an HMAC of a time and a random token, both in the body; **the event is not covered**.

Whoever captured one delivery could therefore put any event under its signature. So what came first
under a token is remembered in the store, the same again is a retry, and anything else is refused. The
signed time bounds for how long that is needed.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar
from urllib.parse import parse_qsl, urlencode

import msgspec

from onceward.core.arrival import UNVERIFIED, Incoming, LooseProof, Outcome, Verified
from onceward.core.errors import BodyMalformed, ConfigError, SignatureInvalid
from onceward.core.ids import content_hash
from onceward.core.messages import HttpRequest, HttpResponse
from onceward.sources.base import derived_id, identifier, parse_object, subject_or_none
from onceward.sources.parts.fields import seconds_ms
from onceward.sources.parts.forms import URLENCODED, is_form, read_form
from onceward.sources.parts.replies import EMPTY_200, when_taken
from onceward.sources.parts.shape import object_of
from onceward.sources.parts.unsigned_body import text_bytes
from onceward.sources.signing import hex_hmac, matching_secret, unix_ms
from onceward.sources.timed import TimedSource

INBOUND = "inbound"
"""The type of a message that a route forwards."""

_PROOF = ("timestamp", "token", "signature")
# One of these a forwarded message has, whatever headers its author wrote, and an event has none.
_OF_MESSAGES = frozenset({"body-plain", "body-html", "body-mime", "stripped-text"})


class Mailgun(TimedSource):
    """Events of Mailgun's webhooks (JSON), and messages that its routes forward (forms).

    Args:
        name: see `Source`.
        secrets: HTTP webhook signing keys; that of a parent account for ``parent-signature`` too.
        insecure: see `Source`.
        tolerance: how far the signed time may lie from now, before or after.

    Mailgun's own event ids are unique within a day only, so the id is derived from id and time of the
    event; of a forwarded message from its ``Message-Id`` and recipient. The type is the event's name
    (``delivered``, ``failed``), or ``inbound``; the subject the id of the message.
    """

    kind: ClassVar[str] = "mailgun"
    docs_url: ClassVar[str] = (
        "https://documentation.mailgun.com/docs/mailgun/user-manual/webhooks/securing-webhooks"
    )
    docs_date: ClassVar[str] = "2026-10-31"
    # 10, 10, 15, 30, 60, 120 and 240 minutes.
    retry_horizon: ClassVar[timedelta | None] = timedelta(hours=8, minutes=5)
    retry_docs: ClassVar[str] = "https://help.mailgun.com/hc/en-us/articles/202236504-Webhooks"

    def verify(self, request: HttpRequest, now_ms: int) -> Verified:
        """Check the signature and the age; that nothing else came under the token is left to the store."""
        if self.insecure:
            return UNVERIFIED
        try:
            body = _body(request)
        except BodyMalformed as error:
            raise SignatureInvalid("the body that should hold the signature cannot be read") from error
        refusal = SignatureInvalid("no signature in the body")
        for proof in _proofs(body):
            try:
                index, sent_at_ms, token = self._matching(proof)
            except SignatureInvalid as error:
                refusal = error
                continue
            self.check_age(sent_at_ms, now_ms)
            assert self.tolerance is not None  # as of `tolerance_default`
            loose = LooseProof(
                content_hash(token),
                derived_id(_without_proof(body)),
                sent_at_ms + self.tolerance // timedelta(milliseconds=1),
            )
            return Verified(index, sent_at_ms, loose)
        raise refusal

    def _matching(self, proof: dict[str, Any]) -> tuple[int, int, bytes]:
        sent_at, token, given = (text_bytes(_text(proof.get(name)), f"{name} in the body") for name in _PROOF)
        sent_at_ms = unix_ms(sent_at)
        return matching_secret(self.secrets, sent_at + token, [given]), sent_at_ms, token

    def normalize(self, request: HttpRequest) -> list[Incoming]:
        """Give the one event of the delivery."""
        body = _body(request)
        if is_form(request) and "event-data" not in body:
            return [_from_form(body)]
        return [_event(body, object_of(body.get("event-data"), 'the field "event-data"'))]

    def respond(self, outcome: Outcome) -> HttpResponse | None:
        """Give 200, the one code that ends the tries, or 406 where further ones are of no use."""
        return HttpResponse.of(406) if outcome == "malformed" else when_taken(outcome, EMPTY_200)

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
        """Refuse: the signature stands in the body. Use `signed_request`."""
        raise ConfigError(
            f"Source {self.name!r} cannot sign with headers.",
            means="Mailgun's signature stands in the body.",
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
        """Give the request with a signature put into *body*, JSON or an urlencoded form.

        The token follows from body and time, so the same arguments give the same request.
        """
        sent_at = str(now_ms // 1000)
        token = derived_id("token", body.decode("latin-1"), now_ms) + "0" * 18
        signature = hex_hmac(self.signing_key(secret_index), (sent_at + token).encode()).decode()
        proof = {"timestamp": sent_at, "token": token, "signature": signature}
        if body.lstrip().startswith(b"{"):
            body = msgspec.json.encode(parse_object(body) | {"signature": proof})
            headers = {"Content-Type": "application/json"}
        else:
            fields = [
                pair for pair in parse_qsl(body.decode(), keep_blank_values=True) if pair[0] not in proof
            ]
            body = urlencode([*fields, *proof.items()]).encode()
            headers = {"Content-Type": URLENCODED}
        return HttpRequest.of(body, headers, url=url, received_at_ms=now_ms)


def _text(value: object) -> object:
    # The time is text in what Mailgun sends and a number in what some proxies make of it.
    return str(value) if type(value) is int and 0 <= value < 10**12 else value


def _body(request: HttpRequest) -> dict[str, Any]:
    return read_form(request) if is_form(request) else parse_object(request.body)


def _proofs(body: dict[str, Any]) -> list[dict[str, Any]]:
    if "event-data" not in body and "signature" in body and not isinstance(body["signature"], dict):
        # A form: the three are fields among the others, and stand behind what a message's author wrote.
        return [{name: _last(body.get(name)) for name in _PROOF}]
    found = (body.get("signature"), body.get("parent-signature"))
    return [proof for proof in found if isinstance(proof, dict)]


def _last(value: object) -> object:
    """Give the last of a field that comes several times; Mailgun puts its own behind all others."""
    return value[-1] if isinstance(value, list) and value else value


def _without_proof(body: dict[str, Any]) -> dict[str, Any]:
    event = body.get("event-data")
    if isinstance(event, dict):
        return event
    return {name: value for name, value in body.items() if name not in _PROOF}


def _event(body: dict[str, Any], event: dict[str, Any]) -> Incoming:
    message = event.get("message")
    headers = message.get("headers") if isinstance(message, dict) else None
    event_id = identifier(event.get("id"), 'the field "event-data.id"')
    return Incoming(
        id=derived_id("mailgun", event_id, event.get("timestamp")),
        type=identifier(event.get("event"), 'the field "event-data.event"'),
        # Without the proof: the same event is another body when it is sent again.
        payload={name: body[name] for name in body if name not in ("signature", "parent-signature")},
        subject=subject_or_none(headers.get("message-id")) if isinstance(headers, dict) else None,
        occurred_at_ms=seconds_ms(event.get("timestamp")),
        id_is_signed=False,
        id_is_derived=True,
    )


def _from_form(fields: dict[str, Any]) -> Incoming:
    payload = _without_proof(fields)
    message_id = next((payload[name] for name in payload if name.lower() == "message-id"), None)
    event_name = payload.get("event")
    is_message = event_name is None or not _OF_MESSAGES.isdisjoint(payload)
    identity = (message_id, payload.get("recipient")) if is_message and message_id else payload
    return Incoming(
        id=derived_id("mailgun", INBOUND if is_message else event_name, identity),
        type=INBOUND if is_message else identifier(event_name, 'the field "event"'),
        payload=payload,
        subject=subject_or_none(message_id),
        occurred_at_ms=None if is_message else _form_time(_last(fields.get("timestamp"))),
        id_is_signed=False,
        id_is_derived=True,
    )


def _form_time(value: object) -> int | None:
    if not isinstance(value, str):
        return None
    try:
        return unix_ms(value.encode("utf-8", "surrogatepass"))
    except SignatureInvalid:
        return None
