"""Steps of which nobody knows whether they took effect: what is kept of them, what can be said of them.

A step whose ``unknown=`` is not "retry" saves that it began before its body does. A record with
that mark and without an outcome is an unknown outcome. A check function says what became of it
(`Happened`, `DidNotHappen`), or a person does, who is shown a `Question`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from onceward.core import errors
from onceward.core.annotations import signature_of
from onceward.core.model import Millis, RunRow, StepKey, StepRow
from onceward.core.shown import class_name, shown
from onceward.core.states import RunState, StepState

T_co = TypeVar("T_co", covariant=True)

HAPPENED, DID_NOT_HAPPEN, RETRY, FAIL = "happened", "did_not_happen", "retry", "fail"

TO_QUESTION = (HAPPENED, DID_NOT_HAPPEN, FAIL)
"""What can be answered where the outcome of a step is asked for."""

TO_OTHER_HOLDS = (RETRY, FAIL)
"""What can be answered to a run that is held for any other reason: go on with another attempt, or give up."""

OUTCOME = " (outcome)"
"""Follows a step's name in that of the step that asks whether it took effect, before it is undone."""

ARGUMENT_BYTES_MAX = 2_000
"""Of one argument in a question; of a longer one the beginning is shown."""

ARGUMENTS_MAX = 50
"""Arguments that a question shows."""


@dataclass(frozen=True, slots=True)
class Happened(Generic[T_co]):
    """What a check function returns when the step took effect.

    Attributes:
        result: what the step would have returned.
    """

    result: T_co


@dataclass(frozen=True, slots=True)
class DidNotHappen:
    """What a check function returns when the step did not take effect; it is tried again."""


