"""Senders that a scheme describes: payments and shops. See presets."""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar

from onceward.sources.described.scheme import Handshake, Reply, Scheme, Signature
from onceward.sources.generic import Generic

_FORM = "application/x-www-form-urlencoded"


class Razorpay(Generic):
    """Razorpay's event id stands in a header outside the signature.

    After a change of the secret, retries of older events come with the old one: keep both.
    """

    kind: ClassVar[str] = "razorpay"
    docs_url: ClassVar[str] = "https://razorpay.com/docs/webhooks/validate-test/"
    docs_date: ClassVar[str] = "2026-11-29"
    retry_horizon: ClassVar[timedelta | None] = timedelta(hours=24)
    retry_docs: ClassVar[str] = "https://razorpay.com/docs/webhooks/best-practices"
    reply_deadline: ClassVar[timedelta | None] = timedelta(seconds=5)
    scheme_default: ClassVar[Scheme | None] = Scheme(
        signature=Signature(header="X-Razorpay-Signature", exact=True),
        id="header:X-Razorpay-Event-Id",
        id_else="derived",
        type="/event",
        subject=(
            "/payload/payment/entity/id",
            "/payload/order/entity/id",
            "/payload/subscription/entity/id",
            "/payload/invoice/entity/id",
            "/payload/refund/entity/id",
            "/payload/payment_link/entity/id",
        ),
        occurred_at="/created_at",
    )


class Mollie(Generic):
    """Mollie's webhooks of an account, which are signed and carry an event.

    What Mollie calls for a single payment is of another kind: `MollieClassic`.
    """

    kind: ClassVar[str] = "mollie"
    docs_url: ClassVar[str] = "https://docs.mollie.com/reference/webhooks-new"
    docs_date: ClassVar[str] = "2026-11-29"
    retry_horizon: ClassVar[timedelta | None] = timedelta(hours=26)
    reply_deadline: ClassVar[timedelta | None] = timedelta(seconds=15)
    scheme_default: ClassVar[Scheme | None] = Scheme(
        # Mollie's own library takes a signature without the prefix as well.
        signature=Signature(
            header="X-Mollie-Signature", prefix=("sha256=", ""), item_separator=",", exact=True
        ),
        id="/id",
        type="/type",
        subject="/entityId",
        occurred_at="/createdAt",
        # The unsigned kind sends forms, whose id is that of a payment and comes again and again.
        accept_content_types=("application/json", "application/hal+json", ""),
    )


class MollieClassic(Generic):
    """The call for one payment: ``id=tr_…``, without a signature, so ``insecure=True``.

    It says only that something changed, and the same again at the next change; so every delivery is
    an event. Ask Mollie for the payment and believe its answer alone.
    """

    kind: ClassVar[str] = "mollie_classic"
    docs_url: ClassVar[str] = "https://docs.mollie.com/reference/webhooks"
    docs_date: ClassVar[str] = "2026-10-31"
    retry_horizon: ClassVar[timedelta | None] = timedelta(hours=26)
    reply_deadline: ClassVar[timedelta | None] = timedelta(seconds=15)
    scheme_default: ClassVar[Scheme | None] = Scheme(
        id="received",
        type="const:changed",
        subject="form:id",
        accept_content_types=(_FORM,),
    )


class LemonSqueezy(Generic):
    """Lemon Squeezy names no event: its id is derived from its name, the object and its last change."""

    kind: ClassVar[str] = "lemon_squeezy"
    docs_url: ClassVar[str] = "https://docs.lemonsqueezy.com/help/webhooks/signing-requests"
    docs_date: ClassVar[str] = "2026-10-31"
    retry_horizon: ClassVar[timedelta | None] = timedelta(seconds=155)
    scheme_default: ClassVar[Scheme | None] = Scheme(
        signature=Signature(header="X-Signature", exact=True),
        id=("/meta/event_name", "/data/type", "/data/id", "/data/attributes/updated_at"),
        type="/meta/event_name",
        subject="/data/id",
        occurred_at=("/data/attributes/updated_at", "/data/attributes/created_at"),
        version="/data/attributes/updated_at",
    )


class GoCardless(Generic):
    """GoCardless sends up to 250 events in one delivery, and wants a 498 for a bad signature."""

    kind: ClassVar[str] = "gocardless"
    docs_url: ClassVar[str] = "https://developer.gocardless.com/api-reference/#webhooks-overview"
    docs_date: ClassVar[str] = "2026-11-29"
    reply_deadline: ClassVar[timedelta | None] = timedelta(seconds=10)
    scheme_default: ClassVar[Scheme | None] = Scheme(
        signature=Signature(header="Webhook-Signature", exact=True),
        id="/id",
        type=("/resource_type", "/action"),
        subject=tuple(
            f"/links/{one}"
            for one in (
                "payment",
                "refund",
                "payout",
                "subscription",
                "instalment_schedule",
                "billing_request",
                "mandate",
                "customer",
                "creditor",
                "outbound_payment",
                "payment_account_transaction",
                "payer_authorisation",
                "scheme_identifier",
                "customer_bank_account",
                "organisation",
            )
        ),
        occurred_at="/created_at",
        items="body:/events",
        respond={"refused": Reply(status=498)},
    )


class CoinbaseCommerce(Generic):
    """Coinbase Commerce; ``attempt_number`` around the event moves on, the event's id stays."""

    kind: ClassVar[str] = "coinbase_commerce"
    docs_url: ClassVar[str] = "https://docs.cdp.coinbase.com/commerce/docs/webhooks-security"
    docs_date: ClassVar[str] = "2026-11-29"
    retry_horizon: ClassVar[timedelta | None] = timedelta(days=3)
    scheme_default: ClassVar[Scheme | None] = Scheme(
        signature=Signature(header="X-CC-Webhook-Signature", exact=True),
        id="/event/id",
        type="/event/type",
        subject=("/event/data/code", "/event/data/id"),
        occurred_at="/event/created_at",
    )


class WooCommerce(Generic):
    """WooCommerce counts its deliveries anew, so the id is derived from shop, topic and content.

    The ping at a webhook's creation is not signed; it is answered and is no event.
    """

    kind: ClassVar[str] = "woocommerce"
    docs_url: ClassVar[str] = "https://developer.woocommerce.com/docs/webhooks/"
    docs_date: ClassVar[str] = "2026-10-31"
    scheme_default: ClassVar[Scheme | None] = Scheme(
        signature=Signature(header="X-WC-Webhook-Signature", encoding="base64", exact=True),
        id=("header:X-WC-Webhook-Source", "header:X-WC-Webhook-Topic", "item:"),
        type="header:X-WC-Webhook-Topic",
        subject="/id",
        occurred_at=("/date_modified_gmt", "/date_created_gmt"),
        version="/date_modified_gmt",
        handshake=(Handshake(match={"form:webhook_id": None}, phase="unverified"),),
    )
