"""Passwords, kept as slow hashes that say how they were made.

scrypt, from the standard library. The cost is one that OWASP's Password Storage Cheat Sheet gives
(2025): 32 MiB and a few hundred milliseconds for each guess.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import hmac
import unicodedata
from dataclasses import dataclass

from onceward.core.errors import ConfigError

CHARS_MIN = 10
BYTES_MAX = 1_024
SALT_BYTES = 16

_KEY_BYTES = 32
_SCHEME = "scrypt"


@dataclass(frozen=True)
class Cost:
    """What one guess costs: *n* rounds of memory, blocks of *r* times 128 bytes, *p* times over."""

    n: int = 2**15
    r: int = 8
    p: int = 3


def checked_password(password: str) -> str:
    """Give *password* if it can be one.

    Raises:
        ConfigError: it is too short or too long.
    """
    if len(password) < CHARS_MIN or len(password.encode("utf-8", "replace")) > BYTES_MAX:
        raise ConfigError(
            "The password cannot be used.",
            means=f"A password has at least {CHARS_MIN} characters and at most {BYTES_MAX} bytes.",
            todo="Let a password manager make one.",
        )
    return password


def hashed(password: str, salt: bytes, cost: Cost) -> str:
    """Give what is kept of a password: the scheme, its cost, the salt and the hash."""
    key = _key(password, salt, cost)
    parts = [_SCHEME, str(cost.n), str(cost.r), str(cost.p), _text(salt), _text(key)]
    return "$".join(parts)


def is_match(password: str, kept: str) -> bool:
    """Say whether *password* is the one of which *kept* was made; takes as long either way."""
    try:
        scheme, n, r, p, salt, key = kept.split("$")
        cost = Cost(int(n), int(r), int(p))
        if scheme != _SCHEME:
            return False
        found = _key(password, base64.b64decode(salt), cost)
        return hmac.compare_digest(found, base64.b64decode(key))
    except ValueError:  # a row that somebody edited lets nobody in
        return False


@functools.lru_cache(maxsize=8)
def of_nobody(cost: Cost) -> str:
    """Give what a password is compared with where there is no such user: the same work, and never a match."""
    return hashed("", bytes(SALT_BYTES), cost)


def _key(password: str, salt: bytes, cost: Cost) -> bytes:
    # One person, two keyboards: the same letters are not always the same code points.
    plain = unicodedata.normalize("NFC", password).encode("utf-8", "replace")[: BYTES_MAX + 1]
    memory = 128 * cost.r * (cost.n + cost.p + 2)
    return hashlib.scrypt(plain, salt=salt, n=cost.n, r=cost.r, p=cost.p, maxmem=2 * memory, dklen=_KEY_BYTES)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
