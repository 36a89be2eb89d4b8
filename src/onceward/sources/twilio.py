"""Twilio: ``X-Twilio-Signature``, base64 of an HMAC-SHA1 over the address and the form's fields.

Names are sorted, and values of one name de-duplicated and sorted. With JSON the address carries
``bodySHA256``, and the signature covers the address alone. Whether Twilio counts a port in, and how the
query is escaped in what it signs, depends on the product, so the address is tried in each of the ways
that its own libraries try. Where a rule of the account says so, a shared key signs in place of the auth
token; a header says which and with which hash, and stands outside the signature, so it only ever chooses
among the shared keys.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any, ClassVar
from urllib.parse import quote

from onceward.core.arrival import UNVERIFIED, Incoming, Outcome, Verified
from onceward.core.errors import SignatureInvalid
from onceward.core.messages import HttpRequest, HttpResponse
from onceward.sources.base import (
    Source,
    derived_id,
    identifier,
    parse_json,
    sole_text_header,
    subject_or_none,
)
from onceward.sources.parts.called_url import called_urls, checked_public_url
from onceward.sources.parts.fields import (
    first_at,
    integer_or_none,
    iso_or_none,
    mail_date_or_none,
    text_or_none,
)
from onceward.sources.parts.forms import (
    URLENCODED,
    form_fields,
    form_object,
    is_urlencoded,
    read_fields,
    signed_fields,
)
from onceward.sources.parts.replies import when_taken
from onceward.sources.parts.secret import joined_texts
from onceward.sources.parts.shape import malformed
from onceward.sources.signing import base64_hmac, matching_secret, sole_header

HEADER = "X-Twilio-Signature"
TOKEN_HEADER = "I-Twilio-Idempotency-Token"  # noqa: S105 (a header's name)
_PRODUCTS = "Look at which of Twilio's products sends to this address."
SETTINGS_HEADER = "X-Twilio-Webhooks-Signature-Settings"
_ALGORITHMS = {b"HMAC_SHA1": "sha1", b"HMAC_SHA256": "sha256"}
HASH_FIELD = "bodySHA256"
TWIML = b'<?xml version="1.0" encoding="UTF-8"?><Response/>'
# Field with the state, what it is a state of; the first that is there counts.
_STATES = (
    ("RecordingStatus", "recording"),
    ("TranscriptionStatus", "transcription"),
    ("MessageStatus", "message"),
    ("SmsStatus", "message"),
    ("FaxStatus", "fax"),
    ("StatusCallbackEvent", "conference"),
    ("CallStatus", "call"),
    ("RoomStatus", "room"),
    ("VerificationStatus", "verification"),
)
_SUBJECTS = ("RecordingSid", "TranscriptionSid", "MessageSid", "SmsSid", "FaxSid", "ConferenceSid", "CallSid")
_OTHER_SUBJECTS = ("RoomSid", "TaskSid", "ConversationSid", "ResourceSid", "Sid", "AccountSid")
_AUTHORITY = re.compile(rb"(https?)://([^/?#]*)(.*)", re.IGNORECASE | re.DOTALL)
_PORT = re.compile(rb":[0-9]*$")
# Beside letters, digits, "-", "_", "." and "~": what encodeURIComponent leaves as it is.
_UNESCAPED = "!*'()"


class Twilio(Source):
    """Webhooks of one Twilio account: messages, calls, status callbacks, event streams.

    Args:
        name: see `Source`.
        secrets: the account's auth token; list the new one beside it before it is promoted.
        insecure: see `Source`.
        shared_keys: the secrets of the shared keys with which webhook rules have Twilio sign. They stand
            behind the auth tokens in `secrets`.
        public_url: the base under which Twilio reaches the app, where proxies hide it, e.g.
            ``https://hooks.example.com``; path and query are those of the request.

    The id is ``I-Twilio-Idempotency-Token`` where Twilio sends it, else derived from path and
    fields; of event streams, the event's own. The type is what happened to what:
    ``message.received``, ``message.delivered``, ``call.completed``. The subject is the message's or
    call's sid, the version ``SequenceNumber`` where there is one. The reply is an empty TwiML document.
    """

    kind: ClassVar[str] = "twilio"
    docs_url: ClassVar[str] = "https://www.twilio.com/docs/usage/webhooks/webhooks-security"
    docs_date: ClassVar[str] = "2026-11-30"
    # Of event streams; other webhooks are tried again only where the address asks for it.
    retry_horizon: ClassVar[timedelta | None] = timedelta(hours=4)
    reply_deadline: ClassVar[timedelta | None] = timedelta(seconds=15)
    is_batching: ClassVar[bool] = True

    def __init__(
        self,
        *,
        name: str | None = None,
        secrets: str | Sequence[str] = (),
        insecure: bool = False,
        shared_keys: str | Sequence[str] = (),
        public_url: str | None = None,
    ) -> None:
        super().__init__(name=name, secrets=joined_texts(secrets, shared_keys), insecure=insecure)
        self._token_count = len(joined_texts(secrets))
        self.public_url = checked_public_url(public_url, source=self.name)

    def verify(self, request: HttpRequest, now_ms: int) -> Verified:
        """Check the signature over the address, and over the form or the body's hash in the address."""
        if self.insecure:
            return UNVERIFIED
        given = sole_header(request, HEADER)
        keys, first, algorithm = self.secrets[: self._token_count], 0, "sha1"
        named = _named_algorithm(request)
        if named is not None:
            keys, first, algorithm = self.secrets[self._token_count :], self._token_count, named
        urls = called_urls(request, self.public_url)
        suffix = signed_fields(request.body) if _has_fields(request) else b""
        if not suffix:
            # Nothing of the body is under the signature, which then fits any body without fields.
            _check_body_hash(request, urls[0])
        refusal: SignatureInvalid | None = None
        for url in dict.fromkeys(variant for called in urls for variant in _variants(called)):
            try:
                index = matching_secret(keys, url + suffix, [given], algorithm, encoding="base64")
                return Verified(first + index)
            except SignatureInvalid as error:
                refusal = error
        raise refusal or SignatureInvalid("the address that Twilio called cannot be read")

    def normalize(self, request: HttpRequest) -> list[Incoming]:
        """Give the event of a form, or every event of a JSON list."""
        if not _has_fields(request):
            body = parse_json(request.body)
            items = body if isinstance(body, list) else [body]
            return [_json_event(item, whole=not isinstance(body, list)) for item in items]
        fields = read_fields(request.body)
        form = form_object(fields)
        has_token = bool(request.header_values(TOKEN_HEADER))
        return [
            Incoming(
                id=sole_text_header(request, TOKEN_HEADER)
                if has_token
                else derived_id(request.path, request.query, sorted(fields)),
                type=identifier(_form_type(form), "the type"),
                payload=form,
                subject=subject_or_none(first_at(form, *_SUBJECTS, *_OTHER_SUBJECTS)),
                occurred_at_ms=mail_date_or_none(form.get("Timestamp")) or iso_or_none(form.get("Timestamp")),
                version=integer_or_none(form.get("SequenceNumber")),
                id_is_signed=not has_token,
                id_is_derived=not has_token,
            )
        ]

    def respond(self, outcome: Outcome) -> HttpResponse | None:
        """Give an empty TwiML document: say nothing, do nothing."""
        return when_taken(outcome, HttpResponse.of(200, TWIML, {"Content-Type": "text/xml; charset=utf-8"}))

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
        """Give the headers of a request to *url*; of JSON, that must have ``bodySHA256`` already.

        `signed_request` puts it there.
        """
        is_json = body.lstrip()[:1] in (b"{", b"[")
        message = url.encode("utf-8") + (b"" if is_json else signed_fields(body))
        is_shared = secret_index >= self._token_count
        signature = base64_hmac(self.signing_key(secret_index), message, "sha256" if is_shared else "sha1")
        headers = {
            "Content-Type": "application/json" if is_json else URLENCODED,
            HEADER: signature.decode(),
        }
        if is_shared:
            headers[SETTINGS_HEADER] = "key=local,algorithm=HMAC_SHA256"
        return headers | ({TOKEN_HEADER: event_id} if event_id and not is_json else {})

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
        """Give the request to *url*, by default the ``public_url``; of JSON with the body's hash in it."""
        url = url or f"{self.public_url or 'https://localhost'}/"
        if body.lstrip()[:1] in (b"{", b"[") and f"{HASH_FIELD}=" not in url:
            url += f"{'&' if '?' in url else '?'}{HASH_FIELD}={hashlib.sha256(body).hexdigest()}"
        return super().signed_request(
            body, now_ms, event_id=event_id, event_type=event_type, secret_index=secret_index, url=url
        )


