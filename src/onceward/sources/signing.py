"""The parts that signature schemes are made of. Each one is total: hostile input is refused.

Whatever arrives, these functions return or raise `SignatureInvalid`, nothing else. They work on
bytes throughout, because `hmac.compare_digest` raises on text that is not ASCII, which turned
forged headers into server errors in many receivers.
"""

from __future__ import annotations

import base64
import functools
import hmac
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal, TypeAlias

from onceward.core.errors import SignatureInvalid
from onceward.core.messages import HttpRequest
from onceward.sources.parts.secret import Secret

# Unix seconds have ten digits until the year 2286; more than twelve is not a time, and an
# unbounded integer would cost time to read.
_SECONDS_DIGITS_MAX = 12
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Encoding: TypeAlias = Literal["hex", "base64"]

# Senders list one signature for each live secret: two during a rotation.
SIGNATURES_MAX = 16

_MS = timedelta(milliseconds=1)


def sole_header(request: HttpRequest, name: str) -> bytes:
    """Give the value of a header that must be there exactly once.

    Two signature headers are refused, not tried in turn: proxies and frameworks disagree on which
    one counts.

    Args:
        request: as it came.
        name: the header's, in any case.

    Raises:
        SignatureInvalid: it is absent, repeated or empty.
    """
    values = request.header_values(name)
    if not values:
        raise SignatureInvalid(f"no {name} header")
    if len(values) > 1:
        raise SignatureInvalid(f"{len(values)} {name} headers")
    if not values[0]:
        raise SignatureInvalid(f"empty {name} header")
    return values[0]


def header_after(request: HttpRequest, name: str, prefix: bytes) -> bytes:
    """Give what stands behind *prefix* in a header that must be there exactly once.

    Raises:
        SignatureInvalid: see `sole_header`; or the header begins otherwise.
    """
    value = sole_header(request, name)
    if not value.startswith(prefix):
        raise SignatureInvalid(f"{name} does not begin with {prefix.decode()}")
    return value[len(prefix) :]


def time_and_signatures(
    parts: Iterable[bytes], *, header: str, time_field: bytes, signature_field: bytes
) -> tuple[bytes, list[bytes]]:
    """Give the one time and the signatures of a header of fields: ``t=1,v1=ab,v1=cd``.

    Args:
        parts: its fields, as the sender separates them; those of other names are ignored.
        header: its name, for messages.
        time_field: the name of the field with the time.
        signature_field: and of those with a signature.

    Raises:
        SignatureInvalid: there is not exactly one time, no signature, or one of them has no value.
    """
    times: list[bytes] = []
    signatures: list[bytes] = []
    for part in parts:
        name, equals, value = part.partition(b"=")
        if name == signature_field:
            signatures.append(value)
        elif name == time_field:
            times.append(value)
        elif name.strip() in (time_field, signature_field):
            # Two headers that a proxy joined; which of them counts is not for us to choose.
            raise SignatureInvalid(f"{header} has white space around a field")
        else:
            continue
        if not equals:
            raise SignatureInvalid(f"{header} has a {name.decode()} without a value")
    if len(times) != 1:
        raise SignatureInvalid(f"{header} has {len(times)} timestamps")
    if not signatures:
        raise SignatureInvalid(f"{header} has no {signature_field.decode()} signature")
    return times[0], signatures


def hex_hmac(key: bytes, message: bytes, algorithm: str = "sha256") -> bytes:
    """Give the HMAC (RFC 2104) in lower-case hexadecimal, as header bytes.

    Args:
        key: the secret's bytes.
        message: the bytes that are signed.
        algorithm: a name that `hmac.digest` knows.
    """
    return hmac.digest(key, message, algorithm).hex().encode("ascii")


def base64_hmac(key: bytes, message: bytes, algorithm: str = "sha256") -> bytes:
    """Give the HMAC (RFC 2104) in base64 (RFC 4648) with padding, as header bytes; see `hex_hmac`."""
    return base64.b64encode(hmac.digest(key, message, algorithm))


