"""Secrets that senders do not sign with but send along."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from typing import Any

from onceward.core.errors import SignatureInvalid
from onceward.sources.secret import Secret


def matching_text(secrets: Sequence[Secret], given: bytes) -> int:
    """Give the position of the secret that *given* is, compared in constant time.

    Raises:
        SignatureInvalid: it is none of them.
    """
    for index, secret in enumerate(secrets):
        if hmac.compare_digest(secret.key, given):
            return index
    raise SignatureInvalid(
        f"the shared secret does not match, {len(secrets)} {'secret' if len(secrets) == 1 else 'secrets'} tried"
    )


def joined_texts(*given: object) -> list[str]:
    """Give the texts of several arguments, each one text or several, as one list.

    What is neither is kept as it is, for the check of secrets to refuse it by name.
    """
    texts: list[Any] = []
    for value in given:
        if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
            texts += value
        else:
            texts.append(value)
    return [_without_line_end(text) for text in texts]


def _without_line_end(text: Any) -> Any:
    # A key or certificate in PEM ends with a line end by its format; other secrets must not.
    return text.strip() if isinstance(text, str) and text.lstrip().startswith("-----BEGIN ") else text
