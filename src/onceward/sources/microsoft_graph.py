"""Microsoft Graph change notifications: a secret of yours, ``clientState``, in every item.

Notifications are not signed. A subscription begins with a question that carries a ``validationToken`` and no
secret, answered with the token as plain text. Notifications with resource data bring tokens of Microsoft's
besides, one for each app and tenant, which say who sends and to whom, and nothing of what.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, ClassVar, Literal
from urllib.parse import parse_qsl

import msgspec

from onceward.core.arrival import UNVERIFIED, Incoming, Verified
from onceward.core.errors import ConfigError, SignatureInvalid
from onceward.core.messages import HttpRequest, HttpResponse
from onceward.sources.base import Source, derived_id, identifier, parse_object, subject_or_none
from onceward.sources.parts.fetching import Documents, Fetch
from onceward.sources.parts.private_keys import rsa_key_at
from onceward.sources.parts.replies import plain_text
from onceward.sources.parts.secret import joined_texts, matching_text, secrets_from
from onceward.sources.parts.shape import list_of, object_of
from onceward.sources.parts.unsigned_body import object_to_verify, text_bytes
from onceward.sources.parts.web_token import KeySet, check_times, matching_claims, parsed_token, require_pyjwt

ITEMS_MAX = 1000
TOKENS_MAX = 32
JWKS_URL = "https://login.microsoftonline.com/common/discovery/v2.0/keys"
PUBLISHER = "0bf30f3b-4a52-48df-9a82-234910c4a086"
"""The application that sends change notifications, the same in every tenant."""

_KEYS_KEPT_MS = 3_600_000
_TOKEN_LEEWAY = timedelta(minutes=5)
_ISSUERS = ("https://login.microsoftonline.com/{}/v2.0", "https://sts.windows.net/{}/")
_TOKEN_CHARS_MAX = 4096
_QUERY_FIELDS_MAX = 32
# Change from one delivery of a notification to the next, or tell nothing about it.
_NOT_IDENTITY = frozenset({"clientState", "subscriptionExpirationDateTime"})
# Lifecycle events that are about a state of the subscription, so that the same again is the same.
_STATES = frozenset({"reauthorizationRequired", "subscriptionRemoved"})


class MicrosoftGraph(Source):
    """Change and lifecycle notifications of Microsoft Graph subscriptions.

    Args:
        name: see `Source`.
        secrets: the ``clientState`` of your subscriptions; several subscriptions may have several.
        insecure: see `Source`.
        app_id: the ids of your applications, where subscriptions include resource data. With it every
            delivery with such data must bring Microsoft's tokens for one of them, and for the tenants
            of its items; without it tokens are not looked at.
        tenant_id: the ids of the tenants whose items are taken; by default of any.
        jwks: the JSON of Microsoft's key set, where it is not to be fetched.
        fetch: gives what stands at an https address; by default the standard library does.
        private_keys: RSA keys in PEM of your own, with which `signed_request` plays the sender in tests.

    The type is ``changeType`` (``created``, ``updated``, ``deleted``) or ``lifecycleEvent``, the
    subject the resource. The id is the item's ``id``, else derived from what changed and its
    ``@odata.etag``. An item with neither says only "something changed": each delivery of it is an
    event of its own, since the next one may be about the next change. ``clientState`` is taken out of
    the payload. Encrypted content stays encrypted.

    Raises:
        ConfigError: see `Source`; a tenant or a key set without an application; a key set without a
            key; PyJWT is not installed.
    """

    kind: ClassVar[str] = "microsoft_graph"
    docs_url: ClassVar[str] = "https://learn.microsoft.com/graph/change-notifications-delivery-webhooks"
    docs_date: ClassVar[str] = "2026-10-31"
    retry_horizon: ClassVar[timedelta | None] = timedelta(hours=4)
    retry_docs: ClassVar[str] = docs_url
    reply_deadline: ClassVar[timedelta | None] = timedelta(seconds=3)
    is_batching: ClassVar[bool] = True
    handshake_phase: ClassVar[Literal["verified", "unverified"]] = "unverified"

    def __init__(
        self,
        *,
        name: str | None = None,
        secrets: str | Sequence[str] = (),
        insecure: bool = False,
        app_id: str | Sequence[str] = (),
        tenant_id: str | Sequence[str] = (),
        jwks: str | None = None,
        fetch: Fetch | None = None,
        private_keys: str | Sequence[str] = (),
    ) -> None:
        super().__init__(name=name, secrets=secrets, insecure=insecure)
        self.app_ids = tuple(text.lower() for text in joined_texts(app_id))
        self.tenant_ids = tuple(text.lower() for text in joined_texts(tenant_id))
        self._private_keys = secrets_from(private_keys, source=self.name)
        if not self.app_ids:
            if self.tenant_ids or jwks is not None:
                raise ConfigError(
                    f"Source {self.name!r} has a tenant_id or jwks and no app_id.",
                    means="No token would be looked at.",
                    todo="Give the id of your application, which Microsoft's tokens are made out to.",
                )
            return
        require_pyjwt(self.name)
        self._key_set = KeySet(
            Documents(fetch, kept_ms=_KEYS_KEPT_MS), JWKS_URL, fixed=jwks, source=self.name
        )
        self.is_blocking = self._key_set.is_blocking and not insecure

    def handshake(self, request: HttpRequest, now_ms: int) -> HttpResponse | None:
        """Answer a ``validationToken`` with itself, as plain text that no browser runs."""
        try:
            fields = parse_qsl(
                request.query, keep_blank_values=True, errors="strict", max_num_fields=_QUERY_FIELDS_MAX
            )
            tokens = [value for name, value in fields if name == "validationToken"]
            if len(tokens) != 1 or not 0 < len(tokens[0]) <= _TOKEN_CHARS_MAX:
                return None
        except ValueError:
            return None
        return plain_text(tokens[0])

    def verify(self, request: HttpRequest, now_ms: int) -> Verified:
        """Check the ``clientState`` of every item, and with ``app_id`` the tokens of resource data."""
        if self.insecure:
            return UNVERIFIED
        body = object_to_verify(request.body)
        items = body.get("value")
        if not isinstance(items, list) or not items:
            raise SignatureInvalid("no item with a clientState")
        if len(items) > ITEMS_MAX:
            raise SignatureInvalid(f"{len(items)} items, at most {ITEMS_MAX} are verified")
        indexes = []
        for item in items:
            given = item.get("clientState") if isinstance(item, dict) else None
            indexes.append(matching_text(self.secrets, text_bytes(given, "clientState in an item")))
        if self.app_ids:
            self._check_tokens(body, items, now_ms)
        return Verified(indexes[0])

    def _check_tokens(self, body: dict[str, Any], items: list[dict[str, Any]], now_ms: int) -> None:
        """Refuse tokens of which one is wrong, and an item with data of a tenant that none is for."""
        tokens = body.get("validationTokens") or []
        if not isinstance(tokens, list) or len(tokens) > TOKENS_MAX:
            raise SignatureInvalid(f"validationTokens is no list of up to {TOKENS_MAX}")
        tenants = {self._tenant_of(text_bytes(token, "token"), now_ms) for token in tokens}
        for item in items:
            if item.get("encryptedContent") is None:
                continue
            tenant = item.get("tenantId")
            if not isinstance(tenant, str) or tenant.lower() not in tenants:
                raise SignatureInvalid("an item with resource data and no token for its tenant")

    def _tenant_of(self, raw: bytes, now_ms: int) -> str:
        """Give the tenant that a token of Microsoft's is for."""
        token = parsed_token(raw)
        if token.algorithm != "RS256":
            raise SignatureInvalid("the token's algorithm is not RS256")
        _, claims = matching_claims(token, self._key_set.keys_for(token, now_ms), ["RS256"])
        check_times(claims, now_ms, _TOKEN_LEEWAY, must_expire=True)
        audience, tenant = _lower(claims.get("aud")), _lower(claims.get("tid"))
        if audience not in self.app_ids:
            raise SignatureInvalid("the token is for another application")
        # azp in tokens of version 2, appid in those of version 1.
        if claims.get("azp", claims.get("appid")) != PUBLISHER:
            raise SignatureInvalid("the token was not made for the sender of change notifications")
        if not tenant or _lower(claims.get("iss")) not in [issuer.format(tenant) for issuer in _ISSUERS]:
            raise SignatureInvalid("the token's issuer is not its tenant")
        if self.tenant_ids and tenant not in self.tenant_ids:
            raise SignatureInvalid("the token is of another tenant")
        return tenant

    def normalize(self, request: HttpRequest) -> list[Incoming]:
        """Give an event for each item."""
        items = list_of(parse_object(request.body).get("value"), 'the field "value"')
        return [_event(item, place, request.received_at_ms) for place, item in enumerate(items)]

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
        """Refuse: the secret stands in the body. Use `signed_request`."""
        raise ConfigError(
            f"Source {self.name!r} cannot sign with headers.",
            means="Graph's clientState stands in the body.",
            todo="Use signed_request(), which gives the whole request.",
        )

    def signed_request(
        self,
        body: bytes,
        now_ms: int,
        *,
        event_id: str = "",
        event_type: str = "",
        secret_index: int = 0,
        url: str = "",
    ) -> HttpRequest:
        """Give the request with the secret put into each item, and tokens for those with resource data."""
        state = self.signing_key(secret_index).decode()
        parsed = parse_object(body)
        parsed["value"] = [item | {"clientState": state} for item in parsed["value"]]
        tenants = {item.get("tenantId") for item in parsed["value"] if "encryptedContent" in item}
        if self.app_ids and tenants:
            parsed["validationTokens"] = [self._token_for(str(tenant), now_ms) for tenant in sorted(tenants)]
        headers = {"Content-Type": "application/json"}
        return HttpRequest.of(msgspec.json.encode(parsed), headers, url=url, received_at_ms=now_ms)

    def _token_for(self, tenant: str, now_ms: int) -> str:
        import jwt

        claims = {
            "aud": self.app_ids[0],
            "azp": PUBLISHER,
            "exp": now_ms // 1000 + 3600,
            "iat": now_ms // 1000,
            "iss": _ISSUERS[0].format(tenant),
            "nbf": now_ms // 1000,
            "tid": tenant,
        }
        return jwt.encode(claims, rsa_key_at(self._private_keys, 0, source=self.name), algorithm="RS256")


def _lower(claim: object) -> str:
    return claim.lower() if isinstance(claim, str) else ""


def _event(found: object, place: int, received_at_ms: int) -> Incoming:
    item = object_of(found, "an item")
    lifecycle = item.get("lifecycleEvent")
    payload: dict[str, Any] = {name: value for name, value in item.items() if name != "clientState"}
    data = item.get("resourceData")
    is_state = isinstance(lifecycle, str) and lifecycle in _STATES
    is_distinct = isinstance(data, dict) and isinstance(data.get("@odata.etag"), str)
    if item.get("id") is not None:
        event_id = identifier(item["id"], "an item's id")
    elif is_state:
        event_id = derived_id("graph", payload)
    else:
        identity = {name: value for name, value in payload.items() if name not in _NOT_IDENTITY}
        event_id = derived_id("graph", identity, None if is_distinct else [received_at_ms, place])
    return Incoming(
        id=event_id,
        type=identifier(item.get("changeType") if lifecycle is None else lifecycle, "an item's changeType"),
        payload=payload,
        subject=subject_or_none(item.get("resource")) or subject_or_none(item.get("subscriptionId")),
        id_is_signed=False,
        id_is_derived=item.get("id") is None,
    )