def _named_algorithm(request: HttpRequest) -> str | None:
    """Give the hash that a header such as ``key=…,algorithm=HMAC_SHA256`` names.

    None where there is no such header or it names none: then it is the auth token that signs, as
    Twilio's libraries have it.
    """
    values = request.header_values(SETTINGS_HEADER)
    pairs = [part.partition(b"=") for part in b",".join(values).split(b",")]
    named = [value.strip().upper() for name, _, value in pairs if name.strip() == b"algorithm"]
    if not any(named):
        return None
    if len(values) > 1 or len(named) > 1 or named[0] not in _ALGORITHMS:
        raise SignatureInvalid(f"{SETTINGS_HEADER} names no algorithm that is known")
    return _ALGORITHMS[named[0]]


def _has_fields(request: HttpRequest) -> bool:
    # A request without a body is a form without fields.
    return is_urlencoded(request) or not request.body


def _check_body_hash(request: HttpRequest, url: bytes) -> None:
    query = url.partition(b"#")[0].partition(b"?")[2]
    hashes = [value for name, value in form_fields(query) or () if name == HASH_FIELD]
    if not hashes and _has_fields(request):
        return
    if len(hashes) != 1:
        raise SignatureInvalid(f"no signed field, and the address has {len(hashes)} {HASH_FIELD}")
    given = hashes[0].encode("utf-8", "surrogatepass")
    if not hmac.compare_digest(hashlib.sha256(request.body).hexdigest().encode(), given):
        raise SignatureInvalid(f"{HASH_FIELD} of the address is not the body's hash")


