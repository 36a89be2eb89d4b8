"""What the tests of sources share: asking for a refusal, and independent signatures.

Expected signatures are computed here with `hmac` and `hashlib` by the documented formula, never
with a source's own sign().
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import pytest

from onceward.core.arrival import Incoming
from onceward.core.errors import BodyMalformed, SignatureInvalid
from onceward.core.messages import HttpRequest
from onceward.sources import Source

NOW_MS = 1_760_000_000_000
NOW = str(NOW_MS // 1000)
FIXTURES = Path(__file__).parents[2] / "src" / "onceward" / "sources" / "fixtures"


def hex_of(key: str | bytes, message: bytes, algorithm: str = "sha256") -> str:
    return hmac.new(_bytes(key), message, getattr(hashlib, algorithm)).hexdigest()


def base64_of(key: str | bytes, message: bytes, algorithm: str = "sha256") -> str:
    digest = hmac.new(_bytes(key), message, getattr(hashlib, algorithm)).digest()
    return base64.b64encode(digest).decode()


def json_of(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def examples(kind: str) -> dict[str, tuple[bytes, dict[str, str]]]:
    """Give the example bodies of a kind by event type, with their headers."""
    given = json.loads((FIXTURES / f"{kind}.json").read_bytes())
    return {
        event_type: (
            one["body"].encode() if isinstance(one["body"], str) else json_of(one["body"]),
            one.get("headers", {}),
        )
        for event_type, one in given.items()
    }


def example(kind: str, event_type: str) -> bytes:
    return examples(kind)[event_type][0]


def refused(source: Source, request: HttpRequest, now_ms: int = NOW_MS) -> str:
    with pytest.raises(SignatureInvalid) as refusal:
        source.verify(request, now_ms)
    return refusal.value.check


def malformed(source: Source, request: HttpRequest) -> None:
    with pytest.raises(BodyMalformed):
        source.normalize(request)


def sole_event(source: Source, request: HttpRequest) -> Incoming:
    [incoming] = source.normalize(request)
    return incoming


def _bytes(key: str | bytes) -> bytes:
    return key if isinstance(key, bytes) else key.encode()
