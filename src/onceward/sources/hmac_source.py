"""A source for any sender that signs its whole body with an HMAC, described by configuration."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from typing import ClassVar, Literal

from onceward.core.arrival import UNVERIFIED, Incoming, Verified
from onceward.core.errors import ConfigError, SignatureInvalid
from onceward.core.messages import HttpRequest
from onceward.sources.base import Source, identifier, parse_json, subject_or_none
from onceward.sources.place import Place, is_header_name
from onceward.sources.signing import base64_hmac, hex_hmac, sole_header

ALGORITHMS = ("sha1", "sha256", "sha384", "sha512")
ENCODINGS = ("hex", "base64")


class Hmac(Source):
    """Deliveries whose body is JSON and whose signature is an HMAC of the body.

    Args:
        name: see `Source`; required, there is no provider to name it after.
        secrets: see `Source`; each is used as the text it is.
        header: the header with the signature.
        id_from: where the event's id stands: a JSON pointer (``/data/id``) or ``header:<name>``.
            It must be the same on every redelivery of one event, and different for every event.
        type_from: where the type stands; also ``const:<text>`` where all events are of one type.
        subject_from: where the subject stands, or None.
        algorithm: one of `ALGORITHMS`.
        encoding: of the signature, one of `ENCODINGS`; hexadecimal in either case, base64 with or
            without padding.
        prefix: what stands before the signature in the header, e.g. ``sha256=``; it must be there.
        insecure: see `Source`.
    """

    kind: ClassVar[str] = "hmac"
    docs_url: ClassVar[str] = "https://www.rfc-editor.org/rfc/rfc2104"

    def __init__(
        self,
        *,
        name: str,
        header: str,
        id_from: str,
        type_from: str,
        subject_from: str | None = None,
        secrets: str | Sequence[str] = (),
        algorithm: str = "sha256",
        encoding: Literal["hex", "base64"] = "hex",
        prefix: str = "",
        insecure: bool = False,
    ) -> None:
        super().__init__(name=name, secrets=secrets, insecure=insecure)
        _check_choice("algorithm", algorithm, ALGORITHMS)
        _check_choice("encoding", encoding, ENCODINGS)
        if not is_header_name(header):
            raise ConfigError(
                f"Source {self.name!r} has the signature header {header!r}.",
                means="No request can carry a header of that name.",
                todo="Use the name in the sender's documentation, e.g. X-Signature.",
            )
        self.header = header
        self.algorithm = algorithm
        self.encoding = encoding
        self.prefix = prefix.encode("utf-8")
        self._id_place = Place(id_from)
        self._type_place = Place(type_from)
        self._subject_place = Place(subject_from) if subject_from is not None else None
        if id_from.startswith("const:"):
            raise ConfigError(
                f"Source {self.name!r} takes its ids from {id_from!r}.",
                means="All its events would count as one.",
                todo="Name the place where the sender puts the event's id.",
            )

    def verify(self, request: HttpRequest, now_ms: int) -> Verified:
        """Check the signature; the scheme signs no time, so *now_ms* is not used."""
        if self.insecure:
            return UNVERIFIED
        given = sole_header(request, self.header)
        if not given.startswith(self.prefix):
            raise SignatureInvalid(f"{self.header} does not begin with the prefix")
        given = self._comparable(given[len(self.prefix) :])
        for index, secret in enumerate(self.secrets):
            if hmac.compare_digest(self._comparable(self._signature(secret.key, request.body)), given):
                return Verified(index)
        raise SignatureInvalid(f"no signature matches, {len(self.secrets)} secrets tried")

    def normalize(self, request: HttpRequest) -> list[Incoming]:
        """Give the one event of the body."""
        body = parse_json(request.body)
        subject = self._subject_place.find(request, body) if self._subject_place else None
        return [
            Incoming(
                id=identifier(self._id_place.find(request, body), f"the id at {self._id_place.text}"),
                type=identifier(self._type_place.find(request, body), f"the type at {self._type_place.text}"),
                payload=body,
                payload_is_body=True,
                subject=subject_or_none(subject),
                id_is_signed=self._id_place.header is None,
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
        """Give the headers of a delivery, id and type among them where they stand in headers."""
        signature = self.prefix + self._signature(self.signing_key(secret_index), body)
        headers = {"Content-Type": "application/json", self.header: signature.decode("latin-1")}
        if self._id_place.header is not None:
            headers[self._id_place.header] = event_id
        if self._type_place.header is not None:
            headers[self._type_place.header] = event_type
        return headers

    def _signature(self, key: bytes, body: bytes) -> bytes:
        encode = hex_hmac if self.encoding == "hex" else base64_hmac
        return encode(key, body, self.algorithm)

    def _comparable(self, signature: bytes) -> bytes:
        # Compared as text and never decoded: decoders raise on what strangers send.
        return signature.lower() if self.encoding == "hex" else signature.rstrip(b"=")


def _check_choice(setting: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ConfigError(
            f"{setting}={value!r} is not known.",
            means="Signatures cannot be computed.",
            todo=f"Use one of {', '.join(choices)}.",
        )
