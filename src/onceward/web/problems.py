"""Error replies in the form of RFC 9457, ``application/problem+json``.

Replies are values made once: a refusal says the same to every sender, so that it teaches a
stranger nothing about which check failed. What happened goes to the operator's log instead.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from onceward.core.access_errors import TooMany
from onceward.core.errors import ConfigError, KeyTaken, OncewardError, PlanNeeded, StoreUnavailable
from onceward.core.messages import HttpResponse


def problem(
    status: int, code: str, title: str, detail: str, headers: Mapping[str, str] | None = None
) -> HttpResponse:
    """Give the reply for a fault.

    Args:
        status: the HTTP status, repeated in the body.
        code: the stable name of the fault; programs compare this one.
        title: the fault in a few words, the same for every occurrence.
        detail: what the reader can do about it.
        headers: further headers, e.g. ``Retry-After``.
    """
    body = {"type": f"urn:onceward:problem:{code}", "title": title, "status": status, "detail": detail}
    return HttpResponse.of(
        status,
        msgspec.json.encode(body | {"code": code}),
        {"Content-Type": "application/problem+json", "Cache-Control": "no-store", **(headers or {})},
    )


def problem_of(
    error: type[OncewardError], detail: str, headers: Mapping[str, str] | None = None
) -> HttpResponse:
    """Give the reply for a class of errors, with its status, code and title."""
    return problem(error.http_status, error.code, error.title, detail, headers)


STORE_RETRY_SECONDS = 5
_ASKED_WRONG = "What was asked cannot be done"


def problem_of_error(error: OncewardError) -> HttpResponse:
    """Give the reply for an error that was raised, with its three parts beside the whole.

    What is asked of us in a way that can never work is the asker's configuration: 400.
    """
    is_asked_wrong = isinstance(error, ConfigError)
    status = 400 if is_asked_wrong else error.http_status
    body = {
        "type": f"urn:onceward:problem:{error.code}",
        "title": _ASKED_WRONG if is_asked_wrong else error.title,
        "status": status,
        "detail": str(error) or error.title,
        "code": error.code,
        "what": error.what,
        "means": error.means,
        "todo": error.todo,
    }
    headers = {"Content-Type": "application/problem+json", "Cache-Control": "no-store"}
    if isinstance(error, KeyTaken):
        body |= {"key": error.key, "holder_run_id": error.holder_run_id}
    if isinstance(error, PlanNeeded):
        body["plan"] = error.plan
    if isinstance(error, StoreUnavailable):
        headers["Retry-After"] = str(STORE_RETRY_SECONDS)
    if isinstance(error, TooMany):
        headers["Retry-After"] = str(error.wait_s)
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return HttpResponse.of(status, msgspec.json.encode(body), headers)
