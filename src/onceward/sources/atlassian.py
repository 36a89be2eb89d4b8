"""Atlassian's Bitbucket (Cloud and Data Center) and Jira: ``X-Hub-Signature: sha256=<hex>``.

GitHub and Meta send SHA-1 under that header's name; here it is SHA-256 over the body, and anything
else is refused. No time is signed, and ids come in headers outside the signature.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar

from onceward.core.arrival import UNVERIFIED, Incoming, Verified
from onceward.core.ids import content_hash
from onceward.core.messages import HttpRequest, HttpResponse
from onceward.sources.base import (
    Source,
    derived_id,
    identifier,
    parse_object,
    sole_text_header,
    subject_or_none,
)
from onceward.sources.parts.fields import at, first_at, iso_or_none, millis_or_none, text_or_none
from onceward.sources.parts.replies import EMPTY_200
from onceward.sources.signing import header_after, hex_hmac, matching_secret

HEADER = "X-Hub-Signature"
EVENT_HEADER = "X-Event-Key"
CLOUD_ID_HEADER = "X-Request-UUID"
JIRA_ID_HEADER = "X-Atlassian-Webhook-Identifier"
PING = "diagnostics:ping"


class _HubSigned(Source):
    """What the two have in common: the signature."""

    def verify(self, request: HttpRequest, now_ms: int) -> Verified:
        """Check the signature; Atlassian signs no time, so *now_ms* is not used."""
        if self.insecure:
            return UNVERIFIED
        given = header_after(request, HEADER, b"sha256=")
        return Verified(matching_secret(self.secrets, request.body, [given]))

    def _signature(self, body: bytes, secret_index: int) -> dict[str, str]:
        signature = hex_hmac(self.signing_key(secret_index), body)
        return {"Content-Type": "application/json", HEADER: f"sha256={signature.decode()}"}


class Bitbucket(_HubSigned):
    """Deliveries of a Bitbucket webhook, Cloud or Data Center.

    Args:
        name: see `Source`.
        secrets: the webhook's secret; list old and new while you change it.
        insecure: see `Source`.

    The id is ``X-Request-UUID`` of Bitbucket Cloud. Data Center sends ``X-Request-Id``, which proxies
    overwrite; its ids are derived from event key and body. The type is ``X-Event-Key``
    (``repo:push``), the subject the repository's full name. Data Center's connection test is
    answered and is no event.
    """

    kind: ClassVar[str] = "bitbucket"
    docs_url: ClassVar[str] = "https://support.atlassian.com/bitbucket-cloud/docs/manage-webhooks"
    docs_date: ClassVar[str] = "2026-11-29"
    reply_deadline: ClassVar[timedelta | None] = timedelta(seconds=10)

    def handshake(self, request: HttpRequest, now_ms: int) -> HttpResponse | None:
        """Answer Data Center's connection test."""
        return EMPTY_200 if request.header(EVENT_HEADER) == PING else None

    def normalize(self, request: HttpRequest) -> list[Incoming]:
        """Give the one event of the delivery."""
        event_type = sole_text_header(request, EVENT_HEADER)
        body = parse_object(request.body)
        has_id = bool(request.header_values(CLOUD_ID_HEADER))
        return [
            Incoming(
                id=sole_text_header(request, CLOUD_ID_HEADER)
                if has_id
                else derived_id(event_type, content_hash(request.body)),
                type=event_type,
                payload=body,
                payload_is_body=True,
                subject=_repository(body),
                occurred_at_ms=iso_or_none(
                    first_at(body, "date")
                    or first_at(body.get("pullrequest"), "updated_on", "created_on")
                    or first_at(body.get("issue"), "updated_on", "created_on")
                ),
                id_is_signed=not has_id,
                id_is_derived=not has_id,
            )
        ]

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
        """Give the headers of a Bitbucket Cloud delivery; without *event_id* those of Data Center."""
        headers = self._signature(body, secret_index) | {EVENT_HEADER: event_type}
        return headers | ({CLOUD_ID_HEADER: event_id, "X-Attempt-Number": "1"} if event_id else {})


class Jira(_HubSigned):
    """Deliveries of a Jira webhook that has a secret, Cloud or Data Center.

    Args:
        name: see `Source`.
        secrets: the webhook's secret; list old and new while you change it.
        insecure: see `Source`.

    The id is ``X-Atlassian-Webhook-Identifier``, which retries keep; where it is missing (Data
    Center), one derived from the body. The type is ``webhookEvent`` of the body
    (``jira:issue_updated``), the subject the issue's key, or what else the event is about.
    """

    kind: ClassVar[str] = "jira"
    docs_url: ClassVar[str] = "https://developer.atlassian.com/cloud/jira/platform/webhooks"
    docs_date: ClassVar[str] = "2026-11-29"
    reply_deadline: ClassVar[timedelta | None] = timedelta(seconds=20)

    def normalize(self, request: HttpRequest) -> list[Incoming]:
        """Give the one event of the delivery."""
        body = parse_object(request.body)
        event_type = identifier(body.get("webhookEvent"), 'the field "webhookEvent"')
        has_id = bool(request.header_values(JIRA_ID_HEADER))
        return [
            Incoming(
                id=sole_text_header(request, JIRA_ID_HEADER)
                if has_id
                else derived_id(event_type, content_hash(request.body)),
                type=event_type,
                payload=body,
                payload_is_body=True,
                subject=_jira_subject(body),
                occurred_at_ms=millis_or_none(body.get("timestamp")),
                id_is_signed=not has_id,
                id_is_derived=not has_id,
            )
        ]

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
        """Give the headers of a Jira delivery; the type stands in the body."""
        headers = self._signature(body, secret_index)
        return headers | ({JIRA_ID_HEADER: event_id} if event_id else {})


def _repository(body: dict[str, Any]) -> str | None:
    # Data Center puts the repository of a pull request into the branch that it goes to, and one that was
    # renamed under "new".
    repository = body.get("repository") or at(body, "pullRequest", "toRef", "repository") or body.get("new")
    full_name = at(repository, "full_name")
    if full_name is None:
        project, slug = text_or_none(at(repository, "project", "key")), text_or_none(at(repository, "slug"))
        full_name = f"{project}/{slug}" if project and slug else None
    return subject_or_none(full_name)


def _jira_subject(body: dict[str, Any]) -> str | None:
    for name in ("issue", "project", "version", "sprint", "board", "user", "comment", "worklog"):
        found = subject_or_none(first_at(body.get(name), "key", "id", "accountId"))
        if found is not None:
            return found
    return None
