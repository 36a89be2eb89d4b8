"""JSON Web Tokens (RFC 7519) as proof of a delivery, with the algorithm fixed by the key.

A token names its own algorithm, which is how forgers once turned public keys into HMAC secrets. So
a secret only ever verifies HS256 to HS512, a public key only the algorithms of its kind. Times are
checked against the time that the caller gives. PyJWT is imported when the first token is read.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, TypeAlias

import msgspec

from onceward.core.errors import ConfigError, SignatureInvalid
from onceward.sources.parts.fetching import Documents
from onceward.sources.parts.fields import seconds_ms

TOKEN_BYTES_MAX = 16_384
KEYS_MAX = 32
# How often a key that is not in the set may send us to the sender for a new one.
REFRESH_MS = 60_000

_HMAC_HASHES = {"HS256": "sha256", "HS384": "sha384", "HS512": "sha512"}

Key: TypeAlias = Any
"""A secret's bytes, or a public key of the cryptography package."""


class Token(msgspec.Struct, frozen=True):
    """A token taken apart, not yet trusted."""

    raw: bytes
    algorithm: str
    key_id: str | None


def require_pyjwt(source: str) -> None:
    """Refuse a source that could verify nothing; `ConfigError` when a package is missing."""
    try:
        import cryptography
        import jwt
    except ImportError as error:
        raise ConfigError(
            f"Source {source!r} verifies JSON Web Tokens, and {error.name} is not installed.",
            means="No delivery could be verified.",
            todo="pip install 'onceward[crypto]'",
        ) from error
    assert jwt
    assert cryptography


def parsed_token(raw: bytes) -> Token:
    """Give a token taken apart.

    Raises:
        SignatureInvalid: it is none, or longer than `TOKEN_BYTES_MAX`.
    """
    import jwt

    if len(raw) > TOKEN_BYTES_MAX:
        raise SignatureInvalid(f"the token has {len(raw)} bytes, more than {TOKEN_BYTES_MAX}")
    try:
        header = jwt.get_unverified_header(raw)
    except Exception as error:
        raise SignatureInvalid("the token cannot be read") from error
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str):
        raise SignatureInvalid("the token names no algorithm")
    return Token(raw, algorithm, key_id if isinstance(key_id, str) else None)


def matching_claims(
    token: Token, keys: Sequence[Key], algorithms: Sequence[str] | None = None
) -> tuple[int, dict[str, Any]]:
    """Give the position of the key that verifies the token, and the token's claims.

    Args:
        token: as `parsed_token` gave it.
        keys: secrets and public keys.
        algorithms: those that are allowed of the ones that fit a key; None means all of them.

    Raises:
        SignatureInvalid: no key verifies it, or its claims are no JSON object.
    """
    if algorithms is not None and token.algorithm not in algorithms:
        raise SignatureInvalid("the token's algorithm is not allowed")
    for index, key in enumerate(keys):
        payload = _payload(token, key)
        if payload is not None:
            return index, _claims(payload)
    raise SignatureInvalid(f"no key verifies the token, {len(keys)} tried")


def check_times(
    claims: dict[str, Any], now_ms: int, leeway: timedelta | None, *, must_expire: bool
) -> int | None:
    """Check ``exp``, ``nbf`` and ``iat``; give the last in milliseconds, or None.

    Raises:
        SignatureInvalid: the token is not valid now, give or take the leeway, or never expires
            though it must.
    """
    leeway_ms = (leeway or timedelta(0)) // timedelta(milliseconds=1)
    times = {name: seconds_ms(claims.get(name)) for name in ("exp", "nbf", "iat")}
    for name, moment in times.items():
        if moment is None and name in claims:
            raise SignatureInvalid(f"the token's {name} is no time")
    expires, not_before, issued = times["exp"], times["nbf"], times["iat"]
    if expires is None and must_expire:
        raise SignatureInvalid("the token has no exp")
    if expires is not None and now_ms > expires + leeway_ms:
        raise SignatureInvalid(f"the token expired {(now_ms - expires) // 1000} s ago")
    for moment in (not_before, issued):
        if moment is not None and now_ms < moment - leeway_ms:
            raise SignatureInvalid(f"the token is valid in {(moment - now_ms) // 1000} s only")
    return issued


