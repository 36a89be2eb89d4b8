"""Decides whether what several clients saw at once could have happened one after the other.

A history is what was called, when, and what was answered, when. It is *linearizable* if each call can be
given a moment between its call and its reply so that, done one after the other at those moments, a small
model allows every answer. A call whose reply was lost may have happened at any moment after the call, or
never.

The search is Wing's and Gong's, with Lowe's memory of what was tried: what was done already and the
states that it may have left. A state is a set, since an engine also does things that nobody called for: a
run ends, a promise expires. What may have happened by itself is in the set beside what may not.

Source: Wing and Gong, "Testing and verifying concurrent objects" (1993); Lowe, "Testing for
linearizability" (2017); the checker Porcupine.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, TypeVar

LOOKS_MAX = 400_000
"""How many states are looked at of one object, before nobody knows."""

StateT = TypeVar("StateT", bound=Hashable)


@dataclass(frozen=True)
class Op:
    """A call and its reply.

    Attributes:
        verb: what was asked.
        args: with what.
        call: when, in nanoseconds of one clock.
        reply: when it was answered; None where the answer was lost.
        answer: what was answered; nothing where it was lost.
        by: who asked.
        beside: verbs of other calls about the same object that were under way at the same time.
    """

    verb: str
    args: dict[str, Any]
    call: int
    reply: int | None
    answer: tuple[Any, ...] = ()
    by: str = ""
    beside: frozenset[str] = field(default=frozenset())

    @property
    def is_lost(self) -> bool:
        """Say whether nobody knows what became of it."""
        return self.reply is None

    def __str__(self) -> str:
        """Show it on a line, with times in milliseconds."""
        until = "lost" if self.reply is None else f"{self.reply / 1e6:.2f}"
        args = " ".join(f"{name}={value!r}" for name, value in self.args.items())
        return f"[{self.call / 1e6:.2f} .. {until}] {self.by} {self.verb} {args} -> {self.answer!r}"


class Model(Protocol[StateT]):
    """What an object does when one thing happens after the other."""

    def first(self) -> StateT:
        """Give the state before anything was asked."""

    def alone(self, state: StateT) -> Iterable[StateT]:
        """Give the states to which it may go by itself, in one move."""

    def after(self, state: StateT, op: Op) -> Iterable[StateT]:
        """Give the states that a call may leave; none where the answer cannot be. A lost one has no answer."""


class Verdict(StrEnum):
    """What the search found."""

    LINEARIZABLE = "linearizable"
    NOT_LINEARIZABLE = "not linearizable"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Judgement:
    """What became of one object's history.

    Attributes:
        verdict: what was found.
        looks: how many states of the search were looked at.
        placed: the longest order that the model allows.
        left: calls that were answered and had no place behind it.
    """

    verdict: Verdict
    looks: int
    placed: list[Op]
    left: list[Op]

    def __str__(self) -> str:
        """Show how far it goes."""
        lines = [f"{self.verdict} after {self.looks} looks; in order:", *(f"  {op}" for op in self.placed)]
        return "\n".join([*lines, "no place for:", *(f"  {op}" for op in self.left)])


def judge(model: Model[StateT], history: Iterable[Op], *, looks_max: int = LOOKS_MAX) -> Judgement:
    """Look for an order of a history that the model allows.

    Args:
        model: of the object.
        history: everything that was asked of it.
        looks_max: after how many looks to give up.
    """
    ops = with_company(sorted(history, key=lambda op: op.call))
    return _Search(model, ops, looks_max).run()


def with_company(ops: Sequence[Op]) -> list[Op]:
    """Note with each call which verbs were under way beside it."""

    def overlap(one: Op, other: Op) -> bool:
        return (one.reply is None or other.call <= one.reply) and (
            other.reply is None or one.call <= other.reply
        )

    return [
        Op(
            op.verb,
            op.args,
            op.call,
            op.reply,
            op.answer,
            op.by,
            frozenset(other.verb for other in ops if other is not op and overlap(op, other)),
        )
        for op in ops
    ]


class _Search:
    """One search: depth first, what can be answered soonest before the rest."""

    def __init__(self, model: Model[StateT], ops: list[Op], looks_max: int) -> None:
        self.model: Model[Any] = model
        self.ops = ops
        self.looks_max = looks_max
        self.looks = 0
        self.needed = sum(1 << number for number, op in enumerate(ops) if not op.is_lost)
        never = max((op.reply or op.call for op in ops), default=0) + 1
        self.by_reply = sorted(range(len(ops)), key=lambda number: ops[number].reply or never)
        self.reached: dict[Any, frozenset[Any]] = {}

    def run(self) -> Judgement:
        begun = self._closed({self.model.first()})
        seen = {(0, begun)}
        way: list[int] = []
        best: list[int] = []
        stack = [(0, begun, iter(self._next(0)))]
        while stack:
            done, states, candidates = stack[-1]
            if done & self.needed == self.needed:
                return self._judgement(Verdict.LINEARIZABLE, way)
            for number in candidates:
                self.looks += len(states)
                after = self._closed(
                    {left for state in states for left in self.model.after(state, self.ops[number])}
                )
                there = (done | 1 << number, after)
                if not after or there in seen:
                    continue
                seen.add(there)
                way.append(number)
                best = list(way) if self._count(way) > self._count(best) else best
                stack.append((*there, iter(self._next(there[0]))))
                break
            else:
                stack.pop()
                if way:
                    way.pop()
            if self.looks > self.looks_max:
                return self._judgement(Verdict.UNDECIDED, best)
        return self._judgement(Verdict.NOT_LINEARIZABLE, best)

    def _count(self, way: list[int]) -> int:
        return sum(not self.ops[number].is_lost for number in way)

    def _next(self, done: int) -> list[int]:
        """Give what may happen next: what was called before the first of the others was answered."""
        left = [number for number in self.by_reply if not done >> number & 1]
        replies = (self.ops[number].reply for number in left)
        soonest = min((reply for reply in replies if reply is not None), default=None)
        return [number for number in left if soonest is None or self.ops[number].call <= soonest]

    def _closed(self, states: set[Any]) -> frozenset[Any]:
        """Add what may have happened by itself."""
        found: set[Any] = set()
        for state in states:
            found |= self._reached(state)
        return frozenset(found)

    def _reached(self, state: Any) -> frozenset[Any]:
        known = self.reached.get(state)
        if known is not None:
            return known
        found, fresh = {state}, [state]
        while fresh:
            for after in self.model.alone(fresh.pop()):
                if after not in found:
                    found.add(after)
                    fresh.append(after)
        self.reached[state] = frozenset(found)
        return self.reached[state]

    def _judgement(self, verdict: Verdict, way: list[int]) -> Judgement:
        left = [op for number, op in enumerate(self.ops) if number not in way and not op.is_lost]
        return Judgement(verdict, self.looks, [self.ops[number] for number in way], left)
