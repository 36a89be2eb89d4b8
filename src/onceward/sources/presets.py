"""Senders that a scheme describes: sales, forms, documents, messages, files. Others: presets_build, presets_pay.

Each has its facts as values: where the signature stands and what it covers, what tells its events
apart on every attempt, how long it tries again and waits. What the sender's own pages say is not
repeated; `docs_url` leads there.
"""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar

from onceward.sources.described.scheme import Handshake, Reply, Scheme, Signature, Timestamp, TypeRule
from onceward.sources.generic import Generic

_EMPTY = Reply(status=200)


class Calendly(Generic):
    """Calendly names no event: its id is derived from the event's name, the invitee and the time."""

    kind: ClassVar[str] = "calendly"
    docs_url: ClassVar[str] = "https://developer.calendly.com/api-docs/webhook-signatures"
    docs_date: ClassVar[str] = "2026-10-31"
    retry_horizon: ClassVar[timedelta | None] = timedelta(hours=24)
    retry_docs: ClassVar[str] = "https://developer.calendly.com/api-docs/overview/webhooks/webhook-errors"
    reply_deadline: ClassVar[timedelta | None] = timedelta(seconds=10)
    scheme_default: ClassVar[Scheme | None] = Scheme(
        signature=Signature(
            header="Calendly-Webhook-Signature",
            item_separator=",",
            field="v1",
            template="{timestamp}.{body}",
            exact=True,
        ),
        timestamp=Timestamp(place="field:t", tolerance="3m"),
        id=("/event", "/payload/uri", "/created_at"),
        type="/event",
        subject="/payload/uri",
        occurred_at="/created_at",
    )


class Typeform(Generic):
    """Typeform switches a webhook off on a 404 or 410, so none is ever sent for an event."""

    kind: ClassVar[str] = "typeform"
    docs_url: ClassVar[str] = "https://www.typeform.com/developers/webhooks/secure-your-webhooks/"
    docs_date: ClassVar[str] = "2026-10-31"
    # 10 hours after a 408, 423, 429 or 503, else up to seven times, the last after so long.
    retry_horizon: ClassVar[timedelta | None] = timedelta(hours=10, minutes=35)
    retry_docs: ClassVar[str] = "https://www.typeform.com/developers/webhooks/"
    reply_deadline: ClassVar[timedelta | None] = timedelta(seconds=30)
    scheme_default: ClassVar[Scheme | None] = Scheme(
        signature=Signature(header="Typeform-Signature", encoding="base64", prefix="sha256=", exact=True),
        id="/event_id",
        type="/event_type",
        subject="/form_response/form_id",
        occurred_at="/form_response/submitted_at",
    )


class DocuSign(Generic):
    """DocuSign Connect, JSON messages; one numbered signature for each active key.

    Its id is derived from the event, envelope, recipient and time; ``retryCount`` moves on.
    """

    kind: ClassVar[str] = "docusign"
    docs_url: ClassVar[str] = "https://developers.docusign.com/platform/webhooks/connect/hmac/"
    docs_date: ClassVar[str] = "2026-10-31"
    retry_horizon: ClassVar[timedelta | None] = timedelta(days=15)
    reply_deadline: ClassVar[timedelta | None] = timedelta(seconds=100)
    scheme_default: ClassVar[Scheme | None] = Scheme(
        signature=Signature(
            header=tuple(f"X-DocuSign-Signature-{number}" for number in range(1, 17)),
            encoding="base64",
            exact=True,
        ),
        id=(
            "/event",
            "/data/accountId",
            "/data/envelopeId",
            "/data/recipientId",
            "/data/templateId",
            "/generatedDateTime",
        ),
        type="/event",
        subject=("/data/envelopeId", "/data/templateId"),
        occurred_at="/generatedDateTime",
    )


