"""What ``onceward send`` sends: packaged deliveries, renewed, edited, signed and perhaps spoiled."""

from __future__ import annotations

import difflib
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from random import Random
from typing import Any, Literal

import msgspec

from onceward.cli.tampering import tampered
from onceward.core.errors import BodyMalformed, ConfigError, SignatureInvalid
from onceward.core.messages import HttpRequest
from onceward.sources import source_class
from onceward.sources.base import Source
from onceward.sources.fixture import Body, Fixture, fixtures_of, renewed, with_value

Outcome = Literal["accepted", "refused", "failed"]
# Shorter texts are words and numbers, not what tells an event from others.
_ID_CHARS_MIN = 8


class Shot(msgspec.Struct, frozen=True):
    """One delivery to be sent.

    Attributes:
        request: whole, signed.
        event_ids: of the events in it, as far as its source can read it.
        expected: what a receiver that is set up for it does.
        is_again: the same was sent just before.
    """

    request: HttpRequest
    event_ids: list[str]
    expected: Outcome
    is_again: bool = False


def fixture(kind: str, event_type: str | None) -> Fixture:
    """Give a kind's packaged delivery of that type.

    Raises:
        ConfigError: the kind is unknown, or there is none; the types that there are are named.
    """
    known = fixtures_of(kind)
    if not known:
        source_class(kind)  # refuses a kind that there is not
        raise ConfigError(
            f"No delivery of kind {kind!r} is packaged.",
            means="There is nothing to send.",
            todo="Write a body and sign it: source.sign(body, now_ms) gives the headers.",
        )
    if event_type is not None and event_type in known:
        return known[event_type]
    close = difflib.get_close_matches(event_type or "", known, n=1)
    raise ConfigError(
        f"There is no packaged delivery {event_type!r} of kind {kind!r}."
        if event_type
        else "No type of event is named.",
        means="There is nothing to send.",
        todo=f"Did you mean {close[0]}?" if close else f"There are: {', '.join(known)}.",
    )


def shots(
    make: Callable[[], Source],
    event_type: str,
    chosen: Fixture,
    *,
    edits: Sequence[tuple[str, Any]],
    url: str,
    now_ms: int,
    late_ms: int,
    repeat: int,
    is_doubled: bool,
    is_tampered: bool,
    is_unsigned: bool,
    random: Random,
) -> list[Shot]:
    """Give what to send, in order.

    Args:
        make: gives the source anew.
        event_type: what the fixture is filed under.
        chosen: the fixture.
        edits: places in the body, or fields of a form, and values.
        url: the address that is signed, where the sender signs it.
        now_ms: Unix milliseconds.
        late_ms: how long ago it is signed.
        repeat: how many events.
        is_doubled: each twice.
        is_tampered: changed after it was signed.
        is_unsigned: without a signature, for a receiver that checks none.
        random: draws the ids.
    """
    made: list[Shot] = []
    body = Body.of(chosen.body)
    places = chosen.fresh or id_places(make(), body, chosen.headers)
    for _ in range(repeat):
        value = renewed(body.value, places, random)
        for path, part in edits:
            value = with_value(value, path, part)
        at_ms = now_ms - late_ms
        if is_unsigned:
            headers = {"Content-Type": body.content_type}
            request = HttpRequest.of(body.written(value), headers, url=url, received_at_ms=at_ms)
        else:
            event_id = str(uuid.UUID(int=random.getrandbits(128), version=4))
            request = make().signed_request(
                body.written(value), at_ms, event_id=event_id, event_type=event_type, url=url
            )
        request = _with_headers(request, chosen.headers)
        event_ids = _event_ids(make(), request)
        is_stale = not is_unsigned and _is_stale(make(), request, now_ms, late_ms)
        if is_tampered:
            request = tampered(make, request, at_ms)
        refuses = is_tampered or is_stale
        shot = Shot(request, event_ids, "refused" if refuses else "accepted")
        made.append(shot)
        if is_doubled:
            made.append(msgspec.structs.replace(shot, is_again=True))
    return made


def _with_headers(request: HttpRequest, headers: dict[str, str]) -> HttpRequest:
    present = {name for name, _ in request.headers}
    more = tuple(pair for pair in HttpRequest.of(b"", headers).headers if pair[0] not in present)
    return msgspec.structs.replace(request, headers=request.headers + more)


def id_places(source: Source, body: Body, headers: dict[str, str]) -> list[str]:
    """Give where the ids of a delivery's events stand, for a fixture that does not say it.

    Args:
        source: reads it.
        body: the fixture's.
        headers: likewise.
    """

    def read(candidate: Any) -> list[tuple[str, str]]:
        request = HttpRequest.of(body.written(candidate), {"Content-Type": body.content_type} | headers)
        try:
            return [(one.id, one.type) for one in source.normalize(request)]
        except BodyMalformed:
            return []  # it stands in a header, which is drawn with the signature

    events = read(body.value)
    leaves = list(_leaves("", body.value))
    given = [place for place, text in leaves if text in {event_id for event_id, _ in events}]
    if given or not events:
        return given
    # The id is derived: the first part that makes another one, and leaves the type as it is.
    for place, text in leaves:
        if len(text) >= _ID_CHARS_MIN and any(char.isdigit() for char in text):
            others = read(renewed(body.value, [place], Random(0)))  # noqa: S311 (only to see what changes)
            is_same_type = [event_type for _, event_type in others] == [
                event_type for _, event_type in events
            ]
            if is_same_type and others != events:
                return [place]
    return []


def _leaves(place: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _leaves(f"{place}/{name.replace('~', '~0').replace('/', '~1')}", inner)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _leaves(f"{place}/{index}", inner)
    elif place and isinstance(value, (str, int)):
        yield place, str(value)


def _event_ids(source: Source, request: HttpRequest) -> list[str]:
    try:
        return [incoming.id for incoming in source.normalize(request)]
    except BodyMalformed:
        return []  # edited away; what the receiver says to that is what is being tried


def _is_stale(source: Source, request: HttpRequest, now_ms: int, late_ms: int) -> bool:
    if late_ms == 0:
        return False
    if source.is_blocking:  # it would ask the sender for a key; its tolerance has to do
        return source.tolerance is not None and timedelta(milliseconds=late_ms) > source.tolerance
    try:
        source.verify(request, now_ms)
    except SignatureInvalid:
        return True
    return False