def matching_secret(
    secrets: Sequence[Secret],
    message: bytes,
    signatures: Sequence[bytes],
    algorithm: str = "sha256",
    *,
    encoding: Encoding = "hex",
) -> int:
    """Give the position of the secret, used as the text it is, under which a signature is right.

    Args:
        secrets: those in use; several during a rotation.
        message: the bytes that were signed.
        signatures: those the sender offered; any may match any secret.
        algorithm: a name that `hmac.digest` knows.
        encoding: how the signatures are written.

    Raises:
        SignatureInvalid: none matches, or more than `SIGNATURES_MAX` are offered.
    """
    return matching_key([secret.key for secret in secrets], message, signatures, algorithm, encoding=encoding)


def matching_key(
    keys: Sequence[bytes],
    message: bytes,
    signatures: Sequence[bytes],
    algorithm: str = "sha256",
    *,
    encoding: Encoding = "hex",
) -> int:
    """Give the position of the key under which a signature is right, as `matching_secret` does.

    Args:
        keys: the secrets' bytes, decoded where the sender writes them in base64 or hexadecimal.
        message: see `matching_secret`.
        signatures: likewise.
        algorithm: likewise.
        encoding: likewise.

    Raises:
        SignatureInvalid: see `matching_secret`.
    """
    check_count(signatures)
    compute = hex_hmac if encoding == "hex" else base64_hmac
    for index, key in enumerate(keys):
        expected = compute(key, message, algorithm)
        for signature in signatures:
            if hmac.compare_digest(expected, signature):
                return index
    raise no_match(signatures, len(keys))


def check_count(signatures: Sequence[bytes]) -> None:
    """Refuse more than `SIGNATURES_MAX` signatures with `SignatureInvalid`."""
    if len(signatures) > SIGNATURES_MAX:
        raise SignatureInvalid(f"{len(signatures)} signatures, at most {SIGNATURES_MAX} are tried")


def no_match(signatures: Sequence[bytes], tried: int) -> SignatureInvalid:
    """Give the refusal of signatures of which none is right under any of the secrets *tried*."""
    return SignatureInvalid(f"no signature matches (offered: {len(signatures)}, secrets tried: {tried})")


def unix_ms(raw: bytes, unit: Literal["s", "ms"] = "s") -> int:
    """Give, in milliseconds, the Unix time that a sender wrote in seconds or milliseconds.

    Args:
        raw: the sender's text.
        unit: what the sender counts.

    Raises:
        SignatureInvalid: anything but ASCII digits, as many as a time can have.
    """
    # bytes.isdigit knows ASCII digits only, unlike str.isdigit.
    digits_max = _SECONDS_DIGITS_MAX + (3 if unit == "ms" else 0)
    if not raw.isdigit() or len(raw) > digits_max:
        raise SignatureInvalid(f"timestamp is not a number of {'seconds' if unit == 's' else 'milliseconds'}")
    return int(raw) * (1000 if unit == "s" else 1)


def iso_ms(raw: bytes) -> int:
    """Give, in milliseconds, the time that a sender wrote as ISO 8601 with its offset from UTC.

    Raises:
        SignatureInvalid: anything else.
    """
    try:
        moment = datetime.fromisoformat(raw.decode("ascii"))
    except ValueError as error:
        raise SignatureInvalid("timestamp is not ISO 8601") from error
    if moment.tzinfo is None:
        raise SignatureInvalid("timestamp has no offset from UTC")
    return (moment - EPOCH) // _MS


def check_window(sent_at_ms: int, now_ms: int, tolerance: timedelta) -> None:
    """Refuse a signed time that is further than *tolerance* from now, in either direction.

    The future counts as well: a time far ahead would stay replayable until then.

    Args:
        sent_at_ms: Unix milliseconds, as the sender signed it.
        now_ms: Unix milliseconds.
        tolerance: to either side.

    Raises:
        SignatureInvalid: with the distance in seconds, so that an operator sees a skewed clock.
    """
    tolerance_ms = _in_ms(tolerance)
    age_ms = now_ms - sent_at_ms
    if abs(age_ms) > tolerance_ms:
        side = "in the past" if age_ms > 0 else "in the future"
        raise SignatureInvalid(
            f"timestamp is {abs(age_ms) // 1000} s {side}, tolerance is {tolerance_ms // 1000} s",
            skew_ms=age_ms,
        )


@functools.lru_cache(maxsize=256)
def _in_ms(length: timedelta) -> int:
    return length // _MS
