"""Telegram bots: the token given to ``setWebhook``, in ``X-Telegram-Bot-Api-Secret-Token``.

Nothing is signed: the token proves the sender, and whoever reads one request can send others. It
belongs behind TLS and never into an address.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, ClassVar

from onceward.core.arrival import UNVERIFIED, Incoming, Outcome, Verified
from onceward.core.errors import ConfigError
from onceward.core.messages import HttpRequest, HttpResponse
from onceward.sources.base import Source, identifier, parse_object, subject_or_none
from onceward.sources.parts.fields import at, first_at, integer_or_none, seconds_ms
from onceward.sources.parts.replies import EMPTY_200, when_taken
from onceward.sources.parts.secret import matching_text
from onceward.sources.signing import sole_header

HEADER = "X-Telegram-Bot-Api-Secret-Token"
_TOKEN = re.compile(rb"[A-Za-z0-9_-]{1,256}")


class Telegram(Source):
    """Updates of one Telegram bot; two bots are two sources.

    Args:
        name: see `Source`.
        secrets: the ``secret_token`` of ``setWebhook``: 1 to 256 letters, digits, ``_`` and ``-``.
        insecure: see `Source`.

    The id and the version are ``update_id``, which counts up for each bot. The type is the name of
    what the update holds (``message``, ``callback_query``), the subject the chat's id, else the
    user's.
    """

    kind: ClassVar[str] = "telegram"
    docs_url: ClassVar[str] = "https://core.telegram.org/bots/api#setwebhook"
    docs_date: ClassVar[str] = "2026-11-29"
    # So long it keeps updates; how often it tries is not said.
    retry_horizon: ClassVar[timedelta | None] = timedelta(hours=24)
    retry_docs: ClassVar[str] = "https://core.telegram.org/bots/api#getting-updates"

    def __init__(
        self, *, name: str | None = None, secrets: str | Sequence[str] = (), insecure: bool = False
    ) -> None:
        super().__init__(name=name, secrets=secrets, insecure=insecure)
        for position, secret in enumerate(self.secrets, start=1):
            if not _TOKEN.fullmatch(secret.key):
                raise ConfigError(
                    f"Secret {position} of source {self.name!r} is no secret_token of Telegram's.",
                    means="setWebhook refuses it, so no update can carry it.",
                    todo="Use 1 to 256 letters, digits, '_' and '-'; not the bot's own token.",
                )

    def verify(self, request: HttpRequest, now_ms: int) -> Verified:
        """Compare the token; there is no time to check."""
        if self.insecure:
            return UNVERIFIED
        return Verified(matching_text(self.secrets, sole_header(request, HEADER)))

    def normalize(self, request: HttpRequest) -> list[Incoming]:
        """Give the one update of the request."""
        body = parse_object(request.body)
        event_type = next((name for name in body if name != "update_id"), "update")
        content = body.get(event_type)
        return [
            Incoming(
                id=identifier(body.get("update_id"), 'the field "update_id"'),
                type=identifier(event_type, "the name of the update's content"),
                payload=body,
                payload_is_body=True,
                subject=_about(content),
                occurred_at_ms=seconds_ms(first_at(content, "edit_date", "date")),
                version=integer_or_none(body.get("update_id")),
                id_is_signed=False,
            )
        ]

    def respond(self, outcome: Outcome) -> HttpResponse | None:
        """Give an empty 200: a body would be read as a call of the bot's API."""
        return when_taken(outcome, EMPTY_200)

    def sign(
        self,
        body: bytes,
        now_ms: int,
        *,
        event_id: str = "",
        event_type: str = "",
        secret_index: int = 0,
        url: str = "",
    ) -> dict[str, str]:
        """Give the headers of an update; id and type stand in the body."""
        return {"Content-Type": "application/json", HEADER: self.signing_key(secret_index).decode("ascii")}


def _about(content: Any) -> str | None:
    return subject_or_none(
        at(content, "chat", "id")
        or at(content, "message", "chat", "id")
        or at(content, "from", "id")
        or at(content, "user", "id")
    )
