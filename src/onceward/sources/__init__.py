"""Providers of events, one class each (`Stripe`, `GitHub`…), and `create` to have one by name.

Each provider's module is imported when it is first asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from onceward.core.errors import ConfigError

if TYPE_CHECKING:
    from onceward.sources.adyen import Adyen
    from onceward.sources.atlassian import Bitbucket, Jira
    from onceward.sources.aws_sns import AwsSns
    from onceward.sources.base import Source
    from onceward.sources.cloudevents import CloudEvents
    from onceward.sources.discord import Discord
    from onceward.sources.functions import from_functions
    from onceward.sources.fusionauth import FusionAuth
    from onceward.sources.generic import Generic
    from onceward.sources.github import GitHub
    from onceward.sources.gitlab import GitLab
    from onceward.sources.google_pubsub import GooglePubSub
    from onceward.sources.hmac_source import Hmac
    from onceward.sources.hubspot import HubSpot
    from onceward.sources.linear import Linear
    from onceward.sources.mailgun import Mailgun
    from onceward.sources.meta import Meta
    from onceward.sources.microsoft_graph import MicrosoftGraph
    from onceward.sources.paddle import Paddle
    from onceward.sources.paypal import PayPal
    from onceward.sources.presets import (
        Box,
        Calendly,
        DocuSign,
        Dropbox,
        Intercom,
        Line,
        Postmark,
        Trello,
        Twitch,
        Typeform,
        Xero,
    )
    from onceward.sources.presets_build import Buildkite, CircleCI, Gitea, PagerDuty, Vercel
    from onceward.sources.presets_pay import (
        CoinbaseCommerce,
        GoCardless,
        LemonSqueezy,
        Mollie,
        MollieClassic,
        Razorpay,
        WooCommerce,
    )
    from onceward.sources.sendgrid import SendGrid
    from onceward.sources.shopify import Shopify
    from onceward.sources.slack import Slack
    from onceward.sources.square import Square
    from onceward.sources.standard_webhooks import Clerk, OpenAI, Resend, StandardWebhooks, Svix
    from onceward.sources.stripe import Stripe
    from onceward.sources.telegram import Telegram
    from onceward.sources.twilio import Twilio
    from onceward.sources.zendesk import Zendesk
    from onceward.sources.zoom import Zoom

__all__ = [
    "Adyen",
    "AwsSns",
    "Bitbucket",
    "Box",
    "Buildkite",
    "Calendly",
    "CircleCI",
    "Clerk",
    "CloudEvents",
    "CoinbaseCommerce",
    "Discord",
    "DocuSign",
    "Dropbox",
    "FusionAuth",
    "Generic",
    "GitHub",
    "GitLab",
    "Gitea",
    "GoCardless",
    "GooglePubSub",
    "Hmac",
    "HubSpot",
    "Intercom",
    "Jira",
    "LemonSqueezy",
    "Line",
    "Linear",
    "Mailgun",
    "Meta",
    "MicrosoftGraph",
    "Mollie",
    "MollieClassic",
    "OpenAI",
    "Paddle",
    "PagerDuty",
    "PayPal",
    "Postmark",
    "Razorpay",
    "Resend",
    "SendGrid",
    "Shopify",
    "Slack",
    "Source",
    "Square",
    "StandardWebhooks",
    "Stripe",
    "Svix",
    "Telegram",
    "Trello",
    "Twilio",
    "Twitch",
    "Typeform",
    "Vercel",
    "WooCommerce",
    "Xero",
    "Zendesk",
    "Zoom",
    "create",
    "from_functions",
    "kinds",
    "source_class",
]

_KINDS = {
    # kind: (module, class); one line a kind, sorted
    "adyen": ("adyen", "Adyen"),
    "aws_sns": ("aws_sns", "AwsSns"),
    "bitbucket": ("atlassian", "Bitbucket"),
    "box": ("presets", "Box"),
    "buildkite": ("presets_build", "Buildkite"),
    "calendly": ("presets", "Calendly"),
    "circleci": ("presets_build", "CircleCI"),
    "clerk": ("standard_webhooks", "Clerk"),
    "cloudevents": ("cloudevents", "CloudEvents"),
    "coinbase_commerce": ("presets_pay", "CoinbaseCommerce"),
    "discord": ("discord", "Discord"),
    "docusign": ("presets", "DocuSign"),
    "dropbox": ("presets", "Dropbox"),
    "fusionauth": ("fusionauth", "FusionAuth"),
    "generic": ("generic", "Generic"),
    "gitea": ("presets_build", "Gitea"),
    "github": ("github", "GitHub"),
    "gitlab": ("gitlab", "GitLab"),
    "gocardless": ("presets_pay", "GoCardless"),
    "google_pubsub": ("google_pubsub", "GooglePubSub"),
    "hmac": ("hmac_source", "Hmac"),
    "hubspot": ("hubspot", "HubSpot"),
    "intercom": ("presets", "Intercom"),
    "jira": ("atlassian", "Jira"),
    "lemon_squeezy": ("presets_pay", "LemonSqueezy"),
    "line": ("presets", "Line"),
    "linear": ("linear", "Linear"),
    "mailgun": ("mailgun", "Mailgun"),
    "meta": ("meta", "Meta"),
    "microsoft_graph": ("microsoft_graph", "MicrosoftGraph"),
    "mollie": ("presets_pay", "Mollie"),
    "mollie_classic": ("presets_pay", "MollieClassic"),
    "openai": ("standard_webhooks", "OpenAI"),
    "paddle": ("paddle", "Paddle"),
    "pagerduty": ("presets_build", "PagerDuty"),
    "paypal": ("paypal", "PayPal"),
    "postmark": ("presets", "Postmark"),
    "razorpay": ("presets_pay", "Razorpay"),
    "resend": ("standard_webhooks", "Resend"),
    "sendgrid": ("sendgrid", "SendGrid"),
    "shopify": ("shopify", "Shopify"),
    "slack": ("slack", "Slack"),
    "square": ("square", "Square"),
    "standard_webhooks": ("standard_webhooks", "StandardWebhooks"),
    "stripe": ("stripe", "Stripe"),
    "svix": ("standard_webhooks", "Svix"),
    "telegram": ("telegram", "Telegram"),
    "trello": ("presets", "Trello"),
    "twilio": ("twilio", "Twilio"),
    "twitch": ("presets", "Twitch"),
    "typeform": ("presets", "Typeform"),
    "vercel": ("presets_build", "Vercel"),
    "woocommerce": ("presets_pay", "WooCommerce"),
    "xero": ("presets", "Xero"),
    "zendesk": ("zendesk", "Zendesk"),
    "zoom": ("zoom", "Zoom"),
}
_MODULES = {"Source": "base", "from_functions": "functions"} | {
    name: module for module, name in _KINDS.values()
}


def kinds() -> tuple[str, ...]:
    """Give the names that `create` knows, sorted."""
    return tuple(sorted(_KINDS))


def source_class(kind: str) -> type[Source]:
    """Give the class behind the name of a kind.

    Raises:
        ConfigError: the kind is unknown.
    """
    if kind not in _KINDS:
        import difflib

        close = difflib.get_close_matches(kind, _KINDS, n=1)
        raise ConfigError(
            f"There is no kind of source called {kind!r}.",
            means="Nothing can verify its deliveries.",
            todo=f"Did you mean {close[0]}?"
            if close
            else f"Use one of {', '.join(kinds())}; generic fits most senders.",
        )
    module, class_name = _KINDS[kind]
    found: type[Source] = getattr(import_module(f"onceward.sources.{module}"), class_name)
    return found


def create(
    kind: str, *, name: str | None = None, secrets: str | Sequence[str] = (), **options: Any
) -> Source:
    """Give a source by the name of its kind, for configuration that is text.

    Args:
        kind: one of `kinds`, e.g. ``stripe``.
        name: what the app calls it; the kind, where that has a name of its own.
        secrets: see `Source`.
        options: further arguments of the kind's class.

    Raises:
        ConfigError: the kind is unknown, an option is unknown or missing, or the source refuses
            its arguments.
    """
    import inspect

    made_of = source_class(kind)
    arguments: dict[str, Any] = {"secrets": secrets, **options} | ({} if name is None else {"name": name})
    try:
        inspect.signature(made_of).bind(**arguments)
    except TypeError as error:
        raise ConfigError(
            f"A source of kind {kind!r} cannot be made: {error}.",
            means="Its configuration has an option too many or too few.",
            todo=f"Options are: {', '.join(inspect.signature(made_of).parameters)}.",
        ) from error
    return made_of(**arguments)


def __getattr__(attribute: str) -> Any:
    if attribute in _MODULES:
        return getattr(import_module(f"onceward.sources.{_MODULES[attribute]}"), attribute)
    raise AttributeError(f"module 'onceward.sources' has no attribute {attribute!r}")
