"""The world outside an app, as a test sees it: what happened there, by which step, how often.

Three ways to see it: requests that go out are answered and counted (`Outside.http`), tables are
compared (`Outside.table`), and a fake of the test's own says what it does (`Outside.happened`).
A process that is dead does nothing outside: each way refuses it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from onceward.authoring.current import frame_var, session_var
from onceward.core.shown import shown
from onceward.testing.kit.http import HttpWorld
from onceward.testing.kit.tables import Connect, Table

Kind = Literal["noted", "http", "rows"]

NOBODY = "(no run)"
"""In place of a step: code that belongs to no run."""

THREAD = "(a thread)"
"""In place of a step: a thread that one of several bodies started itself, and that knows none of them."""

BETWEEN = "(between steps)"
"""In place of a step: a workflow's code outside any step."""


@dataclass(frozen=True)
class Effect:
    """One thing that happened outside.

    Attributes:
        kind: how it was seen.
        name: what it was, the same each time: ``charge``, ``POST https://…/charges``, ``rows of orders``.
        step: whose body did it, ``(between steps)`` or ``(no run)``.
        key: what it is known by outside; the same key again is the same effect. None where nothing is.
        detail: what exactly it was, for people.
        is_replacing: it puts something in a place of its own, so that the place is the key; of rows: none
            was added.
        knows_keys: whether the other side could have taken a key.
        clash: the same key came with other content, which the other side refused.
        of_business: the workflow whose step did it, where that has ``key_scope="business"``; else empty.
    """

    kind: Kind
    name: str
    step: str
    key: str | None = None
    detail: str = ""
    is_replacing: bool = False
    knows_keys: bool = True
    clash: bool = False
    of_business: str = ""


class Outside:
    """What the app's steps reach, in one test; see `onceward.testing.crash_matrix`.

    Attributes:
        effects: what happened since `forget`, in order; the same key again is left out.
        http: the services that the app sends requests to.
    """

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self.http = HttpWorld(self)
        self.on_effect: Callable[[Effect], None] = lambda _effect: None
        self.check_alive: Callable[[], None] = lambda: None
        self.whose: Callable[[], str] = lambda: NOBODY  # of code that belongs to no run, by its context
        self.tables: list[Table] = []
        self._seen: set[tuple[str, str]] = set()
        self._lock = threading.RLock()

    # --- for tests ------------------------------------------------------------------------------

    def happened(self, name: str, *, key: object = None, **detail: Any) -> bool:
        """Note that something happens outside now, as a fake of a service does.

        Args:
            name: what, the same each time, e.g. ``"charge"``.
            key: what the service knows it by: the idempotency key, or an id that the caller chose.
                The same key again is no second effect. None for a service that knows nothing.
            detail: what exactly, for the report.

        Returns:
            Whether it is new; False where the key was there already.
        """
        text = ", ".join(f"{word}={shown(value)}" for word, value in detail.items())
        return self.note(Effect("noted", name, self.here(), None if key is None else str(key), text))

    def table(self, connect: Connect, name: str, *, empty: bool = False) -> None:
        """Watch a table: a row that is new or changed is an effect.

        Args:
            connect: gives a DB-API connection, which is closed again: a function, e.g.
                ``lambda: sqlite3.connect("shop.db")`` or ``lambda: psycopg.connect(dsn)``.
            name: the table's name, as SQL writes it.
            empty: delete all its rows before each variant, those of the table that was named last first.
        """
        self.tables.append(Table(connect, name, empties=empty))

    def count(self, name: str) -> int:
        """Give how often something happened: all effects of a name, the same key once."""
        return sum(effect.name == name for effect in self.effects)

    # --- for the kit ----------------------------------------------------------------------------

    def here(self) -> str:
        """Give the step whose body runs this, also in a thread that the body started."""
        step = here()
        return self.whose() if step == NOBODY else step

    def note(self, effect: Effect) -> bool:
        """Keep an effect, if it is new; then the process may die of it."""
        self.check_alive()
        frame = frame_var.get()
        if frame is not None and frame.key_scope == "business":
            effect = replace(effect, of_business=frame.session.workflow_name)
        with self._lock:
            is_new = effect.key is None or (effect.name, effect.key) not in self._seen or effect.clash
            if is_new:
                self.effects.append(effect)
            if effect.key is not None:
                self._seen.add((effect.name, effect.key))
        self.on_effect(effect)
        return is_new

    def forget(self) -> None:
        """Begin anew: nothing has happened yet; what answers requests and which tables stays."""
        with self._lock:
            self.effects.clear()
            self._seen.clear()
            self.http.forget()
        for table in reversed(self.tables):
            table.empty()
        for table in self.tables:
            table.begin()

    def begin(self) -> None:
        """Forget also what tables were like, and what was ever reached."""
        self.http.begin()
        for table in self.tables:
            table.forget()

    def unseen(self) -> list[str]:
        """Give what the test names and nothing came to since `begin`: services, and tables without a row."""
        idle = [f"rows of {table.name}" for table in self.tables if not table.has_moved]
        return self.http.unseen() + list(dict.fromkeys(idle))

    def close(self) -> None:
        """Close the connections to tables."""
        for table in self.tables:
            table.close()

    def look_at_tables(self, step: str) -> None:
        """Note the rows that are new since the last look as effects of *step*."""
        for table in self.tables:
            rows, is_change = table.look()
            with self._lock:
                for row in rows:
                    name = f"rows of {table.name}"
                    self.effects.append(Effect("rows", name, step, None, row, is_replacing=is_change))


def here() -> str:
    """Give the step whose body runs this."""
    frame = frame_var.get()
    if frame is not None:
        return str(frame.key)
    return NOBODY if session_var.get() is None else BETWEEN
