"""GitLab: a secret token sent as it is, or, since 2026, a signing token by Standard Webhooks.

The plain token proves the sender and nothing about the body. Where the operator has set a signing
token, deliveries carry ``webhook-…`` headers over id, time and body beside it.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, ClassVar

from onceward.core.arrival import UNVERIFIED, Incoming, Verified
from onceward.core.duration import Duration
from onceward.core.errors import SignatureInvalid
from onceward.core.ids import content_hash
from onceward.core.messages import HttpRequest
from onceward.sources.base import derived_id, identifier, parse_object, sole_text_header, subject_or_none
from onceward.sources.parts.asymmetric import decoded_base64
from onceward.sources.parts.fields import at, first_at, iso_or_none, text_or_none
from onceward.sources.signing import base64_hmac, check_window, matching_key, sole_header, unix_ms
from onceward.sources.standard_webhooks import SYMMETRIC, decoded_secret, signed_headers
from onceward.sources.timed import TimedSource

TOKEN_HEADER = "X-Gitlab-Token"  # noqa: S105 (a header's name)
ID_HEADER = "Idempotency-Key"
EVENT_HEADER = "X-Gitlab-Event"
SIGNATURE_HEADER = "webhook-signature"


class GitLab(TimedSource):
    """Deliveries of a GitLab project, group or system hook.

    Args:
        name: see `Source`.
        secrets: secret tokens, and signing tokens (``whsec_…``). Once a signing token is listed, a
            delivery that carries a signature must verify by it.
        insecure: see `Source`.
        tolerance: see `TimedSource`; plain tokens come without a signed time.

    The id is ``Idempotency-Key`` (in signed deliveries ``webhook-id``), which retries and resends
    keep; GitLab before 17.4 sends none, and the id is derived from the body. The type is
    ``object_kind`` (or ``event_name`` of a system hook), with a dot and the action where the object
    has one: ``merge_request.open``, ``push``. The subject is the project's path.
    """

    kind: ClassVar[str] = "gitlab"
    docs_url: ClassVar[str] = "https://docs.gitlab.com/user/project/integrations/webhooks"
    docs_date: ClassVar[str] = "2026-11-29"
    reply_deadline: ClassVar[timedelta | None] = timedelta(seconds=10)

    def __init__(
        self,
        *,
        name: str | None = None,
        secrets: str | Sequence[str] = (),
        insecure: bool = False,
        tolerance: Duration | None = None,
    ) -> None:
        super().__init__(name=name, secrets=secrets, insecure=insecure, tolerance=tolerance)
        texts = [secret.key.decode("utf-8") for secret in self.secrets]
        self._is_signing = [text.startswith(SYMMETRIC) for text in texts]
        for text in filter(lambda text: text.startswith(SYMMETRIC), texts):
            decoded_secret(text, source=self.name)  # refused now, not at the first delivery
        self._window = self.tolerance
        if not any(self._is_signing):
            self.tolerance = None

    def verify(self, request: HttpRequest, now_ms: int) -> Verified:
        """Check the signature where there is one and a signing token, else the plain token."""
        if self.insecure:
            return UNVERIFIED
        if any(self._is_signing) and request.header_values(SIGNATURE_HEADER):
            return self._verify_signature(request, now_ms)
        if not request.header_values(TOKEN_HEADER) and request.header_values(SIGNATURE_HEADER):
            return self._verify_signature(request, now_ms)
        given = sole_header(request, TOKEN_HEADER)
        for index, secret in enumerate(self.secrets):
            if not self._is_signing[index] and hmac.compare_digest(secret.key, given):
                return Verified(index)
        raise SignatureInvalid(f"{TOKEN_HEADER} is none of the {len(self.secrets)} secrets")

    def _verify_signature(self, request: HttpRequest, now_ms: int) -> Verified:
        message_id, timestamp, header = signed_headers(request)
        sent_at_ms = unix_ms(timestamp)
        message = b"%b.%b.%b" % (message_id, timestamp, request.body)
        offered = [one[3:] for one in header.split(b" ") if one.startswith(b"v1,")]
        candidates = [(index, key) for index in range(len(self.secrets)) for key in self._signing_keys(index)]
        found = matching_key([key for _, key in candidates], message, offered, encoding="base64")
        if self._window is not None:
            check_window(sent_at_ms, now_ms, self._window)
        return Verified(candidates[found][0], sent_at_ms)

    def _signing_keys(self, index: int) -> list[bytes]:
        """Give the keys that a secret may mean; one without the prefix is text or base64."""
        key = self.secrets[index].key
        if self._is_signing[index]:
            return [decoded_secret(key.decode("utf-8"), source=self.name)]
        return [key, *filter(None, [decoded_base64(key)])]

    def normalize(self, request: HttpRequest) -> list[Incoming]:
        """Give the one event of the delivery."""
        body = parse_object(request.body)
        is_signed = any(self._is_signing) and bool(request.header_values(SIGNATURE_HEADER))
        id_header = "webhook-id" if is_signed or not request.header_values(ID_HEADER) else ID_HEADER
        has_id = bool(request.header_values(id_header))
        event_type = _type(request, body)
        attributes = body.get("object_attributes")
        return [
            Incoming(
                id=sole_text_header(request, id_header)
                if has_id
                else derived_id(event_type, content_hash(request.body)),
                type=event_type,
                payload=body,
                payload_is_body=True,
                subject=subject_or_none(
                    at(body, "project", "path_with_namespace")
                    or first_at(body, "path_with_namespace", "project_id", "group_id")
                ),
                occurred_at_ms=iso_or_none(
                    first_at(attributes, "updated_at", "finished_at", "created_at")
                    or first_at(body, "updated_at", "created_at", "status_changed_at")
                ),
                id_is_signed=is_signed,
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
        """Give the headers of a delivery, signed where the secret is a signing token."""
        secret = self.signing_key(secret_index)
        headers = {
            "Content-Type": "application/json",
            EVENT_HEADER: f"{event_type.partition('.')[0].replace('_', ' ').title()} Hook",
            ID_HEADER: event_id,
        }
        if not self._is_signing[secret_index]:
            return headers | {TOKEN_HEADER: secret.decode("latin-1")}
        seconds = b"%d" % (now_ms // 1000)
        message = b"%b.%b.%b" % (event_id.encode("utf-8"), seconds, body)
        return headers | {
            "webhook-id": event_id,
            "webhook-timestamp": seconds.decode(),
            SIGNATURE_HEADER: "v1," + base64_hmac(self._signing_keys(secret_index)[0], message).decode(),
        }


def _type(request: HttpRequest, body: dict[str, Any]) -> str:
    kind = first_at(body, "object_kind", "event_name")
    if kind is None:
        return sole_text_header(request, EVENT_HEADER)
    # Of releases and milestones it stands beside the kind.
    action = text_or_none(at(body, "object_attributes", "action")) or text_or_none(body.get("action"))
    name = identifier(kind, 'the field "object_kind"')
    return identifier(f"{name}.{action}", 'the field "action"') if action else name
