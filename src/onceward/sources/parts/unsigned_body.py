"""The body of a delivery whose signature stands inside it: read before it is trusted."""

from __future__ import annotations

from typing import Any

from onceward.core.errors import BodyMalformed, SignatureInvalid
from onceward.sources.base import parse_object


def object_to_verify(raw: bytes) -> dict[str, Any]:
    """Give the JSON object that holds the signature; `SignatureInvalid` for anything else."""
    try:
        return parse_object(raw)
    except BodyMalformed as error:
        raise SignatureInvalid("the body that should hold the signature is no JSON object") from error


def text_bytes(value: object, where: str) -> bytes:
    """Give a signed text as bytes; `SignatureInvalid` when it is missing, empty or no text."""
    if not isinstance(value, str) or not value:
        raise SignatureInvalid(f"no {where}")
    return value.encode("utf-8", "surrogatepass")
