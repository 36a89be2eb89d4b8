"""Private keys with which tests and local tools play a sender that signs by public key or certificate.

No receiver needs one: it verifies with the sender's public key.
"""

from __future__ import annotations

import base64
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

from onceward.core.errors import ConfigError
from onceward.sources.parts.asymmetric import decoded_base64, decoded_hex
from onceward.sources.parts.secret import Secret

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

    PrivateKey: TypeAlias = Ed25519PrivateKey | EllipticCurvePrivateKey

# An ed25519 key alone, and with its public key behind it, as Standard Webhooks writes it.
_SEED_BYTES = 32
_PAIR_BYTES = 64


def private_key(text: str, *, source: str) -> PrivateKey:
    """Give the key that *text* holds: PEM, or of ed25519 the bytes in hexadecimal or base64.

    Raises:
        ConfigError: it is no such key.
    """
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519

    if "-----BEGIN" in text:
        key = _loaded(text)
        if isinstance(key, (ed25519.Ed25519PrivateKey, ec.EllipticCurvePrivateKey)):
            return key
    else:
        raw = text.encode("utf-8")
        seed = decoded_hex(raw) or decoded_base64(raw) or b""
        if len(seed) in (_SEED_BYTES, _PAIR_BYTES):
            return ed25519.Ed25519PrivateKey.from_private_bytes(seed[:_SEED_BYTES])
    raise _unreadable(
        text, source, "Give a PEM without a password, or an ed25519 key's bytes in hexadecimal or base64."
    )


def key_at(keys: Sequence[Secret], position: int, *, source: str) -> PrivateKey:
    """Give the private key at a position of a source's list.

    Raises:
        ConfigError: there is none, or see `private_key`.
    """
    return private_key(_text_at(keys, position, source), source=source)


def rsa_key_at(keys: Sequence[Secret], position: int, *, source: str) -> RSAPrivateKey:
    """Give the RSA key at a position of a source's list; the first one where it has only one.

    Raises:
        ConfigError: there is none, or it is no RSA key in PEM without a password.
    """
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

    text = _text_at(keys, 0 if len(keys) == 1 else position, source)
    key = _loaded(text)
    if isinstance(key, RSAPrivateKey):
        return key
    raise _unreadable(
        text, source, "Give an RSA key in PEM without a password, as `openssl genrsa` writes it."
    )


def signature_of(key: PrivateKey, message: bytes) -> bytes:
    """Give the key's raw signature over *message*; of ECDSA in DER, with SHA-256."""
    from cryptography.hazmat.primitives.asymmetric import ed25519
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
    from cryptography.hazmat.primitives.hashes import SHA256

    if isinstance(key, ed25519.Ed25519PrivateKey):
        return key.sign(message)
    return key.sign(message, ECDSA(SHA256()))


def rsa_signature(key: RSAPrivateKey, message: bytes, algorithm: Literal["sha1", "sha256"]) -> str:
    """Give the signature over *message*, PKCS#1 v1.5, in base64."""
    from cryptography.hazmat.primitives.asymmetric import padding
    from cryptography.hazmat.primitives.hashes import SHA1, SHA256

    hashed = SHA1() if algorithm == "sha1" else SHA256()  # noqa: S303 (what the sender signs with)
    return base64.b64encode(key.sign(message, padding.PKCS1v15(), hashed)).decode()


@functools.lru_cache(maxsize=16)
def _loaded(pem: str) -> object:
    """Give the key of a PEM, or None where it cannot be read; an RSA key takes 40 ms to be checked."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        return load_pem_private_key(pem.encode("utf-8"), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None


def _text_at(keys: Sequence[Secret], position: int, source: str) -> str:
    if not 0 <= position < len(keys):
        raise ConfigError(
            f"Source {source!r} has {len(keys)} private keys and none at {position}.",
            means="The body cannot be signed; a public key or certificate only verifies.",
            todo="Give the source private_keys=[…] of your own, in the order of its secrets. For tests only.",
        )
    return keys[position].key.decode("utf-8")


def _unreadable(text: str, source: str, todo: str) -> ConfigError:
    return ConfigError(
        f"Source {source!r} was given a private key of {len(text)} characters that cannot be read.",
        means="It cannot sign test deliveries with it.",
        todo=todo,
    )
