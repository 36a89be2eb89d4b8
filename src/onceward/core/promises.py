"""Tokens of promises: made of a secret that is not in the store, kept there as hashes only.

Whoever reads the store learns no token, so he can complete nothing; and a run that comes back makes
the same token again, so that a mail that is sent twice has the same link.
"""

from __future__ import annotations

import base64
import hashlib
import hmac

from onceward.core import ids
from onceward.core.errors import ConfigError
from onceward.core.model import StepKey
from onceward.core.shown import shown

RESULT = " result"
"""Follows a promise's name in that of the step that waits for it."""

TOKEN_CHARS_MAX = 200
SECRET_CHARS_MIN = 32

_HOW = (
    "Set ONCEWARD_PROMISE_SECRET to what `python -c 'import secrets; print(secrets.token_urlsafe(32))'` prints, the "
    "same in every process."
)


_HOW_ADDRESS = (
    " Set ONCEWARD_PUBLIC_URL, too, to where the outside reaches the app, e.g. https://shop.example: without it a "
    "promise has a token and no address."
)


def secrets_of(setting: str | None, *, has_address: bool = True) -> tuple[str, ...]:
    """Give the secrets that a setting names, the one for new tokens first.

    Args:
        setting: ``promise_secret``.
        has_address: whether ``public_url`` is set; if neither is, both are asked for at once.

    Raises:
        ConfigError: there is none, or one is too short to be one.
    """
    secrets = () if setting is None else read_secrets(setting, "setting promise_secret")
    if not secrets:
        raise ConfigError(
            "A promise was made without the setting promise_secret.",
            means="Its token could be foreseen.",
            todo=_HOW if has_address else _HOW + _HOW_ADDRESS,
        )
    return secrets


def read_secrets(text: str, what: str) -> tuple[str, ...]:
    """Give the secrets in a text, the one for new tokens first.

    Args:
        text: with spaces between.
        what: where it stands, in errors.

    Raises:
        ConfigError: one is too short to be one.
    """
    secrets = tuple(text.split())
    if not secrets or any(len(secret) < SECRET_CHARS_MIN for secret in secrets):
        raise ConfigError(
            f"The {what} holds a secret with fewer than {SECRET_CHARS_MIN} characters.",
            means="Whoever sees one token could guess it, and with it every other token.",
            todo=_HOW,
        )
    return secrets


def token_of(secret: str, namespace: str, run_id: str, generation: int, key: StepKey) -> str:
    """Give the token of a promise: the same whenever it is asked for, unforeseeable without the secret."""
    text = ids.composed("promise", namespace, run_id, generation, *key)
    mac = hmac.digest(secret.encode(), text.encode(), "sha256")
    return base64.urlsafe_b64encode(mac).decode().rstrip("=")


def hash_of(token: str) -> str:
    """Give what is stored of a token. It has 256 random bits, so a plain hash tells nobody what it is.

    Raises:
        ConfigError: it is no text.
    """
    if not isinstance(token, str):
        raise ConfigError(
            f"The token {shown(token)} is no text.", means="Nothing was done.", todo="Pass a str."
        )
    return hashlib.sha256(token[:TOKEN_CHARS_MAX].encode("utf-8", "replace")).hexdigest()
