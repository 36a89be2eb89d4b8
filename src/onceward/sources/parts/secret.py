"""Secrets, as sources keep them: they can be used but not read by accident.

Secrets end up in tracebacks, start-up banners and debuggers; there they show only enough to tell
one from another.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from typing import Any

from onceward.core.errors import ConfigError, SignatureInvalid

# Prefixes that providers publish; they tell the kind of secret and give nothing away.
_KNOWN_PREFIXES = ("whsec_", "whpk_", "whsk_")
_TAIL_SHOWN = 4
_CHARS_MIN_FOR_TAIL = 16


class Secret:
    """One secret; ``key`` gives its bytes, everything else gives it masked (``whsec_…abcd``)."""

    __slots__ = ("_shown", "key")

    def __init__(self, text: str) -> None:
        self.key = text.encode("utf-8")
        self._shown = _masked(text)

    def __repr__(self) -> str:
        return self._shown


def secrets_from(given: object, *, source: str) -> tuple[Secret, ...]:
    """Give the secrets of a source's configuration, in the order given.

    A key or certificate in PEM ends with a line end by its format, which is taken off.

    Raises:
        ConfigError: they are neither text nor a sequence, or one of them is not text, empty, or has
            white space around it; a secret read from a file or variable often brings its line end
            along and would then never match.
    """
    if not isinstance(given, Sequence) or isinstance(given, bytes):
        raise ConfigError(
            f"The secrets of source {source!r} are {type(given).__name__}, not text.",
            means="No delivery could be verified.",
            todo="Look at where they are read from: is the variable set?",
        )
    texts = [without_line_end(text) for text in ((given,) if isinstance(given, str) else given)]
    for position, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            fault = f"is {type(text).__name__}, not text"
        elif not text.strip():
            fault = "is empty"
        elif text != text.strip():
            fault = "begins or ends with white space"
        elif not _encodes(text):
            fault = "holds characters that UTF-8 cannot encode"
        else:
            continue
        raise ConfigError(
            f"Secret {position} of source {source!r} {fault}.",
            means="No delivery could be verified with it.",
            todo="Look at where it is read from: is the variable set and free of a line end?",
        )
    return tuple(Secret(str(text)) for text in texts)


def without_line_end(text: Any) -> Any:
    """Give a PEM without the white space around it, which means nothing there; all else as it is."""
    return text.strip() if isinstance(text, str) and text.lstrip().startswith("-----BEGIN ") else text


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
    return [without_line_end(text) for text in texts]


def _encodes(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _masked(text: str) -> str:
    prefix = next((known for known in _KNOWN_PREFIXES if text.startswith(known)), "")
    rest = text[len(prefix) :]
    tail = rest[-_TAIL_SHOWN:] if len(rest) >= _CHARS_MIN_FOR_TAIL else ""
    return f"{prefix}…{tail}"
