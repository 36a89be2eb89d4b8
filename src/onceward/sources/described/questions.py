"""A configured scheme's questions and answers: which request is one, and what is said to it."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from onceward.core.errors import BodyMalformed, ConfigError
from onceward.core.messages import HttpRequest, HttpResponse
from onceward.sources.base import identifier
from onceward.sources.described.keys import Keys
from onceward.sources.described.place import Place, is_header_name
from onceward.sources.described.scheme import Handshake
from onceward.sources.described.template import Template

# Long enough for every sender's challenge, and short enough to be of no use to anyone else.
_ECHO_CHARS_MAX = 4096
_HMAC = "hmac:"


class Match:
    """Whether a request has certain texts in certain places."""

    def __init__(self, match: Mapping[str, str | None]) -> None:
        self._places = [
            (Place(place), None if text is None else text.encode("utf-8")) for place, text in match.items()
        ]

    def fits(self, request: HttpRequest, body: Callable[[], Any]) -> bool:
        """Say whether all places have their texts.

        Args:
            request: as it came.
            body: gives the value of its body, or None; only called where a place is in it.
        """
        return all(self._has(place, text, request, body) for place, text in self._places)

    @staticmethod
    def _has(place: Place, text: bytes | None, request: HttpRequest, body: Callable[[], Any]) -> bool:
        try:
            found = _found(place, request, body)
        except BodyMalformed:
            return False
        if text is None:
            return found is not None
        # A verify token is a secret: compared in constant time like any.
        return isinstance(found, str) and hmac.compare_digest(found.encode("utf-8", "surrogatepass"), text)


class Question:
    """One handshake rule.

    Raises:
        ConfigError: its answer needs what the source does not have.
    """

    def __init__(self, rule: Handshake, keys: Keys | None, *, source: str) -> None:
        self.method = rule.method
        self.is_verified = rule.phase == "verified"
        self._rule = rule
        self._keys = keys
        self._match = Match(rule.match)
        self._reply = Template(rule.reply)
        self._headers = {name: Template(text) for name, text in rule.headers.items()}
        self._places: dict[str, Place] = {}
        fault = ""
        for marker in self._reply.markers.union(*(one.markers for one in self._headers.values())):
            if marker.startswith(_HMAC) and (keys is None or not keys.is_symmetric):
                fault = f"answers with {{{marker}}} and has no secret to sign it with"
            self._places[marker] = Place(marker.removeprefix(_HMAC))
        if rule.method == "POST" and not rule.match:
            fault = "takes every POST for a question"
        elif not all(map(is_header_name, rule.headers)):
            fault = "answers with a header that cannot be"
        elif not 200 <= rule.status <= 299:
            fault = f"answers with status {rule.status}"
        elif any(marker.startswith(_HMAC) for marker in self._places) and not self.is_verified:
            # Whoever may choose what is signed has a signature for every delivery.
            fault = "signs what anyone sends it; its phase has to be verified"
        if fault:
            raise ConfigError(
                f"A handshake of source {source!r} {fault}.",
                means="Deliveries would be lost, or forged.",
                todo="Compare the configuration with the sender's documentation.",
            )

    def fits(self, request: HttpRequest, body: Callable[[], Any]) -> bool:
        """Say whether the request is this question; see `Match.fits`."""
        return self._match.fits(request, body)

    def answer(self, request: HttpRequest, body: Callable[[], Any]) -> HttpResponse | None:
        """Give the answer, or None when what it has to hold is not there."""
        is_json = self._rule.content_type.startswith("application/json")

        def value(marker: str) -> bytes:
            text = _echo(_found(self._places[marker], request, body))
            raw = text.encode("utf-8", "surrogatepass")
            if marker.startswith(_HMAC):
                assert self._keys is not None
                return self._keys.answer(raw, self._rule.encoding)
            return msgspec.json.encode(text)[1:-1] if is_json else raw

        try:
            reply = self._reply.fill(value)
            headers = {name: one.fill(value).decode("latin-1") for name, one in self._headers.items()}
        except BodyMalformed:
            return None
        if reply:
            # What is sent back is never a page to a browser that was led here.
            headers |= {"Content-Type": self._rule.content_type, "X-Content-Type-Options": "nosniff"}
        return HttpResponse.of(self._rule.status, reply, headers)


def _found(place: Place, request: HttpRequest, body: Callable[[], Any]) -> object:
    value = body() if place.needs_body(request) else None
    return place.find(request, value, value)


def _echo(found: object) -> str:
    if isinstance(found, str) and 0 < len(found) <= _ECHO_CHARS_MAX and found.isprintable():
        return found
    return identifier(found, "the challenge")
