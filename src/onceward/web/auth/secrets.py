"""What is drawn at random and shown once: tokens, links and cookies.

256 random bits cannot be guessed, so a quick hash is all that is kept of them. A token begins with
a word of ours, by which scanners of code find one that leaked, and an id by which a row is found.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Callable
from typing import NamedTuple

from onceward.core.credentials import Kind

RANDOM_BYTES = 32
ID_CHARS = 12

WORDS = {Kind.TOKEN: "owt", Kind.LINK: "owl"}
_FORM = re.compile(r"(owt|owl)_([a-z2-7]{12})_([A-Za-z0-9_-]{43})")
_KINDS = {word: kind for kind, word in WORDS.items()}


class Drawn(NamedTuple):
    """A new token or link."""

    id: str
    text: str  # shown once
    kept: str  # what is stored of it


def draw(kind: Kind, random_bytes: Callable[[int], bytes]) -> Drawn:
    """Give a new token or link."""
    name = base64.b32encode(random_bytes(ID_CHARS))[:ID_CHARS].decode().lower()
    text = f"{WORDS[kind]}_{name}_{opaque(random_bytes)}"
    return Drawn(name, text, digest(text))


def opaque(random_bytes: Callable[[int], bytes]) -> str:
    """Give 256 random bits as text for a cookie or a form."""
    return base64.urlsafe_b64encode(random_bytes(RANDOM_BYTES)).decode().rstrip("=")


def digest(text: str) -> str:
    """Give what is kept of a random text."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def read(text: str) -> tuple[Kind, str] | None:
    """Give the kind and the id of what looks like a token or a link."""
    found = _FORM.fullmatch(text)
    return None if found is None else (_KINDS[found[1]], found[2])


def is_same(text: str, kept: str) -> bool:
    """Say whether *kept* was made of *text*, in a time that does not depend on where they differ."""
    return hmac.compare_digest(digest(text), kept)
