"""Signatures by public key: ed25519, ECDSA on P-256 with SHA-256, RSA with PKCS#1 v1.5.

A source's secret is the sender's public key here, which is no secret at all. Everything that a
stranger sends ends in True or False. The cryptography package does the arithmetic and is imported
when the first key is read.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Literal, TypeAlias

from onceward.core.errors import ConfigError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    PublicKey: TypeAlias = Ed25519PublicKey | EllipticCurvePublicKey | RSAPublicKey

Scheme: TypeAlias = Literal["ed25519", "ecdsa-p256-sha256", "rsa-sha1", "rsa-sha256"]
SCHEMES: tuple[Scheme, ...] = ("ed25519", "ecdsa-p256-sha256", "rsa-sha1", "rsa-sha256")
_ED25519_BYTES = 32


def public_key(text: str, scheme: Scheme, *, source: str) -> PublicKey:
    """Give the key that *text* holds.

    Args:
        text: as the sender publishes it: PEM (a key or a certificate), base64 of DER, or for ed25519
            its 32 bytes in hexadecimal or base64.
        scheme: what it is to verify.
        source: the source's name, for messages.

    Raises:
        ConfigError: it is no such key, or the cryptography package is not installed.
    """
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
        from cryptography.hazmat.primitives.serialization import load_der_public_key, load_pem_public_key
        from cryptography.x509 import load_pem_x509_certificate
    except ImportError as error:
        raise ConfigError(
            f"Source {source!r} verifies {scheme} signatures, and the cryptography package is not installed.",
            means="No delivery could be verified.",
            todo="pip install 'onceward[crypto]'",
        ) from error
    key: object = None
    if "-----BEGIN" in text:
        # Variables of the environment often hold it on one line.
        text = text.replace("\\r", "").replace("\\n", "\n")
    try:
        if "-----BEGIN CERTIFICATE" in text:
            key = load_pem_x509_certificate(text.encode("ascii")).public_key()
        elif "-----BEGIN" in text:
            key = load_pem_public_key(text.encode("ascii"))
        else:
            raw = _decoded(text)
            is_raw = scheme == "ed25519" and len(raw) == _ED25519_BYTES
            key = ed25519.Ed25519PublicKey.from_public_bytes(raw) if is_raw else load_der_public_key(raw)
    except (ValueError, UnsupportedAlgorithm):
        pass
    wanted: type = (
        ed25519.Ed25519PublicKey
        if scheme == "ed25519"
        else ec.EllipticCurvePublicKey
        if scheme.startswith("ecdsa")
        else rsa.RSAPublicKey
    )
    if isinstance(key, wanted) and not (
        isinstance(key, ec.EllipticCurvePublicKey) and not isinstance(key.curve, ec.SECP256R1)
    ):
        return key  # type: ignore[return-value]  # one of the three, by the line above
    raise ConfigError(
        f"Source {source!r} was given a key of {len(text)} characters that is no public key for {scheme}.",
        means="No delivery could be verified with it.",
        todo="Give it the sender's public key: PEM, or the text that the sender's settings show.",
    )


def verifies(key: PublicKey, message: bytes, signature: bytes, scheme: Scheme) -> bool:
    """Say whether *signature*, raw (ECDSA: DER), is the key's over *message*; never raises."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding
    from cryptography.hazmat.primitives.hashes import SHA1, SHA256

    try:
        if isinstance(key, ed25519.Ed25519PublicKey):
            key.verify(signature, message)
        elif isinstance(key, ec.EllipticCurvePublicKey):
            key.verify(signature, message, ec.ECDSA(SHA256()))
        else:
            hashed = SHA1() if scheme == "rsa-sha1" else SHA256()  # noqa: S303 (what the sender signs with)
            key.verify(signature, message, padding.PKCS1v15(), hashed)
    except (InvalidSignature, ValueError):
        return False
    return True


def decoded_base64(raw: bytes) -> bytes | None:
    """Give the bytes that base64 *raw* holds, padded or not, or None when it is none."""
    try:
        return base64.b64decode(raw + b"=" * (-len(raw) % 4), validate=True)
    except (ValueError, binascii.Error):
        return None


def canonical_base64(raw: bytes) -> bytes | None:
    """Give the bytes of base64 (RFC 4648) written as encoders write it, padding and all, or None.

    Decoders take several texts for the same bytes; a signature has one.
    """
    decoded = decoded_base64(raw)
    return decoded if decoded is not None and base64.b64encode(decoded) == raw else None


def decoded_hex(raw: bytes) -> bytes | None:
    """Give the bytes that hexadecimal *raw* holds, or None when it is none."""
    try:
        return binascii.unhexlify(raw)
    except (ValueError, binascii.Error):
        return None


def _decoded(text: str) -> bytes:
    raw = "".join(text.split()).encode("ascii")
    decoded = decoded_hex(raw)
    if decoded is None:
        decoded = decoded_base64(raw)
    if decoded is None:
        raise ValueError("neither hexadecimal nor base64")
    return decoded
