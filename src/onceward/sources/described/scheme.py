"""How a sender signs and what its deliveries hold, as data: the configuration of the generic source.

`Scheme` is what a class of the catalogue has as a value, and what an operator writes as a table of
text. Everything is checked where it is written, so that a delivery meets no surprise.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, get_args, get_type_hints

import msgspec

from onceward.core.arrival import Outcome
from onceward.core.errors import ConfigError

Algorithm: TypeAlias = Literal[
    "sha1", "sha256", "sha384", "sha512", "ed25519", "ecdsa-p256-sha256", "rsa-sha256"
]
TextEncoding: TypeAlias = Literal["hex", "base64", "base64url"]
Names: TypeAlias = str | tuple[str, ...]
DERIVED = "derived"
RECEIVED = "received"
ID_WORDS = frozenset({DERIVED, RECEIVED})


class Signature(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the signature stands and what it covers.

    Attributes:
        header: the header with the signature; several where a sender uses one for each key.
        algorithm: of the HMAC, a hash; or with a public key ``ed25519``, ``ecdsa-p256-sha256``
            (DER) or ``rsa-sha256`` (PKCS#1 v1.5).
        encoding: of the signature; hexadecimal in either case, base64 with or without padding.
        exact: of an HMAC only the one spelling, as most senders' own libraries have it: lower case,
            with the padding.
        prefix: what stands before the signature, e.g. ``sha256=``; it must be there. Several: one of
            them.
        item_separator: what separates several signatures, or fields, in one header: ``,``.
        field: the name of the fields that are signatures, e.g. ``v1`` in ``t=1,v1=ab``.
        field_separator: what separates a field's name from its value.
        trim: white space around signatures and fields is left out.
        template: what is signed, filled as bytes in one pass: literal text and ``{body}``,
            ``{timestamp}``, ``{id}``, ``{url}``, ``{method}``, ``{path}``, ``{query}``,
            ``{header:<name>}``, and ``{form}``: the fields of a form body, sorted, each name
            followed by its value. ``{{`` and ``}}`` are braces.
        signed: the body as it was sent, or decoded, for senders that sign what is inside of gzip.
        secret_encoding: how the secret is written; a public key is PEM, base64 or hexadecimal
            whatever this says.
        secret_prefix: what stands before the secret and is no part of it, e.g. ``whsec_``; it may
            be missing.
    """

    header: Names
    algorithm: Algorithm = "sha256"
    encoding: TextEncoding = "hex"
    exact: bool = False
    prefix: Names = ""
    item_separator: str = ""
    field: str = ""
    field_separator: str = "="
    trim: bool = True
    template: str = "{body}"
    signed: Literal["as-sent", "decoded"] = "as-sent"
    secret_encoding: Literal["text", "hex", "base64", "base64url"] = "text"  # noqa: S105
    secret_prefix: str = ""


