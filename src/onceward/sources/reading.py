"""A delivery's body as a value: JSON, or a form as an object of its fields; gzip undone, bounded."""

from __future__ import annotations

import zlib
from typing import Any, NamedTuple

from onceward.core.errors import BodyMalformed
from onceward.core.messages import HttpRequest
from onceward.sources.base import parse_json
from onceward.sources.forms import form_fields, form_object, is_form

# Beyond the receiver's own limit for what a sender may send; against gzip bombs.
DECODED_BYTES_MAX = 16 * 1024 * 1024


class Body(NamedTuple):
    """A body's value, and whether it is the JSON of the raw bytes as they came."""

    value: Any
    is_raw: bool


def read_body(request: HttpRequest, payload_field: str = "") -> Body:
    """Give the value of the body.

    Args:
        request: as it came.
        payload_field: the field of a form body whose JSON is the value.

    Raises:
        BodyMalformed: it is neither JSON nor, by its content type, a form.
    """
    raw = decoded_body(request)
    if not is_form(request):
        return Body(parse_json(raw), raw is request.body)
    fields = form_fields(raw)
    if fields is None:
        raise _malformed("is no form in UTF-8")
    if payload_field:
        texts = [value for name, value in fields if name == payload_field]
        if len(texts) != 1:
            raise _malformed(f"has {len(texts)} fields {payload_field}")
        return Body(parse_json(texts[0].encode("utf-8", "surrogatepass")), False)
    return Body(form_object(fields), False)


def content_type(request: HttpRequest) -> str:
    """Give the media type in lower case, without parameters; empty when there is none."""
    return (request.header("content-type") or "").partition(";")[0].strip().lower()


def decoded_body(request: HttpRequest) -> bytes:
    """Give the body without its Content-Encoding: itself, or what is inside of gzip or deflate.

    A body that is not of its encoding is given as it is: a server in front has decoded it and left
    the header, and what cannot be read will not be.

    Raises:
        BodyMalformed: it is larger inside than `DECODED_BYTES_MAX`, or cut off.
    """
    encoding = b",".join(request.header_values("content-encoding")).strip().lower()
    if encoding not in (b"gzip", b"x-gzip", b"deflate"):
        return request.body
    # 32 more than the window's bits: gzip and zlib are told apart by their heads.
    inflater = zlib.decompressobj(zlib.MAX_WBITS | 32)
    try:
        inflated = inflater.decompress(request.body, DECODED_BYTES_MAX)
    except zlib.error:
        return request.body
    if not inflater.eof or inflater.unused_data:
        raise _malformed(f"is cut off, has something behind it, or is over {DECODED_BYTES_MAX} bytes inside")
    return inflated


def _malformed(fault: str) -> BodyMalformed:
    return BodyMalformed(
        f"The body {fault}.",
        means="The delivery cannot be understood; nothing was stored.",
        todo="Compare the source's format with what the sender is set to send.",
    )
