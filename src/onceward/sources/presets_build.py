"""Senders that a scheme describes: code, builds, deployments, alerts. See presets."""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar

from onceward.sources.described.scheme import Scheme, Signature, Timestamp
from onceward.sources.generic import Generic


class PagerDuty(Generic):
    """PagerDuty's v3 webhooks; during a change of the secret the header holds two signatures.

    A 4xx other than 429 makes PagerDuty drop the event, and three of those the subscription.
    """

    kind: ClassVar[str] = "pagerduty"
    docs_url: ClassVar[str] = "https://developer.pagerduty.com/docs/verifying-signatures"
    docs_date: ClassVar[str] = "2026-11-29"
    retry_horizon: ClassVar[timedelta | None] = timedelta(hours=48)
    reply_deadline: ClassVar[timedelta | None] = timedelta(seconds=5)
    is_ordered: ClassVar[bool] = True
    scheme_default: ClassVar[Scheme | None] = Scheme(
        signature=Signature(header="X-PagerDuty-Signature", item_separator=",", field="v1"),
        id="/event/id",
        type="/event/event_type",
        # A note or a responder is about its incident.
        subject=("/event/data/incident/id", "/event/data/id"),
        occurred_at="/event/occurred_at",
    )


class Buildkite(Generic):
    """Buildkite names no event: its id is derived from the content, which a retry keeps.

    Where the webhook sends its token instead: ``token="header:X-Buildkite-Token"``.
    """

    kind: ClassVar[str] = "buildkite"
    docs_url: ClassVar[str] = "https://buildkite.com/docs/apis/webhooks/pipelines"
    docs_date: ClassVar[str] = "2026-11-29"
    scheme_default: ClassVar[Scheme | None] = Scheme(
        signature=Signature(
            header="X-Buildkite-Signature",
            item_separator=",",
            field="signature",
            template="{timestamp}.{body}",
            exact=True,
        ),
        timestamp=Timestamp(place="field:timestamp"),
        id="derived",
        type="/event",
        subject=("/job/id", "/build/id", "/agent/id"),
        occurred_at=(
            "/job/finished_at",
            "/job/started_at",
            "/build/finished_at",
            "/build/started_at",
            "/build/created_at",
        ),
    )


class CircleCI(Generic):
    """CircleCI signs with one scheme, ``v1``; others beside it are ignored."""

    kind: ClassVar[str] = "circleci"
    docs_url: ClassVar[str] = "https://circleci.com/docs/guides/integration/outbound-webhooks/"
    docs_date: ClassVar[str] = "2026-11-29"
    reply_deadline: ClassVar[timedelta | None] = timedelta(seconds=10)
    scheme_default: ClassVar[Scheme | None] = Scheme(
        signature=Signature(header="circleci-signature", item_separator=",", field="v1", exact=True),
        id="/id",
        type="/type",
        subject=("/job/id", "/workflow/id", "/project/id"),
        occurred_at="/happened_at",
    )


class Vercel(Generic):
    """Vercel signs with SHA-1."""

    kind: ClassVar[str] = "vercel"
    docs_url: ClassVar[str] = "https://vercel.com/docs/webhooks/webhooks-api"
    docs_date: ClassVar[str] = "2026-10-31"
    retry_horizon: ClassVar[timedelta | None] = timedelta(hours=24)
    reply_deadline: ClassVar[timedelta | None] = timedelta(seconds=30)
    scheme_default: ClassVar[Scheme | None] = Scheme(
        signature=Signature(header="x-vercel-signature", algorithm="sha1", exact=True),
        id="/id",
        type="/type",
        subject=("/payload/deployment/id", "/payload/project/id"),
        occurred_at="/createdAt",
        occurred_at_unit="ms",
    )


class Gitea(Generic):
    """Gitea and Forgejo, which sign like GitHub. A delivery that is sent again by hand has a new id."""

    kind: ClassVar[str] = "gitea"
    docs_url: ClassVar[str] = "https://docs.gitea.com/usage/webhooks"
    docs_date: ClassVar[str] = "2026-10-31"
    reply_deadline: ClassVar[timedelta | None] = timedelta(seconds=5)
    scheme_default: ClassVar[Scheme | None] = Scheme(
        signature=Signature(header="X-Gitea-Signature"),
        id="header:X-Gitea-Delivery",
        type=("header:X-Gitea-Event", "/action"),
        subject="/repository/full_name",
        payload_field="payload",
    )
