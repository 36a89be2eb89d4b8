"""CloudEvents over HTTP: binary, structured and batched, and the question of its Web Hook page.

The specification has no authentication of its own, so the sender's is configured: a bearer token,
another token, or a signature. An event is identified by its source and id together.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, ClassVar, Literal
from urllib.parse import unquote_to_bytes

from onceward.core import ids
from onceward.core.arrival import Incoming
from onceward.core.duration import Duration
from onceward.core.errors import ConfigError, SignatureInvalid
from onceward.core.messages import HttpRequest, HttpResponse
from onceward.sources.base import TEXT_CHARS_MAX, derived_id, identifier, parse_json, subject_or_none
from onceward.sources.described.place import Place
from onceward.sources.described.proof import SignatureProof
from onceward.sources.described.scheme import Scheme
from onceward.sources.generic import Generic
from onceward.sources.parts.body import decoded_body
from onceward.sources.parts.fields import iso_or_none
from onceward.sources.parts.forms import content_type
from onceward.sources.parts.shape import list_of, malformed, object_of
from onceward.sources.signing import sole_header

STRUCTURED = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"
_PREFIX = b"ce-"
_ORIGIN = "WebHook-Request-Origin"
_RATE = "WebHook-Request-Rate"
_ATTRIBUTES_MAX = 100


class CloudEvents(Generic):
    """Events of version 1.0 in every mode, JSON or with data of any kind.

    Args:
        name: see `Source`.
        secrets: see `Source`; by default bearer tokens.
        insecure: see `Source`.
        public_url: see `Generic`.
        tolerance: likewise.
        keeps_malformed: likewise.
        origins: those that may send, for the question that a sender asks before its first delivery;
            ``*`` means any: who may deliver is decided by the secrets.
        fields: ``token=`` or ``signature=`` and ``timestamp=`` of `Scheme`.

    The payload is the event in the JSON format of the specification in every mode: its attributes,
    extensions, and ``data`` or ``data_base64``. The event's id is made of its ``source`` and ``id``.
    """

    kind: ClassVar[str] = "cloudevents"
    docs_url: ClassVar[str] = (
        "https://github.com/cloudevents/spec/blob/main/cloudevents/bindings/http-protocol-binding.md"
    )
    docs_date: ClassVar[str] = "2026-10-31"
    retry_horizon: ClassVar[timedelta | None] = None
    is_batching: ClassVar[bool] = True
    methods: ClassVar[tuple[str, ...]] = ("POST", "OPTIONS")
    # In binary mode an event's attributes are headers, and no event can be read again without them.
    kept_headers: ClassVar[tuple[str, ...]] = ("ce-*",)
    handshake_phase: ClassVar[Literal["verified", "unverified"]] = "unverified"
    scheme_default: ClassVar[Scheme | None] = Scheme(token="bearer")  # noqa: S106 (a kind of token)

    def __init__(
        self,
        *,
        name: str | None = None,
        secrets: str | Sequence[str] = (),
        insecure: bool = False,
        public_url: str | None = None,
        tolerance: Duration | None = None,
        keeps_malformed: bool = False,
        origins: str | Sequence[str] = "*",
        **fields: Any,
    ) -> None:
        unknown = sorted(set(fields) - {"token", "signature", "timestamp", "require"})
        if unknown:
            raise ConfigError(
                f"A source of CloudEvents has no option {unknown[0]!r}.",
                means="What its events hold is set by the specification.",
                todo="Leave it out, or describe the sender with the generic source.",
            )
        super().__init__(
            name=name,
            secrets=secrets,
            insecure=insecure,
            public_url=public_url,
            tolerance=tolerance,
            keeps_malformed=keeps_malformed,
            **fields,
        )
        self.origins = (origins,) if isinstance(origins, str) else tuple(origins)

    @classmethod
    def options_unused(cls) -> frozenset[str]:
        """Give none: its sender's signature is configured."""
        return frozenset()

    def normalize(self, request: HttpRequest) -> list[Incoming]:
        """Give the event, or those of a batch, of which there may be none."""
        kind = content_type(request)
        if kind == BATCH:
            events = parse_json(decoded_body(request))
            return [
                self._incoming(event, is_whole=False, is_binary=False)
                for event in list_of(events, "the batch")
            ]
        if kind.startswith("application/cloudevents"):
            if kind not in (STRUCTURED, "application/cloudevents"):
                raise malformed(f"the event is in the format {kind[:80]!a}, and only JSON is read")
            raw = decoded_body(request)
            return [self._incoming(parse_json(raw), is_whole=raw is request.body, is_binary=False)]
        return [self._incoming(_binary_event(request, kind), is_whole=False, is_binary=True)]

    def handshake(self, request: HttpRequest, now_ms: int) -> HttpResponse | None:
        """Give consent to an origin that asks for it (CloudEvents Web Hooks, "Abuse Protection")."""
        if request.method != "OPTIONS" or not request.header_values(_ORIGIN):
            return None
        origin = sole_header(request, _ORIGIN).decode("latin-1")
        if len(origin) > TEXT_CHARS_MAX or not (origin.isascii() and origin.isprintable()):
            raise SignatureInvalid(f"{_ORIGIN} is no origin")
        if "*" not in self.origins and origin not in self.origins:
            raise SignatureInvalid("the origin that asks is not among origins=")
        headers = {"Allow": "POST, OPTIONS", "WebHook-Allowed-Origin": origin}
        if request.header_values(_RATE):
            headers["WebHook-Allowed-Rate"] = "*"
        return HttpResponse.of(200, b"", headers)

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
        """Give the headers of a structured event, or of a batch where the body is an array."""
        headers = super().sign(body, now_ms, secret_index=secret_index, url=url)
        return headers | {"Content-Type": BATCH if body.lstrip().startswith(b"[") else STRUCTURED}

    def _incoming(self, event: Any, *, is_whole: bool, is_binary: bool) -> Incoming:
        event = object_of(event, "the event")
        version = event.get("specversion")
        if not isinstance(version, str) or version.partition(".")[0] != "1":
            raise malformed("the event's specversion is not 1.0")
        source = identifier(event.get("source"), "the attribute source")
        event_id = identifier(event.get("id"), "the attribute id")
        whole_id = ids.composed(source, event_id)
        proof = self._proof if isinstance(self._proof, SignatureProof) else None
        places = ("header:ce-source", "header:ce-id") if is_binary else ("body:",)
        return Incoming(
            id=whole_id if len(whole_id) <= TEXT_CHARS_MAX else derived_id(source, event_id),
            type=identifier(event.get("type"), "the attribute type"),
            payload=event,
            payload_is_body=is_whole,
            subject=subject_or_none(event.get("subject")),
            occurred_at_ms=iso_or_none(event.get("time"), naive_is_utc=True),
            id_is_signed=proof is not None and all(proof.covers(Place(place)) for place in places),
        )


