"""Adyen: a signature in every item of a standard webhook, or one over the body in a header.

Standard webhooks sign eight fields of each item and nothing else: reason, payment method and
``additionalData`` can be written by whoever can write the body. Every item is verified, not only the
first. Webhooks of Adyen's platforms sign the whole body (``HmacSignature``).
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, ClassVar

import msgspec

from onceward.core.arrival import UNVERIFIED, Incoming, Outcome, Verified
from onceward.core.errors import ConfigError, SignatureInvalid
from onceward.core.messages import HttpRequest, HttpResponse
from onceward.sources.base import Source, derived_id, identifier, parse_object, subject_or_none
from onceward.sources.parts.fields import iso_or_none
from onceward.sources.parts.replies import plain_text, when_taken
from onceward.sources.parts.shape import list_of, object_of
from onceward.sources.parts.unsigned_body import object_to_verify, text_bytes
from onceward.sources.signing import base64_hmac, matching_key, sole_header

HEADER = "HmacSignature"
ITEMS_MAX = 1000
_SIGNED = ("pspReference", "originalReference", "merchantAccountCode", "merchantReference")


class Adyen(Source):
    """Webhooks of Adyen: payments (standard), and platforms (classic ones too), transfers, management.

    Args:
        name: see `Source`.
        secrets: HMAC keys, hexadecimal as Adyen's Customer Area shows them.
        insecure: see `Source`.
        basic_auth: ``user:password`` that deliveries must also carry, if the webhook is set so;
            several during a change.

    An item's id is derived from its ``pspReference``, ``eventCode`` and ``success``, by which Adyen
    tells duplicates; the type is its ``eventCode``; the subject the payment: ``originalReference``,
    else ``pspReference``. A platform event's id is derived from its body without the time of sending.

    Raises:
        ConfigError: see `Source`; a key that is not hexadecimal, a ``basic_auth`` without a colon.
    """

    kind: ClassVar[str] = "adyen"
    docs_url: ClassVar[str] = "https://docs.adyen.com/development-resources/webhooks/verify-hmac-signatures"
    docs_date: ClassVar[str] = "2026-10-31"
    retry_horizon: ClassVar[timedelta | None] = timedelta(days=30)
    retry_docs: ClassVar[str] = "https://docs.adyen.com/development-resources/webhooks/troubleshoot"
    reply_deadline: ClassVar[timedelta | None] = timedelta(seconds=10)
    is_batching: ClassVar[bool] = True

    def __init__(
        self,
        *,
        name: str | None = None,
        secrets: str | Sequence[str] = (),
        insecure: bool = False,
        basic_auth: str | Sequence[str] = (),
    ) -> None:
        super().__init__(name=name, secrets=secrets, insecure=insecure)
        self._keys = [_hex_key(secret.key, self.name) for secret in self.secrets]
        logins = [basic_auth] if isinstance(basic_auth, str) else list(basic_auth)
        if not all(":" in login for login in logins):
            raise ConfigError(
                f"Source {self.name!r} has a basic_auth without a colon.",
                means="No delivery can carry it.",
                todo='Write "user:password".',
            )
        self._logins = [login.encode() for login in logins]

    def verify(self, request: HttpRequest, now_ms: int) -> Verified:
        """Check the header's signature, or that of every item; Adyen signs no time."""
        if self.insecure:
            return UNVERIFIED
        if self._logins:
            self._check_login(request)
        if request.header_values(HEADER):
            return Verified(self._index(request.body, sole_header(request, HEADER)))
        indexes = [self._item_index(item) for item in _items_to_verify(request.body)]
        return Verified(indexes[0])

    def _item_index(self, item: dict[str, Any]) -> int:
        extra = item.get("additionalData")
        given = extra.get("hmacSignature") if isinstance(extra, dict) else None
        return self._index(_signed_text(item), text_bytes(given, "hmacSignature in an item"))

    def _index(self, message: bytes, given: bytes) -> int:
        return matching_key(self._keys, message, [given], encoding="base64")

    def _check_login(self, request: HttpRequest) -> None:
        scheme, _, encoded = sole_header(request, "Authorization").partition(b" ")
        try:
            given = base64.b64decode(encoded.strip(), validate=True)
        except (ValueError, binascii.Error) as error:
            raise SignatureInvalid("the Authorization header cannot be read") from error
        matches = [hmac.compare_digest(login, given) for login in self._logins]
        if scheme.lower() != b"basic" or not any(matches):
            raise SignatureInvalid("user and password do not match")

    def normalize(self, request: HttpRequest) -> list[Incoming]:
        """Give an event for each item, or the one of a platform webhook."""
        body = parse_object(request.body)
        if "notificationItems" not in body:
            return [_platform_event(body)]
        items = list_of(body["notificationItems"], "notificationItems")
        return [_event(_item(entry)) for entry in items]

    def respond(self, outcome: Outcome) -> HttpResponse | None:
        """Give ``[accepted]``, by which Adyen knows that a delivery arrived."""
        return when_taken(outcome, plain_text("[accepted]"))

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
        """Give the headers of a platform webhook, which signs the body as it is."""
        self.signing_key(secret_index)
        signature = base64_hmac(self._keys[secret_index], body)
        return self._headers() | {"Protocol": "HmacSHA256", HEADER: signature.decode()}

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
        """Give the request, with a signature in each item of a standard webhook."""
        parsed = parse_object(body)
        if "notificationItems" not in parsed:
            return super().signed_request(body, now_ms, secret_index=secret_index, url=url)
        self.signing_key(secret_index)
        for entry in parsed["notificationItems"]:
            item = _item(entry)
            signature = base64_hmac(self._keys[secret_index], _signed_text(item)).decode()
            item["additionalData"] = {**(item.get("additionalData") or {}), "hmacSignature": signature}
        return HttpRequest.of(msgspec.json.encode(parsed), self._headers(), url=url, received_at_ms=now_ms)

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json"}
        if self._logins:
            headers["Authorization"] = f"Basic {base64.b64encode(self._logins[0]).decode()}"
        return headers


