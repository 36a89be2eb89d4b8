"""What starts a run in a test: a signed delivery, an event of the app's own, a start.

Each is a value that can be sent again, as its sender would, to any life of the app.
"""

from __future__ import annotations

import difflib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from onceward.core.errors import ConfigError
from onceward.core.messages import HttpRequest
from onceward.sources.fixture import Body, Fixture, fixtures_of, renewed, with_value

if TYPE_CHECKING:
    from onceward.app import App
    from onceward.sources.base import Source
    from onceward.testing.kit.life import Life

URL = "https://app.example/hooks/"
"""Where deliveries are sent to, for senders that sign the address."""


@dataclass(frozen=True)
class Delivery:
    """A signed delivery to one of the app's sources; see `delivery`."""

    source: str
    type: str = ""
    set: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    number: int = 1  # tells events apart that have the same content

    def under_new_id(self) -> Delivery:
        """Give the same content as another event: what a sender tells twice under two ids."""
        return replace(self, number=self.number + 1)

    def request(self, app: App, now_ms: int) -> HttpRequest:
        """Give it as its sender sends it at that time.

        Raises:
            ConfigError: the app has no such source, or it has no fixture of that type.
        """
        source = _source(app, self.source)
        draws = Random(f"{self.source} {self.type} {self.number}")  # noqa: S311 - ids, not secrets
        chosen = _fixture(source, self.type) if self.body is None else Fixture(self.body)
        body = Body.of(chosen.body)
        value = renewed(body.value, chosen.fresh, draws) if self.number > 1 else body.value
        for path, part in self.set.items():
            value = with_value(value, path, part)
        event_id = str(uuid.UUID(int=draws.getrandbits(128), version=4))
        content, url = body.written(value), URL + self.source
        if source.insecure:
            headers = {"Content-Type": body.content_type}
            request = HttpRequest.of(content, headers, url=url, received_at_ms=now_ms)
        else:
            request = source.signed_request(content, now_ms, event_id=event_id, event_type=self.type, url=url)
        present = {name for name, _ in request.headers}
        more = tuple(pair for pair in HttpRequest.of(b"", chosen.headers).headers if pair[0] not in present)
        return msgspec.structs.replace(request, headers=request.headers + more)

    async def send(self, life: Life) -> None:
        """Deliver it through the real receiver; returns when it was accepted.

        Raises:
            ConfigError: it was refused.
        """
        status, text = await life.post(self.source, self.request(life.app, life.now_ms()))
        if not 200 <= status < 300:
            raise ConfigError(
                f"The delivery {self.type!r} to {self.source!r} was answered {status}: {text[:200]}",
                means="It started no run.",
                todo="Compare it with what the source verifies and reads.",
            )

    def __str__(self) -> str:
        """Give it as reports name it."""
        return f"{self.source} {self.type}".strip()


@dataclass(frozen=True)
class Emitted:
    """An event that the app emits itself; see `emitted`."""

    type: str
    payload: Any = None
    subject: str | None = None
    id: str = "event-1"
    number: int = 1

    def under_new_id(self) -> Emitted:
        """Give the same content as another event."""
        return replace(self, id=f"{self.id}-{self.number + 1}", number=self.number + 1)

    async def send(self, life: Life) -> None:
        """Emit it; the second time it is the same event."""
        await life.app.emit(self.type, self.payload, id=self.id, subject=self.subject)

    def __str__(self) -> str:
        """Give it as reports name it."""
        return f"event {self.type}"


@dataclass(frozen=True)
class Started:
    """A start of the workflow under test; see `started`."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    id: str = "start-1"
    number: int = 1

    def under_new_id(self) -> Started:
        """Give the same start once more, as another one."""
        return replace(self, id=f"{self.id}-{self.number + 1}", number=self.number + 1)

    async def send(self, life: Life) -> None:
        """Start the workflow; the second time it is the same run."""
        start: Any = life.app.start
        await start(life.workflow, *self.args, **self.kwargs, id=self.id)

    def __str__(self) -> str:
        """Give it as reports name it."""
        return "start"


Sent = Delivery | Emitted | Started


def delivery(
    source: str, type: str = "", *, set: Mapping[str, Any] | None = None, body: Any = None
) -> Delivery:
    """Give a delivery to one of the app's sources, signed with its first secret when it is sent.

    Args:
        source: the source's name in the app, e.g. ``"stripe"``.
        type: the event's type; its packaged delivery is sent, see ``onceward sources stripe``.
        set: places in the body and values: ``{"data.object.client_reference_id": "A-1"}``.
        body: a JSON value to send instead of the packaged one.
    """
    return Delivery(source, type, dict(set or {}), body)


def emitted(type: str, payload: Any = None, *, subject: str | None = None, id: str = "event-1") -> Emitted:
    """Give an event as `App.emit` stores it.

    Args:
        type: what happened, e.g. ``"order.paid"``.
        payload: JSON-native data.
        subject: what it is about.
        id: tells it apart from others of its type in the same test.
    """
    return Emitted(type, payload, subject, id)


def started(*args: Any, **kwargs: Any) -> Started:
    """Give a start of the workflow under test, as `App.start` makes it.

    Args:
        args: what its function takes after the context.
        kwargs: likewise, by name.
    """
    return Started(args, kwargs)


def _source(app: App, name: str) -> Source:
    source = app.sources.get(name)
    if source is None:
        raise ConfigError(
            f"The app has no source {name!r}.",
            means="There is nobody to deliver to.",
            todo=f"It has: {', '.join(app.sources) or 'none'}.",
        )
    return source


def _fixture(source: Source, event_type: str) -> Fixture:
    known = fixtures_of(source.kind)
    if event_type in known:
        return known[event_type]
    close = difflib.get_close_matches(event_type, known, n=1)
    raise ConfigError(
        f"There is no packaged delivery {event_type!r} for the source {source.name!r}.",
        means="There is nothing to send.",
        todo=(f"Did you mean {close[0]}? " if close else "")
        + f"There are: {', '.join(known) or 'none'}. Or pass the body: delivery({source.name!r}, …, body={{…}}).",
    )
