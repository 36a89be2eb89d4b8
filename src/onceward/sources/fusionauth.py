"""FusionAuth: ``X-FusionAuth-Signature-JWT``, a token whose claim is the body's SHA-256 in base64."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from typing import Any, ClassVar

from onceward.core.arrival import UNVERIFIED, Incoming, Verified
from onceward.core.duration import Duration
from onceward.core.errors import ConfigError, SignatureInvalid
from onceward.core.messages import HttpRequest
from onceward.sources.base import identifier, parse_object, subject_or_none
from onceward.sources.parts.asymmetric import SCHEMES, decoded_base64, public_key
from onceward.sources.parts.fetching import Documents, Fetch
from onceward.sources.parts.fields import millis_or_none
from onceward.sources.parts.secret import joined_texts
from onceward.sources.parts.web_token import (
    Key,
    KeySet,
    check_times,
    matching_claims,
    parsed_token,
    require_pyjwt,
)
from onceward.sources.signing import sole_header
from onceward.sources.timed import TimedSource

HEADER = "X-FusionAuth-Signature-JWT"
CLAIM = "request_body_sha256"
_KEYS_KEPT_MS = 3_600_000


class FusionAuth(TimedSource):
    """Events of a FusionAuth instance.

    Args:
        name: see `Source`.
        secrets: the key that signs webhooks: an HMAC secret as text, or a public key in PEM.
        insecure: see `Source`.
        jwks_url: instead of secrets, where the instance publishes its public keys
            (``https://…/.well-known/jwks.json``).
        jwks: the JSON of that key set, where it is not to be fetched.
        fetch: gives what stands at an https address; by default the standard library does.
        tolerance: how far the token's times may be off.

    Id, type, subject (the user's id) and time stand in the body's ``event``.

    Raises:
        ConfigError: see `Source`; a key that cannot be read, or PyJWT is not installed.
    """

    kind: ClassVar[str] = "fusionauth"
    docs_url: ClassVar[str] = "https://fusionauth.io/docs/extend/events-and-webhooks/signing"
    docs_date: ClassVar[str] = "2026-10-31"

    def __init__(
        self,
        *,
        name: str | None = None,
        secrets: str | Sequence[str] = (),
        insecure: bool = False,
        jwks_url: str | None = None,
        jwks: str | None = None,
        fetch: Fetch | None = None,
        tolerance: Duration | None = None,
    ) -> None:
        place = jwks_url or ("jwks" if jwks is not None else "")
        # Every source has something to verify with; where keys are published, their place.
        super().__init__(
            name=name,
            secrets=joined_texts(secrets) or [place] * bool(place),
            insecure=insecure,
            tolerance=tolerance,
        )
        # A public key for each secret that is one; the others stay in their secrets, which show no key.
        self._public_keys: list[Key | None] = []
        self._key_set: KeySet | None = None
        if insecure:
            return
        require_pyjwt(self.name)
        if not place:
            self._public_keys = [_public_key_or_none(secret.key, self.name) for secret in self.secrets]
        elif secrets:
            raise ConfigError(
                f"Source {self.name!r} has secrets and a key set.",
                means="Only one of them signs its deliveries.",
                todo="Leave out one of the two.",
            )
        else:
            if jwks is None and not place.startswith("https://"):
                raise ConfigError(
                    f"Source {self.name!r} has jwks_url={jwks_url!r}.",
                    means="Keys are fetched over https only; anyone could answer in another's place.",
                    todo="Give an https address, or the key set itself as jwks.",
                )
            self._key_set = KeySet(
                Documents(fetch, kept_ms=_KEYS_KEPT_MS), place, fixed=jwks, source=self.name
            )
            self.is_blocking = self._key_set.is_blocking

    def _keys(self) -> list[Key]:
        pairs = zip(self.secrets, self._public_keys, strict=True)
        return [secret.key if public is None else public for secret, public in pairs]

    def verify(self, request: HttpRequest, now_ms: int) -> Verified:
        """Check the token, its times, and that it is about this body."""
        if self.insecure:
            return UNVERIFIED
        token = parsed_token(sole_header(request, HEADER))
        keys = self._keys() if self._key_set is None else self._key_set.keys_for(token, now_ms)
        index, claims = matching_claims(token, keys)
        if not hmac.compare_digest(hashlib.sha256(request.body).digest(), _hash_in(claims)):
            raise SignatureInvalid("the token is about another body")
        issued_at_ms = check_times(claims, now_ms, self.tolerance, must_expire=False)
        return Verified(index if self._key_set is None else None, issued_at_ms)

    def normalize(self, request: HttpRequest) -> list[Incoming]:
        """Give the one event of the body."""
        body = parse_object(request.body)
        event = body.get("event")
        if not isinstance(event, dict):
            event = {}
        user = event.get("user")
        subject = subject_or_none(user.get("id")) if isinstance(user, dict) else None
        return [
            Incoming(
                id=identifier(event.get("id"), 'the field "event.id"'),
                type=identifier(event.get("type"), 'the field "event.type"'),
                payload=body,
                payload_is_body=True,
                subject=subject or subject_or_none(event.get("userId")),
                occurred_at_ms=millis_or_none(event.get("createInstant")),
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
        """Give the headers of a delivery, signed with an HMAC secret; a public key cannot sign."""
        import base64

        import msgspec

        key = None if self._key_set is not None else self._keys()[secret_index : secret_index + 1]
        if not key or not isinstance(key[0], bytes):
            return super().sign(body, now_ms)
        claim = base64.b64encode(hashlib.sha256(body).digest()).decode()
        parts = ({"alg": "HS256", "typ": "JWT"}, {CLAIM: claim, "iat": now_ms // 1000})
        signed = b".".join(base64.urlsafe_b64encode(msgspec.json.encode(part)).rstrip(b"=") for part in parts)
        signature = base64.urlsafe_b64encode(hmac.digest(key[0], signed, "sha256")).rstrip(b"=")
        return {"Content-Type": "application/json", HEADER: f"{signed.decode()}.{signature.decode()}"}


def _public_key_or_none(text: bytes, source: str) -> Key | None:
    if not text.startswith(b"-----BEGIN"):
        return None
    refusal: ConfigError | None = None
    for scheme in SCHEMES:
        try:
            return public_key(text.decode(), scheme, source=source)
        except ConfigError as error:
            refusal = error
    assert refusal is not None
    raise refusal


def _hash_in(claims: dict[str, Any]) -> bytes:
    claim = claims.get(CLAIM)
    if not isinstance(claim, str):
        raise SignatureInvalid(f"the token has no {CLAIM}")
    found = decoded_base64(claim.encode("utf-8", "surrogatepass").translate(bytes.maketrans(b"-_", b"+/")))
    if found is None:
        raise SignatureInvalid(f"the token's {CLAIM} is no base64")
    return found
