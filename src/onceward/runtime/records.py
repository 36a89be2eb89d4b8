"""What of a run's failures is kept as text, and what is found in it again."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from onceward.core import errors
from onceward.core.failure_text import describe_error, name_error
from onceward.core.model import RunRow, StepKey, StepRow

CAUSES_MAX = 1_000
"""Exceptions looked at for one failure; a cycle of causes must not hang the end of a run."""

LOGGED_CHARS_MAX = 1_000
"""Of a message in the log: what a step's failure says last, what to do, must be in it."""

_NOT_THE_APPS = (
    os.path.dirname(os.path.dirname(__file__)) + os.sep,
    os.path.dirname(os.__file__) + os.sep,
    "<frozen ",
)


def failed_steps(error: BaseException) -> list[StepKey]:
    """Give the steps whose failures ended an attempt.

    Found through causes, contexts and exception groups (RULINGS 19).
    """
    found: dict[StepKey, None] = {}
    seen: set[int] = set()
    todo: list[BaseException | None] = [error]
    while todo and len(seen) < CAUSES_MAX:
        one = todo.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, errors.StepFailed) and one.step_key is not None:
            found[StepKey(*one.step_key)] = None
            continue  # what lies beneath is the body's own error
        todo += [one.__cause__, one.__context__]
        if isinstance(one, BaseExceptionGroup):
            todo += one.exceptions
    return list(found)


def failure_of(record: StepRow) -> errors.StepFailed:
    """Give the error of a step whose saved outcome is a failure."""
    told = msgspec.json.decode(record.error or "{}")
    failure = errors.StepFailed(
        str(record.key),
        told.get("type", "Exception"),
        told.get("message", ""),
        tries=record.tries,
        is_final=told.get("is_final", False),
    )
    failure.step_key = (record.name, record.item, record.ordinal)
    return failure


def deadline_error(run: RunRow) -> errors.DeadlineExceeded:
    """Give the error of a run whose time is over."""
    return errors.DeadlineExceeded(
        f"Run {run.run_id} of {run.workflow!r} did not end before its deadline.",
        means="It was stopped; what its last step did outside is not known.",
        todo="Give the workflow a longer deadline=, or restart the run.",
    )


def json_text(value: Any) -> str:
    """Give JSON of something of our own."""
    return msgspec.json.encode(value).decode()


def error_text(error: BaseException, *, is_final: bool = False) -> str:
    """Give what is saved of an exception, and whether it ended a step for good."""
    told: dict[str, Any] = {**describe_error(error)}
    return json_text({**told, "is_final": True} if is_final else told)


def one_line(error: BaseException) -> str:
    """Give an exception for a line of the log; line breaks in it cannot forge another (F49).

    It ends with the place in the app's code: ``KeyError: 'order'`` alone says little at night.
    """
    told = name_error(error, limit_chars=LOGGED_CHARS_MAX)
    return _on_one_line(f"{told['type']}: {told['message']}{_place(error)}")


def saved_line(text: str | None) -> str:
    """Give a saved failure for a line of the log."""
    told = msgspec.json.decode(text or "{}")
    return _on_one_line(f"{told.get('type')}: {str(told.get('message'))[:LOGGED_CHARS_MAX]}")


def _on_one_line(text: str) -> str:
    text = " ".join(text.split())
    return "".join(char if char.isprintable() else "?" for char in text)


def _place(error: BaseException) -> str:
    """Give the innermost line of its traceback that is the app's: not ours, Python's or a library's."""
    found, frame = "", error.__traceback__
    while frame is not None:
        path = frame.tb_frame.f_code.co_filename
        if not path.startswith(_NOT_THE_APPS) and "site-packages" not in path:
            found = f" ({os.path.basename(path)}, line {frame.tb_lineno})"
        frame = frame.tb_next
    return found
