"""Which saved steps a restart or a replay keeps, and the records that it copies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from onceward.core import errors, ids, promises
from onceward.core.model import RunRow, StepKey, StepRow
from onceward.core.shown import shown
from onceward.core.states import StepState

SHOWN_MAX = 20
"""Steps that an error lists."""

_OUTCOMES = frozenset({StepState.DONE, StepState.FAILED})
"""What can be kept: an answer that the code can be given again."""


class Choice(msgspec.Struct, frozen=True):
    """What to keep of what is saved. Steps are named ``charge``, ``charge[order-7]`` or ``charge #2``.

    Attributes:
        from_step: keep the results that were saved before this step's.
        keep: keep these too, failures included. A bare name means every use of it.
        drop: do not keep these. Without *from_step* and *keep*, every other result is kept. None
            drops nothing.
    """

    from_step: str | None = None
    keep: tuple[str, ...] = ()
    drop: tuple[str, ...] | None = None

    @property
    def is_all(self) -> bool:
        """Say whether every step is to run again."""
        return self.from_step is None and not self.keep and self.drop is None


NOTHING_KEPT = Choice()


def choice_of(
    from_step: str | None, keep: str | Iterable[str] | None, drop: str | Iterable[str] | None
) -> Choice:
    """Give what a caller chose.

    Raises:
        ConfigError: something is no name of a step.
    """
    if from_step is not None:
        _checked(from_step)
    return Choice(from_step, _texts(keep) or (), _texts(drop))


def _texts(given: str | Iterable[str] | None) -> tuple[str, ...] | None:
    if given is None:
        return None
    if isinstance(given, str):
        return (_checked(given),)
    if not isinstance(given, Iterable):
        _checked(given)
    return tuple(_checked(text) for text in given)


def _checked(text: object) -> str:
    if isinstance(text, str):
        return text
    raise errors.ConfigError(
        f"The name of a step {shown(text)} is no text.",
        means="Nothing was done.",
        todo='Name steps as they are listed: "charge", "charge[order-7]", "charge #2".',
    )


def is_named(text: str, key: StepKey) -> bool:
    """Say whether a text names a step: by its name, or in full."""
    return text in (key.name, str(key)) or (key.ordinal == 1 and text == f"{key} #1")


def kept_rows(run_id: str, rows: Sequence[StepRow], choice: Choice, *, is_for_replay: bool) -> list[StepRow]:
    """Give the records that a choice keeps, in saved order.

    Args:
        run_id: of the run, for the error.
        rows: the records of its generation in saved order.
        choice: what to keep.
        is_for_replay: for another run. That makes anew what can still be completed for this one only.

    Raises:
        ConfigError: it names a step that the run has not, or whose record has no outcome to keep.
        StateConflict: steps of the run were undone.
    """
    kept: set[StepKey] = set()
    left = _open_promises(rows) if is_for_replay else frozenset[StepKey]()
    if choice.from_step is not None:
        (first, *_) = _named(run_id, rows, choice.from_step)
        kept = {row.key for row in rows if row.seq < first.seq and row.state is StepState.DONE}
    elif choice.drop is not None and not choice.keep:
        kept = {row.key for row in rows if row.state is StepState.DONE}
    for text in choice.keep:
        found = [row for row in _named(run_id, rows, text) if row.state in _OUTCOMES and row.key not in left]
        if not found:
            raise errors.ConfigError(
                f"Step {shown(text)} of run {run_id} has no outcome that could be kept.",
                means="It is under way, or was cut off or cancelled; or it is a promise to that run.",
                todo="Leave it out of keep=, so that it runs again.",
            )
        kept.update(row.key for row in found)
    for text in choice.drop or ():
        kept.difference_update(row.key for row in _named(run_id, rows, text))
    if not choice.is_all and any(row.kind == "undo" for row in rows):
        raise errors.StateConflict(
            f"Steps of run {run_id} were undone.",
            means="What keeps their records would take them for done. Nothing was started.",
            todo="Restart or replay it without keeping anything.",
        )
    return [row for row in rows if row.key in kept and row.key not in left]


def _open_promises(rows: Sequence[StepRow]) -> frozenset[StepKey]:
    """Give the promises of which nothing says that they have ended."""
    made = [row.key for row in rows if row.kind == "promise"]
    ended = {row.key for row in rows if row.kind == "promise" and row.state in _OUTCOMES}
    waits = {key: key._replace(name=key.name + promises.RESULT) for key in made}
    waited_for = set(waits.values())
    return frozenset(key for key in made if key not in waited_for and waits[key] not in ended)


def _named(run_id: str, rows: Sequence[StepRow], text: str) -> list[StepRow]:
    found = [row for row in rows if is_named(text, row.key)]
    if not found:
        known = ", ".join(repr(str(row.key)) for row in rows[:SHOWN_MAX]) or "none"
        raise errors.ConfigError(
            f"Run {run_id} has no step {shown(text)}.",
            means="There is nothing of it to keep or to run again.",
            todo=f"Its saved steps are: {known}.",
        )
    return found


def copies_of(run: RunRow, kept: Iterable[StepRow]) -> list[StepRow]:
    """Give copies of kept records for a new generation or run; each names where it was saved first."""
    origin = ids.composed(run.run_id, run.generation)
    return [msgspec.structs.replace(row, origin=row.origin or origin) for row in kept]
