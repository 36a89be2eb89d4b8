"""Slack: ``X-Slack-Signature: v0=<hex>`` over ``v0:timestamp:body``.

Three things come to one address: events of the Events API (JSON), interactions (a form whose
``payload`` is JSON) and slash commands (a form). The challenge at set-up is signed like the rest.
Retries are signed anew and counted in headers, so neither is looked at for an event's identity.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar

from onceward.core.arrival import UNVERIFIED, Incoming, Outcome, Verified
from onceward.core.errors import BodyMalformed
from onceward.core.ids import content_hash
from onceward.core.messages import HttpRequest, HttpResponse
from onceward.sources.base import derived_id, identifier, parse_object, subject_or_none
from onceward.sources.parts.fields import at, first_at, integer_or_none, seconds_ms, text_or_none
from onceward.sources.parts.forms import URLENCODED, form_fields, form_object, is_urlencoded, read_fields
from onceward.sources.parts.replies import EMPTY_200, challenge_or_none, plain_text, when_taken
from onceward.sources.parts.shape import malformed
from onceward.sources.signing import header_after, hex_hmac, matching_secret, sole_header, unix_ms
from onceward.sources.timed import TimedSource

HEADER = "X-Slack-Signature"
TIMESTAMP_HEADER = "X-Slack-Request-Timestamp"
COMMAND = "slash_command"
_FEATURES = "Look at which of the app's features sends to this address."


class Slack(TimedSource):
    """Requests of one Slack app: events, interactions and slash commands.

    Args:
        name: see `Source`.
        secrets: the app's signing secret (not its verification token).
        insecure: see `Source`.
        tolerance: see `TimedSource`; five minutes by default, as Slack recommends.

    The id of an event is its ``event_id``; interactions and commands have none, and it is derived
    from their ``trigger_id``. The type is the inner event's (``app_mention``), the interaction's
    (``block_actions``) or ``slash_command``; the subject the channel's id, else the user's. Payloads
    of forms are objects of their fields.
    """

    kind: ClassVar[str] = "slack"
    docs_url: ClassVar[str] = "https://docs.slack.dev/authentication/verifying-requests-from-slack"
    docs_date: ClassVar[str] = "2026-11-29"
    # At once, after one minute and after five.
    retry_horizon: ClassVar[timedelta | None] = timedelta(minutes=6)
    retry_docs: ClassVar[str] = "https://docs.slack.dev/apis/events-api/"
    reply_deadline: ClassVar[timedelta | None] = timedelta(seconds=3)

    def verify(self, request: HttpRequest, now_ms: int) -> Verified:
        """Check the signature, then the age."""
        if self.insecure:
            return UNVERIFIED
        given = header_after(request, HEADER, b"v0=")
        timestamp = sole_header(request, TIMESTAMP_HEADER)
        sent_at_ms = unix_ms(timestamp)
        message = b"v0:%b:%b" % (timestamp, request.body)
        index = matching_secret(self.secrets, message, [given])
        self.check_age(sent_at_ms, now_ms)
        return Verified(index, sent_at_ms)

    def handshake(self, request: HttpRequest, now_ms: int) -> HttpResponse | None:
        """Send the challenge of ``url_verification`` back; answer the certificate check of commands."""
        # Looked for in the bytes first, so that an ordinary event is not read twice.
        if is_urlencoded(request):
            if b"ssl_check" in request.body and dict(form_fields(request.body) or ()).get("ssl_check") == "1":
                return EMPTY_200
            return None
        if b"url_verification" not in request.body:
            return None
        try:
            body = parse_object(request.body)
        except BodyMalformed:
            return None  # normalize says so
        challenge = challenge_or_none(body.get("challenge"))
        if body.get("type") != "url_verification" or challenge is None:
            return None
        return plain_text(challenge)

    def normalize(self, request: HttpRequest) -> list[Incoming]:
        """Give the one event, interaction or command of the request."""
        if not is_urlencoded(request):
            return [_event(parse_object(request.body), request)]
        fields = read_fields(request.body)
        form = form_object(fields)
        payload = form.get("payload")
        if isinstance(payload, str):
            return [_interaction(parse_object(payload.encode("utf-8")))]
        if not text_or_none(form.get("command")):
            raise malformed("the form has neither a payload nor a command", todo=_FEATURES)
        trigger_id = text_or_none(form.get("trigger_id"))
        return [
            Incoming(
                id=derived_id(COMMAND, trigger_id or sorted(fields)),
                type=COMMAND,
                payload=form,
                subject=subject_or_none(first_at(form, "channel_id", "user_id")),
                id_is_derived=True,
            )
        ]

    def respond(self, outcome: Outcome) -> HttpResponse | None:
        """Give an empty 200: any text in the reply to a command would be shown to its user."""
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
        """Give the headers of a Slack request; a body that is no JSON object is sent as a form."""
        seconds = b"%d" % (now_ms // 1000)
        signature = hex_hmac(self.signing_key(secret_index), b"v0:%b:%b" % (seconds, body))
        return {
            "Content-Type": "application/json" if body.lstrip().startswith(b"{") else URLENCODED,
            TIMESTAMP_HEADER: seconds.decode(),
            HEADER: f"v0={signature.decode()}",
        }


def _event(body: dict[str, Any], request: HttpRequest) -> Incoming:
    event = body.get("event")
    if not isinstance(event, dict):
        # Notices about the subscription itself, such as app_rate_limited: no id of their own.
        event_type = identifier(body.get("type"), 'the field "type"')
        return Incoming(
            id=derived_id(event_type, content_hash(request.body)),
            type=event_type,
            payload=body,
            payload_is_body=True,
            subject=subject_or_none(first_at(body, "team_id", "api_app_id")),
            occurred_at_ms=seconds_ms(body.get("minute_rate_limited")),
            id_is_derived=True,
        )
    return Incoming(
        id=identifier(body.get("event_id"), 'the field "event_id"'),
        type=identifier(event.get("type"), 'the field "event.type"'),
        payload=body,
        payload_is_body=True,
        subject=_about(event),
        occurred_at_ms=seconds_ms(body.get("event_time")),
    )


def _interaction(payload: dict[str, Any]) -> Incoming:
    event_type = identifier(payload.get("type"), 'the field "type"')
    trigger_id = text_or_none(payload.get("trigger_id"))
    return Incoming(
        id=derived_id(event_type, trigger_id or payload),
        type=event_type,
        payload=payload,
        subject=_about(payload),
        occurred_at_ms=_action_time(payload),
        id_is_derived=True,
    )


def _about(value: dict[str, Any]) -> str | None:
    """Give the channel's id, else the user's; each stands there as text or as an object."""
    for name in ("channel", "channel_id", "user"):
        found = value.get(name)
        subject = subject_or_none(found.get("id") if isinstance(found, dict) else found)
        if subject is not None:
            return subject
    return subject_or_none(at(value, "item", "channel"))


def _action_time(payload: dict[str, Any]) -> int | None:
    found = payload.get("action_ts")
    actions = payload.get("actions")
    if found is None and isinstance(actions, list) and actions:
        found = at(actions[0], "action_ts")
    # "1548261231.518": seconds, and microseconds behind the point.
    seconds = found.partition(".")[0] if isinstance(found, str) else None
    return seconds_ms(integer_or_none(seconds))
