"""GitHub: ``X-Hub-Signature-256: sha256=<hex>`` over the body as sent.

The SHA-1 header that GitHub sends beside it is never looked at. The id and the event's name come in
headers outside the signature, and no time is signed, so the id's uniqueness is the only defence
against replays; events are marked ``id_is_signed=False`` for that reason.
"""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar

from onceward.core.arrival import UNVERIFIED, Incoming, Verified
from onceward.core.errors import ConfigError
from onceward.core.messages import HttpRequest
from onceward.core.triggers import Trigger
from onceward.sources.base import Source, identifier, parse_object, sole_text_header, subject_or_none
from onceward.sources.parts.forms import is_urlencoded, sole_field
from onceward.sources.signing import header_after, hex_hmac, matching_secret

HEADER = "X-Hub-Signature-256"
ID_HEADER = "X-GitHub-Delivery"
EVENT_HEADER = "X-GitHub-Event"

# Events whose every delivery has an action, by GitHub's "Webhook events and payloads" and its OpenAPI
# description. A trigger on the bare name would never match; it is refused instead. Events missing here
# only lose that help.
_ALWAYS_WITH_ACTION = frozenset(
    """
    branch_protection_configuration branch_protection_rule check_run check_suite code_scanning_alert
    commit_comment custom_property custom_property_values dependabot_alert deploy_key deployment
    deployment_review deployment_status discussion discussion_comment github_app_authorization
    installation installation_repositories installation_target issue_comment issue_dependencies
    issues label marketplace_purchase member membership merge_group meta milestone org_block
    organization package personal_access_token_request project project_card project_column
    projects_v2 projects_v2_item projects_v2_status_update pull_request pull_request_review
    pull_request_review_comment pull_request_review_thread registry_package release repository
    repository_advisory repository_dispatch repository_ruleset repository_vulnerability_alert
    secret_scanning_alert secret_scanning_alert_location secret_scanning_scan security_advisory
    sponsorship star sub_issues team watch workflow_job workflow_run
    """.split()  # noqa: SIM905 (seventy lines otherwise)
)


class GitHub(Source):
    """Deliveries of a GitHub webhook or app.

    Args:
        name: see `Source`.
        secrets: the webhook's secret; list old and new while you change it.
        insecure: see `Source`.

    The id is ``X-GitHub-Delivery``, which a redelivery keeps. The type is ``X-GitHub-Event``, and
    where the body has an ``action``, that too: ``pull_request.opened``, ``push``, ``ping``.
    ``github["pull_request.*"]`` means every action. ``ping``, sent when a webhook is created, is an
    event like the others. The subject is the repository's full name. JSON and form-encoded bodies
    (``payload=…``) give the same payload.
    """

    kind: ClassVar[str] = "github"
    docs_url: ClassVar[str] = (
        "https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries"
    )
    docs_date: ClassVar[str] = "2026-11-29"
    reply_deadline: ClassVar[timedelta | None] = timedelta(seconds=10)

    def verify(self, request: HttpRequest, now_ms: int) -> Verified:
        """Check the SHA-256 signature; GitHub signs no time, so *now_ms* is not used."""
        if self.insecure:
            return UNVERIFIED
        given = header_after(request, HEADER, b"sha256=")
        return Verified(matching_secret(self.secrets, request.body, [given]))

    def normalize(self, request: HttpRequest) -> list[Incoming]:
        """Give the one event of the delivery."""
        delivery_id = sole_text_header(request, ID_HEADER)
        event_name = sole_text_header(request, EVENT_HEADER)
        is_form = is_urlencoded(request)
        payload = parse_object(sole_field(request.body, "payload") if is_form else request.body)
        action = payload.get("action")
        repository = payload.get("repository")
        return [
            Incoming(
                id=delivery_id,
                type=identifier(f"{event_name}.{action}", 'the field "action"')
                if isinstance(action, str) and action
                else event_name,
                payload=payload,
                payload_is_body=not is_form,
                subject=subject_or_none(repository.get("full_name"))
                if isinstance(repository, dict)
                else None,
                id_is_signed=False,
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
        """Give the headers of a GitHub delivery of JSON; an action in *event_type* is cut off."""
        signature = hex_hmac(self.signing_key(secret_index), body)
        return {
            "Content-Type": "application/json",
            ID_HEADER: event_id,
            EVENT_HEADER: event_type.partition(".")[0],
            HEADER: f"sha256={signature.decode()}",
        }

    def __getitem__(self, type: str) -> Trigger:  # noqa: A002 (the glossary's word)
        """Give the trigger for that type; a bare name that always comes with an action is refused."""
        if type in _ALWAYS_WITH_ACTION:
            raise ConfigError(
                f"GitHub never sends the type {type!r} without an action.",
                means="A trigger on it would never match.",
                todo=f'Write "{type}.*" for every action, or name one after the dot.',
            )
        return super().__getitem__(type)