class Begun(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is kept of a try that began, as JSON text in the step's record.

    Attributes:
        at: when it began.
        try_number: which try it is.
        attempt: of the run.
        process_id: which process ran it.
        key: the idempotency key that it handed out.
        why: why its outcome is not known, once somebody looked.
        checks: how often its check function failed.
        is_asked: a person is asked.
        arguments: JSON of the arguments by name, for a person.
        answer: what the person said.
        result: JSON of the result that came with the answer.
    """

    at: Millis
    try_number: int
    attempt: int
    process_id: str
    key: str
    why: str = ""
    checks: int = 0
    is_asked: bool = False
    arguments: msgspec.Raw = msgspec.Raw(b"{}")
    answer: str = ""
    result: msgspec.Raw = msgspec.Raw(b"null")

    def to_text(self) -> str:
        """Give the JSON text that a record keeps."""
        return msgspec.json.encode(self).decode()


class Question(msgspec.Struct, frozen=True):
    """What a person is asked about one step of a held run, and all that is known of it.

    Attributes:
        run_id: which run.
        generation: of the run.
        step: the step, as `answer` takes it.
        kind: ``run`` for a step, ``undo`` for the undoing of one.
        why: why its outcome is not known.
        arguments: JSON text: what it was called with, by name; what has no JSON is shown by its
            type, what is long is cut.
        idempotency_key: what it handed to others.
        began_at: when it began.
        try_number: which try of the step that was.
        attempt: which attempt of the run.
        process_id: which process ran it.
        answers: what can be answered.
    """

    run_id: str
    generation: int
    step: str
    kind: str
    why: str
    arguments: str
    idempotency_key: str
    began_at: Millis
    try_number: int
    attempt: int
    process_id: str
    answers: tuple[str, ...] = TO_QUESTION


def begun_of(row: StepRow | None) -> Begun | None:
    """Give what is kept of the try that began and has no saved end."""
    return None if row is None or row.begun is None else msgspec.json.decode(row.begun, type=Begun)


def has_result(row: StepRow) -> bool:
    """Say whether the answer that the step of a record happened must say what it gave; an undo gives nothing."""
    return row.kind != "undo" or row.name.endswith(OUTCOME)


def open_questions(run: RunRow, rows: Sequence[StepRow]) -> dict[StepKey, Question]:
    """Give what a person is asked about a run, by step, in the order in which it was asked.

    Args:
        run: the run; only a held one asks.
        rows: the records of its generation.
    """
    found: dict[StepKey, Question] = {}
    if run.state is not RunState.HELD:
        return found
    for row in rows:
        begun = begun_of(row) if row.state is StepState.OPEN else None
        if begun is None or not begun.is_asked or begun.answer:
            continue
        found[row.key] = Question(
            run_id=run.run_id,
            generation=run.generation,
            step=str(row.key),
            kind=row.kind,
            why=begun.why,
            arguments=bytes(begun.arguments).decode(),
            idempotency_key=begun.key,
            began_at=begun.at,
            try_number=begun.try_number,
            attempt=begun.attempt,
            process_id=begun.process_id,
        )
    return found


def reason_of(steps: Sequence[str]) -> str:
    """Give the reason of a run that is held until a person says what became of these steps."""
    named = ", ".join(repr(step) for step in steps[:10]) + (", …" if len(steps) > 10 else "")
    return f"outcome unknown: {'step' if len(steps) == 1 else 'steps'} {named}"


def asked_about(run: RunRow, rows: Sequence[StepRow], word: str, step: str | None) -> StepRow | None:
    """Give the record that an answer is about; None where the run is held for another reason.

    Args:
        run: the run, held.
        rows: the records of its generation.
        word: the answer.
        step: which step it is about; may be left out where only one is asked about.

    Raises:
        ConfigError: there is no such answer, or no step of that name is asked about.
        StateConflict: the answer does not fit what is asked.
    """
    questions = open_questions(run, rows)
    choices = TO_QUESTION if questions else TO_OTHER_HOLDS
    if word not in choices:
        raise _does_not_fit(run, word, questions)
    if word == FAIL or not questions:
        if step is not None and word != FAIL:
            raise errors.ConfigError(
                f"Run {run.run_id} is not held because of a step, and the answer names {shown(step)}.",
                means=f"It is held because of this: {run.reason}. Nothing was changed.",
                todo="Leave step= out.",
            )
        return None
    by_text = {str(key): key for key in questions}
    if step is None and len(by_text) == 1:
        (step,) = by_text
    if step not in by_text:
        asked = ", ".join(repr(one) for one in by_text)
        what = "does not say which step it is about" if step is None else f"is about {shown(step)}"
        raise errors.ConfigError(
            f"The answer to run {run.run_id} {what}.",
            means="Nothing was changed.",
            todo=f"Name the step with step=; asked is about {asked}.",
        )
    return next(row for row in rows if row.key == by_text[step])


def answered(row: StepRow, word: str, result: str | None) -> StepRow:
    """Give the record with the answer in it; the run's code takes it up when it comes to the step."""
    begun = begun_of(row)
    assert begun is not None
    raw = msgspec.Raw((result or "null").encode())
    return msgspec.structs.replace(
        row, begun=msgspec.structs.replace(begun, answer=word, result=raw).to_text()
    )


def still_asked(run: RunRow, rows: Sequence[StepRow], now_answered: StepRow) -> list[str]:
    """Give the steps that are asked about once one of them is answered."""
    rest = [now_answered if row.key == now_answered.key else row for row in rows]
    return [question.step for question in open_questions(run, rest).values()]


def _does_not_fit(run: RunRow, word: str, questions: Mapping[StepKey, Question]) -> errors.OncewardError:
    known = word in (*TO_QUESTION, *TO_OTHER_HOLDS)
    kind = errors.StateConflict if known else errors.ConfigError
    if questions:
        meaning = "It is asked whether something took effect outside."
        todo = (
            "Answer 'happened' (with result=, what the step would have returned), 'did_not_happen' to have "
            "it tried again, or 'fail' to give the run up."
        )
    else:
        meaning = "Nothing is asked about a step's outcome."
        todo = "Answer 'retry' to go on with another attempt, or 'fail' to give up."
    return kind(
        f"A run that is held because of this cannot be answered {shown(word)}: {run.reason}.",
        means=f"{meaning} Nothing was changed.",
        todo=todo,
    )


# --- arguments for people --------------------------------------------------------------------------


def shown_arguments(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    hidden: str | None,
    *,
    has_connection: bool = False,
) -> msgspec.Raw:
    """Give JSON of a call's arguments by name, bounded; never raises.

    Args:
        function: what was called.
        args: its arguments.
        kwargs: its arguments by name.
        hidden: the parameter that takes the idempotency key, which is shown elsewhere.
        has_connection: its first parameter is a connection, which is none of the arguments.
    """
    found = named(function, args, kwargs, has_connection=has_connection)
    parts = {
        name: _shown_argument(value) for name, value in list(found.items())[:ARGUMENTS_MAX] if name != hidden
    }
    return msgspec.Raw(msgspec.json.encode(parts))


def named(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    defaults: bool = False,
    has_connection: bool = False,
) -> dict[str, Any]:
    """Give a call's arguments by the names of the parameters; by number where there are no names."""
    connection = [None] if has_connection else []
    try:
        bound = signature_of(function).bind(*connection, *args, **kwargs)
    except (TypeError, ValueError):  # a builtin without a signature, or arguments that do not fit
        return {**{str(number): value for number, value in enumerate(args)}, **kwargs}
    if defaults:
        bound.apply_defaults()
    return dict(list(bound.arguments.items())[len(connection) :])


def _shown_argument(value: Any) -> msgspec.Raw:
    try:
        text = msgspec.json.encode(value, enc_hook=_without_json)
    except Exception:  # noqa: BLE001 - foreign objects may raise anything when they are looked at
        text = msgspec.json.encode(f"<{class_name(type(value))}>")
    if len(text) > ARGUMENT_BYTES_MAX:
        begin = text[:ARGUMENT_BYTES_MAX].decode(errors="ignore")
        text = msgspec.json.encode(f"{begin}… ({len(text):,} bytes)")
    return msgspec.Raw(text)


def _without_json(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)  # pydantic's; it masks its own secrets
    return dump(mode="json") if callable(dump) else f"<{class_name(type(value))}>"
