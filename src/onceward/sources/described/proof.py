"""How a configured scheme proves a delivery: a signature, or a token that only the sender knows.

Built once for a source; `verify` is total: whatever arrives, it gives `Verified` or raises
`SignatureInvalid`.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from onceward.core.arrival import Verified
from onceward.core.duration import Duration
from onceward.core.errors import BodyMalformed, ConfigError, SignatureInvalid
from onceward.core.messages import HttpRequest
from onceward.sources.base import identifier
from onceward.sources.described.keys import Keys
from onceward.sources.described.place import Place, is_header_name
from onceward.sources.described.scheme import ID_WORDS, Scheme, Signature, Timestamp, names
from onceward.sources.described.template import Template
from onceward.sources.parts.body import decoded_body, read_body
from onceward.sources.parts.called_url import called_urls, checked_public_url
from onceward.sources.parts.forms import signed_fields
from onceward.sources.parts.secret import Secret
from onceward.sources.signing import EPOCH, check_window, iso_ms, sole_header, unix_ms
from onceward.sources.timed import checked_tolerance

# Fields and signatures in all signature headers of one delivery together.
_ITEMS_MAX = 64
_FIXED_MARKERS = frozenset({"body", "timestamp", "id", "url", "method", "path", "query", "form"})
BASIC = "basic"
_COVERING = frozenset({"body", "form"})


class SignedTime:
    """The signed time of a scheme: where it stands, how it is written, how far it may be from now."""

    def __init__(self, timestamp: Timestamp, tolerance: Duration | None, *, source: str) -> None:
        self.unit = timestamp.unit
        self.field = ""
        self.place: Place | None = None
        if timestamp.place.startswith("field:") and len(timestamp.place) > len("field:"):
            self.field = timestamp.place.removeprefix("field:")
        else:
            self.place = Place(timestamp.place)
        self.past = checked_tolerance(timestamp.tolerance if tolerance is None else tolerance, source=source)
        future = timestamp.future_tolerance
        self.future = (
            self.past if future is None or tolerance is not None else checked_tolerance(future, source=source)
        )

    def read_ms(self, raw: bytes) -> int:
        """Give the time in milliseconds, or refuse."""
        return iso_ms(raw) if self.unit == "iso" else unix_ms(raw, "ms" if self.unit == "ms" else "s")

    def written(self, now_ms: int) -> str:
        """Give the time as the sender would write it."""
        if self.unit == "iso":
            moment = EPOCH + timedelta(milliseconds=now_ms)
            return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return str(now_ms // 1000 if self.unit == "s" else now_ms)

    def check(self, sent_at_ms: int, now_ms: int) -> None:
        """Refuse a time that is too far from now."""
        check_window(sent_at_ms, now_ms, self.past if sent_at_ms <= now_ms else self.future)


class SignatureProof:
    """A signature over what the template says.

    Raises:
        ConfigError: the scheme contradicts itself.
    """

    def __init__(
        self,
        scheme: Scheme,
        signature: Signature,
        secrets: Sequence[Secret],
        *,
        source: str,
        public_url: str | None,
        tolerance: Duration | None,
    ) -> None:
        self.headers = names(signature.header)
        self.keys = Keys(signature, secrets, source=source)
        self.template = Template(signature.template)
        self.time = SignedTime(scheme.timestamp, tolerance, source=source) if scheme.timestamp else None
        is_place = isinstance(scheme.id, str) and scheme.id not in ID_WORDS
        self.id_place = Place(str(scheme.id)) if is_place else None
        self._signature = signature
        self._prefixes = [one.encode("utf-8") for one in names(signature.prefix)]
        self._separator = signature.item_separator.encode("utf-8")
        self._field = signature.field.encode("utf-8")
        self._field_separator = signature.field_separator.encode("utf-8")
        self._public_url = checked_public_url(public_url, source=source)
        self._check(source)

    def _check(self, source: str) -> None:
        faults = [f"the signature header {one!r}" for one in self.headers if not is_header_name(one)]
        if not self.headers:
            faults.append("no signature header")
        faults += [
            f"the marker {{{marker}}} in its template, which is not known"
            for marker in sorted(self.template.markers - _FIXED_MARKERS)
            if not (marker.startswith("header:") and is_header_name(marker.removeprefix("header:")))
        ]
        if not self.template.markers & _COVERING:
            faults.append("a template without {body} or {form}, so that any event could be forged")
        if "timestamp" in self.template.markers and self.time is None:
            faults.append("a template with {timestamp} and no timestamp")
        if "id" in self.template.markers and (self.id_place is None or self.id_place.kind == "const"):
            faults.append("a template with {id} and no place of the id")
        if self._field and not self._field_separator:
            faults.append("a field and no field_separator")
        if self.time and self.time.field and not self._field:
            faults.append("a timestamp in a field of the signature header, and no field for the signature")
        if self._field and not self._separator and self.time and self.time.field:
            faults.append("two fields in one header and no item_separator")
        # An unsigned time is no defence: who sends an old delivery again writes a new one.
        is_time_signed = "timestamp" in self.template.markers or (
            self.time is not None and self.time.place is not None and self.covers(self.time.place)
        )
        if self.time and not is_time_signed:
            faults.append("a timestamp that nobody signs: no {timestamp} in the template")
        if faults:
            raise ConfigError(
                f"Source {source!r} has {faults[0]}.",
                means="No delivery could be verified, or any would be.",
                todo="Compare the configuration with the sender's documentation.",
            )

    def verify(self, request: HttpRequest, now_ms: int) -> Verified:
        """Check the signature, then the age."""
        signatures, times = self._offered(request)
        stamp = self._stamp(request, times) if "timestamp" in self.template.markers else None
        # The age comes last, so that an operator reads "stale" only of genuine deliveries.
        index = self.keys.matching(self._messages(request, stamp), signatures)
        if self.time is None:
            return Verified(index)
        sent_at_ms = self.time.read_ms(self._stamp(request, times) if stamp is None else stamp)
        self.time.check(sent_at_ms, now_ms)
        return Verified(index, sent_at_ms)

    def covers(self, place: Place) -> bool:
        """Say whether what stands there is signed."""
        if place.header is None:
            return place.is_in_body and bool(self.template.markers & _COVERING)
        signed = {one.removeprefix("header:").lower() for one in self.template.markers if ":" in one}
        is_the_id = "id" in self.template.markers and self.id_place and self.id_place.header == place.header
        return bool(is_the_id) or place.header.lower() in signed

    def sign(self, request: HttpRequest, now_ms: int, secret_index: int) -> dict[str, str]:
        """Give the headers of the signature and its time for a request that has all others."""
        headers: dict[str, str] = {}
        stamp = b""
        written = ""
        if self.time is not None:
            written = self.time.written(now_ms)
            stamp = written.encode("ascii")
            if self.time.place is not None and self.time.place.header is not None:
                headers[self.time.place.header] = written
            elif self.time.place is not None:
                stamp = self._stamp(request, [])
        signed = self.keys.sign(secret_index, self._messages(request, stamp)[0]).decode("ascii")
        if self._field:
            separator = self._signature.field_separator
            parts = [f"{self.time.field}{separator}{written}"] if self.time and self.time.field else []
            signed = self._signature.item_separator.join(
                [*parts, f"{self._signature.field}{separator}{signed}"]
            )
        headers[self.headers[0]] = f"{self._prefixes[0].decode()}{signed}"
        return headers

    def _offered(self, request: HttpRequest) -> tuple[list[bytes], list[bytes]]:
        """Give the signatures and the times that the headers hold."""
        signatures: list[bytes] = []
        times: list[bytes] = []
        present = [name for name in self.headers if request.header_values(name)]
        if not present:
            raise SignatureInvalid(f"no {self.headers[0]} header")
        for name in present:
            value = sole_header(request, name)
            items = value.split(self._separator, _ITEMS_MAX) if self._separator else [value]
            if len(items) > _ITEMS_MAX:
                raise SignatureInvalid(f"{name} has more than {_ITEMS_MAX} parts")
            for item in (one.strip(b" \t") for one in items) if self._signature.trim else items:
                if self._field:
                    self._take_field(item, signatures, times)
                else:
                    self._take(item, signatures)
        if not signatures:
            wanted = f"no field {self._signature.field}" if self._field else "does not begin with the prefix"
            raise SignatureInvalid(f"{present[0]} {'has ' if self._field else ''}{wanted}")
        return signatures, times

    def _take(self, item: bytes, signatures: list[bytes]) -> None:
        for prefix in self._prefixes:
            if item.startswith(prefix):
                signatures.append(item[len(prefix) :])
                return

    def _take_field(self, item: bytes, signatures: list[bytes], times: list[bytes]) -> None:
        # At the first separator only: base64 ends in "=".
        key, found, value = item.partition(self._field_separator)
        if self._signature.trim:
            key, value = key.strip(b" \t"), value.strip(b" \t")
        if found and key == self._field:
            self._take(value, signatures)
        elif found and self.time and key == self.time.field.encode("utf-8"):
            times.append(value)

    def _stamp(self, request: HttpRequest, times: list[bytes]) -> bytes:
        """Give the time's bytes as they were signed."""
        assert self.time is not None
        if self.time.place is None:
            if len(times) != 1:
                raise SignatureInvalid(f"{self.headers[0]} has {len(times)} timestamps")
            return times[0]
        if self.time.place.header is not None:
            return sole_header(request, self.time.place.header)
        return _body_text(request, self.time.place, "timestamp")

    def _messages(self, request: HttpRequest, stamp: bytes | None) -> list[bytes]:
        """Give what may have been signed: one message, or one for each address it may have been."""
        urls = called_urls(request, self._public_url) if "url" in self.template.markers else [b""]
        return [self._message(request, stamp, url) for url in urls]

    def _message(self, request: HttpRequest, stamp: bytes | None, url: bytes) -> bytes:
        def value(marker: str) -> bytes:
            if marker == "body":
                return self._body(request)
            if marker == "timestamp":
                return stamp or b""
            if marker == "id":
                assert self.id_place is not None
                header = self.id_place.header
                return sole_header(request, header) if header else _body_text(request, self.id_place, "id")
            if marker == "form":
                return signed_fields(self._body(request))
            if marker == "url":
                return url
            if marker.startswith("header:"):
                return sole_header(request, marker.removeprefix("header:"))
            return str(getattr(request, marker)).encode("utf-8", "surrogatepass")

        return self.template.fill(value)

    def _body(self, request: HttpRequest) -> bytes:
        if self._signature.signed == "as-sent":
            return request.body
        try:
            return decoded_body(request)
        except BodyMalformed as error:
            raise SignatureInvalid("the body cannot be decoded to what was signed") from error


