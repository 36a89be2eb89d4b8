"""A delivery's body as a value: JSON, or a form as an object of its fields; Content-Encoding undone."""

from __future__ import annotations

from typing import Any, NamedTuple

from onceward.core.errors import BodyTooLarge
from onceward.core.inflate import inflated, is_encoded
from onceward.core.messages import HttpRequest
from onceward.sources.base import parse_json
from onceward.sources.parts.forms import form_object, is_urlencoded, read_fields, sole_field
from onceward.sources.parts.shape import malformed

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
    if not is_urlencoded(request):
        return Body(parse_json(raw), raw is request.body)
    if payload_field:
        return Body(parse_json(sole_field(raw, payload_field)), False)
    return Body(form_object(read_fields(raw)), False)


def decoded_body(request: HttpRequest) -> bytes:
    """Give the body without its Content-Encoding: itself, or what is inside of gzip or deflate.

    A body that is not of its encoding is given as it is: a server in front has decoded it and left
    the header, and what cannot be read will not be.

    Raises:
        BodyMalformed: it is larger inside than `DECODED_BYTES_MAX`, damaged, or cut off.
    """
    encoding = b",".join(request.header_values("content-encoding")).decode("latin-1")
    if not is_encoded(encoding, request.body):
        return request.body
    try:
        return inflated(encoding, request.body, DECODED_BYTES_MAX)
    except BodyTooLarge as error:
        raise malformed(f"the body is over {DECODED_BYTES_MAX} bytes inside") from error