class Intercom(Generic):
    """Intercom signs with SHA-1; its ``ping`` has no id and is answered as the question it is."""

    kind: ClassVar[str] = "intercom"
    docs_url: ClassVar[str] = "https://developers.intercom.com/docs/webhooks/webhook-notifications"
    docs_date: ClassVar[str] = "2026-11-29"
    retry_horizon: ClassVar[timedelta | None] = timedelta(minutes=1)
    reply_deadline: ClassVar[timedelta | None] = timedelta(seconds=5)
    scheme_default: ClassVar[Scheme | None] = Scheme(
        signature=Signature(header="X-Hub-Signature", algorithm="sha1", prefix="sha1=", exact=True),
        id="/id",
        id_else="derived",
        id_ignore=("/delivery_attempts", "/delivery_status", "/delivered_at", "/first_sent_at"),
        type="/topic",
        subject="/data/item/id",
        occurred_at="/created_at",
        handshake=(
            Handshake(method="HEAD", phase="unverified"),
            Handshake(match={"/topic": "ping"}),
        ),
    )


class Dropbox(Generic):
    """Dropbox says only whose files changed, so every delivery is an event for each account.

    Ask Dropbox what changed; the same accounts come again with the next change, and with a retry.
    """

    kind: ClassVar[str] = "dropbox"
    docs_url: ClassVar[str] = "https://www.dropbox.com/developers/reference/webhooks"
    docs_date: ClassVar[str] = "2026-10-31"
    reply_deadline: ClassVar[timedelta | None] = timedelta(seconds=10)
    scheme_default: ClassVar[Scheme | None] = Scheme(
        signature=Signature(header="X-Dropbox-Signature", exact=True),
        id="received",
        type="const:list_folder.changed",
        subject="item:",
        # An app of a team is told its teams instead, which is one event.
        items=("body:/list_folder/accounts", "body:"),
        handshake=(
            Handshake(
                method="GET",
                match={"query:challenge": None},
                phase="unverified",
                reply="{query:challenge}",
            ),
        ),
    )


class Box(Generic):
    """Box signs with two keys in two headers, so that one can be changed; list both as secrets.

    ``BOX-DELIVERY-ID`` is new on every attempt and the body's id stays. Version and algorithm must be
    the ones that Box documents, as its own libraries have it, though nothing is chosen by them.
    """

    kind: ClassVar[str] = "box"
    docs_url: ClassVar[str] = "https://developer.box.com/guides/webhooks/v2/signatures-v2/"
    docs_date: ClassVar[str] = "2026-11-29"
    reply_deadline: ClassVar[timedelta | None] = timedelta(seconds=30)
    scheme_default: ClassVar[Scheme | None] = Scheme(
        signature=Signature(
            header=("BOX-SIGNATURE-PRIMARY", "BOX-SIGNATURE-SECONDARY"),
            encoding="base64",
            template="{body}{timestamp}",
            exact=True,
        ),
        timestamp=Timestamp(place="header:BOX-DELIVERY-TIMESTAMP", unit="iso", tolerance="10m"),
        require={"BOX-SIGNATURE-VERSION": "1", "BOX-SIGNATURE-ALGORITHM": "HmacSHA256"},
        id="/id",
        id_else="derived",
        type="/trigger",
        subject="/source/id",
        occurred_at="/created_at",
    )


class Line(Generic):
    """LINE's Messaging API: none to many events a delivery; a redelivered one keeps its id."""

    kind: ClassVar[str] = "line"
    docs_url: ClassVar[str] = "https://developers.line.biz/en/docs/messaging-api/verify-webhook-signature/"
    docs_date: ClassVar[str] = "2026-11-29"
    scheme_default: ClassVar[Scheme | None] = Scheme(
        signature=Signature(header="x-line-signature", encoding="base64", exact=True),
        id="/webhookEventId",
        type="/type",
        subject=("/source/groupId", "/source/roomId", "/source/userId"),
        occurred_at="/timestamp",
        occurred_at_unit="ms",
        items="body:/events",
    )


