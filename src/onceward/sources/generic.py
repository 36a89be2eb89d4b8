"""A source that is described and not programmed: signature, time, ids, batches, handshakes as data."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from functools import cache
from typing import Any, ClassVar

from onceward.core.arrival import UNVERIFIED, Incoming, Outcome, Verified
from onceward.core.duration import Duration, to_ms
from onceward.core.errors import BodyMalformed, ConfigError, SignatureInvalid
from onceward.core.messages import HttpRequest, HttpResponse
from onceward.sources.base import Source
from onceward.sources.described.keys import HASHES
from onceward.sources.described.place import Place, is_header_name
from onceward.sources.described.proof import SignatureProof, TokenProof
from onceward.sources.described.questions import Question
from onceward.sources.described.reader import Reader
from onceward.sources.described.scheme import Scheme, names, scheme_from
from onceward.sources.parts.body import read_body
from onceward.sources.signing import sole_header

_TAKEN = frozenset({"accepted", "duplicate"})


class Generic(Source):
    """Deliveries of any sender that a `Scheme` can describe.

    Args:
        name: see `Source`; required where the kind is ``generic``.
        secrets: see `Source`: keys of the HMAC; public keys of an asymmetric signature (PEM,
            base64 or hexadecimal); or tokens.
        insecure: see `Source`.
        public_url: the address with which the sender calls, where its signature covers that and
            this process sees another one: scheme and host, or the whole of it.
        tolerance: of the signed time, instead of the scheme's, to either side.
        keeps_malformed: keep a genuine delivery that does not hold what the scheme says, and answer
            2xx, instead of refusing it with 400: for as long as the scheme is not tried out.
        fields: those of `Scheme`, as values or as tables of text; a kind of the catalogue has them
            already, and what is given here wins.

    Raises:
        ConfigError: see `Source`; or the scheme cannot work, with the field that is to blame.
    """

    kind: ClassVar[str] = "generic"
    docs_url: ClassVar[str] = "https://www.rfc-editor.org/rfc/rfc2104"
    # What a kind of the catalogue has; None for the bare source.
    scheme_default: ClassVar[Scheme | None] = None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if vars(cls).get("scheme_default"):
            for name, fact in _facts(cls.scheme_default).items():
                setattr(cls, name, fact)

    def __init__(
        self,
        *,
        name: str | None = None,
        secrets: str | Sequence[str] = (),
        insecure: bool = False,
        public_url: str | None = None,
        tolerance: Duration | None = None,
        keeps_malformed: bool = False,
        **fields: Any,
    ) -> None:
        if name is None and self.scheme_default is None:
            raise ConfigError(
                "A generic source has no name.",
                means="There is no provider to call it after.",
                todo='Pass name="…".',
            )
        super().__init__(name=name, secrets=secrets, insecure=insecure)
        self.scheme = scheme = scheme_from(self.scheme_default, fields, source=self.name)
        self._proof: SignatureProof | TokenProof | None = None
        self._check_auth(scheme)
        if scheme.signature is not None and (not insecure or scheme.signature.algorithm in HASHES):
            self._proof = SignatureProof(
                scheme,
                scheme.signature,
                self.secrets,
                source=self.name,
                public_url=public_url,
                tolerance=tolerance,
            )
        elif scheme.token is not None:
            self._proof = TokenProof(scheme.token, self.secrets, source=self.name)
        signed = self._proof if isinstance(self._proof, SignatureProof) else None
        self.tolerance = signed.time.past if signed and signed.time else None
        if tolerance is not None and self.tolerance is None:
            raise self._fault("a tolerance, and its sender signs no time")
        self._reader = Reader(scheme, signed.covers if signed else _covers_nothing, source=self.name)
        keys = signed.keys if signed and self.secrets else None
        # Without a secret nothing can be signed, and no sender asks for it.
        rules = [one for one in scheme.handshake if not insecure or "{hmac:" not in one.reply]
        questions = [Question(rule, keys, source=self.name) for rule in rules]
        # Those that need no proof first: the others refuse what has none.
        self._questions = sorted(questions, key=lambda one: one.is_verified)
        # What other sources know by their class, this one knows by its scheme.
        is_decoded = scheme.signature is not None and scheme.signature.signed == "decoded"
        vars(self).update(
            _facts(scheme),
            encoded_bodies="decoded" if is_decoded else "as-sent",
            keeps_malformed=keeps_malformed,
        )
        self._replies = {
            outcome: HttpResponse.of(
                one.status,
                one.body.encode("utf-8"),
                one.headers | ({"Content-Type": one.content_type} if one.content_type else {}),
            )
            for outcome, one in scheme.respond.items()
        }

    @classmethod
    def options_unused(cls) -> frozenset[str]:
        """Give the options that mean nothing for this kind, for those who list them."""
        scheme = cls.scheme_default
        if scheme is None:
            return frozenset()
        unused = set() if scheme.timestamp else {"tolerance"}
        if not (scheme.signature and "{url}" in scheme.signature.template):
            unused.add("public_url")
        return frozenset(unused)

    def _check_auth(self, scheme: Scheme) -> None:
        if scheme.signature is not None and scheme.token is not None:
            raise self._fault("a signature and a token, so that it is not clear what the secrets are for")
        if scheme.signature is None and scheme.token is None and not self.insecure:
            if self.scheme_default is not None and scheme == self.scheme_default:
                raise ConfigError(
                    f"Source {self.name!r} has neither a signature nor a token.",
                    means=f"A sender of the kind {self.kind!r} signs nothing, so its secrets are never used.",
                    todo="Pass insecure=True and no secrets, and believe nothing that a delivery says.",
                )
            raise self._fault("neither a signature nor a token")
        if scheme.timestamp is not None and scheme.signature is None:
            raise self._fault("a timestamp and no signature")
        for header in scheme.require:
            if not is_header_name(header):
                raise self._fault(f"the required header {header!r}, which cannot be")
        for outcome, reply in scheme.respond.items():
            # A sender that is told less than the truth loses events, or sends them for ever.
            if (outcome in _TAKEN) != (200 <= reply.status <= 299) or not 200 <= reply.status <= 599:
                raise self._fault(f"status {reply.status} for what is {outcome}")

    def _fault(self, what: str) -> ConfigError:
        return ConfigError(
            f"Source {self.name!r} has {what}.",
            means="Deliveries would be lost, or anyone could send them.",
            todo="Compare the configuration with the sender's documentation.",
        )

    def verify(self, request: HttpRequest, now_ms: int) -> Verified:
        """Check the signature or the token, and the age where the sender signs the time."""
        if self.insecure:
            return UNVERIFIED
        assert self._proof is not None
        for header, value in self.scheme.require.items():
            if sole_header(request, header) != value.encode("utf-8"):
                raise SignatureInvalid(f"{header} is another one")
        return self._proof.verify(request, now_ms)

    def normalize(self, request: HttpRequest) -> list[Incoming]:
        """Give the events of the delivery, read from the places that the scheme names."""
        return self._reader.read(request)

    def handshake(self, request: HttpRequest, now_ms: int) -> HttpResponse | None:
        """Give the answer of the first rule that fits."""
        asked = [one for one in self._questions if one.method == request.method]
        if not asked:
            return None
        is_verified = self.handshake_phase == "verified"

        @cache
        def body() -> Any:
            with suppress(BodyMalformed):  # then it is no question that needs the body
                return read_body(request, self.scheme.payload_field).value
            return None

        for question in asked:
            if question.is_verified and not is_verified:
                # Before the body is read: strangers' bodies are not.
                self.verify(request, now_ms)
                is_verified = True
            if question.fits(request, body):
                return question.answer(request, body)
        return None

    def respond(self, outcome: Outcome) -> HttpResponse | None:
        """Give the reply of the scheme's table."""
        return self._replies.get(outcome)

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
        """Give the headers of a delivery, id and type among them where they stand in headers.

        A token that stands in the body has to be there already, and a public key signs nothing.
        """
        is_asymmetric = isinstance(self._proof, SignatureProof) and not self._proof.keys.is_symmetric
        if self._proof is None or is_asymmetric:
            return super().sign(body, now_ms)
        self.signing_key(secret_index)
        headers = {"Content-Type": "application/json", **self.scheme.require}
        for places, text in ((self.scheme.id, event_id), (self.scheme.type, event_type)):
            header = next((one for one in names(places) if one.startswith("header:")), None)
            if places is self.scheme.type and len(names(places)) > 1:
                text = text.partition(".")[0]  # the rest stands in the body
            if header is not None:
                headers[Place(header).header or ""] = text
        if isinstance(self._proof, TokenProof):
            return headers | self._proof.sign(self.secrets[secret_index])
        if self._proof.time and self._proof.time.place and self._proof.time.place.header:
            headers[self._proof.time.place.header] = self._proof.time.written(now_ms)
        request = HttpRequest.of(body, headers, url=url)
        return headers | self._proof.sign(request, now_ms, secret_index)


def _facts(scheme: Scheme | None) -> dict[str, object]:
    """Give what a scheme says of its source, as other sources say it of their class."""
    facts: dict[str, object] = {}
    if scheme is not None and scheme.items:
        facts["is_batching"] = True
    if scheme is not None and scheme.handshake:
        facts["methods"] = tuple(dict.fromkeys(["POST", *(one.method for one in scheme.handshake)]))
        if any(one.phase == "unverified" for one in scheme.handshake):
            facts["handshake_phase"] = "unverified"
    if scheme is not None and scheme.timestamp:
        length_ms = to_ms(scheme.timestamp.tolerance, what="tolerance")
        facts["tolerance_default"] = timedelta(milliseconds=length_ms)
    return facts


def _covers_nothing(place: Place) -> bool:
    return place.kind == "const"
