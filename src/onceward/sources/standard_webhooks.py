"""Standard Webhooks, and the senders on it: ``v1,<base64>`` over ``id.timestamp.body``.

One module for the specification and for Svix, Clerk, Resend and OpenAI, which differ in their
names and documentation only. The id is under the signature, and so is the time.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from onceward.core.arrival import UNVERIFIED, Incoming, Verified
from onceward.core.duration import Duration
from onceward.core.errors import BodyMalformed, ConfigError, SignatureInvalid
from onceward.core.messages import HttpRequest
from onceward.sources.base import TEXT_CHARS_MAX, identifier, parse_json, subject_or_none
from onceward.sources.parts.asymmetric import canonical_base64, decoded_base64, public_key, verifies
from onceward.sources.parts.fields import at, first_at, iso_or_none, millis_or_none, seconds_ms
from onceward.sources.parts.private_keys import private_key, signature_of
from onceward.sources.parts.secret import Secret
from onceward.sources.signing import base64_hmac, check_count, matching_key, sole_header, unix_ms
from onceward.sources.timed import TimedSource

if TYPE_CHECKING:
    from onceward.sources.parts.asymmetric import PublicKey

SYMMETRIC, PUBLIC, PRIVATE = "whsec_", "whpk_", "whsk_"
FAMILIES = ("webhook", "svix")
PARTS = ("id", "timestamp", "signature")
# What a message without a type of its own is called.
UNTYPED = "message"
# Unix seconds stay below this for thousands of years, and milliseconds have been above since 1973.
_MS_FROM = 100_000_000_000


class StandardWebhooks(TimedSource):
    """Messages of a sender that follows the Standard Webhooks specification.

    Args:
        name: see `Source`.
        secrets: ``whsec_…`` (base64 of the key, its padding optional; the prefix too), or the
            sender's public key ``whpk_…``; with ``whsk_…``, a private key, tests can sign as well.
        insecure: see `Source`.
        tolerance: see `TimedSource`; five minutes by default.

    The headers may be called ``webhook-…`` or ``svix-…``. The type is ``type`` of the body, or
    ``message`` where it has none. The subject is ``data.id``.
    """

    kind: ClassVar[str] = "standard_webhooks"
    _subject_names: ClassVar[tuple[str, ...]] = ("id",)
    docs_url: ClassVar[str] = (
        "https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md"
    )
    docs_date: ClassVar[str] = "2026-11-29"
    # The specification's example: ten attempts, the last three days and four hours after the first.
    retry_horizon: ClassVar[timedelta | None] = timedelta(days=3, hours=4)
    retry_docs: ClassVar[str] = docs_url
    reply_deadline: ClassVar[timedelta | None] = timedelta(seconds=15)
    # Which family of names `sign` writes.
    family: ClassVar[str] = "webhook"

    def __init__(
        self,
        *,
        name: str | None = None,
        secrets: str | Sequence[str] = (),
        insecure: bool = False,
        tolerance: Duration | None = None,
    ) -> None:
        super().__init__(name=name, secrets=secrets, insecure=insecure, tolerance=tolerance)
        self._keys = [_key(secret, self.name) for secret in self.secrets]

    def verify(self, request: HttpRequest, now_ms: int) -> Verified:
        """Check one of the signatures, then the age; versions other than v1 and v1a are ignored."""
        if self.insecure:
            return UNVERIFIED
        message_id, timestamp, signature = signed_headers(request)
        sent_at_ms = unix_ms(timestamp)
        message = b"%b.%b.%b" % (message_id, timestamp, request.body)
        index = self._matching(message, signature)
        self.check_age(sent_at_ms, now_ms)
        return Verified(index, sent_at_ms)

    def _matching(self, message: bytes, header: bytes) -> int:
        """Give the position of the secret or public key whose signature is in the header."""
        offered = header.split(b" ")
        check_count(offered)
        hmacs = [one[3:] for one in offered if one.startswith(b"v1,")]
        raws = [canonical_base64(one[4:]) for one in offered if one.startswith(b"v1a,")]
        for index, key in enumerate(self._keys):
            if isinstance(key, _SharedKey):
                try:
                    matching_key([key.raw], message, hmacs, encoding="base64")
                except SignatureInvalid:
                    continue
                return index
            if any(raw is not None and verifies(key, message, raw, "ed25519") for raw in raws):
                return index
        raise SignatureInvalid(
            f"no signature matches (v1 offered: {len(hmacs)}, v1a: {len(raws)}, secrets tried: {len(self._keys)})"
        )

    def normalize(self, request: HttpRequest) -> list[Incoming]:
        """Give the one event of the message; its id is the message's."""
        body = parse_json(request.body)
        data = at(body, "data")
        return [
            Incoming(
                id=_message_id(request),
                type=_type(body),
                payload=body,
                payload_is_body=True,
                subject=subject_or_none(first_at(data, *self._subject_names)),
                occurred_at_ms=_time(first_at(body, "timestamp", "created_at")),
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
        """Give the headers of a message with the id *event_id*; the type stands in the body."""
        seconds = b"%d" % (now_ms // 1000)
        message = b"%b.%b.%b" % (event_id.encode("utf-8"), seconds, body)
        text = self.signing_key(secret_index).decode("utf-8")
        if text.startswith(PRIVATE):
            raw = signature_of(private_key(text.removeprefix(PRIVATE), source=self.name), message)
            signature = "v1a," + base64.b64encode(raw).decode()
        elif text.startswith(PUBLIC):
            raise ConfigError(
                f"Source {self.name!r} has a public key at {secret_index}.",
                means="It verifies and cannot sign.",
                todo="For tests give it the private key, which begins with whsk_.",
            )
        else:
            key = self._keys[secret_index]
            assert isinstance(key, _SharedKey)  # by the prefix
            signature = "v1," + base64_hmac(key.raw, message).decode()
        values = (event_id, seconds.decode(), signature)
        return {
            "Content-Type": "application/json",
            **{f"{self.family}-{part}": value for part, value in zip(PARTS, values, strict=True)},
        }


class Svix(StandardWebhooks):
    """Messages that Svix sends, for itself or for a sender on it; see `StandardWebhooks`."""

    kind: ClassVar[str] = "svix"
    docs_url: ClassVar[str] = "https://docs.svix.com/receiving/verifying-payloads/how-manual"
    retry_horizon: ClassVar[timedelta | None] = timedelta(hours=28)
    retry_docs: ClassVar[str] = "https://docs.svix.com/retries"
    family: ClassVar[str] = "svix"


class Clerk(Svix):
    """Events of a Clerk application, sent by Svix; see `StandardWebhooks`."""

    kind: ClassVar[str] = "clerk"
    docs_url: ClassVar[str] = "https://clerk.com/docs/webhooks/overview"


class Resend(Svix):
    """Events of a Resend account, sent by Svix; see `StandardWebhooks`. The subject is the e-mail's id."""

    kind: ClassVar[str] = "resend"
    # Most are about an e-mail, which is called so; contacts and domains have a plain id.
    _subject_names: ClassVar[tuple[str, ...]] = ("email_id", "id")
    docs_url: ClassVar[str] = "https://resend.com/docs/webhooks"
    retry_docs: ClassVar[str] = "https://resend.com/docs/webhooks/retries-and-replays"


class OpenAI(StandardWebhooks):
    """Events of an OpenAI project; see `StandardWebhooks`."""

    kind: ClassVar[str] = "openai"
    docs_url: ClassVar[str] = "https://platform.openai.com/docs/guides/webhooks"
    retry_horizon: ClassVar[timedelta | None] = timedelta(hours=72)
    retry_docs: ClassVar[str] = ""


def decoded_secret(text: str, *, source: str) -> bytes:
    """Give the key of a ``whsec_…`` secret; `ConfigError` when it is not base64 or empty."""
    key = decoded_base64(text.removeprefix(SYMMETRIC).rstrip("=").encode("utf-8"))
    if not key:
        raise ConfigError(
            f"Source {source!r} was given a secret of {len(text)} characters that is not base64.",
            means="No delivery could be verified with it.",
            todo="Give it the whole secret as the sender's settings show it; it begins with whsec_.",
        )
    return key


def signed_headers(request: HttpRequest) -> tuple[bytes, bytes, bytes]:
    """Give id, timestamp and signature, all of one family of header names.

    Where a sender writes both families they must say the same, since it would not be clear which
    of two ids counts.

    Raises:
        SignatureInvalid: one is missing, empty or repeated; the families differ; or the id holds a
            dot, with which one signature would fit several splits of id, time and body.
    """
    given = [[request.header_values(f"{family}-{part}") for part in PARTS] for family in FAMILIES]
    if any(given[0]) and any(given[1]) and given[0] != given[1]:
        raise SignatureInvalid("webhook-… and svix-… headers are mixed")
    family = FAMILIES[0] if any(given[0]) else FAMILIES[1] if any(given[1]) else FAMILIES[0]
    message_id, timestamp, signature = (sole_header(request, f"{family}-{part}") for part in PARTS)
    if b"." in message_id:
        raise SignatureInvalid(f"the {family}-id header holds a dot")
    return message_id, timestamp, signature


def _message_id(request: HttpRequest) -> str:
    values = request.header_values("webhook-id") or request.header_values("svix-id")
    if len(values) > 1:
        raise BodyMalformed(
            f"The delivery has {len(values)} id headers.",
            means="It is not clear which one names the event; nothing was stored.",
            todo="Look at the proxies between the sender and this receiver.",
        )
    return identifier(values[0].decode("latin-1") if values else None, "the header webhook-id")


def _type(body: Any) -> str:
    # A message without a readable type is still a message: refused, it would be lost.
    found = at(body, "type")
    if isinstance(found, str) and 0 < len(found) <= TEXT_CHARS_MAX and found.isprintable():
        return found
    return UNTYPED


def _time(value: object) -> int | None:
    """Read the time of a body: ISO 8601 by the specification, Unix seconds or milliseconds elsewhere."""
    if type(value) is int:
        return millis_or_none(value) if value >= _MS_FROM else seconds_ms(value)
    return iso_or_none(value)


class _SharedKey:
    """The bytes of a shared secret, which no traceback or debugger shows."""

    __slots__ = ("raw",)

    def __init__(self, raw: bytes) -> None:
        self.raw = raw


def _key(secret: Secret, source: str) -> _SharedKey | PublicKey:
    text = secret.key.decode("utf-8")
    if text.startswith(PUBLIC):
        return public_key(text.removeprefix(PUBLIC), "ed25519", source=source)
    if text.startswith(PRIVATE):
        return private_key(text.removeprefix(PRIVATE), source=source).public_key()
    return _SharedKey(decoded_secret(text, source=source))