class TokenProof:
    """A token that the sender sends along; it says nothing about the body."""

    def __init__(self, token: str, secrets: Sequence[Secret], *, source: str) -> None:
        self._is_basic = token == BASIC
        self._scheme = {BASIC: b"basic ", "bearer": b"bearer "}.get(token, b"")
        self._place = Place("header:Authorization" if self._scheme else token)
        self._secrets = tuple(secrets)
        if self._place.kind == "const":
            raise ConfigError(
                f"Source {source!r} takes its token from {token!r}.",
                means="Every delivery would be accepted, or none.",
                todo="Name the place where the sender puts the token.",
            )
        for secret in secrets if self._is_basic else ():
            if b":" not in secret.key:
                raise ConfigError(
                    f"Source {source!r} has a secret for Basic authentication without a colon.",
                    means="No delivery could be verified with it.",
                    todo="Write it as user:password.",
                )

    def verify(self, request: HttpRequest, now_ms: int) -> Verified:
        """Compare the token with each secret."""
        header = self._place.header
        given = sole_header(request, header) if header else _body_text(request, self._place, "token")
        if self._scheme:
            if given[: len(self._scheme)].lower() != self._scheme:
                raise SignatureInvalid(f"Authorization is not {self._scheme.decode().strip()}")
            given = given[len(self._scheme) :].strip(b" ")
        if self._is_basic:
            given = given.rstrip(b"=")
        matching = [
            index
            for index, secret in enumerate(self._secrets)
            if hmac.compare_digest(self._expected(secret), given)
        ]
        if not matching:
            raise SignatureInvalid(f"the token is another one, {len(self._secrets)} tried")
        return Verified(matching[0])

    def sign(self, secret: Secret) -> dict[str, str]:
        """Give the header with the token; none where it stands elsewhere."""
        if self._is_basic:
            return {"Authorization": f"Basic {base64.b64encode(secret.key).decode()}"}
        if self._place.header is None:
            return {}
        prefix = "Bearer " if self._scheme else ""
        return {self._place.header: f"{prefix}{secret.key.decode('utf-8')}"}

    def _expected(self, secret: Secret) -> bytes:
        # Of Basic the text is compared, which has one spelling; a password may hold colons.
        return base64.b64encode(secret.key).rstrip(b"=") if self._is_basic else secret.key


def _body_text(request: HttpRequest, place: Place, what: str) -> bytes:
    """Give what stands in the body or the address, before anything is proven, or refuse."""
    try:
        body: Any = read_body(request).value if place.needs_body(request) else None
        found = identifier(place.find(request, body, body), f"the {what} at {place.text}")
    except BodyMalformed as error:
        raise SignatureInvalid(f"no {what} at {place.text}") from error
    return found.encode("utf-8", "surrogatepass")
