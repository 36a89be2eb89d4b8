"""Which step is which: names, items and numbers, and the branches of the code that use them.

Identity is the step's name, its item and how often that name was used, never its position, so
that steps may run in parallel and a deploy may insert one. A name may repeat where the order of
its uses is certain: in one task or thread, or in a task made after the earlier user had ended.
Anything else would swap saved results when timing changes, so it is refused (RULINGS 16).
"""

from __future__ import annotations

import asyncio
import functools
import threading
from typing import Any

import msgspec

from onceward.core import errors
from onceward.core.model import StepKey
from onceward.core.texts import checked_step

LAST_WORDS_ROUNDS = 8
"""Rounds of the event loop that a branch may take from its last verb to its end, and still have an
end that is known to the round."""


class _User(msgspec.Struct, eq=False):
    """A branch of the code: a task or thread that called verbs of the run."""

    branch: object
    calls: int = 0
    has_ended: bool = False
    ended_before: int | None = None  # the number that a task made after its end exceeds


class _Use(msgspec.Struct, eq=False):
    """Who used a name last, and how often it was used."""

    user: _User
    count: int = 1


class Branches:
    """The branches of one run's code, and the names that they used.

    Attributes:
        root: the workflow's own task, which outlives every use.
        has_threads: more than one thread called verbs.
    """

    __slots__ = ("_has_tasks", "_is_closed", "_loop", "_users", "_uses", "has_threads", "root")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.root: asyncio.Task[Any] | None = None
        self._loop = loop
        self._users: dict[Any, _User] = {}  # the branches that have not ended
        self._uses: dict[tuple[str, str], _Use] = {}
        self._is_closed = False
        self._has_tasks = False
        self.has_threads = False

    def is_single(self) -> bool:
        """Say whether the workflow's own task, or its thread, is the only one that calls verbs."""
        return len(self._users) <= 1 and (not self._has_tasks or self.root in self._users)

    def tasks(self) -> list[asyncio.Task[Any]]:
        """Give the tasks that called verbs of this run and have not ended."""
        return [branch for branch in self._users if isinstance(branch, asyncio.Task)]

    def key(self, name: str, item: str, caller: object) -> StepKey:
        """Give the key of the step that the code asks for now.

        Args:
            name: of the step.
            item: which element of a loop it is; empty for none.
            caller: the calling thread; None for the current task.

        Raises:
            StepNameRepeated: another branch uses the name, so that timing would decide who is who.
            StepMisuse: the name or the item cannot be stored.
        """
        branch = caller or asyncio.current_task(self._loop)
        user = self._users.get(branch)
        if user is None:
            user = self._new_user(branch)
        user.calls += 1
        use = self._uses.get((name, item))
        if use is None:
            checked_step(name, item)
            use = self._uses[name, item] = _Use(user)
        else:
            if use.user is not user and not _comes_after(use.user, branch):
                raise _repeated(name, item)
            use.count += 1
            use.user = user
        return StepKey(name, item, use.count)

    def _new_user(self, branch: Any) -> _User:
        user = self._users[branch] = _User(branch)
        if isinstance(branch, asyncio.Task):
            if branch is not self.root:
                self._has_tasks = True
                branch.add_done_callback(functools.partial(self._ended, user))
        else:
            self.has_threads = len(self._users) > 1
            for thread in [one for one in self._users if not _is_alive(one)]:
                del self._users[thread]
        return user

    def left(self) -> None:
        """Hear that a verb is over; its branch may end with it."""
        if self._has_tasks:
            user = self._users.get(asyncio.current_task(self._loop))
            if user is not None and user.branch is not self.root:
                # If the branch ends in this round of the loop, this comes before whoever awaits it
                # goes on and makes the next branch.
                self._loop.call_soon(self._look_at_end, user, user.calls, LAST_WORDS_ROUNDS)

    def _look_at_end(self, user: _User, calls: int, rounds: int) -> None:
        if not _is_alive(user.branch):
            self._ended(user)
        elif user.calls == calls and rounds > 0 and not self._is_closed:
            self._loop.call_soon(self._look_at_end, user, calls, rounds - 1)

    def _ended(self, user: _User, _: object = None) -> None:
        if not user.has_ended and not self._is_closed:
            user.has_ended = True
            self._users.pop(user.branch, None)
            # Tasks are numbered as they are made: one made now is younger than every task that
            # could have been made before the user ended.
            user.ended_before = _task_number(self._loop.create_task(_nothing()))

    def close(self) -> None:
        """Stop looking at ends and forget the tasks; the run is gone from memory."""
        self._is_closed = True
        self.root = None
        self._users.clear()
        self._uses.clear()


def _repeated(name: str, item: str) -> errors.StepNameRepeated:
    label = f"{name!r} with item {item!r}" if item else repr(name)
    return errors.StepNameRepeated(
        f"The step name {label} is used in two parallel branches.",
        means="After a crash the branches may come in another order and would swap their saved results.",
        todo="Give each branch its own name, or pass item= with what tells them apart, e.g. item=order.id.",
    )


def _comes_after(user: _User, branch: object) -> bool:
    """Say whether *branch* was made after the name's last user had ended.

    Threads and tasks that were named by hand do not show when they were made, so they never count
    as later; the error says what to do.
    """
    number = _task_number(branch)
    return user.ended_before is not None and number is not None and number > user.ended_before


def _is_alive(branch: object) -> bool:
    if isinstance(branch, asyncio.Task):
        return not branch.done()
    return isinstance(branch, threading.Thread) and branch.is_alive()


def _task_number(task: object) -> int | None:
    """Give the number that asyncio gave a task when it was made; None if it was named by hand."""
    if not isinstance(task, asyncio.Task):
        return None
    before, _, number = task.get_name().partition("Task-")
    return int(number) if not before and number.isdigit() else None


async def _nothing() -> None:
    return None
