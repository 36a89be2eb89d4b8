"""Form bodies, urlencoded and multipart (RFC 7578), read within bounds."""

from __future__ import annotations

import base64
from typing import Any

from onceward.core.messages import HttpRequest
from onceward.sources.forms import CONTENT_TYPE, FIELDS_MAX, form_object
from onceward.sources.forms import form_fields as urlencoded_fields
from onceward.sources.shape import malformed

MULTIPART = "multipart/form-data"
_PART_HEADER_BYTES_MAX = 8192


def content_type(request: HttpRequest) -> str:
    """Give the media type in lower case, without parameters; empty when there is none."""
    return (request.header("content-type") or "").partition(";")[0].strip().lower()


def is_form(request: HttpRequest) -> bool:
    """Say whether the request says that its body is a form."""
    return content_type(request) in (CONTENT_TYPE, MULTIPART)


def form_fields(request: HttpRequest) -> dict[str, Any]:
    """Give the fields of a form body; one that comes several times is a list.

    A file of a multipart body is an object: ``filename``, ``content_type`` and ``content``, base64.

    Raises:
        BodyMalformed: it cannot be read, or has more than `FIELDS_MAX` fields.
    """
    if content_type(request) == MULTIPART:
        return form_object(_multipart(request))
    pairs = urlencoded_fields(request.body)
    if pairs is None:
        raise malformed("the form is not UTF-8 or has too many fields")
    return form_object(pairs)


def _multipart(request: HttpRequest) -> list[tuple[str, Any]]:
    boundary = _parameter(request.header("content-type") or "", "boundary")
    if not boundary or len(boundary) > 200:
        raise malformed("the content type names no boundary")
    # The first line of a body has no line end before it.
    parts = (b"\r\n" + request.body).split(b"\r\n--" + boundary.encode("latin-1", "replace"))
    if len(parts) > FIELDS_MAX + 2:
        raise malformed(f"more than {FIELDS_MAX} fields")
    if len(parts) < 2 or not parts[-1].startswith(b"--"):
        raise malformed("the multipart body has no end")
    return [_part(part) for part in parts[1:-1]]


def _part(part: bytes) -> tuple[str, Any]:
    head, separator, content = part.partition(b"\r\n\r\n")
    if not separator or len(head) > _PART_HEADER_BYTES_MAX:
        raise malformed("a part has no headers")
    headers = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(":") for line in _text(head).split("\r\n"))
    }
    disposition = headers.get("content-disposition", "")
    name = _parameter(disposition, "name")
    if name is None:
        raise malformed("a part has no name")
    filename = _parameter(disposition, "filename")
    if filename is None:
        return name, _text(content)
    return name, {
        "filename": filename,
        "content_type": headers.get("content-type", ""),
        "content": base64.b64encode(content).decode("ascii"),
    }


def _parameter(header: str, parameter: str) -> str | None:
    from email.message import Message  # slow to import, and for a few senders

    message = Message()
    try:
        message["x"] = header
        found = message.get_param(parameter, header="x")
    except (ValueError, LookupError):
        return None
    # A tuple is RFC 2231's way of saying a character set.
    return found if isinstance(found, str) else found[2] if isinstance(found, tuple) else None


def _text(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise malformed("a field is not UTF-8") from error
