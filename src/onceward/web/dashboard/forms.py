"""What a browser posts: read with a bound, from our own pages only, by somebody who may.

A form carries the token of its session. Where nobody logs in there is none, and then, too, a page
of somebody else must not be able to post: browsers say where a request comes from.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

import msgspec

from onceward.core.access_errors import Forbidden
from onceward.core.errors import ConfigError
from onceward.web.access import Principal, Role
from onceward.web.dashboard.render import Who, may

if TYPE_CHECKING:
    from starlette.requests import Request

FORM_BYTES_MAX = 2_000_000
FIELDS_MAX = 1_000
REQUEST_ID_CHARS_MAX = 200
NOBODY = "dashboard"
"""The actor in the audit where nobody logs in."""


class Form:
    """The fields of a form, in order; a name may come more than once."""

    def __init__(self, fields: list[tuple[str, str]]) -> None:
        self._fields = fields

    def get(self, name: str) -> str:
        """Give the first value of a field, stripped; empty where it was not filled in."""
        return next((value.strip() for value in self.all(name)), "")

    def all(self, name: str) -> Iterator[str]:
        """Give every value of a field."""
        return (value for known, value in self._fields if known == name)

    def without(self, *names: str) -> dict[str, str]:
        """Give the other fields, the first value of each."""
        return {name: value for name, value in reversed(self._fields) if name not in names}


async def posted(request: Request, who: Who) -> tuple[Form, str]:
    """Give a posted form and the name of who posted it, for the audit.

    Raises:
        Forbidden: it comes from another site, without the session's token, or from a viewer.
        ConfigError: it is too large.
    """
    principal = who(request)
    if not may(principal, Role.OPERATOR):
        raise Forbidden(
            f"{principal.name if principal else 'Nobody'} is a {principal.role if principal else ''}.",
            means="A viewer sees everything and changes nothing; nothing was done.",
            todo="Ask an operator, or an admin to make you one.",
        )
    if principal is None:
        _same_site(request)
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > FORM_BYTES_MAX:
            raise ConfigError(
                f"The form is over {FORM_BYTES_MAX:,} bytes.", todo="Use the REST API for a large payload."
            )
    try:
        form = Form(
            parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=FIELDS_MAX, errors="strict")
        )
    except ValueError as error:
        raise ConfigError("The form cannot be read.", todo="Send it from the page.") from error
    _token(form, principal)
    return form, actor_of(principal)


def request_id_of(form: Form) -> str:
    """Give the id by which a form is done once.

    Raises:
        ConfigError: it has none.
    """
    request_id = form.get("request_id")
    if not request_id or len(request_id) > REQUEST_ID_CHARS_MAX:
        raise ConfigError("The form has no request id.", todo="Send it from the page of the action.")
    return request_id


def json_of(text: str, name: str) -> Any:
    """Give the JSON value that somebody typed; unset where he typed nothing.

    Raises:
        ConfigError: it is not JSON.
    """
    if not text:
        return msgspec.UNSET
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"The {name} is not JSON: {error}.", means="Nothing was done.", todo="Go back and correct it."
        ) from error


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


def actor_of(principal: Principal | None) -> str:
    """Give the name that stands in the audit."""
    return principal.name if principal else NOBODY


def _same_site(request: Request) -> None:
    fetched = request.headers.get("sec-fetch-site", "same-origin")
    origin = request.headers.get("origin")
    is_ours = origin is None or urlsplit(origin).netloc == request.headers.get("host")
    if fetched not in ("same-origin", "none") or not is_ours:
        raise Forbidden(
            "The form comes from another site.",
            means="Somebody may have tried to act in your name; nothing was done.",
            todo="Open the dashboard itself and try again. Behind a proxy, let it pass the Host header on.",
        )


def _token(form: Form, principal: Principal | None) -> None:
    if principal is None or not principal.csrf:
        return
    if not hmac.compare_digest(form.get("csrf").encode(), principal.csrf.encode()):
        raise Forbidden(
            "The form does not carry your session's token.",
            means="It is older than your session, or not ours; nothing was done.",
            todo="Go back, reload the page and send it again.",
        )