class KeySet:
    """The public keys that a sender publishes as a JSON Web Key Set (RFC 7517).

    Args:
        documents: where it is fetched through.
        url: where it stands, an https address.
        fixed: the set itself, as JSON; then nothing is fetched.
        source: the source's name, for messages.

    Raises:
        ConfigError: *fixed* holds no usable key.
    """

    def __init__(self, documents: Documents, url: str, *, fixed: str | None = None, source: str) -> None:
        self._documents = documents
        self._url = url
        self._fixed = None if fixed is None else _keys_in(fixed.encode("utf-8", "replace"))
        if self._fixed is not None and not self._fixed:
            raise ConfigError(
                f"Source {source!r} was given a key set without a usable key.",
                means="No delivery could be verified with it.",
                todo='Give it the sender\'s JSON Web Key Set: {"keys": [{"kty": …}]}.',
            )

    @property
    def is_blocking(self) -> bool:
        """Whether `keys_for` may wait for the network."""
        return self._fixed is None

    def keys_for(self, token: Token, now_ms: int) -> list[Key]:
        """Give the keys that may verify the token: the named one, or all when it names none.

        An unknown name fetches the set again, at most once in `REFRESH_MS`, whoever asks.

        Raises:
            SignatureInvalid: there is none of that name, or the set cannot be had.
        """
        keys = self._fixed
        if keys is None:
            keys = _keys_in(self._documents.get(self._url, now_ms))
            if _named(keys, token.key_id) == []:
                keys = _keys_in(self._documents.get(self._url, now_ms, fresh_ms=REFRESH_MS))
        found = _named(keys, token.key_id)
        if not found:
            raise SignatureInvalid("the token was signed with a key that the sender does not publish")
        return found


def _named(keys: list[tuple[str | None, Key]], key_id: str | None) -> list[Key]:
    return [key for name, key in keys if key_id is None or name is None or name == key_id]


def _keys_in(raw: bytes) -> list[tuple[str | None, Key]]:
    import jwt

    try:
        entries = json.loads(raw)["keys"]
    except (ValueError, TypeError, LookupError, RecursionError):
        return []
    keys: list[tuple[str | None, Key]] = []
    for entry in entries[:KEYS_MAX] if isinstance(entries, list) else []:
        # Octet keys are secrets; a published one verifies nothing.
        if not isinstance(entry, dict) or entry.get("kty") not in ("RSA", "EC", "OKP"):
            continue
        try:
            key = jwt.PyJWK(
                {name: entry[name] for name in entry if name not in ("alg", "use", "key_ops")}
            ).key
        except Exception:  # noqa: BLE001, S112 (an entry of a kind that we do not know costs only itself)
            continue
        name = entry.get("kid")
        keys.append((name if isinstance(name, str) else None, key))
    return keys


def _payload(token: Token, key: Key) -> bytes | None:
    """Give the token's payload when the key verifies it, else None."""
    from jwt.api_jws import PyJWS

    allowed = _algorithms_of(key)
    if token.algorithm not in allowed:
        return None
    is_secret = isinstance(key, bytes)
    try:
        # Without a check of the signature where the key is a secret: the library warns of short
        # ones at every delivery, and they are the sender's to choose.
        found = PyJWS().decode_complete(
            token.raw,
            key="" if is_secret else key,
            algorithms=allowed,
            options={"verify_signature": not is_secret, "enforce_minimum_key_length": True},
        )
        if is_secret:
            signed = token.raw.rpartition(b".")[0]
            expected = hmac.digest(key, signed, _HMAC_HASHES[token.algorithm])
            if not hmac.compare_digest(expected, found["signature"]):
                return None
    except Exception:  # noqa: BLE001 (whatever a stranger's token makes the library raise)
        return None
    payload: bytes = found["payload"]
    return payload


def _algorithms_of(key: Key) -> list[str]:
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    if isinstance(key, bytes):
        return list(_HMAC_HASHES)
    if isinstance(key, rsa.RSAPublicKey):
        return ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"]
    if isinstance(key, ec.EllipticCurvePublicKey):
        return {"secp256r1": ["ES256"], "secp384r1": ["ES384"], "secp521r1": ["ES512"]}.get(
            key.curve.name, []
        )
    return ["EdDSA"] if isinstance(key, ed25519.Ed25519PublicKey) else []


def _claims(payload: bytes) -> dict[str, Any]:
    try:
        claims = msgspec.json.decode(payload)
    except (ValueError, RecursionError) as error:
        raise SignatureInvalid("the token's claims are no JSON") from error
    if not isinstance(claims, dict):
        raise SignatureInvalid("the token's claims are no JSON object")
    return claims
