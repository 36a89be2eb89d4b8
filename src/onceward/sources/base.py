"""What a source is: three pure functions over a request, and a name.

The receiver calls them in this order: ``verify`` over the raw bytes, ``handshake``, ``normalize``.
They do no input or output and take the time as an argument, so a table of vectors can be run
through them without a server. Writing one of your own takes a dozen lines::

    class Acme(Source):
        kind = "acme"

        def verify(self, request: HttpRequest, now_ms: int) -> Verified:
            given = sole_header(request, "x-acme-signature")
            return Verified(matching_secret(self.secrets, request.body, [given]))

        def normalize(self, request: HttpRequest) -> list[Incoming]:
            body = parse_object(request.body)
            event_id = identifier(body.get("id"), "the id")
            return [Incoming(id=event_id, type="acme.event", payload=body, payload_is_body=True)]
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, ClassVar, Literal

import msgspec

from onceward.core import ids
from onceward.core.arrival import Incoming, Outcome, Verified
from onceward.core.errors import BodyMalformed, BodyNotStorable, ConfigError
from onceward.core.keywords import spelled
from onceward.core.messages import HttpRequest, HttpResponse
from onceward.core.triggers import Trigger
from onceward.sources.parts.secret import secrets_from

# Sources of our own events (RULINGS 12): emit/<type>, start/<workflow>, run/<id>, schedule/<name>.
RESERVED_NAMES = frozenset({"emit", "start", "run", "schedule"})
# The name is a path segment of the receiver, a column and a metric label: nothing to escape.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
# Longer than any provider's ids, and short enough for every index.
TEXT_CHARS_MAX = 255
_ID_BITS_MAX = 512


class Source(ABC):
    """A provider of events, under a name.

    Args:
        name: what the app calls it, unique in the app, a path segment of the receiver; two accounts
            of one provider are two names. By default the kind.
        secrets: signing secrets, any of which may match: list old and new during a rotation.
        insecure: accept deliveries without any check; for networks that are trusted otherwise.

    Raises:
        ConfigError: a name that cannot be used, no secret without ``insecure=True`` or both, a
            secret that can never match.
    """

    kind: ClassVar[str] = ""
    docs_url: ClassVar[str] = ""
    # When the facts of this class were last compared with the provider's page, ISO 8601.
    docs_date: ClassVar[str] = ""
    # How long the provider tries again by itself, and how long it waits for a reply; None: unknown.
    retry_horizon: ClassVar[timedelta | None] = None
    # The page of the provider's that says how long it tries again; empty: none was found that does.
    retry_docs: ClassVar[str] = ""
    reply_deadline: ClassVar[timedelta | None] = None
    # Whether one delivery may hold several events, and whether the provider promises their order.
    is_batching: ClassVar[bool] = False
    is_ordered: ClassVar[bool] = False
    # Methods with which the provider calls; others than POST are questions, never deliveries.
    methods: ClassVar[tuple[str, ...]] = ("POST",)
    # "unverified" only where the provider asks its question before it can sign it.
    handshake_phase: ClassVar[Literal["verified", "unverified"]] = "verified"
    # Whether verify or handshake may wait for the network (a certificate): it then runs in a thread.
    is_blocking: bool = False
    # Headers that are kept with a delivery beside those that verify and normalize ask for by name:
    # in lower case, "ce-*" for all that begin so. Credentials are never kept.
    kept_headers: ClassVar[tuple[str, ...]] = ()
    # What becomes of a body with Content-Encoding gzip or deflate: it is refused with 415; or it is
    # decoded first, where the provider signs the decoded bytes; or it is verified as it was sent, and
    # decoded for handshake and normalize.
    encoded_bodies: Literal["refused", "decoded", "as-sent"] = "refused"
    # Whether a genuine body that normalize calls malformed is kept as unparsed and answered 2xx, as
    # one is at which normalize fails, instead of refused with 400.
    keeps_malformed: bool = False
    # How far a signed time may lie from now; None where the provider signs no time.
    tolerance: timedelta | None = None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "__init__" in vars(cls):
            cls.__init__ = spelled(cls.__name__)(cls.__init__)  # type: ignore[method-assign]

    def __init__(
        self, *, name: str | None = None, secrets: str | Sequence[str] = (), insecure: bool = False
    ) -> None:
        self.name = checked_name(self.kind if name is None else name)
        self.secrets = secrets_from(secrets, source=self.name)
        self.insecure = insecure
        if insecure and self.secrets:
            raise ConfigError(
                f"Source {self.name!r} has secrets and insecure=True.",
                means="The secrets would never be used.",
                todo="Leave out one of the two.",
            )
        if not insecure and not self.secrets:
            raise ConfigError(
                f"Source {self.name!r} has no secret.",
                means="Anyone could send it events.",
                todo="Pass secrets=[…]; insecure=True accepts unsigned deliveries."
                + (f" What a secret is here: onceward sources {self.kind}" if self.kind else ""),
            )

    @abstractmethod
    def verify(self, request: HttpRequest, now_ms: int) -> Verified:
        """Give which secret the delivery was signed with.

        Args:
            request: as it came, its body byte for byte.
            now_ms: the time, Unix milliseconds, for senders that sign theirs.

        Raises:
            SignatureInvalid: it is not proven genuine; nothing else may be raised. `KeyUnavailable`, a
                kind of it, when the sender's key cannot be had now.
        """

    @abstractmethod
    def normalize(self, request: HttpRequest) -> list[Incoming]:
        """Give the events of a verified delivery: none, one or several; always the same ones.

        Args:
            request: as `verify` saw it.

        Raises:
            BodyMalformed: it cannot be read by anybody, and is refused; whatever else is raised is
                taken for a fault of this code: the delivery is kept as unparsed, to be read again.
        """

    def handshake(self, request: HttpRequest, now_ms: int) -> HttpResponse | None:
        """Give the answer when a request is a question of the protocol and no delivery, else None.

        Called after `verify`, or where `handshake_phase` is ``"unverified"`` before it; a request
        with another method than POST is only ever a question.

        Args:
            request: as `verify` saw it, or would see it.
            now_ms: the time, Unix milliseconds.

        Raises:
            SignatureInvalid: the question does not prove that it comes from the provider.
        """
        return None

    def respond(self, outcome: Outcome) -> HttpResponse | None:
        """Give the reply that the provider wants for an outcome; None for the receiver's own.

        A provider may never be told less than the truth: a reply to *refused*, *malformed* or
        *busy* outside 2xx, one to *accepted* and *duplicate* within it.
        """
        return None

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
        """Give the headers with which the provider would send *body*, for tests and local work.

        Args:
            body: the exact bytes of the request.
            now_ms: the time of sending, Unix milliseconds.
            event_id: the event's id, where the provider says it in a header.
            event_type: the event's type, where the provider says it in a header.
            secret_index: which of the source's secrets signs.
            url: the whole address it is sent to, where the provider signs that.

        Raises:
            ConfigError: this source cannot sign.
        """
        raise ConfigError(
            f"Source {self.name!r} ({type(self).__name__}) cannot sign a body of {len(body)} bytes.",
            means="It verifies only.",
            todo="Implement sign() on it.",
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
        """Give the whole request with which the provider would send *body*.

        It differs where the signature stands in the body; see `sign`, whose arguments and errors it has.
        """
        headers = self.sign(
            body, now_ms, event_id=event_id, event_type=event_type, secret_index=secret_index, url=url
        )
        return HttpRequest.of(body, headers, url=url, received_at_ms=now_ms)

    def signing_key(self, secret_index: int = 0) -> bytes:
        """Give one secret's bytes for `sign`; `ConfigError` when there is none at that position."""
        if not 0 <= secret_index < len(self.secrets):
            raise ConfigError(
                f"Source {self.name!r} has {len(self.secrets)} secrets and none at {secret_index}.",
                means="The body cannot be signed.",
                todo="Give the source a secret, or another position counted from 0.",
            )
        return self.secrets[secret_index].key

    def __getitem__(self, type: str) -> Trigger:  # noqa: A002 (the glossary's word)
        """Give the trigger for events of that type: exact, ``"invoice.*"`` or ``"*"``."""
        return Trigger(self.name, type)

    def __repr__(self) -> str:
        trust = "insecure=True" if self.insecure else f"secrets={list(self.secrets)}"
        return f"{type(self).__name__}(name={self.name!r}, {trust})"


