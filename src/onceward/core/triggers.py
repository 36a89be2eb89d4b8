"""What a workflow subscribes to: events of one source whose type fits a pattern.

A trigger is data, not code, so that it can be stored and a receiver without the user's code can
decide which workflows an event starts (RULINGS 18).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from onceward.core.errors import ConfigError

OWN = "own"
"""The trigger source that stands for our own events: emitted by the app or inside a run."""


def is_own(source: str) -> bool:
    """Say whether events of *source* were emitted by the app or inside a run."""
    return source.startswith(("emit/", "run/"))


class Trigger(msgspec.Struct, frozen=True):
    """A source's name and a pattern over its event types.

    Attributes:
        source: the source's name, e.g. ``stripe``.
        type: an exact type (``invoice.paid``), every type that starts alike (``invoice.*``), or
            every type (``*``). A star elsewhere is refused with `ConfigError`.
        where: a further condition on the event in its stored form, or None. `matches` does not
            look at it.
    """

    source: str
    type: str
    where: Any = None

    def __post_init__(self) -> None:
        if not self.type:
            raise ConfigError(
                f"A trigger on {self.source!r} has an empty type.",
                means="It would never match.",
                todo='Name a type, or "*" for every type.',
            )
        star = self.type.find("*")
        if star >= 0 and self.type != "*" and (star != len(self.type) - 1 or not self.type.endswith(".*")):
            raise ConfigError(
                f"The type pattern {self.type!r} has its star in the wrong place.",
                means='A pattern is exact, or "*", or ends in ".*".',
                todo='Write for example "invoice.paid", "invoice.*" or "*".',
            )

    def matches(self, source: str, type: str) -> bool:  # noqa: A002 (the glossary's word)
        """Say whether an event of that source and type fits; ``where`` is not looked at."""
        if source != self.source and not (self.source == OWN and is_own(source)):
            return False
        pattern = self.type
        if pattern == type or pattern == "*":
            return True
        return pattern.endswith(".*") and type.startswith(pattern[:-1]) and len(type) >= len(pattern)

    def show(self) -> str:
        """Give the trigger for people: ``stripe invoice.*``, or the type alone for our own events."""
        return self.type if self.source == OWN else f"{self.source} {self.type}"

    def to_data(self) -> dict[str, Any]:
        """Give the trigger as JSON-ready data; `from_data` reads it back."""
        data: dict[str, Any] = {"source": self.source, "type": self.type}
        if self.where is not None:
            data["where"] = self.where
        return data

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Trigger:
        """Give the trigger that `to_data` wrote."""
        return cls(data["source"], data["type"], data.get("where"))
