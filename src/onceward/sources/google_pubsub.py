"""Google Cloud Pub/Sub push: a token of Google's in ``Authorization: Bearer``.

The token says who pushes and to whom, and covers nothing of the body. Anyone can make Google sign a
token for any audience, so the service account is what tells your subscriptions from others'.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, ClassVar

from onceward.core.arrival import UNVERIFIED, Incoming, Verified
from onceward.core.duration import Duration
from onceward.core.errors import ConfigError, SignatureInvalid
from onceward.core.messages import HttpRequest
from onceward.sources.base import identifier, parse_object, sole_text_header, subject_or_none
from onceward.sources.parts.fetching import Documents, Fetch
from onceward.sources.parts.fields import iso_or_none
from onceward.sources.parts.private_keys import rsa_key_at
from onceward.sources.parts.secret import joined_texts, matching_text, secrets_from
from onceward.sources.parts.web_token import KeySet, check_times, matching_claims, parsed_token, require_pyjwt
from onceward.sources.signing import sole_header
from onceward.sources.timed import TimedSource

JWKS_URL = "https://www.googleapis.com/oauth2/v3/certs"
ISSUERS = ("https://accounts.google.com", "accounts.google.com")
MESSAGE = "message"
"""The type of a message whose attributes say none."""

METADATA = "x-goog-pubsub-"
"""How the headers of a push without its wrapper begin, where the subscription writes them."""

_TYPE_ATTRIBUTES = ("ce-type", "eventType", "type")
_KEYS_KEPT_MS = 3_600_000


class GooglePubSub(TimedSource):
    """Messages of push subscriptions with authentication.

    Args:
        name: see `Source`.
        secrets: another name for *audience*, for configuration that is the same for every kind.
        insecure: see `Source`.
        audience: the subscriptions' audiences; without one of its own a subscription's is its push
            endpoint.
        service_account: the e-mail addresses of the accounts that the subscriptions push as.
        jwks: the JSON of Google's key set, where it is not to be fetched.
        fetch: gives what stands at an https address; by default the standard library does.
        private_keys: RSA keys in PEM of your own, with which `sign` plays the sender in tests.
        tolerance: how far the token's times may be off.

    The id is ``messageId``; the type an attribute ``ce-type``, ``eventType`` or ``type``, else
    ``message``; the subject the ordering key, else the attribute ``objectId`` or the subscription.
    The payload is the body without ``deliveryAttempt``; ``message.data`` stays base64. A subscription with
    payload unwrapping must write metadata; its messages are given in the same form, of the attributes
    those that are named here.

    Raises:
        ConfigError: see `Source`; no service account; a key set without a key; PyJWT is not installed.
    """

    kind: ClassVar[str] = "google_pubsub"
    docs_url: ClassVar[str] = "https://cloud.google.com/pubsub/docs/authenticate-push-subscriptions"
    docs_date: ClassVar[str] = "2026-10-31"
    retry_horizon: ClassVar[timedelta | None] = timedelta(days=7)
    reply_deadline: ClassVar[timedelta | None] = timedelta(seconds=10)
    tolerance_default: ClassVar[timedelta | None] = timedelta(seconds=60)

    def __init__(
        self,
        *,
        name: str | None = None,
        secrets: str | Sequence[str] = (),
        insecure: bool = False,
        audience: str | Sequence[str] = (),
        service_account: str | Sequence[str] = (),
        jwks: str | None = None,
        fetch: Fetch | None = None,
        private_keys: str | Sequence[str] = (),
        tolerance: Duration | None = None,
    ) -> None:
        super().__init__(
            name=name,
            secrets=joined_texts(audience, secrets),
            insecure=insecure,
            tolerance=tolerance,
        )
        self._private_keys = secrets_from(private_keys, source=self.name)
        self.service_accounts = tuple(joined_texts(service_account))
        if insecure:
            return
        if not self.service_accounts:
            raise ConfigError(
                f"Source {self.name!r} has no service_account.",
                means="Anyone with a project of Google's could send it events.",
                todo="Give the e-mail address of the account that the subscription pushes as.",
            )
        require_pyjwt(self.name)
        self._key_set = KeySet(
            Documents(fetch, kept_ms=_KEYS_KEPT_MS), JWKS_URL, fixed=jwks, source=self.name
        )
        self.is_blocking = self._key_set.is_blocking

    def verify(self, request: HttpRequest, now_ms: int) -> Verified:
        """Check the token: key, times, issuer, audience, account."""
        if self.insecure:
            return UNVERIFIED
        scheme, _, raw = sole_header(request, "Authorization").partition(b" ")
        if scheme.lower() != b"bearer":
            raise SignatureInvalid("the Authorization header is no Bearer token")
        token = parsed_token(raw.strip())
        if token.algorithm != "RS256":
            raise SignatureInvalid("the token's algorithm is not RS256")
        _, claims = matching_claims(token, self._key_set.keys_for(token, now_ms), ["RS256"])
        issued_at_ms = check_times(claims, now_ms, self.tolerance, must_expire=True)
        if issued_at_ms is None:
            # OpenID Connect demands one, Google writes it, and Google's own library refuses without.
            raise SignatureInvalid("the token has no iat")
        if claims.get("iss") not in ISSUERS:
            raise SignatureInvalid("the token's issuer is not Google")
        if claims.get("email_verified") is not True:
            raise SignatureInvalid("the token's e-mail address is not verified")
        if claims.get("email") not in self.service_accounts:
            raise SignatureInvalid("the token is of another service account")
        audience = claims.get("aud")
        if not isinstance(audience, str):
            raise SignatureInvalid("the token has no audience")
        try:
            index = matching_text(self.secrets, audience.encode("utf-8", "surrogatepass"))
        except SignatureInvalid as error:
            raise SignatureInvalid("the token is for another audience") from error
        return Verified(index, issued_at_ms)

    def normalize(self, request: HttpRequest) -> list[Incoming]:
        """Give the one message of the body."""
        is_unwrapped = bool(request.header_values(f"{METADATA}message-id"))
        body = _wrapped(request) if is_unwrapped else parse_object(request.body)
        found = body.get("message")
        message: dict[str, Any] = found if isinstance(found, dict) else {}
        found = message.get("attributes")
        attributes: dict[str, Any] = found if isinstance(found, dict) else {}
        types = (subject_or_none(attributes.get(name)) for name in _TYPE_ATTRIBUTES)
        subjects = (message.get("orderingKey"), attributes.get("objectId"), body.get("subscription"))
        return [
            Incoming(
                id=identifier(message.get("messageId", message.get("message_id")), "the messageId"),
                type=next((text for text in types if text), MESSAGE),
                payload={name: value for name, value in body.items() if name != "deliveryAttempt"},
                subject=next((text for text in map(subject_or_none, subjects) if text), None),
                occurred_at_ms=iso_or_none(message.get("publishTime", message.get("publish_time"))),
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
        """Give the headers of a push, its token signed with a private key of the tests' own."""
        import jwt

        key = rsa_key_at(self._private_keys, secret_index, source=self.name)
        claims = {
            "aud": self.signing_key(secret_index).decode(),
            "email": self.service_accounts[0],
            "email_verified": True,
            "exp": now_ms // 1000 + 3600,
            "iat": now_ms // 1000,
            "iss": ISSUERS[0],
        }
        return {
            "Content-Type": "application/json",
            "Authorization": f"Bearer {jwt.encode(claims, key, algorithm='RS256')}",
        }


def _wrapped(request: HttpRequest) -> dict[str, Any]:
    """Give a push whose body is the message's data alone in the form of any other."""
    attributes = {name: request.header(name) for name in (*_TYPE_ATTRIBUTES, "objectId")}
    message: dict[str, Any] = {
        "data": base64.b64encode(request.body).decode(),
        "messageId": sole_text_header(request, f"{METADATA}message-id"),
        "publishTime": request.header(f"{METADATA}publish-time"),
        "orderingKey": request.header(f"{METADATA}ordering-key"),
        "attributes": {name: value for name, value in attributes.items() if value is not None},
    }
    return {
        "message": {name: value for name, value in message.items() if value},
        "subscription": request.header(f"{METADATA}subscription-name"),
    }
