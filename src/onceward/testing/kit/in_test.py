"""A user's app in a test: the real worker and the real receiver, no server, and time that the test moves."""

from __future__ import annotations

import contextlib
from collections.abc import Coroutine, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self, TypeVar

from onceward.core.duration import Duration, to_ms
from onceward.core.errors import ConfigError
from onceward.core.model import RunRow
from onceward.handles import RunHandle
from onceward.testing.kit.homes import home_for
from onceward.testing.kit.life import Life, Place, borrowed
from onceward.testing.kit.outside import Outside
from onceward.testing.kit.patches import patched
from onceward.testing.kit.sends import Delivery, Sent

if TYPE_CHECKING:
    from onceward.app import App

T = TypeVar("T")


class AppInTest:
    """An app that lives in a test, from ``with`` on; see `onceward.testing`.

    Its own store is not touched, no socket is opened, and nothing that its steps send with httpx,
    httpx2, requests or aiohttp leaves the test. Every verb returns when nothing goes on without time.

    Args:
        app: the user's; not open.
        outside: what its steps reach.
        store: the URL of a PostgreSQL database, in which the test has a schema of its own; None for an
            SQLite file.
        seed: decides every draw.

    Attributes:
        outside: what its steps reach, and did there.

    Raises:
        ConfigError: the app is open, or the store is none for a test.
    """

    def __init__(
        self, app: App, *, outside: Outside | None = None, store: str | None = None, seed: int = 0
    ) -> None:
        if app.is_open:
            raise ConfigError(
                "The app is open already.",
                means="A test would take it from whoever uses it.",
                todo="Close it first, or give the test an app of its own.",
            )
        self.app = app
        self.outside = outside or Outside()
        self._store = store
        self._seed = seed
        self._stack = contextlib.ExitStack()
        self._place: Place | None = None
        self._life: Life | None = None

    def __enter__(self) -> Self:
        """Begin the app's life, on an empty store."""
        with contextlib.ExitStack() as stack:
            home = stack.enter_context(home_for(self._store, self.app.settings.namespace))
            stack.enter_context(borrowed(self.app))
            stack.enter_context(patched(self.outside))
            stack.callback(self.outside.close)
            self.outside.begin()
            stack.callback(self._end)
            self._place = Place(self.app, None, home, self.outside, seed=self._seed)
            self.outside.forget()
            self._begin(self._place)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        """End it; the app is as it was before."""
        self._stack.close()

    def _begin(self, place: Place) -> None:
        life = self._life = Life(place)
        self.outside.check_alive = life.check_alive
        life.run(life.open())
        life.run(life.quiet())

    def _end(self) -> None:
        life, self._life = self._life, None
        if life is not None:
            life.end()

    @property
    def life(self) -> Life:
        """Give the present life."""
        if self._life is None:
            raise ConfigError(
                "The app does not live yet, or no more.",
                means="There is nothing to act on.",
                todo="Use it in its block: `with AppInTest(app) as shop:`.",
            )
        return self._life

    # --- what happens to it -----------------------------------------------------------------------

    def deliver(
        self, source: str, type: str = "", *, set: Mapping[str, Any] | None = None, body: Any = None
    ) -> None:
        """Deliver an event, signed, through the real receiver.

        Args:
            source: as for `delivery`.
            type: likewise.
            set: likewise.
            body: likewise.

        Raises:
            ConfigError: it was refused.
        """
        self.send(Delivery(source, type, dict(set or {}), body))

    def send(self, *sent: Sent) -> None:
        """Send something, or several things at once; the same one twice is a redelivery."""
        life = self.life

        async def all_at_once() -> None:
            import asyncio

            await asyncio.gather(*(one.send(life) for one in sent))
            await life.quiet()

        life.run(all_at_once())

    def wait(self, verb: Coroutine[Any, Any, T]) -> T:
        """Give what a verb of the app answers; time goes on as long as it takes.

        Args:
            verb: e.g. ``app.start(fulfil, "A-1")`` or ``handle.result()``.
        """
        return self.life.run(verb)

    def advance(self, by: Duration) -> None:
        """Let time pass, and all that is due meanwhile happen.

        Args:
            by: how much, e.g. ``"3d"``.
        """
        life = self.life
        life.run(life.advance(to_ms(by, what="time to pass") / 1000))

    def settle(self) -> None:
        """Let time go on until every run has ended, is held, or waits for what has no time.

        Raises:
            Unending: some never do.
        """
        self.life.run(self.life.settle())

    def crash(self) -> None:
        """End its process as ``kill -9`` does, and start the next one on the same store."""
        life, place = self.life, self._place
        assert place is not None
        life.die()
        self._end()
        self._begin(place)

    # --- what is seen -----------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        """Give the time in the test, in UTC."""
        return datetime.fromtimestamp(self.life.now_ms() / 1000, UTC)

    def runs(self, workflow: str | None = None) -> list[RunRow]:
        """Give the runs, the oldest first.

        Args:
            workflow: only of this one, by name.
        """
        return [run for run in self.life.runs() if workflow in (None, run.workflow)]

    def run(self, workflow: str | None = None) -> RunHandle[Any]:
        """Give a handle on the one run that there is.

        Raises:
            AssertionError: there is none, or there are several.
        """
        found = self.runs(workflow)
        assert len(found) == 1, f"{len(found)} runs: {', '.join(run.workflow for run in found)}"
        return self.app.run(found[0].run_id)
