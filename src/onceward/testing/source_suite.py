"""The conformance suite of sources: what every one of them must do, check by check.

A test module says how to make its source, gives a few genuine deliveries, and runs the checks::

    ACME = SourceCase(
        make=lambda secrets: Acme(secrets=secrets),
        secret="a secret",
        other_secret="another secret",
        examples=(Example(request, now_ms, redelivered=the_same_signed_later),),
    )


    @pytest.mark.parametrize("check", CHECKS, ids=str)
    def test_acme(check: Check) -> None:
        check(ACME)

A behaviour that all sources must have goes into ``source_checks``; each public function there is
one check, named as its claim. `fuzz` damages the examples at random, as often as one likes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from types import ModuleType

from onceward.core.errors import SignatureInvalid
from onceward.testing.source_case import Example, SourceCase, events_of, verified
from onceward.testing.source_checks import manners, reading, trust
from onceward.testing.source_hostile import damaged

TOPICS: tuple[ModuleType, ...] = (trust, reading, manners)


@dataclass(frozen=True)
class Check:
    """One claim about sources, and the function that tries it."""

    topic: str
    name: str
    claim: str
    run: Callable[[SourceCase], None]

    def __call__(self, case: SourceCase) -> None:
        """Try the claim on a source; an AssertionError says how it does not hold."""
        self.run(case)

    def __str__(self) -> str:
        """Give the id for a test's name."""
        return f"{self.topic}-{self.name}"


def fuzz(case: SourceCase, count: int, *, seed: int = 0) -> None:
    """Damage the examples at random and look that nothing is raised and nothing wrong is taken.

    Args:
        case: the source and its examples.
        count: how many damaged deliveries to try.
        seed: of the first; the *n*-th is damaged by *seed* + *n*, so a failure can be repeated.
    """
    source = case.source()
    for number in range(seed, seed + count):
        example = case.examples[number % len(case.examples)]
        request = damaged(example.request, seed=number)
        try:
            taken = verified(source, request, example.now_ms) is not None
            events_of(source, request)
            with suppress(SignatureInvalid):
                source.handshake(request, example.now_ms)
        except Exception as error:
            raise AssertionError(f"{case.source()!r}: seed {number} raised {error!r}") from error
        if case.is_checked and case.covers_body and request.body != example.request.body:
            assert not taken, f"{case.source()!r}: seed {number} was taken: {request.body[:80]!r}"


def _collect() -> Iterator[Check]:
    for module in TOPICS:
        for name, function in vars(module).items():
            is_ours = inspect.isfunction(function) and function.__module__ == module.__name__
            if is_ours and not name.startswith("_"):
                assert function.__doc__, f"{name} has no claim"
                yield Check(module.__name__.rsplit(".", 1)[1], name, function.__doc__.strip(), function)


CHECKS: tuple[Check, ...] = tuple(_collect())
"""Every check, topic by topic."""

__all__ = ["CHECKS", "TOPICS", "Check", "Example", "SourceCase", "fuzz"]
