"""Form bodies (application/x-www-form-urlencoded), read strictly and without losing blank fields."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl

from onceward.core.messages import HttpRequest

CONTENT_TYPE = "application/x-www-form-urlencoded"
FIELDS_MAX = 1000


def is_form(request: HttpRequest) -> bool:
    """Say whether the request has one content type, that of a form."""
    values = request.header_values("content-type")
    return len(values) == 1 and values[0].partition(b";")[0].strip().lower() == CONTENT_TYPE.encode()


def form_fields(raw: bytes | str) -> list[tuple[str, str]] | None:
    """Give the names and values in order, blank ones too; None for what is no form in UTF-8.

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