def _hex_key(text: bytes, source: str) -> bytes:
    try:
        return binascii.unhexlify(text)
    except (ValueError, binascii.Error) as error:
        raise ConfigError(
            f"Source {source!r} was given a key of {len(text)} characters that is not hexadecimal.",
            means="No delivery could be verified with it.",
            todo="Give it the HMAC key as Adyen's Customer Area shows it.",
        ) from error


def _items_to_verify(raw: bytes) -> list[dict[str, Any]]:
    entries = object_to_verify(raw).get("notificationItems")
    if not isinstance(entries, list) or not entries:
        raise SignatureInvalid(f"neither a {HEADER} header nor an item with a signature")
    if len(entries) > ITEMS_MAX:
        raise SignatureInvalid(f"{len(entries)} items, at most {ITEMS_MAX} are verified")
    items = [entry.get("NotificationRequestItem") if isinstance(entry, dict) else None for entry in entries]
    if not all(isinstance(item, dict) for item in items):
        raise SignatureInvalid("an item is no NotificationRequestItem")
    return items  # type: ignore[return-value]  # all of them are objects, by the line above


def _signed_text(item: dict[str, Any]) -> bytes:
    amount = item.get("amount")
    money = amount if isinstance(amount, dict) else {}
    values = [item.get(name) for name in _SIGNED]
    values += [money.get("value"), money.get("currency"), item.get("eventCode"), item.get("success")]
    # Joined without escaping, as Adyen does it.
    return ":".join(_signed_value(value) for value in values).encode("utf-8", "surrogatepass")


def _signed_value(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, int) and value.bit_length() <= 64:
        return str(value)
    raise SignatureInvalid("a signed field is no text or whole number")


def _item(entry: object) -> dict[str, Any]:
    item = object_of(entry, "an item").get("NotificationRequestItem")
    return object_of(item, "a NotificationRequestItem")


def _event(item: dict[str, Any]) -> Incoming:
    reference = identifier(item.get("pspReference"), 'an item\'s "pspReference"')
    event_code = identifier(item.get("eventCode"), 'an item\'s "eventCode"')
    return Incoming(
        id=derived_id("adyen", reference, event_code, _lower(item.get("success"))),
        type=event_code,
        payload=item,
        subject=subject_or_none(item.get("originalReference")) or reference,
        occurred_at_ms=iso_or_none(item.get("eventDate")),
        id_is_derived=True,
    )


def _lower(success: object) -> str:
    return str(success).lower() if isinstance(success, (str, bool)) else ""


def _platform_event(body: dict[str, Any]) -> Incoming:
    # Classic platforms write eventType, eventDate and content for what the newer call type and data.
    data = body.get("data", body.get("content"))
    about = data if isinstance(data, dict) else {}
    times = (about.get("creationDate"), body.get("timestamp"), body.get("eventDate"))
    return Incoming(
        id=derived_id("adyen", {name: value for name, value in body.items() if name != "timestamp"}),
        type=identifier(body.get("type", body.get("eventType")), 'the field "type" or "eventType"'),
        payload=body,
        payload_is_body=True,
        subject=subject_or_none(about.get("id")) or subject_or_none(about.get("accountHolderCode")),
        occurred_at_ms=next((at for at in map(iso_or_none, times) if at is not None), None),
        id_is_derived=True,
    )