def checked_name(name: str) -> str:
    """Give *name* back when a source may have it.

    Raises:
        ConfigError: it is reserved, or not 1 to 64 letters, digits, ``.``, ``_`` or ``-`` that begin
            with a letter or digit.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(
            f"A source cannot be called {name!r}.",
            means="The name is part of the receiver's address and of every event's identity.",
            todo="Use 1 to 64 letters, digits, '.', '_' or '-', the first a letter or digit.",
        )
    if name in RESERVED_NAMES:
        raise ConfigError(
            f"A source cannot be called {name!r}.",
            means="Onceward's own events carry that name.",
            todo="Choose another name.",
        )
    return name


def parse_json(raw: bytes) -> Any:
    """Give the JSON value that *raw* holds.

    Raises:
        BodyMalformed: it is not UTF-8 JSON, or nested too deeply. `BodyNotStorable`, a kind of it, when
            it is JSON that holds half a surrogate pair or a number out of range.
    """
    try:
        return msgspec.json.decode(raw)
    except (ValueError, RecursionError) as error:
        if _is_json(raw):
            raise BodyNotStorable(
                f"The body of {len(raw)} bytes is JSON that no store could keep: {error}.",
                means="It holds half a surrogate pair, or a number out of range.",
                todo="Look at the delivery, which is kept as it came, and tell its sender.",
            ) from error
        raise BodyMalformed(
            f"The body of {len(raw)} bytes is not readable JSON: {error}.",
            means="The delivery was genuine but cannot be understood; nothing was stored.",
            todo="Compare the source's format with what the sender is set to send.",
        ) from error


def _is_json(raw: bytes) -> bool:
    """Say whether *raw* is JSON by its grammar (RFC 8259), whatever its texts and numbers are worth."""
    try:
        json.loads(raw.decode("utf-8"), parse_float=str, parse_int=str, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def parse_object(raw: bytes) -> dict[str, Any]:
    """Give the JSON object that *raw* holds; `BodyMalformed` for anything else."""
    value = parse_json(raw)
    if not isinstance(value, dict):
        raise BodyMalformed(
            f"The body is a JSON {type(value).__name__}, not an object.",
            means="The event has no fields to read.",
            todo="Compare the source's format with what the sender is set to send.",
        )
    return value


def identifier(value: object, where: str) -> str:
    """Give an event's id or type as clean text.

    Args:
        value: what the delivery holds; whole numbers become their digits.
        where: how to name the place in an error, e.g. ``the field "id"``.

    Raises:
        BodyMalformed: it is missing, not text, empty, longer than `TEXT_CHARS_MAX` characters, or
            holds control characters or lone surrogates, which not every store can keep.
    """
    if type(value) is int:
        value = _digits_of_int(value)
    if not isinstance(value, str):
        fault = "is missing" if value is None else f"is a {type(value).__name__}, not text"
    elif not value:
        fault = "is empty"
    elif len(value) > TEXT_CHARS_MAX:
        fault = f"has {len(value)} characters, more than {TEXT_CHARS_MAX}"
    elif not value.isprintable():
        fault = "holds characters that cannot be printed"
    else:
        return value
    raise BodyMalformed(
        f"In the delivery {where} {fault}.",
        means="The event cannot be told from others; nothing was stored.",
        todo="Compare the source's format with what the sender is set to send.",
    )


def derived_id(*parts: object) -> str:
    """Give an event's id made of what stays the same between its attempts.

    Args:
        parts: JSON values; they are told apart by place and kind, so that none runs into the next.
    """
    return ids.content_hash(msgspec.json.encode(parts, order="deterministic"))


def subject_or_none(value: object) -> str | None:
    """Give what an event is about, or None when *value* is no clean text or whole number.

    A subject is optional, so an odd one never costs the event.
    """
    if type(value) is int:
        value = _digits_of_int(value)
    if isinstance(value, str) and 0 < len(value) <= TEXT_CHARS_MAX and value.isprintable():
        return value
    return None


def _digits_of_int(value: int) -> object:
    # Numbers of thousands of digits make str() raise; no id is that long (bool is no number here).
    return str(value) if value.bit_length() <= _ID_BITS_MAX else value


def sole_text_header(request: HttpRequest, name: str) -> str:
    """Give a header that names an event, as clean text; `BodyMalformed` when absent or repeated."""
    values = request.header_values(name)
    if len(values) > 1:
        raise BodyMalformed(
            f"The delivery has {len(values)} {name} headers.",
            means="It is not clear which one names the event; nothing was stored.",
            todo="Look at the proxies between the sender and this receiver.",
        )
    return identifier(values[0].decode("latin-1") if values else None, f"the header {name}")
