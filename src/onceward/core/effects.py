"""What running a step again does: nothing, something in our own database, or something outside.

A step's record says it where its code did; else its kind does. So a plan needs no code.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, TypeAlias

EffectName: TypeAlias = Literal["pure", "own_database", "outside"]


class StepEffect(StrEnum):
    """What running a step again does."""

    PURE = "pure"
    OWN_DATABASE = "own_database"
    OUTSIDE = "outside"


OF_KINDS: dict[str, StepEffect] = {
    "uuid": StepEffect.PURE,
    "now": StepEffect.PURE,
    "random": StepEffect.PURE,
    "sleep": StepEffect.PURE,
    "wait": StepEffect.PURE,
    "promise": StepEffect.PURE,
    "transaction": StepEffect.OWN_DATABASE,
}
"""By kind. Every other kind is outside: a body may do anything, and so may the runs that an emit, a
start or a call makes."""


def effect_of(kind: str, effect: str | None) -> StepEffect:
    """Give what running a step again does, by what its record says, else by its kind.

    Args:
        kind: of the record.
        effect: what the record says; None where its code said nothing. A word that is not known, as
            of a newer Onceward, counts as outside.
    """
    if effect is None:
        return OF_KINDS.get(kind, StepEffect.OUTSIDE)
    try:
        return StepEffect(effect)
    except ValueError:
        return StepEffect.OUTSIDE
