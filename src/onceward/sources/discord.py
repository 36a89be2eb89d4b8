"""Discord: ``X-Signature-Ed25519`` over timestamp and body, with the application's public key.

Webhook events and interactions have addresses of their own in Discord's settings and the same
scheme; each address is tried with pings, some of them wrongly signed, and is taken out if it
accepts those. Attempts are signed anew, and events have no id.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, ClassVar

from onceward.core.arrival import UNVERIFIED, Incoming, Outcome, Verified
from onceward.core.duration import Duration
from onceward.core.errors import BodyMalformed, SignatureInvalid
from onceward.core.messages import HttpRequest, HttpResponse
from onceward.sources.base import derived_id, identifier, parse_object, subject_or_none
from onceward.sources.parts.asymmetric import decoded_hex, public_key, verifies
from onceward.sources.parts.fields import at, first_at, iso_or_none
from onceward.sources.parts.private_keys import key_at, signature_of
from onceward.sources.parts.replies import EMPTY_204, json_reply, when_taken
from onceward.sources.parts.secret import secrets_from
from onceward.sources.signing import sole_header, unix_ms
from onceward.sources.timed import TimedSource

HEADER = "X-Signature-Ed25519"
TIMESTAMP_HEADER = "X-Signature-Timestamp"
_PING_OF_EVENTS = 0
_PING_OF_INTERACTIONS = 1
# "Interaction Type" in Discord's documentation.
_INTERACTIONS = {
    2: "application_command",
    3: "message_component",
    4: "application_command_autocomplete",
    5: "modal_submit",
}
_ACCEPTED_202 = HttpResponse.of(202)
# Snowflakes: milliseconds since 2015 above 22 bits.
_SNOWFLAKE_EPOCH_MS = 1_420_070_400_000
_SNOWFLAKE_DIGITS_MAX = 20


class Discord(TimedSource):
    """Webhook events or interactions of one Discord application.

    Args:
        name: see `Source`.
        secrets: the application's public key, in hexadecimal.
        insecure: see `Source`.
        tolerance: see `TimedSource`; Discord states none, five minutes by default.
        interactions: the address is the one for interactions: they are answered 202, and the
            workflow replies by Discord's API within three seconds; events are answered 204.
        private_keys: for tests, the keys with which `sign` plays Discord, in the order of *secrets*.

    An event's type is its own (``APPLICATION_AUTHORIZED``) and its id derived from application,
    type, time and data. An interaction has an id; its type is ``interaction.`` and its kind
    (``interaction.application_command``). The subject is the guild's id, else the user's.
    """

    kind: ClassVar[str] = "discord"
    docs_url: ClassVar[str] = "https://docs.discord.com/developers/events/webhook-events"
    docs_date: ClassVar[str] = "2026-11-29"
    retry_horizon: ClassVar[timedelta | None] = timedelta(minutes=10)
    retry_docs: ClassVar[str] = docs_url
    reply_deadline: ClassVar[timedelta | None] = timedelta(seconds=3)

    def __init__(
        self,
        *,
        name: str | None = None,
        secrets: str | Sequence[str] = (),
        insecure: bool = False,
        tolerance: Duration | None = None,
        interactions: bool = False,
        private_keys: str | Sequence[str] = (),
    ) -> None:
        super().__init__(name=name, secrets=secrets, insecure=insecure, tolerance=tolerance)
        self.interactions = interactions
        self._keys = [
            public_key(secret.key.decode("utf-8"), "ed25519", source=self.name) for secret in self.secrets
        ]
        self._private_keys = secrets_from(private_keys, source=self.name)

    def verify(self, request: HttpRequest, now_ms: int) -> Verified:
        """Check the signature, then the age."""
        if self.insecure:
            return UNVERIFIED
        given = sole_header(request, HEADER)
        signature = decoded_hex(given)
        if signature is None:
            raise SignatureInvalid(f"{HEADER} is not hexadecimal")
        timestamp = sole_header(request, TIMESTAMP_HEADER)
        sent_at_ms = unix_ms(timestamp)
        message = timestamp + request.body
        for index, key in enumerate(self._keys):
            if verifies(key, message, signature, "ed25519"):
                self.check_age(sent_at_ms, now_ms)
                return Verified(index, sent_at_ms)
        raise SignatureInvalid(f"no signature matches, {len(self._keys)} public keys tried")

    def handshake(self, request: HttpRequest, now_ms: int) -> HttpResponse | None:
        """Answer the pings of both addresses."""
        try:
            body = parse_object(request.body)
        except BodyMalformed:
            return None  # normalize says so
        ping = body.get("type")
        if type(ping) is not int or "event" in body:
            return None
        if ping == _PING_OF_EVENTS:
            return EMPTY_204
        return json_reply({"type": 1}) if ping == _PING_OF_INTERACTIONS else None

    def normalize(self, request: HttpRequest) -> list[Incoming]:
        """Give the one event or interaction of the request."""
        body = parse_object(request.body)
        event = body.get("event")
        return [_event(body, event) if isinstance(event, dict) else _interaction(body)]

    def respond(self, outcome: Outcome) -> HttpResponse | None:
        """Give an empty 204, or 202 to interactions."""
        return when_taken(outcome, _ACCEPTED_202 if self.interactions else EMPTY_204)

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
        """Give the headers of a Discord request; takes a private key, see the class."""
        seconds = b"%d" % (now_ms // 1000)
        key = key_at(self._private_keys, secret_index, source=self.name)
        return {
            "Content-Type": "application/json",
            HEADER: signature_of(key, seconds + body).hex(),
            TIMESTAMP_HEADER: seconds.decode(),
        }


def _event(body: dict[str, Any], event: dict[str, Any]) -> Incoming:
    event_type = identifier(event.get("type"), 'the field "event.type"')
    data = event.get("data")
    return Incoming(
        id=derived_id(body.get("application_id"), event_type, event.get("timestamp"), data),
        type=event_type,
        payload=body,
        payload_is_body=True,
        subject=_about(data),
        occurred_at_ms=iso_or_none(event.get("timestamp"), naive_is_utc=True),
        id_is_derived=True,
    )


def _interaction(body: dict[str, Any]) -> Incoming:
    number = body.get("type")
    kind = _INTERACTIONS.get(number) if type(number) is int else None
    kind = kind or identifier(number, 'the field "type"')
    interaction_id = identifier(body.get("id"), 'the field "id"')
    return Incoming(
        id=interaction_id,
        type=f"interaction.{kind}",
        payload=body,
        payload_is_body=True,
        subject=_about(body),
        occurred_at_ms=_snowflake_ms(interaction_id),
    )


def _about(value: object) -> str | None:
    return subject_or_none(
        first_at(value, "guild_id")
        or at(value, "guild", "id")
        or first_at(value, "user_id")
        or at(value, "user", "id")
        or at(value, "member", "user", "id")
    )


def _snowflake_ms(text: str) -> int | None:
    """Give the time in an id of Discord's ("Snowflakes" in its reference)."""
    if not (text.isascii() and text.isdigit() and len(text) <= _SNOWFLAKE_DIGITS_MAX):
        return None
    return (int(text) >> 22) + _SNOWFLAKE_EPOCH_MS