def _variants(url: bytes) -> Iterator[bytes]:
    """Give the addresses that may have been signed for the one that was called, itself first.

    Twilio signs some queries before their escaping and sends them after it, and others the other way
    round: an apostrophe and its ``%27``, a space's ``+`` and its ``%20`` (twilio-node issue 1059).
    """
    yield from _port_variants(url)
    head, mark, query = url.partition(b"?")
    fields = form_fields(query)
    if not mark or not fields:
        return
    pairs = [f"{quote(name, _UNESCAPED)}={quote(value, _UNESCAPED)}" for name, value in fields]
    for spelling in ("&".join(pairs).encode("ascii"), query.replace(b"'", b"%27")):
        yield from _port_variants(b"%b?%b" % (head, spelling))


def _port_variants(url: bytes) -> Iterator[bytes]:
    """Give the address as it is, without its port, and with the default one where it has none."""
    yield url
    parts = _AUTHORITY.fullmatch(url)
    if parts is None:
        return
    scheme, authority, rest = parts.groups()
    bare = _PORT.sub(b"", authority)
    if bare != authority:
        yield b"%b://%b%b" % (scheme, bare, rest)
    else:
        yield b"%b://%b:%d%b" % (scheme, authority, 443 if scheme.lower() == b"https" else 80, rest)


def _form_type(form: dict[str, Any]) -> str:
    for field, what in _STATES:
        state = text_or_none(form.get(field))
        if state:
            # A room of Video says what happened in the field in which a conference does.
            is_room = what == "conference" and form.get("RoomSid") and not form.get("ConferenceSid")
            return f"{'room' if is_room else what}.{state}"
    return text_or_none(form.get("EventType")) or "webhook"


def _json_event(item: object, *, whole: bool) -> Incoming:
    """Give an event of a stream (CloudEvents), or of another webhook with a JSON body."""
    if not isinstance(item, dict):
        raise malformed("an event is no object", todo=_PRODUCTS)
    has_id = item.get("id") is not None and item.get("specversion") is not None
    event_type = first_at(item, "type", "EventType", "event_type")
    return Incoming(
        id=identifier(item["id"], 'the field "id"') if has_id else derived_id(item),
        type=identifier("webhook" if event_type is None else event_type, 'the field "type"'),
        payload=item,
        payload_is_body=whole,
        subject=subject_or_none(first_at(item, "subject", *_SUBJECTS, *_OTHER_SUBJECTS)),
        occurred_at_ms=iso_or_none(first_at(item, "time", "Timestamp", "timestamp")),
        id_is_derived=not has_id,
    )
