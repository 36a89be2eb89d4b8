"""Meta (WhatsApp, Messenger, Instagram, Pages): ``X-Hub-Signature-256: sha256=<hex>``, app secret.

Before it delivers, Meta asks by ``GET`` whether the address is ours, with a token that the operator
chose. One delivery can hold a thousand events; Meta groups them anew when it tries again, so each
is identified by itself and its payload is the delivery with that event alone.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any, ClassVar, Literal

import msgspec

from onceward.core.arrival import UNVERIFIED, Incoming, Outcome, Verified
from onceward.core.errors import SignatureInvalid
from onceward.core.messages import HttpRequest, HttpResponse
from onceward.sources.base import (
    TEXT_CHARS_MAX,
    Source,
    derived_id,
    identifier,
    parse_object,
    subject_or_none,
)
from onceward.sources.parts.fields import at, first_at, millis_or_none, seconds_ms, text_or_none
from onceward.sources.parts.forms import form_fields
from onceward.sources.parts.replies import EMPTY_200, challenge_or_none, plain_text, when_taken
from onceward.sources.parts.secret import secrets_from
from onceward.sources.parts.shape import list_of, malformed, object_of
from onceward.sources.signing import header_after, hex_hmac, matching_secret

HEADER = "X-Hub-Signature-256"
# Lists in a change of WhatsApp's, each of whose items is an event. Errors beside calls are about them.
_WHATSAPP_LISTS = ("messages", "statuses", "message_echoes", "calls", "user_preferences", "groups", "errors")
# Where the other party of such an item stands; who hides the number behind a name has an id instead.
_PARTIES = ("from", "from_user_id", "recipient_id", "recipient_user_id", "to", "to_user_id")
_OTHER_PARTIES = ("wa_id", "user_id", "group_id")
# Lists of an entry of Messenger's or Instagram's; "standby" is a copy for the app not in control.
_MESSAGING_LISTS = ("messaging", "standby")
# Members of a messaging item that are about it, not what happened.
_ENVELOPE = frozenset({"sender", "recipient", "timestamp", "prior_message", "hop_context"})
# What tells one change from the next of the same kind; entry.time is the time of sending.
_TELLING = ("id", "leadgen_id", "comment_id", "post_id", "message_id", "created_time", "timestamp", "time")


class Meta(Source):
    """Webhooks of one Meta app: WhatsApp, Messenger, Instagram, Pages.

    Args:
        name: see `Source`.
        secrets: the app's secret.
        insecure: see `Source`.
        verify_token: the token typed into Meta's settings with the address; several while you
            change it. Without one Meta's question is refused and the address cannot be set up.

    The type is ``object`` and what happened there: ``whatsapp_business_account.messages``,
    ``whatsapp_business_account.statuses``, ``page.message``, ``instagram.comments``. Messages keep
    Meta's id (``wamid…``, ``mid``), statuses have it together with the status (and the member of a
    group), calls with what happened, the rest have ids derived from their content. The subject is the
    other party: the person's number or id.
    """

    kind: ClassVar[str] = "meta"
    docs_url: ClassVar[str] = "https://developers.facebook.com/docs/graph-api/webhooks/getting-started"
    docs_date: ClassVar[str] = "2026-11-29"
    # WhatsApp; the others give up after a day and a half.
    retry_horizon: ClassVar[timedelta | None] = timedelta(days=7)
    reply_deadline: ClassVar[timedelta | None] = timedelta(seconds=20)
    is_batching: ClassVar[bool] = True
    methods: ClassVar[tuple[str, ...]] = ("GET", "POST")
    handshake_phase: ClassVar[Literal["verified", "unverified"]] = "unverified"

    def __init__(
        self,
        *,
        name: str | None = None,
        secrets: str | Sequence[str] = (),
        insecure: bool = False,
        verify_token: str | Sequence[str] = (),
    ) -> None:
        super().__init__(name=name, secrets=secrets, insecure=insecure)
        self._verify_tokens = secrets_from(verify_token, source=self.name)

    def verify(self, request: HttpRequest, now_ms: int) -> Verified:
        """Check the SHA-256 signature; Meta signs no time, so *now_ms* is not used."""
        if self.insecure:
            return UNVERIFIED
        given = header_after(request, HEADER, b"sha256=")
        return Verified(matching_secret(self.secrets, request.body, [given]))

    def handshake(self, request: HttpRequest, now_ms: int) -> HttpResponse | None:
        """Send ``hub.challenge`` back when ``hub.verify_token`` is one of ours."""
        if request.method != "GET":
            return None
        fields = form_fields(request.query) or []
        asked = dict(fields)
        challenge = challenge_or_none(asked.get("hub.challenge"))
        if len(asked) != len(fields) or asked.get("hub.mode") != "subscribe" or challenge is None:
            raise SignatureInvalid("a GET that is no subscription check of Meta's")
        given = asked.get("hub.verify_token", "").encode("utf-8", "surrogatepass")
        matches = [hmac.compare_digest(token.key, given) for token in self._verify_tokens]
        if not any(matches):
            raise SignatureInvalid(f"hub.verify_token is none of the {len(matches)} configured")
        return plain_text(challenge)

    def normalize(self, request: HttpRequest) -> list[Incoming]:
        """Give every event of the delivery, in its order."""
        body = parse_object(request.body)
        about = identifier(body.get("object"), 'the field "object"')
        events: list[Incoming] = []
        for entry in list_of(body.get("entry"), 'the field "entry"'):
            events.extend(_entry_events(about, object_of(entry, "an entry")))
        return events

    def respond(self, outcome: Outcome) -> HttpResponse | None:
        """Give an empty 200; Meta takes no other status."""
        return when_taken(outcome, EMPTY_200)

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
        """Give the headers of a Meta delivery; ids and types stand in the body."""
        signature = hex_hmac(self.signing_key(secret_index), body)
        return {"Content-Type": "application/json", HEADER: f"sha256={signature.decode()}"}


def _entry_events(about: str, entry: dict[str, Any]) -> Iterator[Incoming]:
    head: dict[str, Any] = {key: entry[key] for key in ("id", "time") if key in entry}
    found = False
    for change in _items(entry, "changes"):
        found = True
        yield from _change_events(about, head, change)
    for channel in _MESSAGING_LISTS:
        for item in _items(entry, channel):
            found = True
            yield _messaging_event(about, head, channel, item)
    if not found and not any(entry.get(name) == [] for name in ("changes", *_MESSAGING_LISTS)):
        # Older subscriptions only name the fields that changed, and nothing but the time of
        # sending tells one such notice from the next.
        yield Incoming(
            id=derived_id(about, entry),
            type=about,
            payload={"object": about, "entry": [entry]},
            subject=subject_or_none(entry.get("id")),
            occurred_at_ms=seconds_ms(entry.get("time")),
            id_is_derived=True,
        )


def _change_events(about: str, head: dict[str, Any], change: dict[str, Any]) -> Iterator[Incoming]:
    field = identifier(change.get("field"), 'the field "field"')
    value = change.get("value")
    lists = [
        name
        for name in (_WHATSAPP_LISTS if about == "whatsapp_business_account" else ())
        if isinstance(at(value, name), list)
    ]
    if "calls" in lists:
        lists = [name for name in lists if name != "errors"]
    if not isinstance(value, dict) or not lists:
        telling = first_at(value, *_TELLING) is not None
        yield Incoming(
            id=derived_id(about, head.get("id"), field, value, None if telling else head.get("time")),
            type=identifier(f"{about}.{field}", "the type"),
            payload={"object": about, "entry": [{**head, "changes": [change]}]},
            subject=subject_or_none(at(value, "from", "id") or head.get("id")),
            occurred_at_ms=seconds_ms(first_at(value, "created_time", "timestamp") or head.get("time")),
            id_is_derived=True,
        )
        return
    rest = {key: inner for key, inner in value.items() if key not in lists}
    for name in lists:
        for item in _items(value, name):
            phone_id = at(value, "metadata", "phone_number_id")
            event_id, is_derived = _whatsapp_id(name, item, phone_id, head)
            alone = {**change, "value": {**rest, name: [item]}}
            yield Incoming(
                id=event_id,
                type=identifier(f"{about}.{name if field == 'messages' else field}", "the type"),
                payload={"object": about, "entry": [{**head, "changes": [alone]}]},
                subject=_party(item),
                occurred_at_ms=seconds_ms(item.get("timestamp")),
                id_is_derived=is_derived,
            )


def _whatsapp_id(name: str, item: dict[str, Any], phone_id: object, head: dict[str, Any]) -> tuple[str, bool]:
    message_id = text_or_none(item.get("id"))
    status = text_or_none(item.get("status"))
    if name == "messages" and message_id:
        return _composed(message_id), False
    if name == "message_echoes" and message_id:
        return _composed(message_id, name), False
    if name == "statuses" and message_id and status:
        # To a group, each of its members delivers and reads.
        member = first_at(item, "recipient_participant_id", "recipient_participant_user_id")
        return _composed(message_id, status, *filter(None, [text_or_none(member)])), False
    call_event = text_or_none(item.get("event"))
    if name == "calls" and message_id and call_event:
        return _composed(message_id, call_event), False
    # An error says neither when nor whose number's it is; "rate limit hit" of one must not hide another's.
    sent_at = None if "timestamp" in item else head.get("time")
    return derived_id(name, head.get("id"), phone_id, item, sent_at), True


def _party(item: dict[str, Any]) -> str | None:
    if item.get("direction") == "BUSINESS_INITIATED":  # a call of ours
        return subject_or_none(first_at(item, "to", "to_user_id"))
    return subject_or_none(first_at(item, *_PARTIES, *_OTHER_PARTIES))


def _messaging_event(about: str, head: dict[str, Any], channel: str, item: dict[str, Any]) -> Incoming:
    what = next((name for name in item if name not in _ENVELOPE), channel)
    content = item.get(what)
    # A message taken back comes as one more message under the same id, and so does its echo.
    marks = [
        *(name for name in ("is_deleted", "is_echo") if at(content, name) is True),
        *(["standby"] if channel == "standby" else []),
    ]
    message_id = text_or_none(at(content, "mid"))
    is_derived = what not in ("message", "postback") or message_id is None
    if message_id is None or is_derived:
        event_id = derived_id(about, head.get("id"), channel, item)
    elif what == "message" and not marks:
        event_id = _composed(message_id)
    else:
        event_id = _composed(message_id, what, *marks)
    sender = at(item, "recipient", "id") if "is_echo" in marks else at(item, "sender", "id")
    return Incoming(
        id=event_id,
        type=identifier(f"{about}.{what}", "the type"),
        payload={"object": about, "entry": [{**head, channel: [item]}]},
        subject=subject_or_none(sender),
        occurred_at_ms=millis_or_none(item.get("timestamp")),
        id_is_derived=is_derived,
    )


def _items(value: dict[str, Any], name: str) -> list[dict[str, Any]]:
    items = value.get(name)
    if items is None:
        return []
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise malformed(f'"{name}" is no list of objects')
    return items


def _composed(*parts: str) -> str:
    """Give one id as it is and several as a JSON array; hashed where Instagram's are too long.

    One odd id must not cost the rest of the batch.
    """
    text = parts[0] if len(parts) == 1 else msgspec.json.encode(parts).decode()
    return text if len(text) <= TEXT_CHARS_MAX and text.isprintable() else derived_id(*parts)