def _binary_event(request: HttpRequest, kind: str) -> dict[str, Any]:
    """Give the JSON form of an event whose attributes are headers and whose data is the body."""
    event: dict[str, Any] = {}
    for name, value in request.headers:
        if name.startswith(_PREFIX) and len(name) > len(_PREFIX):
            attribute = name[len(_PREFIX) :].decode("latin-1")
            if attribute in event or len(event) >= _ATTRIBUTES_MAX:
                raise malformed(f"the event has the header ce-{attribute[:80]!a} twice, or too many")
            event[attribute] = _text(value, attribute)
    if "specversion" not in event:
        raise malformed("the delivery is no CloudEvent: it has neither their Content-Type nor ce-specversion")
    for reserved in ("data", "data_base64", "datacontenttype"):
        event.pop(reserved, None)
    if kind:
        event["datacontenttype"] = (request.header("content-type") or "").strip()
    raw = decoded_body(request)
    if not raw:
        return event
    subtype = kind.partition("/")[2]
    if subtype == "json" or subtype.endswith("+json"):
        return event | {"data": parse_json(raw)}
    if kind.startswith("text/") or subtype == "xml" or subtype.endswith("+xml"):
        try:
            return event | {"data": raw.decode("utf-8")}
        except UnicodeDecodeError:
            pass  # another charset: the bytes say it better
    return event | {"data_base64": base64.b64encode(raw).decode("ascii")}


def _text(value: bytes, attribute: str) -> str:
    """Give an attribute from its header: quotes taken off, percent-encoding undone, UTF-8."""
    text = value.strip(b" \t")
    if len(text) > 1 and text.startswith(b'"') and text.endswith(b'"'):
        text = text[1:-1].replace(b'\\"', b'"').replace(b"\\\\", b"\\")
    try:
        return unquote_to_bytes(text).decode("utf-8")
    except UnicodeDecodeError as error:
        raise malformed(f"the header ce-{attribute[:80]!a} is not UTF-8") from error
