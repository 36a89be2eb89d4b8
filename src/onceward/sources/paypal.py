"""PayPal: an RSA signature over ``id|time|webhook id|CRC32 of the body``, certificate by address.

A CRC is no hash: whoever can change the body can keep its CRC. What came first under a signature is
therefore remembered in the store, and another body under it is refused. A certificate's dates are not looked at: what makes it trusted is that it came from PayPal over https.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, ClassVar

from onceward.core.arrival import UNVERIFIED, Incoming, LooseProof, Verified
from onceward.core.duration import Duration
from onceward.core.errors import ConfigError, SignatureInvalid
from onceward.core.ids import content_hash
from onceward.core.messages import HttpRequest
from onceward.sources.base import derived_id, identifier, parse_object, subject_or_none
from onceward.sources.parts.asymmetric import decoded_base64, public_key, verifies
from onceward.sources.parts.fetching import Documents, Fetch
from onceward.sources.parts.fields import iso_or_none
from onceward.sources.parts.private_keys import rsa_key_at, rsa_signature
from onceward.sources.parts.secret import joined_texts, secrets_from
from onceward.sources.signing import iso_ms, sole_header
from onceward.sources.timed import TimedSource

if TYPE_CHECKING:
    from onceward.sources.parts.asymmetric import PublicKey

PREFIX = "PAYPAL-"
ALGORITHM = b"SHA256withRSA"
_CERTIFICATE_URL = re.compile(
    r"https://api(?:-m)?(?:\.sandbox)?\.paypal\.com/v1/notifications/certs/[A-Za-z0-9._-]{1,128}"
)


class PayPal(TimedSource):
    """Events of a PayPal webhook.

    Args:
        name: see `Source`.
        secrets: another name for *webhook_id*, for configuration that is the same for every kind.
        insecure: see `Source`.
        webhook_id: the id that PayPal gave your webhook (sandbox and live have different ones). It is
            part of what is signed, so no one else's event verifies.
        certificates: PayPal's signing certificates in PEM, where none is to be fetched.
        fetch: gives what stands at an https address; by default the standard library does.
        private_keys: RSA keys in PEM of your own, with which `sign` plays the sender in tests.
        tolerance: how far the signed time may lie from now; None (the default) accepts any, since
            PayPal does not say whether a later try has a new one.

    The id is the body's (``WH-…``), which stays when an event is sent again; the transmission's does
    not. The subject is the id of the resource. Events of the webhook simulator have no real webhook id
    and are refused.

    Raises:
        ConfigError: see `Source`; a certificate that cannot be read; cryptography is not installed.
    """

    kind: ClassVar[str] = "paypal"
    docs_url: ClassVar[str] = "https://developer.paypal.com/api/rest/webhooks/rest/"
    docs_date: ClassVar[str] = "2026-10-31"
    retry_horizon: ClassVar[timedelta | None] = timedelta(days=3)
    tolerance_default: ClassVar[timedelta | None] = None

    def __init__(
        self,
        *,
        name: str | None = None,
        secrets: str | Sequence[str] = (),
        insecure: bool = False,
        webhook_id: str | Sequence[str] = (),
        certificates: str | Sequence[str] = (),
        fetch: Fetch | None = None,
        private_keys: str | Sequence[str] = (),
        tolerance: Duration | None = None,
    ) -> None:
        super().__init__(
            name=name,
            secrets=joined_texts(webhook_id, secrets),
            insecure=insecure,
            tolerance=tolerance,
        )
        self._keys = [
            public_key(certificate, "rsa-sha256", source=self.name)
            for certificate in joined_texts(certificates)
        ]
        self.is_blocking = not self._keys and not insecure
        self._documents = Documents(fetch)
        self._private_keys = secrets_from(private_keys, source=self.name)

    def verify(self, request: HttpRequest, now_ms: int) -> Verified:
        """Check the signature with a certificate of PayPal's, then the age where it is bounded."""
        if self.insecure:
            return UNVERIFIED
        names = ("TRANSMISSION-ID", "TRANSMISSION-TIME", "TRANSMISSION-SIG", "AUTH-ALGO")
        transmission_id, sent_at, given, algorithm = (sole_header(request, PREFIX + name) for name in names)
        if algorithm.lower() != ALGORITHM.lower():
            raise SignatureInvalid(f"{PREFIX}AUTH-ALGO is not {ALGORITHM.decode()}")
        signature = decoded_base64(given)
        if signature is None:
            raise SignatureInvalid(f"{PREFIX}TRANSMISSION-SIG is no base64")
        sent_at_ms = iso_ms(sent_at)
        keys = self._keys or [self._fetched_key(sole_header(request, f"{PREFIX}CERT-URL"), now_ms)]
        crc = b"%d" % zlib.crc32(request.body)
        for index, webhook_id in enumerate(self.secrets):
            message = b"|".join((transmission_id, sent_at, webhook_id.key, crc))
            if any(verifies(key, message, signature, "rsa-sha256") for key in keys):
                self.check_age(sent_at_ms, now_ms)
                until_ms = (
                    None
                    if self.tolerance is None
                    else sent_at_ms + self.tolerance // timedelta(milliseconds=1)
                )
                loose = LooseProof(content_hash(message), content_hash(request.body), until_ms)
                return Verified(index, sent_at_ms, loose)
        raise SignatureInvalid(f"the signature does not match, {len(self.secrets)} webhook ids tried")

    def _fetched_key(self, given: bytes, now_ms: int) -> PublicKey:
        url = given.decode("latin-1")
        if not _CERTIFICATE_URL.fullmatch(url):
            raise SignatureInvalid(f"{PREFIX}CERT-URL is no certificate's address at PayPal")
        pem = self._documents.get(url, now_ms).decode("latin-1")
        try:
            return public_key(pem, "rsa-sha256", source=self.name)
        except ConfigError as error:
            raise SignatureInvalid(f"what stands at {PREFIX}CERT-URL is no certificate") from error

    def normalize(self, request: HttpRequest) -> list[Incoming]:
        """Give the one event of the body."""
        body = parse_object(request.body)
        resource = body.get("resource")
        return [
            Incoming(
                id=identifier(body.get("id"), 'the field "id"'),
                type=identifier(body.get("event_type"), 'the field "event_type"'),
                payload=body,
                payload_is_body=True,
                subject=subject_or_none(resource.get("id")) if isinstance(resource, dict) else None,
                occurred_at_ms=iso_or_none(body.get("create_time")),
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
        """Give the headers of a delivery, signed with a private key of the tests' own."""
        key = rsa_key_at(self._private_keys, secret_index, source=self.name)
        webhook_id = self.signing_key(secret_index)
        sent_at = datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(timespec="seconds")
        sent_at = sent_at.replace("+00:00", "Z")
        transmission_id = derived_id("transmission", body.decode("latin-1"), now_ms)
        message = b"|".join(
            (transmission_id.encode(), sent_at.encode(), webhook_id, b"%d" % zlib.crc32(body))
        )
        return {
            "Content-Type": "application/json",
            f"{PREFIX}TRANSMISSION-ID": transmission_id,
            f"{PREFIX}TRANSMISSION-TIME": sent_at,
            f"{PREFIX}TRANSMISSION-SIG": rsa_signature(key, message, "sha256"),
            f"{PREFIX}CERT-URL": "https://api.sandbox.paypal.com/v1/notifications/certs/CERT-local",
            f"{PREFIX}AUTH-ALGO": ALGORITHM.decode(),
        }
