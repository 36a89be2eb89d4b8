"""Providers of events, one class each (`Stripe`, `GitHub`…), and `create` to have one by name.

Each provider's module is imported when it is first asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from onceward.core.errors import ConfigError

if TYPE_CHECKING:
    from onceward.sources.atlassian import Bitbucket, Jira
    from onceward.sources.base import Source
    from onceward.sources.discord import Discord
    from onceward.sources.github import GitHub
    from onceward.sources.gitlab import GitLab
    from onceward.sources.hmac_source import Hmac
    from onceward.sources.linear import Linear
    from onceward.sources.meta import Meta
    from onceward.sources.sendgrid import SendGrid
    from onceward.sources.shopify import Shopify
    from onceward.sources.slack import Slack
    from onceward.sources.standard_webhooks import Clerk, OpenAI, Resend, StandardWebhooks, Svix
    from onceward.sources.stripe import Stripe
    from onceward.sources.telegram import Telegram
    from onceward.sources.twilio import Twilio
    from onceward.sources.zoom import Zoom

__all__ = [
    "Bitbucket",
    "Clerk",
    "Discord",
    "GitHub",
    "GitLab",
    "Hmac",
    "Jira",
    "Linear",
    "Meta",
    "OpenAI",
    "Resend",
    "SendGrid",
    "Shopify",
    "Slack",
    "Source",
    "StandardWebhooks",
    "Stripe",
    "Svix",
    "Telegram",
    "Twilio",
    "Zoom",
    "create",
    "kinds",
]

_KINDS = {
    # kind: (module, class); one line a kind, sorted
    "bitbucket": ("atlassian", "Bitbucket"),
    "clerk": ("standard_webhooks", "Clerk"),
    "discord": ("discord", "Discord"),
    "github": ("github", "GitHub"),
    "gitlab": ("gitlab", "GitLab"),
    "hmac": ("hmac_source", "Hmac"),
    "jira": ("atlassian", "Jira"),
    "linear": ("linear", "Linear"),
    "meta": ("meta", "Meta"),
    "openai": ("standard_webhooks", "OpenAI"),
    "resend": ("standard_webhooks", "Resend"),
    "sendgrid": ("sendgrid", "SendGrid"),
    "shopify": ("shopify", "Shopify"),
    "slack": ("slack", "Slack"),
    "standard_webhooks": ("standard_webhooks", "StandardWebhooks"),
    "stripe": ("stripe", "Stripe"),
    "svix": ("standard_webhooks", "Svix"),
    "telegram": ("telegram", "Telegram"),
    "twilio": ("twilio", "Twilio"),
    "zoom": ("zoom", "Zoom"),
}
_MODULES = {"Source": "base"} | {name: module for module, name in _KINDS.values()}


def kinds() -> tuple[str, ...]:
    """Give the names that `create` knows, sorted."""
    return tuple(sorted(_KINDS))


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
    if kind not in _KINDS:
        raise ConfigError(
            f"There is no kind of source called {kind!r}.",
            means="Nothing can verify its deliveries.",
            todo=f"Use one of {', '.join(kinds())}; hmac fits most senders.",
        )
    import inspect

    module, class_name = _KINDS[kind]
    source_class = getattr(import_module(f"onceward.sources.{module}"), class_name)
    arguments = {"secrets": secrets, **options} | ({} if name is None else {"name": name})
    try:
        inspect.signature(source_class).bind(**arguments)
    except TypeError as error:
        raise ConfigError(
            f"A source of kind {kind!r} cannot be made: {error}.",
            means="Its configuration has an option too many or too few.",
            todo=f"Options are: {', '.join(inspect.signature(source_class).parameters)}.",
        ) from error
    source: Source = source_class(**arguments)
    return source


def __getattr__(attribute: str) -> Any:
    if attribute in _MODULES:
        return getattr(import_module(f"onceward.sources.{_MODULES[attribute]}"), attribute)
    raise AttributeError(f"module 'onceward.sources' has no attribute {attribute!r}")
