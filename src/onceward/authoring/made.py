"""Calls of verbs that were made and never begun: the ``await`` before them was forgotten.

Python warns of such a call where nobody looks, and goes on; the run would end completed without the
step. So each run, and each step's body, keeps the calls that it made, and looks at them when it
ends. A call costs an append; those that have begun are dropped now and then.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from onceward.core import errors
from onceward.core.shown import shown

CoroutineT = TypeVar("CoroutineT", bound=Coroutine[Any, Any, Any])

KEPT_MIN = 64
"""Calls kept before the begun ones are dropped."""

NAMED_MAX = 5
"""Calls that an error names."""


class MadeCalls:
    """The calls of verbs that one run, or one step's body, made."""

    __slots__ = ("_calls", "_keep")

    def __init__(self) -> None:
        self._calls: list[Coroutine[Any, Any, Any]] = []
        self._keep = KEPT_MIN

    def add(self, call: CoroutineT) -> CoroutineT:
        """Note a call that was just made, and give it back."""
        self._calls.append(call)
        if len(self._calls) > self._keep:
            self._calls = [one for one in self._calls if _is_new(one)]
            self._keep = 2 * len(self._calls) + KEPT_MIN
        return call

    def take_forgotten(self, loop: asyncio.AbstractEventLoop) -> list[str]:
        """Give the calls that nothing began, as their code reads; afterwards there are none.

        A call whose task was cancelled before it began was meant not to run.

        Args:
            loop: in which the calls would have run.
        """
        calls, self._calls = self._calls, []
        new = [call for call in calls if _is_new(call)]
        if not new:
            return []
        owners = {task.get_coro(): task for task in asyncio.all_tasks(loop)}
        forgotten: list[str] = []
        for call in new:
            owner = owners.get(call)
            if owner is None or not owner.cancelling():
                forgotten.append(_as_written(call))
            if owner is None:
                call.close()  # or Python would warn that it was never awaited, too
        return forgotten

    def clear(self) -> None:
        """Forget them all: the code was unwound, and what it left makes no difference."""
        self._calls = []


def not_awaited(forgotten: Sequence[str], whose: str) -> errors.NotAwaited:
    """Give the error of code that forgot the ``await`` of calls.

    Args:
        forgotten: as their code reads.
        whose: the run or the step that made them.
    """
    some = ", ".join(forgotten[:NAMED_MAX]) + (", …" if len(forgotten) > NAMED_MAX else "")
    is_one = len(forgotten) == 1
    return errors.NotAwaited(
        f"{some} {'was' if is_one else 'were'} called in {whose} and never awaited.",
        means="The call only makes a coroutine; nothing of what it says was done."
        if is_one
        else "Such a call only makes a coroutine; nothing of what they say was done.",
        todo=f"Write `await {forgotten[0]}`; a task made of it must be awaited too.",
    )


def _is_new(call: Any) -> bool:
    # Nearly all are over, and have no frame any more.
    return call.cr_frame is not None and inspect.getcoroutinestate(call) == inspect.CORO_CREATED


def _as_written(call: Any) -> str:
    """Give a call as its code reads, as far as it tells which one it is."""
    owner, _, verb = call.__qualname__.rpartition(".")
    given = call.cr_frame.f_locals
    if owner == "Sending":
        first = given.get("type", given.get("workflow"))
        return f"app.{verb}({getattr(first, '__name__', None) or shown(first)}, …)"
    name = given.get("name")
    if owner == "Promise":
        return "promise.result()"
    if owner in ("StepVerbs", "TransactionVerbs", "WaitVerbs"):
        return f"ctx.step.{verb}({shown(name)}, …)"
    item = given.get("item")
    return f"{name}.item({shown(item)})(…)" if item else f"{name}(…)"
