"""Private keys with which tests and local tools play a sender that signs by public key.

No receiver needs one: it verifies with the sender's public key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from onceward.core.errors import ConfigError
from onceward.sources.asymmetric import decoded_base64, decoded_hex
from onceward.sources.secret import Secret

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    PrivateKey: TypeAlias = Ed25519PrivateKey | EllipticCurvePrivateKey

# An ed25519 key alone, and with its public key behind it, as Standard Webhooks writes it.
_SEED_BYTES = 32
_PAIR_BYTES = 64


def private_key(text: str, *, source: str) -> PrivateKey:
    """Give the key that *text* holds: PEM, or of ed25519 the bytes in hexadecimal or base64.

    Raises:
        ConfigError: it is no such key.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        if "-----BEGIN" in text:
            key = load_pem_private_key(text.encode("utf-8"), None)
            if isinstance(key, (ed25519.Ed25519PrivateKey, ec.EllipticCurvePrivateKey)):
                return key
        else:
            raw = text.encode("utf-8")
            seed = decoded_hex(raw) or decoded_base64(raw) or b""
            if len(seed) in (_SEED_BYTES, _PAIR_BYTES):
                return ed25519.Ed25519PrivateKey.from_private_bytes(seed[:_SEED_BYTES])
    except (ValueError, TypeError, UnsupportedAlgorithm):
        pass
    raise ConfigError(
        f"Source {source!r} was given a private key of {len(text)} characters that cannot be read.",
        means="It cannot sign test deliveries with it.",
        todo="Give a PEM without a password, or an ed25519 key's bytes in hexadecimal or base64.",
    )


def key_at(keys: Sequence[Secret], secret_index: int, *, source: str) -> PrivateKey:
    """Give the private key at a position of a source's list; `ConfigError` when there is none."""
    if not 0 <= secret_index < len(keys):
        raise ConfigError(
            f"Source {source!r} has {len(keys)} private keys and none at {secret_index}.",
            means="The body cannot be signed; a public key only verifies.",
            todo="Give the source private_keys=[…], in the order of its secrets. For tests only.",
        )
    return private_key(keys[secret_index].key.decode("utf-8"), source=source)


def signature_of(key: PrivateKey, message: bytes) -> bytes:
    """Give the key's raw signature over *message*; of ECDSA in DER, with SHA-256."""
    from cryptography.hazmat.primitives.asymmetric import ed25519
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
    from cryptography.hazmat.primitives.hashes import SHA256

    if isinstance(key, ed25519.Ed25519PrivateKey):
        return key.sign(message)
    return key.sign(message, ECDSA(SHA256()))
