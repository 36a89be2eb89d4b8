"""The secrets of a configured scheme as keys: decoded once, and compared in constant time."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from onceward.core.errors import ConfigError
from onceward.sources.parts.asymmetric import decoded_base64, decoded_hex, public_key, verifies
from onceward.sources.parts.secret import Secret
from onceward.sources.signing import base64_hmac, check_count, hex_hmac, no_match

if TYPE_CHECKING:
    from onceward.sources.described.scheme import Signature, TextEncoding
    from onceward.sources.parts.asymmetric import PublicKey, Scheme

HASHES = frozenset({"sha1", "sha256", "sha384", "sha512"})
_TO_URL = bytes.maketrans(b"+/", b"-_")
_FROM_URL = bytes.maketrans(b"-_", b"+/")


class Keys:
    """The keys of one source.

    Args:
        signature: how they are written and what they verify.
        secrets: as configured.
        source: the source's name, for messages.

    Raises:
        ConfigError: a secret cannot be read as the configuration says.
    """

    def __init__(self, signature: Signature, secrets: Sequence[Secret], *, source: str) -> None:
        self.is_symmetric = signature.algorithm in HASHES
        self._algorithm = signature.algorithm
        self._encoding: TextEncoding = signature.encoding
        self._is_exact = signature.exact
        # Secrets, not bytes: their repr shows no key.
        self._secrets: tuple[Secret, ...] = ()
        self._public: tuple[PublicKey, ...] = ()
        if self.is_symmetric:
            self._secrets = tuple(
                _decoded_secret(secret, signature, position, source)
                for position, secret in enumerate(secrets, start=1)
            )
        else:
            scheme = cast("Scheme", signature.algorithm)
            self._public = tuple(
                public_key(secret.key.decode("utf-8"), scheme, source=source) for secret in secrets
            )

    def matching(self, messages: Sequence[bytes], signatures: Sequence[bytes]) -> int:
        """Give the position of the key under which one of the signatures is right for a message.

        Raises:
            SignatureInvalid: none is, or too many are offered.
        """
        check_count(signatures)
        if self.is_symmetric:
            offered = [self._comparable(one) for one in signatures]
            for index, key in enumerate(self._secrets):
                for message in messages:
                    text = hmac_text(key.key, message, self._algorithm, self._encoding)
                    expected = self._comparable(text)
                    if any(hmac.compare_digest(expected, one) for one in offered):
                        return index
        else:
            scheme = cast("Scheme", self._algorithm)
            raw = [one for one in (_decoded(text, self._encoding) for text in signatures) if one is not None]
            for index, public in enumerate(self._public):
                if any(verifies(public, message, one, scheme) for message in messages for one in raw):
                    return index
        raise no_match(signatures, len(self._secrets) + len(self._public))

    def _comparable(self, text: bytes) -> bytes:
        """Give the one spelling of a signature, or what stands there where no other is taken.

        Compared as text and never decoded: in base64 several texts mean the same bytes.
        """
        if self._is_exact:
            return text
        return text.lower() if self._encoding == "hex" else text.rstrip(b"=")

    def sign(self, index: int, message: bytes) -> bytes:
        """Give the signature of the secret at that position, as header bytes."""
        return hmac_text(self._secrets[index].key, message, self._algorithm, self._encoding)

    def answer(self, message: bytes, encoding: TextEncoding) -> bytes:
        """Give the HMAC under the first secret, for answers to a sender's question."""
        return hmac_text(self._secrets[0].key, message, self._algorithm, encoding)


def hmac_text(key: bytes, message: bytes, algorithm: str, encoding: TextEncoding) -> bytes:
    """Give an HMAC as text: lower-case hexadecimal, base64 with padding, or base64url with it."""
    if encoding == "hex":
        return hex_hmac(key, message, algorithm)
    text = base64_hmac(key, message, algorithm)
    return text if encoding == "base64" else text.translate(_TO_URL)


def _decoded(text: bytes, encoding: TextEncoding) -> bytes | None:
    """Give the bytes of a signature, or None for what is none or not the plainest spelling."""
    if encoding == "hex":
        return decoded_hex(text)
    if encoding == "base64url":
        if b"+" in text or b"/" in text:
            return None
        text = text.translate(_FROM_URL)
    text = text.rstrip(b"=")
    raw = decoded_base64(text)
    return raw if raw is not None and base64.b64encode(raw).rstrip(b"=") == text else None


def _decoded_secret(secret: Secret, signature: Signature, position: int, source: str) -> Secret:
    text = secret.key.removeprefix(signature.secret_prefix.encode("utf-8"))
    encoding = signature.secret_encoding
    key = text if encoding == "text" else decoded_hex(text) if encoding == "hex" else _decoded(text, encoding)
    if not key:
        raise ConfigError(
            f"Secret {position} of source {source!r} is not {encoding}.",
            means="No delivery could be verified with it.",
            todo="Copy it again from the sender's settings, whole, or correct secret_encoding.",
        )
    kept = Secret("")
    kept.key = key
    return kept
