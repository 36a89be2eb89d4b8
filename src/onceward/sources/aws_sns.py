"""Amazon SNS: an RSA signature over fixed fields of the body, its certificate named by address.

A good signature proves "some topic of Amazon's", whoever owns it; the topic's ARN, which is signed,
binds it to yours. A certificate's dates are not looked at: what makes it trusted is that it came
from SNS over https, and stored deliveries are verified again years later.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, ClassVar, Literal
from urllib.parse import parse_qsl, urlsplit

import msgspec

from onceward.core.arrival import UNVERIFIED, Incoming, Verified
from onceward.core.errors import ConfigError, SignatureInvalid
from onceward.core.messages import HttpRequest, HttpResponse
from onceward.sources.base import Source, identifier, parse_object, subject_or_none
from onceward.sources.parts.asymmetric import Scheme, decoded_base64, public_key, verifies
from onceward.sources.parts.fetching import Documents, Fetch
from onceward.sources.parts.fields import iso_or_none
from onceward.sources.parts.private_keys import rsa_key_at, rsa_signature
from onceward.sources.parts.secret import joined_texts, matching_text, secrets_from
from onceward.sources.parts.unsigned_body import object_to_verify, text_bytes

NOTIFICATION = "Notification"
CONFIRMATIONS = ("SubscriptionConfirmation", "UnsubscribeConfirmation")

_HOST = r"sns\.[a-z0-9-]{3,32}\.amazonaws\.com(?:\.cn)?"
_CERTIFICATE_URL = re.compile(rf"https://{_HOST}/[A-Za-z0-9._-]{{1,128}}\.pem")
_SUBSCRIBE_URL = re.compile(rf"https://{_HOST}/\?[!-~]{{1,4096}}")
_LOCAL_URL = "https://sns.local-1.amazonaws.com/SimpleNotificationService-local.pem"
_SCHEMES: dict[object, Scheme] = {"1": "rsa-sha1", "2": "rsa-sha256"}
_SIGNED: dict[object, tuple[str, ...]] = {
    NOTIFICATION: ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"),
    **dict.fromkeys(
        CONFIRMATIONS, ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type")
    ),
}


class AwsSns(Source):
    """Notifications of Amazon SNS topics over HTTPS; raw delivery is unsigned and refused.

    Args:
        name: see `Source`.
        secrets: another name for *topic_arns*, for configuration that is the same for every kind.
        insecure: see `Source`.
        topic_arns: the topics whose messages are accepted.
        confirm: answer a ``SubscriptionConfirmation`` of such a topic by visiting its address, once it
            is verified. Otherwise it is an event of that type, and a person confirms.
        certificate: a signing certificate in PEM, where none is to be fetched.
        fetch: gives what stands at an https address; by default the standard library does.
        private_keys: RSA keys in PEM of your own, with which `signed_request` plays the sender in tests.

    The id is ``MessageId``; the type ``Notification``, ``SubscriptionConfirmation`` or
    ``UnsubscribeConfirmation``; the subject the topic's ARN. The payload is the whole body, so that
    what you sent stands in ``Message``, a text.

    Raises:
        ConfigError: see `Source`; a text that is no ARN, or cryptography is not installed.
    """

    kind: ClassVar[str] = "aws_sns"
    docs_url: ClassVar[str] = "https://docs.aws.amazon.com/sns/latest/dg/sns-verify-signature-of-message.html"
    docs_date: ClassVar[str] = "2026-10-31"
    # The most that a delivery policy for HTTP may say.
    retry_horizon: ClassVar[timedelta | None] = timedelta(hours=1)
    retry_docs: ClassVar[str] = "https://docs.aws.amazon.com/sns/latest/dg/sns-message-delivery-retries.html"
    reply_deadline: ClassVar[timedelta | None] = timedelta(seconds=15)
    handshake_phase: ClassVar[Literal["verified", "unverified"]] = "verified"

    def __init__(
        self,
        *,
        name: str | None = None,
        secrets: str | Sequence[str] = (),
        insecure: bool = False,
        topic_arns: str | Sequence[str] = (),
        confirm: bool = False,
        certificate: str | None = None,
        fetch: Fetch | None = None,
        private_keys: str | Sequence[str] = (),
    ) -> None:
        super().__init__(name=name, secrets=joined_texts(topic_arns, secrets), insecure=insecure)
        if not all(secret.key.startswith(b"arn:") for secret in self.secrets):
            raise ConfigError(
                f"Source {self.name!r} was given a topic that is no ARN.",
                means="No message of it could be told from those of other people's topics.",
                todo="Give topic_arns=[…], each like arn:aws:sns:eu-west-1:123456789012:orders.",
            )
        self.confirm = confirm
        self.is_blocking = (certificate is None and not insecure) or confirm
        self._documents = Documents(fetch)
        self._certificate = certificate
        self._private_keys = secrets_from(private_keys, source=self.name)
        if certificate is not None:
            public_key(certificate, "rsa-sha256", source=self.name)

    def verify(self, request: HttpRequest, now_ms: int) -> Verified:
        """Check the topic, then the signature with the certificate that the message names."""
        if self.insecure:
            return UNVERIFIED
        body = object_to_verify(request.body)
        # The topic first: who does not know it cannot make us fetch anything.
        index = matching_text(self.secrets, text_bytes(body.get("TopicArn"), "TopicArn"))
        scheme = _SCHEMES.get(_hashable(body.get("SignatureVersion")))
        if scheme is None:
            raise SignatureInvalid("SignatureVersion is neither 1 nor 2")
        message = _signed_text(body)
        signature = decoded_base64(text_bytes(body.get("Signature"), "Signature"))
        if signature is None:
            raise SignatureInvalid("Signature is no base64")
        url = text_bytes(body.get("SigningCertURL"), "SigningCertURL").decode("utf-8", "replace")
        if not _CERTIFICATE_URL.fullmatch(url):
            raise SignatureInvalid("SigningCertURL is no certificate's address at SNS")
        pem = self._certificate or self._documents.get(url, now_ms).decode("latin-1")
        try:
            key = public_key(pem, scheme, source=self.name)
        except ConfigError as error:
            raise SignatureInvalid("what stands at SigningCertURL is no certificate") from error
        if not verifies(key, message, signature, scheme):
            raise SignatureInvalid("the signature does not match")
        return Verified(index, iso_or_none(body.get("Timestamp")))

    def handshake(self, request: HttpRequest, now_ms: int) -> HttpResponse | None:
        """Confirm a verified subscription where ``confirm`` is set; 503 when SNS cannot be reached."""
        if not self.confirm:
            return None
        body = object_to_verify(request.body)
        if body.get("Type") != "SubscriptionConfirmation":
            return None
        url = text_bytes(body.get("SubscribeURL"), "SubscribeURL").decode("utf-8", "replace")
        if not _SUBSCRIBE_URL.fullmatch(url) or not _confirms(url, body.get("TopicArn")):
            raise SignatureInvalid("SubscribeURL does not confirm this topic at SNS")
        try:
            self._documents.get(url, now_ms)
        except SignatureInvalid:
            return HttpResponse.of(503)
        return HttpResponse.of(200)

    def normalize(self, request: HttpRequest) -> list[Incoming]:
        """Give the one message of the body."""
        body = parse_object(request.body)
        return [
            Incoming(
                id=identifier(body.get("MessageId"), 'the field "MessageId"'),
                type=identifier(body.get("Type"), 'the field "Type"'),
                payload=body,
                payload_is_body=True,
                subject=subject_or_none(body.get("TopicArn")),
                occurred_at_ms=iso_or_none(body.get("Timestamp")),
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
        """Refuse: the signature stands in the body. Use `signed_request`."""
        raise ConfigError(
            f"Source {self.name!r} cannot sign with headers.",
            means="The signature of SNS stands in the body.",
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
        """Give the request, of the topic at *secret_index*, signed with a key of the tests' own."""
        key = rsa_key_at(self._private_keys, secret_index, source=self.name)
        topic = self.signing_key(secret_index).decode()
        message = (
            {"SignatureVersion": "2", "SigningCertURL": _LOCAL_URL} | parse_object(body) | {"TopicArn": topic}
        )
        is_first_version = message["SignatureVersion"] == "1"
        message["Signature"] = rsa_signature(
            key, _signed_text(message), "sha1" if is_first_version else "sha256"
        )
        headers = {
            "Content-Type": "text/plain; charset=UTF-8",
            "x-amz-sns-message-type": str(message.get("Type")),
            "x-amz-sns-message-id": str(message.get("MessageId")),
            "x-amz-sns-topic-arn": topic,
        }
        return HttpRequest.of(msgspec.json.encode(message), headers, url=url, received_at_ms=now_ms)


def _hashable(value: object) -> object:
    return value if isinstance(value, str) else None


def _signed_text(body: dict[str, Any]) -> bytes:
    names = _SIGNED.get(_hashable(body.get("Type")))
    if names is None:
        raise SignatureInvalid("Type is none that SNS sends")
    lines: list[str] = []
    for name in names:
        value = body.get(name)
        if value is None and name == "Subject":
            continue  # a notification may have none, or null; then it is not signed
        if not isinstance(value, str):
            raise SignatureInvalid(f"no {name}")
        lines += [name, value]
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass")


def _confirms(url: str, topic_arn: object) -> bool:
    try:
        fields = dict(parse_qsl(urlsplit(url).query, errors="strict", max_num_fields=16))
    except ValueError:
        return False
    return fields.get("Action") == "ConfirmSubscription" and fields.get("TopicArn") == topic_arn
