"""What a step can wait for: one type of event, from whom, about what, under which condition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from onceward.core import errors
from onceward.core.paths import Expr, to_data
from onceward.core.shown import shown
from onceward.core.texts import checked_name, checked_subject
from onceward.core.triggers import OWN, Trigger

Label = str | int

PARTS_MAX = 100
"""Events that one wait may be for."""


class _Raises:
    """The default of a wait that raises when its time is over."""

    def __repr__(self) -> str:
        return "RAISES"


RAISES: Final = _Raises()


class Expect:
    """An event that a step can wait for, for `StepVerbs.wait_any`.

    Args:
        on: its type, ``"warehouse.packed"``, of an event that the app emits; or a type of a source's,
            ``stripe["charge.refunded"]``.
        subject: what it must be about; anything by default.
        where: a condition on it, ``event.payload["ok"] == True``.
        source: the source that must say so, by name, where *on* does not name it.

    Raises:
        ConfigError: it could never come: a pattern instead of a type, an empty subject, a condition
            that is none.
    """

    __slots__ = ("condition", "source", "subject", "type")

    def __init__(
        self,
        on: str | Trigger,
        *,
        subject: str | None = None,
        where: Expr | None = None,
        source: str | None = None,
    ) -> None:
        given = on.source if isinstance(on, Trigger) else None
        if source is not None and given not in (None, source):
            raise errors.ConfigError(
                f"A wait for events of {given!r} names the source {source!r} too.",
                means="No event has two sources.",
                todo="Leave source= out.",
            )
        self.type = checked_name(on.type if isinstance(on, Trigger) else on, "event type")
        if "*" in self.type:
            raise errors.ConfigError(
                f"A wait is for {self.type!r}, which is a pattern.",
                means="A wait is for one type of event.",
                todo="Name the type, or several with ctx.step.wait_any.",
            )
        self.source = given or (OWN if source is None else checked_name(source, "source"))
        if subject == "":
            raise errors.ConfigError(
                f"A wait for {self.type!r} has an empty subject.",
                means="An id that is missing would make it a wait for whatever comes.",
                todo="Pass the subject, or None for an event about anything.",
            )
        self.subject = checked_subject(subject)
        conditions = [_checked(where)] if where is not None else []
        if isinstance(on, Trigger) and on.where is not None:
            conditions.append(on.where)
        stored = conditions[0] if len(conditions) == 1 else ["&", *conditions]
        self.condition = msgspec.json.encode(stored).decode() if conditions else None

    def show(self) -> str:
        """Give what is waited for, for people: ``warehouse.packed of o-17``."""
        source = "" if self.source == OWN else f"{self.source} "
        about = "" if self.subject is None else f" of {self.subject}"
        return f"{source}{self.type}{about}"

    def __repr__(self) -> str:
        return f"Expect({self.show()!r})"


Parts = Sequence[tuple[Label | None, Expect]]


def parts_of(events: Mapping[str, Expect] | Sequence[Expect]) -> Parts:
    """Give what a wait for one of several is for, by label: the key in a mapping, the place in a list.

    Raises:
        ConfigError: there is nothing in it, or something else than `Expect`.
    """
    parts: list[tuple[Label | None, Any]] = (
        list(events.items()) if isinstance(events, Mapping) else list(enumerate(events))
    )
    for label, part in parts:
        if not isinstance(part, Expect) or not isinstance(label, str | int):
            raise errors.ConfigError(
                f"ctx.step.wait_any was given {shown(part)}.",
                means="It waits for the first of several events.",
                todo='Write for example {"paid": Expect("order.paid", subject=order.id)}.',
            )
    if not 1 <= len(parts) <= PARTS_MAX:
        raise errors.ConfigError(
            f"ctx.step.wait_any was given {len(parts)} events.",
            means=f"It waits for one of 1 to {PARTS_MAX}.",
            todo="Name them: {label: Expect(type, subject=…)}.",
        )
    return parts


def _checked(where: Any) -> Any:
    if isinstance(where, Expr) and where.op != "event":
        return to_data(where)
    raise errors.ConfigError(
        f"The condition of a wait cannot be {shown(where)}.",
        means="It is kept in the store, and looked at by whichever process the event comes to.",
        todo='Write it over the event: `from onceward import event`, where=event.payload["ok"] == True.',
    )