class Timestamp(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The time that the sender signs.

    Attributes:
        place: ``header:<name>``, ``field:<name>`` (in the signature's header) or a JSON pointer.
        unit: seconds or milliseconds since 1970, or ISO 8601.
        tolerance: how far it may lie in the past.
        future_tolerance: and in the future; as far as in the past where it is not given.
    """

    place: str
    unit: Literal["s", "ms", "iso"] = "s"
    tolerance: str = "5m"
    future_tolerance: str | None = None


class Handshake(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A question of the sender's, and its answer.

    Attributes:
        method: the question's.
        match: what makes a request this question: for each place its text, or None where anything
            will do. All must fit.
        phase: whether it has to be signed like a delivery.
        reply: the answer's body: ``{<place>}`` is replaced by what stands there and ``{hmac:<place>}``
            by its HMAC under the first secret, in one pass.
        encoding: of that HMAC.
        content_type: the answer's.
        headers: further headers of the answer, with markers as in *reply*.
        status: the answer's.
    """

    method: Literal["GET", "HEAD", "OPTIONS", "POST"] = "POST"
    match: dict[str, str | None] = {}
    phase: Literal["verified", "unverified"] = "verified"
    reply: str = ""
    encoding: TextEncoding = "hex"
    content_type: str = "text/plain"
    headers: dict[str, str] = {}
    status: int = 200


class TypeRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A type for the events of requests that match, before `Scheme.type` is looked at."""

    match: dict[str, str | None]
    type: Names


class Reply(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the sender is told for an outcome."""

    status: int
    body: str = ""
    content_type: str = ""
    headers: dict[str, str] = {}


class Scheme(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All of the generic source's configuration; for places see `Place`.

    Attributes:
        signature: see `Signature`.
        timestamp: see `Timestamp`.
        token: for senders that sign nothing and send a shared secret: ``basic`` (the secret is
            ``user:password``), ``bearer``, or the place of the token.
        require: headers that must have exactly these values, e.g. the version of the scheme.
        id: the place of the event's id, the same on every redelivery and different for every event.
            Several places: an id derived from what stands there. ``derived``: one derived from the
            whole event. ``received``: one for each delivery, for senders that only say "look".
        id_else: ``derived``, where the id's place may be empty; by default the event is then malformed.
        id_ignore: JSON pointers to what changes between attempts, left out of derived ids.
        type: the place of the type; several: what stands there, joined by dots.
        type_rules: see `TypeRule`.
        subject: the place of what the event is about; several: the first where there is something.
        occurred_at: likewise, of the time: ISO 8601, or a number in *occurred_at_unit*.
        occurred_at_unit: seconds or milliseconds.
        version: likewise, of what orders the events of one subject: a number, or ISO 8601.
        items: in a batch, the place of the list of its events; ``body:`` where the body is the list.
            What is no list there is one event. Several: the first where there is something.
        payload_field: the field of a form body whose JSON is the payload.
        accept_content_types: others are malformed; by default any.
        handshake: see `Handshake`.
        respond: see `Reply`.
    """

    signature: Signature | None = None
    timestamp: Timestamp | None = None
    token: str | None = None
    require: dict[str, str] = {}
    id: Names = "derived"
    id_else: Literal["", "derived"] = ""
    id_ignore: tuple[str, ...] = ()
    type: Names = "const:event"
    type_rules: tuple[TypeRule, ...] = ()
    subject: Names = ()
    occurred_at: Names = ()
    occurred_at_unit: Literal["s", "ms"] = "s"
    version: Names = ()
    items: Names = ()
    payload_field: str = ""
    accept_content_types: tuple[str, ...] = ()
    handshake: tuple[Handshake, ...] = ()
    respond: dict[Outcome, Reply] = {}


def scheme_from(base: Scheme | None, fields: Mapping[str, Any], *, source: str) -> Scheme:
    """Give the scheme of configuration, or of a kind with what its user wants otherwise.

    Args:
        base: the kind's own; *fields* win over it.
        fields: by the names of `Scheme`, as structs or as the tables they are written as.
        source: the source's name, for messages.

    Raises:
        ConfigError: a field is unknown or of the wrong type, by its path.
    """
    given = {name: _plain(value) for name, value in fields.items()}
    whole = {} if base is None else msgspec.to_builtins(base)
    if "token" in given and "signature" not in given:
        whole |= {"signature": None, "timestamp": None}
    if "signature" in given and "token" not in given:
        whole["token"] = None
    try:
        return msgspec.convert(whole | given, Scheme)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"The configuration of source {source!r} cannot be read: {error}.",
            means="No delivery could be verified or understood.",
            todo=_todo(str(error)),
        ) from error


_PLACE = re.compile(r"at `\$\.?([^`]*)`")
_WRONG = re.compile(r"(?:Invalid enum value|unknown field) [`']([^`']*)[`']")
_NESTED: Mapping[str, type[msgspec.Struct]] = {
    "signature": Signature,
    "timestamp": Timestamp,
    "handshake": Handshake,
    "type_rules": TypeRule,
    "respond": Reply,
}


def _todo(error: str) -> str:
    """Say what can stand where msgspec found a mistake: the values of the field, or the fields there."""
    place, wrong = _PLACE.search(error), _WRONG.search(error)
    names = re.sub(r"\[[^]]*\]", "", place[1]).split(".") if place is not None else []
    struct, path = _NESTED.get(names[0], Scheme) if names else Scheme, names
    if struct is not Scheme:
        path = names[1:]
    known = list(struct.__struct_fields__)
    what = f"The fields of {names[0]} are" if struct is not Scheme else "The fields are"
    if wrong is not None and "enum" in wrong[0] and path:
        hint = get_type_hints(struct)[path[0]]
        known, what = list(get_args(hint)), f"The values of {path[0]} are"
    close = difflib.get_close_matches(wrong[1].removeprefix("hmac-"), known, n=1) if wrong is not None else []
    said = f"Did you mean {close[0]!r}? " if close else ""
    return f"{said}{what}: {', '.join(known)}; see onceward.sources.described.scheme.{struct.__name__}."


def in_words(scheme: Scheme) -> str:
    """Say in a line how the sender proves itself."""
    signature = scheme.signature
    if signature is None:
        known = {"basic": "Basic authentication", "bearer": "a bearer token", None: "nothing"}
        return known.get(scheme.token) or f"a token at {scheme.token}"
    algorithm = signature.algorithm
    by = f"HMAC-{algorithm.upper()}" if algorithm.startswith("sha") else algorithm
    headers = names(signature.header)
    more = f" and {len(headers) - 1} like it" if len(headers) > 1 else ""
    return f"{by} in {signature.encoding} over {signature.template}, in {headers[0]}{more}"


def names(value: Names) -> tuple[str, ...]:
    """Give one name or several as several."""
    return (value,) if isinstance(value, str) else value


def _plain(value: Any) -> Any:
    try:
        return msgspec.to_builtins(value)
    except (TypeError, ValueError, msgspec.MsgspecError):
        return value  # convert says what is wrong with it
