"""Bodies with a Content-Encoding, decoded within a bound.

A kilobyte of gzip can hold a megabyte. So never more is made than is allowed: the decoder is asked
for one byte beyond the limit at most, however much it could give.
"""

from __future__ import annotations

import zlib

from onceward.core.errors import BodyMalformed, BodyTooLarge

_GZIP, _ZLIB, _RAW = 31, 15, -15
_GZIP_HEAD = b"\x1f\x8b"
MEMBERS_MAX = 64
"""Gzip members one after the other; a body of empty ones would cost work and give nothing."""
_WINDOWS = {"gzip": _GZIP, "x-gzip": _GZIP, "deflate": _ZLIB}


def can_inflate(encoding: str) -> bool:
    """Say whether a Content-Encoding is one of those that are decoded: a single gzip or deflate."""
    return encoding.strip().lower() in _WINDOWS


def is_encoded(encoding: str, body: bytes) -> bool:
    """Say whether *body* begins as one of that Content-Encoding does; False for one not decoded.

    A server in front may have decoded a body and left the header.
    """
    window = _WINDOWS.get(encoding.strip().lower())
    return body.startswith(_GZIP_HEAD) if window == _GZIP else window == _ZLIB and _has_zlib_head(body)


def inflated(encoding: str, body: bytes, bytes_max: int) -> bytes:
    """Give what *body* holds.

    Args:
        encoding: the header's value; `can_inflate` says that it is known.
        body: as it was sent.
        bytes_max: the most bytes that are made of it.

    Raises:
        BodyTooLarge: it holds more.
        BodyMalformed: it is cut short, damaged, or something follows it.
    """
    window = _WINDOWS[encoding.strip().lower()]
    # "deflate" means zlib's format; some senders leave its two bytes of head out (RFC 9110, 8.4.1.2).
    if window == _ZLIB and not _has_zlib_head(body):
        window = _RAW
    made = bytearray()
    rest = body
    try:
        for _ in range(MEMBERS_MAX if window == _GZIP else 1):
            decoder = zlib.decompressobj(window)
            made += decoder.decompress(rest, bytes_max + 1 - len(made))
            if len(made) > bytes_max:
                raise BodyTooLarge(f"The body of {len(body)} bytes holds more than {bytes_max} bytes.")
            if not decoder.eof:
                raise BodyMalformed(f"The {encoding} body of {len(body)} bytes is cut short.")
            rest = decoder.unused_data
            if not rest:
                return bytes(made)
    except zlib.error as error:
        raise BodyMalformed(f"The body of {len(body)} bytes is no {encoding}: {error}.") from error
    raise BodyMalformed(f"Something follows the {encoding} body, or it has more than {MEMBERS_MAX} members.")


def _has_zlib_head(body: bytes) -> bool:
    return len(body) >= 2 and body[0] & 15 == 8 and (body[0] << 8 | body[1]) % 31 == 0
