"""The same thing from a shell: each action as a request of the REST API, each delivery as it came."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from onceward.console.views import DeliveryView, VerbView

BODY_CHARS_MAX = 20_000
_SET_BY_CURL = {"host", "content-length", "connection", "accept-encoding", "transfer-encoding"}


def verbs(api: str | None, run_id: str, allowed: Sequence[VerbView]) -> dict[str, str]:
    """Give a command for each verb that a run allows; none without a REST API."""
    if api is None:
        return {}
    return {view.verb: verb(run_id, view.verb) for view in allowed if view.is_allowed}


def verb(run_id: str, name: str, more: Mapping[str, Any] | None = None) -> str:
    """Give the command that does one thing to one run, with *more* in its body; an answer has to be chosen."""
    body: dict[str, Any] = {"answer": "retry"} if name == "answer" else dict(more or {})
    return "\n".join(
        [
            f'curl --fail-with-body -X POST "$ONCEWARD_URL"/api/v1/runs/{shlex.quote(run_id)}/{shlex.quote(name)} \\',
            '  -H "Authorization: Bearer $ONCEWARD_TOKEN" \\',
            '  -H "Idempotency-Key: $(uuidgen)" \\',
            f"  --json {shlex.quote(json.dumps(body))}",
        ]
    )


def emit(given: Mapping[str, str]) -> str:
    """Give the command that makes an event, with an empty payload."""
    body = {**given, "payload": {}}
    return "\n".join(
        [
            'curl --fail-with-body -X POST "$ONCEWARD_URL"/api/v1/events \\',
            '  -H "Authorization: Bearer $ONCEWARD_TOKEN" \\',
            '  -H "Idempotency-Key: $(uuidgen)" \\',
            f"  --json {shlex.quote(json.dumps(body))}",
        ]
    )


def delivery(view: DeliveryView, address: str) -> str | None:
    """Give the command that sends a delivery again as it came; None where its body is not text.

    Its signature is as old as it is: a source that signs the time refuses it by then, and redelivering
    on the page does not ask again.

    Args:
        view: the delivery.
        address: where this app is reached, for one whose own address is not stored.
    """
    if view.body is None or len(view.body) > BODY_CHARS_MAX or "\0" in view.body:
        return None
    lines = [f"curl --fail-with-body -X {_quoted(view.method or 'POST')} {_quoted(_address(view, address))}"]
    lines += [
        f"  -H {_quoted(f'{name}: {value}')}"
        for name, value in view.headers.items()
        if name.lower() not in _SET_BY_CURL
    ]
    lines.append(f"  --data-raw {_quoted(view.body)}")
    return " \\\n".join(lines)


def _address(view: DeliveryView, address: str) -> str:
    url = view.url or f"/hooks/{view.source}"
    return f"{address}{url}" if url.startswith("/") else url


def _quoted(text: str) -> str:
    """Give a stranger's text as one word of bash or zsh, in which nothing is a key for who pastes it.

    Inside quotes a shell takes every character as it is; but a line editor that is pasted to takes Ctrl-C for
    Ctrl-C, so that what follows begins a line of its own.
    """
    if all(char.isprintable() or char == "\n" for char in text):
        return shlex.quote(text)
    return f"$'{''.join(map(_escaped, text))}'"


def _escaped(char: str) -> str:
    if char in "\\'":
        return f"\\{char}"
    if char.isprintable() and char != "!":  # which an interactive shell may take for its history
        return char
    return "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogatepass"))
