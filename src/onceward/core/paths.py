"""Expressions over an event as data: ``event.payload["order"]``, ``event.type == "order.paid"``.

Triggers, keys and subjects are written with these (RULINGS 18). They look like code and are data:
a registration stores them, and a receiver that does not have the user's code evaluates them. So
what Python would quietly do with an expression instead of building one (``and``, ``in``, an
f-string) is refused where it is written.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from onceward.core.errors import ConfigError, PathMissing
from onceward.core.shown import shown

Scalar: TypeAlias = bool | int | float | str | None

# The fields of an event that an expression can start from: keys of the mapping it is evaluated on.
FIELDS = (
    "namespace",
    "source",
    "id",
    "type",
    "subject",
    "payload",
    "occurred_at",
    "received_at",
    "version",
)

DEPTH_MAX = 64
SIZE_MAX = 1_000
STEPS_MAX = 50
TEXT_CHARS_MAX = 10_000
_INT_MAX = 2**63 - 1

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_COMPARISONS = ("==", "!=", *_COMPARE)
_BOTH = ("&", "|")


class Expr:
    """A place in an event, a comparison, or comparisons combined; made from `event`, never changed.

    A place is gone into with ``[...]``, compared with ``== != < <= > >=`` and ``.in_([...])``;
    conditions are combined with ``&``, ``|`` and ``~``, each comparison in parentheses.
    """

    __slots__ = ("args", "depth", "op", "size")

    op: str
    args: tuple[Any, ...]  # of "event" the steps, of the others expressions and scalars
    depth: int
    size: int

    def __init__(self, op: str, args: tuple[Any, ...]) -> None:
        inner = [part for part in args if isinstance(part, Expr)]
        depth = 1 + max((part.depth for part in inner), default=0)
        size = len(args) + sum(part.size for part in inner)
        if depth > DEPTH_MAX or size > SIZE_MAX:
            _refuse(
                f"An expression has {size} parts and is {depth} levels deep.",
                f"The most is {SIZE_MAX} parts and {DEPTH_MAX} levels.",
                "Use .in_([...]) instead of many comparisons, or decide in the workflow.",
            )
        for name, value in (("op", op), ("args", args), ("depth", depth), ("size", size)):
            object.__setattr__(self, name, value)

    def __getitem__(self, step: str | int) -> Expr:
        if self.op != "event":
            _refuse(
                f"{self!r} was gone into with [...].", "It is a condition, not a place.", "Use it as it is."
            )
        return Expr("event", _steps((*self.args, step)))

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return _comparison("==", self, other)

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return _comparison("!=", self, other)

    def __lt__(self, other: object) -> Expr:
        return _comparison("<", self, other)

    def __le__(self, other: object) -> Expr:
        return _comparison("<=", self, other)

    def __gt__(self, other: object) -> Expr:
        return _comparison(">", self, other)

    def __ge__(self, other: object) -> Expr:
        return _comparison(">=", self, other)

    def in_(self, values: Iterable[Scalar]) -> Expr:
        """Give the condition that the value here equals one of *values*."""
        if isinstance(values, (str, bytes, Expr)) or not isinstance(values, Iterable):
            _refuse(f".in_ was given {shown(values)}.", "It takes several values.", 'Write .in_(["a", "b"]).')
        return Expr("in", (_operand(self), *map(_scalar, values)))

    def __and__(self, other: object) -> Expr:
        return Expr("&", (self, _condition(other)))

    def __or__(self, other: object) -> Expr:
        return Expr("|", (self, _condition(other)))

    def __rand__(self, other: object) -> NoReturn:
        _condition(other)
        raise AssertionError("an expression on the left has its own `&` and `|`")

    __ror__ = __rand__

    def __invert__(self) -> Expr:
        return Expr("~", (self,))

    def __repr__(self) -> str:
        if self.op == "event":
            field, *steps = self.args
            return f"event.{field}" + "".join(f"[{step!r}]" for step in steps)
        words = [f"({arg!r})" if _is_condition(arg) else repr(arg) for arg in self.args]
        if self.op == "in":
            return f"{words[0]}.in_([{', '.join(words[1:])}])"
        return f"~{words[0]}" if self.op == "~" else f" {self.op} ".join(words)

    # Two expressions that "are equal" are a third one, so none can be found in a dict or a set.
    __hash__ = None  # type: ignore[assignment]

    if not TYPE_CHECKING:  # a type checker is to report the name, not to find this

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(f"{self!r} has no attribute {name!r}; for a key write {self!r}[{name!r}]")

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"an expression does not change, so {name} cannot be set")

    def __reduce__(self) -> tuple[Any, ...]:
        return from_data, (to_data(self),)

    # --- what Python would do with an expression instead of building one ------------------------

    def __bool__(self) -> NoReturn:
        _refuse(
            f"{shown(self)} was asked whether it is true.",
            "It is so or not only for an event; `and`, `or`, `not`, `in` and `a < b < c` ask at once.",
            'Use &, | and ~ with parentheses: (event.type == "a") & ~(event.subject == "b").',
        )

    def __contains__(self, item: object) -> NoReturn:
        _refuse(
            f"{shown(self)} was asked whether it contains {shown(item)}.",
            "It has a value only for an event.",
            "Write .in_([...]) for a value that is one of several.",
        )

    # Else Python would ask for [0], [1], [2] ... and each would exist.
    __iter__ = None

    def __str__(self) -> str:
        _refuse(
            f"{shown(self)} was made a text.",
            "The text would be the same for every event, and a key made of it the same for every order.",
            "Give the expression itself; in a message write {expression!r}.",
        )

    def __format__(self, spec: str) -> str:
        return str(self)


class EventRoot:
    """Where expressions begin: ``event.type``, ``event.payload["order"]``."""

    __slots__ = FIELDS

    def __init__(self) -> None:
        self.namespace = Expr("event", ("namespace",))
        self.source = Expr("event", ("source",))
        self.id = Expr("event", ("id",))
        self.type = Expr("event", ("type",))
        self.subject = Expr("event", ("subject",))
        self.payload = Expr("event", ("payload",))
        self.occurred_at = Expr("event", ("occurred_at",))
        self.received_at = Expr("event", ("received_at",))
        self.version = Expr("event", ("version",))

    def __repr__(self) -> str:
        return "event"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(f"an event has no {name!r}; it has {', '.join(FIELDS)}")


event = EventRoot()


def evaluate(expr: Expr, event: Mapping[str, Any]) -> Any:
    """Give the value of an expression for one event: of a place what is there, else True or False.

    A comparison with a place that is missing is False, ``!=`` included. Numbers compare with
    numbers and texts with texts by code points; anything else is in no order. ``True`` and ``1``
    are different, as in JSON. A place that stands as a condition holds if its value is ``true``.

    Args:
        expr: the expression.
        event: the fields of the event by name, its payload as decoded JSON.

    Raises:
        PathMissing: *expr* is a place, and the event does not have it.
    """
    if expr.op == "event":
        return _value_at(expr, event)
    if expr.op == "~":
        return not holds(expr.args[0], event)
    if expr.op in _BOTH:
        left, right = expr.args
        both = expr.op == "&"
        return holds(right, event) if holds(left, event) is both else not both
    try:
        value, *others = [_value_at(arg, event) if isinstance(arg, Expr) else arg for arg in expr.args]
    except PathMissing:
        return False
    if expr.op == "in":
        return any(_is_same(value, other) for other in others)
    return _compared(expr.op, value, others[0])


def holds(expr: Expr, event: Mapping[str, Any]) -> bool:
    """Say whether a condition is so for one event; a missing place, or a value but ``true``, is not."""
    try:
        return evaluate(expr, event) is True
    except PathMissing:
        return False


def to_data(expr: Expr) -> list[Any]:
    """Give an expression as lists and scalars for JSON; `from_data` reads it back.

    ``["event", "payload", "order"]`` is a place, ``["value", 7]`` a scalar, and
    ``["==", left, right]``, ``["in", place, value, ...]``, ``["&", left, right]``, ``["~", inner]``
    combine them.
    """
    if expr.op == "event":
        return ["event", *expr.args]
    return [expr.op, *(to_data(arg) if isinstance(arg, Expr) else ["value", arg] for arg in expr.args)]


def from_data(data: Any) -> Expr:
    """Give the expression that `to_data` wrote.

    Raises:
        ConfigError: the data is no expression.
    """
    expr = _read(data, 0)
    if not isinstance(expr, Expr):
        raise _unreadable(data)
    return expr


# --- evaluating ------------------------------------------------------------------------------------


def _value_at(place: Expr, event: Mapping[str, Any]) -> Any:
    value: Any = event
    for step in place.args:
        try:
            if not isinstance(value, Mapping if isinstance(step, str) else list):
                raise LookupError(step)
            value = value[step]
        except LookupError:
            raise PathMissing(
                f"This event has no {place!r}.",
                means="The expression has no value for it.",
                todo="Use a place that every event of the trigger has, or a narrower trigger.",
            ) from None
    return value


def _is_same(value: Any, other: Any) -> bool:
    if isinstance(value, bool) or isinstance(other, bool):
        return value is other
    return bool(value == other)


def _compared(op: str, value: Any, other: Any) -> bool:
    if op in ("==", "!="):
        return _is_same(value, other) is (op == "==")
    for kinds in ((int, float), (str,)):
        if type(value) in kinds and type(other) in kinds:
            return _COMPARE[op](value, other)
    return False


# --- building and checking -------------------------------------------------------------------------


def _comparison(op: str, left: Expr, right: object) -> Expr:
    return Expr(op, (_operand(left), _operand(right)))


def _is_condition(part: object) -> bool:
    return isinstance(part, Expr) and part.op != "event"


def _operand(part: object) -> Expr | Scalar:
    if _is_condition(part):
        _refuse(f"The condition {shown(part)} was compared.", "Only places and values can be.", _PARENTHESES)
    return part if isinstance(part, Expr) else _scalar(part)


def _condition(part: object) -> Expr:
    if not isinstance(part, Expr):
        _refuse(
            f"A condition was combined with {shown(part)}.", "& and | bind tighter than ==.", _PARENTHESES
        )
    return part


def _scalar(value: Any) -> Scalar:
    kind = type(value)
    if not (
        value is None
        or kind is bool
        or (kind is int and -_INT_MAX <= value <= _INT_MAX)
        or (kind is float and math.isfinite(value))
        or (kind is str and _is_storable(value))
    ):
        _refuse(
            f"A place cannot be compared with {shown(value)}.",
            "It is compared with JSON's text, numbers, true, false and null, of a size that can be stored.",
            "Compare with such a value, or use .in_([...]) for several.",
        )
    scalar: Scalar = value
    return scalar


def _steps(steps: Sequence[Any]) -> tuple[str | int, ...]:
    field, *inner = steps or [None]
    if field not in FIELDS or len(steps) > STEPS_MAX:
        _refuse(f"There is no place {shown(list(steps))}.", f"A place has at most {STEPS_MAX} steps.", _PLACE)
    for step in inner:
        text = type(step) is str and _is_storable(step)
        if not text and not (type(step) is int and -_INT_MAX <= step <= _INT_MAX):
            _refuse(
                f"A place was gone into by {shown(step)}.", "It is gone into by keys and positions.", _PLACE
            )
    return tuple(steps)


def _is_storable(text: str) -> bool:
    return len(text) <= TEXT_CHARS_MAX and text.encode("utf-8", "ignore").decode() == text


def _read(data: Any, depth: int) -> Expr | Scalar:
    if not isinstance(data, list) or not data or depth > DEPTH_MAX:
        raise _unreadable(data)
    op, *args = data
    if op == "value" and len(args) == 1:
        return _scalar(args[0])
    if op == "event":
        return Expr("event", _steps(args))
    parts = [_read(arg, depth + 1) for arg in args]
    if op in _COMPARISONS and len(parts) == 2:
        return Expr(op, (_operand(parts[0]), _operand(parts[1])))
    if op == "in" and parts and isinstance(parts[0], Expr):
        return Expr(op, (_operand(parts[0]), *map(_scalar, parts[1:])))
    if (op in _BOTH and len(parts) == 2) or (op == "~" and len(parts) == 1):
        return Expr(op, tuple(map(_condition, parts)))
    raise _unreadable(data)


_PLACE = 'Write for example event.payload["lines"][0].'
_PARENTHESES = 'Put each comparison in parentheses: (event.type == "a") & (event.subject == "b").'


def _unreadable(data: Any) -> ConfigError:
    return ConfigError(
        f"No expression can be read from {shown(data)}.",
        means="It was not written by this version, or was edited.",
        todo="Register the workflow again.",
    )


def _refuse(what: str, means: str, todo: str) -> NoReturn:
    raise ConfigError(what, means=means, todo=todo)
