"""Spoils a signed request in a way that its source must notice."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from onceward.core.errors import BodyMalformed, SignatureInvalid
from onceward.core.messages import HttpRequest
from onceward.sources.base import Source, parse_json

_PROOF = re.compile(r"signature|clientstate", re.IGNORECASE)
_PROOF_CHARS_MIN = 16


def tampered(make: Callable[[], Source], request: HttpRequest, now_ms: int) -> HttpRequest:
    """Give the request with another body; where its signature does not cover that, with another signature.

    Args:
        make: gives the source anew, since some remember what they have verified.
        request: as the sender would send it.
        now_ms: the time at which it was signed.
    """
    changed = msgspec.structs.replace(request, body=_changed_body(request.body))
    if _is_genuine(make(), request, now_ms) and not _is_genuine(make(), changed, now_ms):
        return changed
    body = request.body
    try:
        body = msgspec.json.encode(_with_changed_proof(parse_json(body)))
    except BodyMalformed:
        body = re.sub(rb"(?i)(signature=)(.)", lambda found: found[1] + _other(found[2]), body)
    headers = tuple((name, _changed_value(name, value)) for name, value in request.headers)
    return msgspec.structs.replace(request, headers=headers, body=body)


def _is_genuine(source: Source, request: HttpRequest, now_ms: int) -> bool:
    try:
        source.verify(request, now_ms)
    except SignatureInvalid:
        return False
    return True


def _changed_body(body: bytes) -> bytes:
    """Change one character inside a text, so that the body stays as readable as it was."""
    places = list(re.finditer(rb"[A-Za-z0-9](?=\"|&|$)", body))
    if not places:
        return body + b" "
    at = places[len(places) // 2].start()
    return body[:at] + _other(body[at : at + 1]) + body[at + 1 :]


def _with_changed_proof(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: _spoiled(inner)
            if isinstance(inner, str) and _PROOF.search(name)
            else _with_changed_proof(inner)
            for name, inner in value.items()
        }
    return [_with_changed_proof(inner) for inner in value] if isinstance(value, list) else value


def _spoiled(text: str) -> str:
    return _other(text[:1].encode("utf-8", "replace")).decode("utf-8", "replace") + text[1:]


def _changed_value(name: bytes, value: bytes) -> bytes:
    if len(value) < _PROOF_CHARS_MIN or name in (b"content-type", b"user-agent"):
        return value
    at = len(value) - 8  # inside what stands last: the signature, in every scheme
    return value[:at] + _other(value[at : at + 1]) + value[at + 1 :]


def _other(char: bytes) -> bytes:
    """Give another character of the same kind, so that only its value is wrong."""
    return b"1" if char == b"0" else b"0" if char.isdigit() else b"b" if char == b"a" else b"a"
