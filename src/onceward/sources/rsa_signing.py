"""RSA private keys with which tests and local tools play a sender that signs by certificate.

No receiver needs one: it verifies with the sender's certificate.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from onceward.core.errors import ConfigError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey


def rsa_key_at(keys: Sequence[str], position: int, *, source: str) -> RSAPrivateKey:
    """Give the private key at a position of a source's list; the first one where it has only one.

    Raises:
        ConfigError: there is none, or it is no RSA key in PEM without a password.
    """
    chosen = keys[0] if len(keys) == 1 else None if position < 0 else next(iter(keys[position:]), None)
    if chosen is None:
        raise ConfigError(
            f"Source {source!r} has {len(keys)} private keys and none at {position}.",
            means="Only the sender can sign; a certificate only verifies.",
            todo="Give it private_keys=[…] of your own, and the receiver their public ones. For tests only.",
        )
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(chosen.encode(), None)
        if isinstance(key, RSAPrivateKey):
            return key
    except (ValueError, TypeError, UnsupportedAlgorithm):
        pass
    raise ConfigError(
        f"Source {source!r} was given a private key that cannot be read.",
        means="It cannot sign test deliveries with it.",
        todo="Give an RSA key in PEM without a password, as `openssl genrsa` writes it.",
    )


def rsa_signature(key: RSAPrivateKey, message: bytes, algorithm: Literal["sha1", "sha256"]) -> str:
    """Give the signature over *message*, PKCS#1 v1.5, in base64."""
    from cryptography.hazmat.primitives.asymmetric import padding
    from cryptography.hazmat.primitives.hashes import SHA1, SHA256

    hashed = SHA1() if algorithm == "sha1" else SHA256()  # noqa: S303 (what the sender signs with)
    return base64.b64encode(key.sign(message, padding.PKCS1v15(), hashed)).decode()
