"""The verbs of ``ctx.step`` that wait for something from outside, in an async workflow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, overload

from onceward.authoring.calls import wait_ms
from onceward.authoring.current import Session, noted
from onceward.authoring.event import Event
from onceward.authoring.expect import RAISES, Expect, parts_of
from onceward.authoring.promise import Promise
from onceward.core.duration import Duration
from onceward.core.paths import Expr
from onceward.core.triggers import Trigger

D = TypeVar("D")


class WaitVerbs:
    """Waiting for events and promises."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    @overload
    async def wait_for(
        self,
        name: str,
        on: str | Trigger,
        *,
        subject: str | None = ...,
        timeout: Duration | None = ...,  # noqa: ASYNC109
        where: Expr | None = ...,
        source: str | None = ...,
        item: object = ...,
    ) -> Event: ...
    @overload
    async def wait_for(
        self,
        name: str,
        on: str | Trigger,
        *,
        subject: str | None = ...,
        timeout: Duration | None = ...,  # noqa: ASYNC109
        where: Expr | None = ...,
        source: str | None = ...,
        item: object = ...,
        default: D,
    ) -> Event | D: ...
    @noted
    async def wait_for(
        self,
        name: str,
        on: str | Trigger,
        *,
        subject: str | None = None,
        timeout: Duration | None = None,  # noqa: ASYNC109
        where: Expr | None = None,
        source: str | None = None,
        item: object = "",
        default: Any = RAISES,
    ) -> Any:
        """Wait for an event and give it; costs a row.

        An event counts that came after the one that started this run, also if that was before the
        wait. Each event ends one wait of a run, the oldest that fits first.

        Args:
            name: what identifies the wait.
            on: the event's type: of one that the app emits, ``"warehouse.packed"``, or of a source's,
                ``stripe["charge.refunded"]``.
            subject: what it must be about; anything by default.
            timeout: how long to wait, from the first time; for ever by default.
            where: a condition on the event, ``event.payload["ok"] == True``.
            source: the source that must say so, by name, where *on* does not name it.
            item: which element of a loop this is.
            default: what to give when the time is over.

        Raises:
            WaitTimedOut: the time is over, and there is no *default*.
            ConfigError: such an event could never come, or there is no *timeout* and the app is strict.
        """
        parts = [(None, Expect(on, subject=subject, where=where, source=source))]
        found = await self._session.wait(
            name, str(item), parts, wait_ms(name, timeout), default is RAISES, None
        )
        return default if found is None else found[1]

    @overload
    async def wait_any(
        self,
        name: str,
        events: Mapping[str, Expect],
        *,
        timeout: Duration | None = ...,  # noqa: ASYNC109
        item: object = ...,
    ) -> tuple[str, Event]: ...
    @overload
    async def wait_any(
        self,
        name: str,
        events: Sequence[Expect],
        *,
        timeout: Duration | None = ...,  # noqa: ASYNC109
        item: object = ...,
    ) -> tuple[int, Event]: ...
    @overload
    async def wait_any(
        self,
        name: str,
        events: Mapping[str, Expect],
        *,
        timeout: Duration | None = ...,  # noqa: ASYNC109
        item: object = ...,
        default: D,
    ) -> tuple[str, Event] | D: ...
    @overload
    async def wait_any(
        self,
        name: str,
        events: Sequence[Expect],
        *,
        timeout: Duration | None = ...,  # noqa: ASYNC109
        item: object = ...,
        default: D,
    ) -> tuple[int, Event] | D: ...
    @noted
    async def wait_any(
        self,
        name: str,
        events: Mapping[str, Expect] | Sequence[Expect],
        *,
        timeout: Duration | None = None,  # noqa: ASYNC109
        item: object = "",
        default: Any = RAISES,
    ) -> Any:
        """Wait for the first of several events; give its label and the event.

        Args:
            name: what identifies the wait.
            events: what may come: by label, or a list whose places are the labels.
            timeout: as of `wait_for`.
            item: which element of a loop this is.
            default: what to give when the time is over.

        Raises:
            WaitTimedOut: the time is over, and there is no *default*.
            ConfigError: as `wait_for`.
        """
        parts, timeout_ms = parts_of(events), wait_ms(name, timeout)
        found = await self._session.wait(name, str(item), parts, timeout_ms, default is RAISES, None)
        return default if found is None else found

    @noted
    async def promise(
        self,
        name: str,
        *,
        timeout: Duration | None = None,  # noqa: ASYNC109
        item: object = "",
    ) -> Promise:
        """Make a promise: a token and an address by which it is completed once from outside.

        ``await p.result()`` waits for that.

        Args:
            name: what identifies it.
            timeout: how long it can be completed, from now; for ever by default.
            item: which element of a loop this is.

        Raises:
            ConfigError: the setting ``promise_secret`` is not there, or there is no *timeout* and the
                app is strict.
        """
        made = await self._session.promise(name, str(item), wait_ms(name, timeout), None)
        return Promise(self._session, name, str(item), *made)
