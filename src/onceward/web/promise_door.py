"""Where promises are completed over HTTP: ``POST /promises/<token>`` and ``…/fail``.

A link in a mail is opened by scanners, previews and impatient fingers, all of them with GET. So a GET
changes nothing and looks nothing up: it shows one page, the same for every token, with a button that
sends the POST.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote

from onceward.authoring.promise import PATH as PROMISES
from onceward.core import errors, json_plain
from onceward.core.messages import HttpResponse
from onceward.web import replies
from onceward.web.faults import log_fault
from onceward.web.problems import problem

if TYPE_CHECKING:
    from onceward.app import App

FAIL = "/fail"
FIELDS_MAX = 100

_FORM = "application/x-www-form-urlencoded"

_SAFE = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-store",
    # The address is the key: it must not leave with a link or an image, nor be framed and clicked.
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "X-Robots-Tag": "noindex",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; "
    "frame-ancestors 'none'",
}


def _page(title: str, rest: str) -> bytes:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{title}</title><style>body{{font:1.1rem system-ui;margin:15vh auto;max-width:24rem;"
        "padding:0 1rem}button{font:inherit;padding:.6rem 1.4rem}</style></head>"
        f"<body><main><h1>{title}</h1>{rest}</main></body></html>"
    ).encode()


CONFIRM = HttpResponse.of(
    200,
    _page(
        "Please confirm",
        '<form method="post"><button name="confirmed" value="yes">Confirm</button></form>',
    ),
    _SAFE,
)
DONE = HttpResponse.of(
    200, _page("Thank you", "<p>It has been recorded. You can close this page.</p>"), _SAFE
)
UNREADABLE = problem(
    400, "body_malformed", "The body cannot be read", "Nothing was changed. Send JSON, a form, or nothing."
)


class PromiseDoor:
    """Completes the promises of one app.

    Args:
        app: whose.
    """

    def __init__(self, app: App) -> None:
        self._app = app

    async def answer(self, method: str, rest: str, headers: Mapping[str, str], body: bytes) -> HttpResponse:
        """Give the reply to one request.

        Args:
            method: GET and HEAD show the page, POST completes.
            rest: of the path, below ``/promises/``: the token, perhaps with ``/fail``.
            headers: of the request; its ``content-type`` counts.
            body: what to complete it with: JSON, the fields of a form, or nothing.
        """
        token = unquote(rest.removesuffix(FAIL))
        if method in ("GET", "HEAD") and not rest.endswith(FAIL):
            return CONFIRM
        if method != "POST":
            return replies.method_not_allowed("POST" if rest.endswith(FAIL) else "GET, HEAD, POST")
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        try:
            value = _form(body) if kind == _FORM else json_plain.decode_plain(body.decode()) if body else None
        except (ValueError, RecursionError, errors.OncewardError):
            return UNREADABLE
        try:
            if rest.endswith(FAIL):
                completed = await self._app.fail_promise(token, _reason(value))
            else:
                completed = await self._app.complete_promise(token, value)
        except errors.StoreUnavailable:
            return replies.UNAVAILABLE
        except errors.OncewardError as error:
            if error.http_status >= 500:
                log_fault("promises", error)
                return replies.FAILED
            return problem(error.http_status, error.code, error.title, str(error))
        if kind == _FORM:
            return DONE
        told = {
            "state": "failed" if rest.endswith(FAIL) else "completed",
            "duplicate": completed.is_duplicate,
        }
        return HttpResponse.of(
            200,
            json.dumps(told).encode(),
            {"Content-Type": "application/json", "Cache-Control": "no-store"},
        )


def _form(body: bytes) -> dict[str, str]:
    return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=FIELDS_MAX))


def _reason(value: Any) -> str:
    if isinstance(value, Mapping):
        value = value.get("reason")
    return value if isinstance(value, str) and value else "failed from outside"


__all__ = ["PROMISES", "PromiseDoor"]
