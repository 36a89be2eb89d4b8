"""Saved answers of one run: which step is which, and in what order outcomes are handed out.

Identity is the step's name, its item and how often that name was used, never its position, so
that steps may run in parallel and a deploy may insert one. Saved outcomes are handed out in the
order in which they were saved, the next one when the code is quiet, so that ``asyncio.wait``,
``as_completed`` and races decide as they did the first time (RULINGS 16, 17).
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable
from typing import Any

import msgspec

from onceward.core import errors
from onceward.core.model import StepKey, StepRow
from onceward.core.states import StepState

QUIET_ROUNDS = 8
"""Rounds of the event loop without a verb after which the code counts as quiet. A finished task
inside a gather inside a task group is heard of by its parent's parent within six."""


class _Use:
    """Who used a name last, and how often it was used."""

    __slots__ = ("count", "ended_before", "user", "watched")

    def __init__(self, user: object) -> None:
        self.count = 1
        self.user = user
        self.watched: object = None
        self.ended_before: int | None = None  # the number that a task made after the user's end exceeds


class Recall:
    """The saved records of a run while its code runs.

    Args:
        history: the records in saved order.
        loop: the run's event loop.
        quiet: called when the code is quiet and nothing saved is left to hand out.
    """

    def __init__(
        self, history: list[StepRow], loop: asyncio.AbstractEventLoop, quiet: Callable[[], None]
    ) -> None:
        self._records = {row.key: row for row in history}
        self._left = [
            row.seq for row in reversed(history) if row.state is not StepState.OPEN
        ]  # next one last
        self._handed: set[int] = set()
        self.root: asyncio.Task[Any] | None = None  # the workflow's own task, which outlives every use
        self._loop = loop
        self._on_quiet = quiet
        self._uses: dict[tuple[str, str], _Use] = {}
        self._callers: dict[Any, None] = {}
        self._asked: set[StepKey] = set()
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._activity = 0
        self._rounds = 0
        self._is_ticking = False
        self._is_closed = False

    def is_needed(self, is_cancelling: bool) -> bool:
        """Say whether a record may answer at all: a fresh run has none."""
        return bool(self._records) or is_cancelling

    def record(self, key: StepKey) -> StepRow | None:
        """Give what is saved of a step."""
        return self._records.get(key)

    def callers(self) -> list[asyncio.Task[Any]]:
        """Give the tasks that called verbs of this run."""
        return [caller for caller in self._callers if isinstance(caller, asyncio.Task)]

    def unreached_text(self) -> str | None:
        """Give a warning if saved steps were not asked for by the code that completed the run."""
        missed = [str(key) for key in self._records if key not in self._asked]
        if not missed:
            return None
        return msgspec.json.encode({"steps_no_longer_reached": missed[:100]}).decode()

    # --- identity ------------------------------------------------------------------------------

    def key(self, name: str, item: str, caller: object) -> StepKey:
        """Give the key of the step that the code asks for now.

        Raises:
            StepNameRepeated: another branch uses the name, so that timing would decide who is who.
        """
        self._activity += 1
        user = caller or asyncio.current_task()
        if user not in self._callers:
            if len(self._callers) > 1:
                self._forget_ended()
            self._callers[user] = None
        use = self._uses.get((name, item))
        if use is None:
            use = self._uses[name, item] = _Use(user)
        else:
            if use.user is not user and not _comes_after(use, user):
                raise _repeated(name, item)
            use.count += 1
            use.user, use.ended_before = user, None
        if isinstance(user, asyncio.Task) and user is not self.root and use.watched is not user:
            use.watched = user
            user.add_done_callback(functools.partial(self._user_ended, use))
        key = StepKey(name, item, use.count)
        if self._records:
            self._asked.add(key)
        return key

    def _user_ended(self, use: _Use, user: asyncio.Task[Any]) -> None:
        if use.user is user and not self._is_closed:
            # Tasks are numbered as they are made: one made now is younger than every task that
            # could have been made before the user ended.
            probe = self._loop.create_task(_nothing())
            use.ended_before = _task_number(probe)

    def _forget_ended(self) -> None:
        for caller in [caller for caller in self._callers if _has_ended(caller)]:
            del self._callers[caller]

    # --- saved order -----------------------------------------------------------------------------

    async def hand_out(self, record: StepRow) -> None:
        """Return when it is this outcome's turn."""
        if self._take_if_next(record.seq):
            return
        future = self._waiting[record.seq] = self._loop.create_future()
        self.look_when_quiet()
        try:
            await future
        finally:
            self._waiting.pop(record.seq, None)

    def _take_if_next(self, seq: int) -> bool:
        """Hand out at once where only one branch exists and the outcome is the next."""
        if len(self._callers) > 1:
            self._forget_ended()
        if len(self._callers) > 1 or self._waiting:
            return False
        self._drop_handed()
        if not self._left or self._left[-1] != seq:
            return False
        self._left.pop()
        return True

    def _drop_handed(self) -> None:
        while self._left and self._left[-1] in self._handed:
            self._handed.discard(self._left.pop())

    def look_when_quiet(self) -> None:
        """Hand the next outcome out, or report quiet, once the code has nothing more to do now."""
        self._activity += 1
        if not self._is_ticking and not self._is_closed:
            self._is_ticking = True
            self._rounds = QUIET_ROUNDS
            self._loop.call_soon(self._tick, self._activity)

    def _tick(self, seen: int) -> None:
        if self._is_closed:
            self._is_ticking = False
            return
        if seen != self._activity:
            self._rounds = QUIET_ROUNDS
        elif self._rounds > 0:
            self._rounds -= 1
        else:
            waiting = [seq for seq, future in self._waiting.items() if not future.done()]
            if not waiting:
                self._is_ticking = False
                self._on_quiet()
                return
            seq = min(waiting)
            self._waiting[seq].set_result(None)
            self._handed.add(seq)
            self._drop_handed()
            self._activity += 1
            self._rounds = QUIET_ROUNDS
        self._loop.call_soon(self._tick, self._activity)

    def close(self) -> None:
        """Stop handing out; the run is gone from memory."""
        self._is_closed = True
        for future in self._waiting.values():
            future.cancel()


def _repeated(name: str, item: str) -> errors.StepNameRepeated:
    shown = f"{name!r} with item {item!r}" if item else repr(name)
    return errors.StepNameRepeated(
        f"The step name {shown} is used in two parallel branches.",
        means="After a crash the branches may come in another order and would swap their saved results.",
        todo="Give each branch its own name, or pass item= with what tells them apart, e.g. item=order.id.",
    )


def _comes_after(use: _Use, user: object) -> bool:
    """Say whether *user* was made after the name's last user had ended."""
    if not _has_ended(use.user):
        return False
    number = _task_number(user)
    if use.ended_before is None or number is None:
        return True
    return number > use.ended_before


def _has_ended(user: object) -> bool:
    if isinstance(user, asyncio.Task):
        return user.done()
    return isinstance(user, threading.Thread) and not user.is_alive()


def _task_number(task: object) -> int | None:
    """Give the number that asyncio gave a task when it was made; None if it was named by hand."""
    if not isinstance(task, asyncio.Task):
        return None
    _, _, number = task.get_name().partition("Task-")
    return int(number) if number.isdigit() else None


async def _nothing() -> None:
    return None
