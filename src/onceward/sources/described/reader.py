"""A configured scheme's events: what a delivery holds, read from the places that the scheme names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from onceward.core.arrival import Incoming
from onceward.core.errors import BodyMalformed, ConfigError
from onceward.core.messages import HttpRequest
from onceward.sources.base import derived_id, identifier, subject_or_none
from onceward.sources.described.place import Place
from onceward.sources.described.questions import Match
from onceward.sources.described.scheme import DERIVED, ID_WORDS, RECEIVED, Names, Scheme, names
from onceward.sources.parts.body import Body, read_body
from onceward.sources.parts.fields import integer_or_none, iso_or_none, millis_or_none, seconds_ms
from onceward.sources.parts.forms import content_type, is_urlencoded
from onceward.sources.parts.shape import malformed


class Reader:
    """Reads the events of one source's deliveries.

    Args:
        scheme: where everything stands.
        covers: whether what stands at a place is under the signature.
        source: the source's name, for messages.

    Raises:
        ConfigError: the scheme contradicts itself.
    """

    def __init__(self, scheme: Scheme, covers: Callable[[Place], bool], *, source: str) -> None:
        self._scheme = scheme
        self._id = _places(() if scheme.id in ID_WORDS else scheme.id)
        self._ignored = [Place(pointer) for pointer in scheme.id_ignore]
        self._type = _places(scheme.type)
        self._rules = [(Match(rule.match), _places(rule.type)) for rule in scheme.type_rules]
        self._subject = _places(scheme.subject)
        self._occurred_at = _places(scheme.occurred_at)
        self._version = _places(scheme.version)
        self._items = _places(scheme.items)
        self._types = frozenset(one.strip().lower() for one in scheme.accept_content_types)
        fault = ""
        if scheme.id not in ID_WORDS and all(place.kind == "const" for place in self._id):
            fault = f"takes its ids from {scheme.id!r}, which is the same for all events"
        elif any(not place.path for place in self._ignored):
            fault = "leaves out of its ids what is no JSON pointer into the event"
        elif self._ignored and not _uses_whole(scheme, self._id):
            fault = "has id_ignore= and no id made of the whole event"
        elif scheme.id_else and len(self._id) != 1:
            fault = "has id_else= and no sole place of the id"
        elif not self._type or any(not places for _, places in self._rules):
            fault = "has no place of the type"
        elif not all(place.is_in_body for place in self._items):
            fault = f"takes its items from {scheme.items!r}, which is not in the body"
        if fault:
            raise ConfigError(
                f"Source {source!r} {fault}.",
                means="Its events could not be told apart, or not be read.",
                todo="Compare the configuration with the sender's documentation.",
            )
        self._is_body_signed = covers(Place("body:"))
        self._is_id_signed = all(map(covers, self._id)) if self._id else self._is_body_signed

    def read(self, request: HttpRequest) -> list[Incoming]:
        """Give the events of a delivery.

        Raises:
            BodyMalformed: it cannot be read, or has not what the scheme says.
        """
        if self._types:
            found = content_type(request)
            if found not in self._types:
                raise malformed(f"the delivery's Content-Type is {found[:80]!a}")
        body = read_body(request, self._scheme.payload_field)
        if not self._items:
            return [self._one(request, body, body.value, is_whole=body.is_raw)]
        for place in self._items:
            events = place.find(request, body.value, body.value)
            if events is not None:
                items = events if isinstance(events, list) else [events]
                return [self._one(request, body, item, is_whole=False) for item in items]
        raise malformed(f"there are no events at {', '.join(place.text for place in self._items)}")

    def _one(self, request: HttpRequest, body: Body, item: Any, *, is_whole: bool) -> Incoming:
        def first(places: Sequence[Place], read: Callable[[object], Any]) -> Any:
            for place in places:
                value = read(_find_quietly(place, request, body.value, item))
                if value is not None:
                    return value
            return None

        event_id = self._given_id(request, body.value, item)
        return Incoming(
            id=self._derived_id(request, body.value, item) if event_id is None else event_id,
            type=self._event_type(request, body.value, item),
            payload=item,
            payload_is_body=is_whole,
            subject=first(self._subject, subject_or_none),
            occurred_at_ms=first(self._occurred_at, self._time_or_none),
            version=first(self._version, _version_or_none),
            id_is_signed=self._is_id_signed
            if event_id is not None or len(self._id) > 1
            else self._is_body_signed,
            id_is_derived=event_id is None,
        )

    def _given_id(self, request: HttpRequest, body: Any, item: Any) -> str | None:
        """Give the id that the sender gives; None where it is to be derived."""
        if len(self._id) != 1 or self._id[0].path == ():
            return None
        place = self._id[0]
        found = place.find(request, body, item)
        if self._scheme.id_else and found in (None, ""):
            return None
        read_as = (
            ", read as the form that its Content-Type says,"
            if found is None and is_urlencoded(request)
            else ""
        )
        return identifier(found, f"the id at {place.text}{read_as}")

    def _derived_id(self, request: HttpRequest, body: Any, item: Any) -> str:
        if self._scheme.id == RECEIVED:
            return _hashed(item, request.received_at_ms)
        if len(self._id) <= 1:
            return _hashed(self._lasting(item))
        parts = [
            self._lasting(item) if place.path == () else place.find(request, body, item) for place in self._id
        ]
        if all(part is None for part, place in zip(parts, self._id, strict=True) if place.kind != "const"):
            raise malformed("nothing of which the id is made is in the delivery")
        return _hashed(*parts)

    def _event_type(self, request: HttpRequest, body: Any, item: Any) -> str:
        places = next(
            (places for match, places in self._rules if match.fits(request, lambda: body)), self._type
        )
        found = [place.find(request, body, item) for place in places]
        if len(found) == 1:
            return identifier(found[0], f"the type at {places[0].text}")
        where = f"the type at {', '.join(place.text for place in places)}"
        parts = [identifier(part, where) for part in found if part is not None]
        return identifier(".".join(parts) or None, where)

    def _lasting(self, item: Any) -> Any:
        """Give the event without what changes between its attempts."""
        for place in self._ignored:
            assert place.path is not None
            item = _without(item, place.path)
        return item

    def _time_or_none(self, value: object) -> int | None:
        found = seconds_ms(value) if self._scheme.occurred_at_unit == "s" else millis_or_none(value)
        # Senders that leave the offset out mean UTC, or nobody could read them.
        return found if found is not None else iso_or_none(value, naive_is_utc=True)


def _uses_whole(scheme: Scheme, places: Sequence[Place]) -> bool:
    """Say whether ids are made of the whole event, sometimes at least."""
    return DERIVED in (scheme.id, scheme.id_else) or any(place.path == () for place in places)


def _places(given: Names) -> tuple[Place, ...]:
    return tuple(map(Place, names(given)))


def _find_quietly(place: Place, request: HttpRequest, body: Any, item: Any) -> object:
    try:
        return place.find(request, body, item)
    except BodyMalformed:
        return None  # optional facts never cost the event


def _version_or_none(value: object) -> int | None:
    found = integer_or_none(value)
    return found if found is not None else iso_or_none(value, naive_is_utc=True)


def _without(value: Any, path: tuple[str, ...]) -> Any:
    """Give the value without the member at *path*; the value itself is not changed."""
    if not isinstance(value, dict) or path[0] not in value:
        return value
    if len(path) == 1:
        return {name: member for name, member in value.items() if name != path[0]}
    return {**value, path[0]: _without(value[path[0]], path[1:])}


def _hashed(*parts: object) -> str:
    try:
        return derived_id(*parts)
    except (RecursionError, OverflowError, ValueError) as error:
        raise malformed("the delivery nests too deeply, or holds what is no JSON") from error