class Twitch(Generic):
    """Twitch EventSub. A revoked subscription is an event of the type ``revocation``."""

    kind: ClassVar[str] = "twitch"
    docs_url: ClassVar[str] = "https://dev.twitch.tv/docs/eventsub/handling-webhook-events/"
    docs_date: ClassVar[str] = "2026-11-29"
    scheme_default: ClassVar[Scheme | None] = Scheme(
        signature=Signature(
            header="Twitch-Eventsub-Message-Signature",
            prefix="sha256=",
            template="{id}{timestamp}{body}",
            exact=True,
        ),
        timestamp=Timestamp(place="header:Twitch-Eventsub-Message-Timestamp", unit="iso", tolerance="10m"),
        id="header:Twitch-Eventsub-Message-Id",
        type="/subscription/type",
        type_rules=(
            TypeRule(match={"header:Twitch-Eventsub-Message-Type": "revocation"}, type="const:revocation"),
        ),
        subject="/subscription/id",
        occurred_at="header:Twitch-Eventsub-Message-Timestamp",
        handshake=(
            Handshake(
                match={"header:Twitch-Eventsub-Message-Type": "webhook_callback_verification"},
                reply="{/challenge}",
            ),
        ),
    )


class Postmark(Generic):
    """Postmark signs nothing: put ``user:password`` into the webhook's address and here as the secret.

    A 403 would make Postmark give up, and is never sent.
    """

    kind: ClassVar[str] = "postmark"
    docs_url: ClassVar[str] = "https://postmarkapp.com/developer/webhooks/webhooks-overview"
    docs_date: ClassVar[str] = "2026-10-31"
    # Inbound mail; other events less long.
    retry_horizon: ClassVar[timedelta | None] = timedelta(hours=10, minutes=30)
    retry_docs: ClassVar[str] = (
        "https://postmarkapp.com/support/article/understanding-inbound-webhook-retries-in-postmark"
    )
    scheme_default: ClassVar[Scheme | None] = Scheme(
        token="basic",  # noqa: S106 (a kind of token)
        id="derived",
        type=("/RecordType",),
        type_rules=(
            # Inbound mail has no record type.
            TypeRule(match={"/MailboxHash": None}, type="const:Inbound"),
        ),
        subject="/MessageID",
        occurred_at=("/BouncedAt", "/DeliveredAt", "/ReceivedAt", "/ChangedAt"),
    )


class Trello(Generic):
    """Trello signs the body and the address it was given; pass that as ``public_url``."""

    kind: ClassVar[str] = "trello"
    docs_url: ClassVar[str] = "https://developer.atlassian.com/cloud/trello/guides/rest-api/webhooks/"
    docs_date: ClassVar[str] = "2026-10-31"
    retry_horizon: ClassVar[timedelta | None] = timedelta(seconds=210)
    scheme_default: ClassVar[Scheme | None] = Scheme(
        signature=Signature(
            header="X-Trello-Webhook", algorithm="sha1", encoding="base64", template="{body}{url}", exact=True
        ),
        id="/action/id",
        type="/action/type",
        subject="/model/id",
        occurred_at="/action/date",
        handshake=(Handshake(method="HEAD", phase="unverified"),),
    )


class Xero(Generic):
    """Xero asks with good and bad signatures and wants a 200 and a 401 without a body.

    A delivery may hold no event. Their ids are derived from the resource, what happened and when.
    """

    kind: ClassVar[str] = "xero"
    docs_url: ClassVar[str] = "https://developer.xero.com/documentation/guides/webhooks/overview/"
    docs_date: ClassVar[str] = "2026-10-31"
    retry_horizon: ClassVar[timedelta | None] = timedelta(hours=24)
    retry_docs: ClassVar[str] = "https://developer.xero.com/documentation/webhooks/configuring-your-server"
    reply_deadline: ClassVar[timedelta | None] = timedelta(seconds=5)
    scheme_default: ClassVar[Scheme | None] = Scheme(
        signature=Signature(header="x-xero-signature", encoding="base64", exact=True),
        id=("/tenantId", "/resourceId", "/eventCategory", "/eventType", "/eventDateUtc"),
        type=("/eventCategory", "/eventType"),
        subject="/resourceId",
        occurred_at="/eventDateUtc",
        items="body:/events",
        respond={"accepted": _EMPTY, "duplicate": _EMPTY, "refused": Reply(status=401)},
    )
