"""Replies that are sent again only where they differ: a strong ETag over the body, and 304.

It spares the way and the reading, not the question: nothing here remembers a reply. Nor may anybody on the
way: ``Cache-Control: no-store`` stays, and who asks keeps the tag with the reply that it has.
"""

from __future__ import annotations

import hashlib

from onceward.core.messages import HttpResponse
from onceward.web.auth.guard import header
from onceward.web.port import Scope

TAG_CHARS = 32


def conditional(scope: Scope, body: bytes, headers: dict[str, str]) -> HttpResponse:
    """Give a reply with its tag, or 304 where the asker has it."""
    tag = f'"{hashlib.sha256(body).hexdigest()[:TAG_CHARS]}"'
    if _has(header(scope, b"if-none-match"), tag):
        return HttpResponse.of(304, b"", {"ETag": tag})
    return HttpResponse.of(200, body, {**headers, "ETag": tag})


def _has(wanted: str, tag: str) -> bool:
    """Say whether an ``If-None-Match`` names a tag; by RFC 9110 a weak one names the same."""
    named = [one.strip().removeprefix("W/") for one in wanted.split(",")]
    return tag in named or named == ["*"]
