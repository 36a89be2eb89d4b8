"""The headers that every reply of the dashboard, the REST API and the login carries.

Stored text is inert by them: nothing of it runs, is framed, is guessed to be of another type, or
stays in a cache. Where a page sets one of them itself, that holds.
"""

from __future__ import annotations

from onceward.web.port import Message, Send

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)

HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    # Not "no-referrer": with that a browser sends "Origin: null" with our own forms.
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)


def hardened(send: Send) -> Send:
    """Give a *send* that adds the headers to the reply."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = [(bytes(name).lower(), bytes(value)) for name, value in message.get("headers", ())]
            there = {name for name, _ in own}
            message = {**message, "headers": [*own, *(one for one in HEADERS if one[0] not in there)]}
        await send(message)

    return sending
