"""Form bodies, urlencoded and multipart (RFC 7578): read strictly, within bounds, blank fields kept."""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import parse_qsl

from onceward.core.errors import SignatureInvalid
from onceward.core.messages import HttpRequest
from onceward.sources.parts.shape import malformed

URLENCODED = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"
FIELDS_MAX = 1000
_PART_HEADER_BYTES_MAX = 8192


def content_type(request: HttpRequest) -> str:
    """Give the media type in lower case, without parameters; empty when there is none."""
    return (request.header("content-type") or "").partition(";")[0].strip().lower()


def is_urlencoded(request: HttpRequest) -> bool:
    """Say whether the request has one content type, that of an urlencoded form."""
    return len(request.header_values("content-type")) == 1 and content_type(request) == URLENCODED


def is_form(request: HttpRequest) -> bool:
    """Say whether the request says that its body is a form of either kind."""
    return content_type(request) in (URLENCODED, MULTIPART)


def form_fields(raw: bytes | str) -> list[tuple[str, str]] | None:
    """Give the names and values of urlencoded text in order; None for what is no form in UTF-8.

    Args:
        raw: a body, or the text after the question mark of an address.
    """
    try:
        text = raw if isinstance(raw, str) else raw.decode("utf-8")
        return parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=FIELDS_MAX)
    except ValueError:
        return None


def form_object(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    """Give the fields as an object; a name that comes several times has the list of its values."""
    values: dict[str, list[Any]] = {}
    for name, value in fields:
        values.setdefault(name, []).append(value)
    return {name: several[0] if len(several) == 1 else several for name, several in values.items()}


def read_form(request: HttpRequest) -> dict[str, Any]:
    """Give a form body of either kind as an object, as `form_object` does.

    A file of a multipart body is an object: ``filename``, ``content_type`` and ``content``, base64.

    Raises:
        BodyMalformed: it cannot be read, or has more than `FIELDS_MAX` fields.
    """
    if content_type(request) == MULTIPART:
        return form_object(_multipart(request))
    return form_object(read_fields(request.body))


def read_fields(raw: bytes) -> list[tuple[str, str]]:
    """Give the fields of an urlencoded body, as `form_fields` does.

    Raises:
        BodyMalformed: it is no form in UTF-8, or has more than `FIELDS_MAX` fields.
    """
    fields = form_fields(raw)
    if fields is None:
        raise malformed("the form is not UTF-8 or has too many fields")
    return fields


def sole_field(raw: bytes, name: str) -> bytes:
    """Give the value of a field that an urlencoded body must have exactly once, as bytes.

    Raises:
        BodyMalformed: see `read_fields`; or there is another number of them.
    """
    values = [value for found, value in read_fields(raw) if found == name]
    if len(values) != 1:
        raise malformed(f"the form has {len(values)} fields named {name}")
    return values[0].encode("utf-8", "surrogatepass")


def signed_fields(raw: bytes) -> bytes:
    """Give an urlencoded body as senders sign it: its fields, sorted, each name followed by its value.

    Raises:
        SignatureInvalid: it is no form in UTF-8, or has more than `FIELDS_MAX` fields.
    """
    fields = form_fields(raw)
    if fields is None:
        raise SignatureInvalid("the body is no form")
    # A set, since a value that comes twice is signed once.
    return "".join(name + value for name, value in sorted(set(fields))).encode("utf-8", "surrogatepass")


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
