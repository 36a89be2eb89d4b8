"""Replies that senders ask for: an empty one, plain text, JSON."""

from __future__ import annotations

from typing import Any

import msgspec

from onceward.core.arrival import Outcome
from onceward.core.messages import HttpResponse

EMPTY_200 = HttpResponse.of(200)
EMPTY_204 = HttpResponse.of(204)
# Long enough for every sender's challenge, short enough that the reply is no mirror for a page.
CHALLENGE_CHARS_MAX = 1024


def when_taken(outcome: Outcome, response: HttpResponse) -> HttpResponse | None:
    """Give *response* for what was taken, now or before, and None (the receiver's own) otherwise."""
    return response if outcome in ("accepted", "duplicate") else None


def plain_text(text: str) -> HttpResponse:
    """Give a 200 with text that no browser takes for a page; for challenges sent back as they came."""
    headers = {"Content-Type": "text/plain; charset=utf-8", "X-Content-Type-Options": "nosniff"}
    return HttpResponse.of(200, text.encode("utf-8", "replace"), headers)


def json_reply(value: Any) -> HttpResponse:
    """Give a 200 with a JSON value."""
    return HttpResponse.of(200, msgspec.json.encode(value), {"Content-Type": "application/json"})


def challenge_or_none(value: object) -> str | None:
    """Give a challenge that may be sent back: text, printable, at most `CHALLENGE_CHARS_MAX` long."""
    if isinstance(value, str) and 0 < len(value) <= CHALLENGE_CHARS_MAX and value.isprintable():
        return value
    return None
