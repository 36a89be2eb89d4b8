"""When a failed try is made again: the policy, and the decision about one failure.

Steps and runs use the same policy and the same function. The decision is pure: the failure, the
count of tries, the time passed and one random draw go in, a delay and a reason come out. What
must stay true: a try is never made beyond ``max_tries``, no delay is negative or endless, and
nothing that a user's exception does while it is looked at can stop the decision.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC
from types import MappingProxyType
from typing import Any, NoReturn, TypeAlias

from onceward.core.duration import Duration, show, to_ms
from onceward.core.errors import (
    ConfigError,
    NotStorable,
    OutcomeUnknown,
    Permanent,
    RetryLater,
    StepFailed,
    StepMisuse,
    StepTimedOut,
)
from onceward.core.keywords import spelled
from onceward.core.shown import class_name, shown, type_name

Millis: TypeAlias = int

TRIES_MAX = 1_000_000
FACTOR_MAX = 1_000
RETRY_AFTER_MS_MAX = 86_400_000

# What was asked for by name ("not before 30 s") is a minimum; a crowd that was told the same
# time must still not return in the same instant.
ASKED_JITTER = 0.1

_ERRORS_MAX = 64  # of the error itself, its causes and what it groups
_HEADERS_MAX = 200
_SECONDS = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,9})?")

# Errors that say themselves that no later try can end differently.
_FINAL = (Permanent, NotStorable, StepMisuse, ConfigError)


@dataclass(frozen=True)
class Retry:
    """How often, and how long after each other, a failing step or run is tried.

    Args:
        max_tries: tries in all, the first included.
        base: the longest wait after the first failure; each wait is a random share of it.
        cap: the longest wait after any failure.
        factor: how much the longest wait grows with each failure.
        total: no try begins later than this after the first began; None for no such limit.
        only: the exception types that are tried again; None for every type.
        never: exception types that are not tried again.
        on: other policies for single exception types, without ``only``, ``never`` and ``on`` of
            their own. Of the types in *never* and *on* the one nearest to the error's own type
            decides, before *only* is asked.

    Raises:
        ConfigError: a figure is out of range, or a type is no exception type.
    """

    max_tries: int = 5
    base: Duration = "1s"
    cap: Duration = "10m"
    factor: float = 2.0
    total: Duration | None = None
    only: tuple[type[BaseException], ...] | None = None
    never: tuple[type[BaseException], ...] = ()
    on: Mapping[type[BaseException], Retry] = field(default_factory=dict, hash=False)
    base_ms: Millis = field(init=False, repr=False, compare=False)
    cap_ms: Millis = field(init=False, repr=False, compare=False)
    total_ms: Millis | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if type(self.max_tries) is not int or not 1 <= self.max_tries <= TRIES_MAX:
            _refuse(
                "max_tries", self.max_tries, f"a whole number from 1 to {TRIES_MAX}, the first try included"
            )
        if (
            isinstance(self.factor, bool)
            or not isinstance(self.factor, (int, float))
            or not 1 <= self.factor <= FACTOR_MAX  # false for NaN too
        ):
            _refuse("factor", self.factor, f"a number from 1 to {FACTOR_MAX}")
        base_ms = to_ms(self.base, what="base of a Retry")
        cap_ms = to_ms(self.cap, what="cap of a Retry")
        total_ms = None if self.total is None else to_ms(self.total, what="total of a Retry")
        if base_ms > cap_ms:
            _refuse("base", self.base, f"at most its cap, {show(cap_ms)}")
        if self.only is not None:
            _check_types("only", self.only)
            if not self.only:
                _refuse("only", self.only, "a tuple with at least one exception type, or None for every type")
        _check_types("never", self.never)
        if not isinstance(self.on, Mapping):
            _refuse("on", self.on, "a dict from exception type to Retry")
        _check_types("on", tuple(self.on))
        for policy in self.on.values():
            if not isinstance(policy, Retry) or policy.on or policy.never or policy.only is not None:
                _refuse("on", policy, "for each type a Retry without `only`, `never` and `on` of its own")
        # A copy nobody can change: a policy is compared and shared.
        object.__setattr__(self, "on", MappingProxyType(dict(self.on)))
        object.__setattr__(self, "base_ms", base_ms)
        object.__setattr__(self, "cap_ms", cap_ms)
        object.__setattr__(self, "total_ms", total_ms)

    @property
    def is_once(self) -> bool:
        """Say whether nothing is tried a second time."""
        return self.max_tries == 1 and all(policy.max_tries == 1 for policy in self.on.values())


# Here and not above: a decorator would have to hide what the dataclass takes from type checkers.
Retry.__init__ = spelled("Retry")(Retry.__init__)  # type: ignore[method-assign]


@dataclass(frozen=True, slots=True)
class Decision:
    """What follows a failed try: the wait before the next, or None; and why, in words."""

    delay_ms: Millis | None
    reason: str


def next_delay(policy: Retry, attempt: int, draw: float) -> Millis | None:
    """Give the wait before the next attempt, or None when there is none left.

    Args:
        policy: base and cap in milliseconds, factor without unit.
        attempt: the attempt that just failed, counted from 1.
        draw: a number in [0, 1); the caller draws it, so that a seed decides.

    Returns:
        Milliseconds in [0, cap]: "full jitter", a uniform share of the capped
        exponential, so that runs that failed together do not return together.

    Raises:
        ValueError: *attempt* is below 1 or *draw* is outside [0, 1).

    Source: AWS Architecture Blog, "Exponential Backoff And Jitter" (2015).
    """
    if attempt < 1:
        raise ValueError(f"attempts count from 1, not {attempt}")
    if not 0 <= draw < 1:
        raise ValueError(f"a draw is in [0, 1), not {draw}")
    if attempt >= policy.max_tries:
        return None
    try:
        longest = int(min(policy.base_ms * float(policy.factor) ** (attempt - 1), policy.cap_ms))
    except OverflowError:  # 2.0 ** 1024 and beyond
        longest = policy.cap_ms if policy.base_ms else 0
    return int(draw * (longest + 1))


def decide(
    policy: Retry,
    *,
    tries: int,
    error: BaseException,
    elapsed_ms: Millis,
    draw: float,
    now_ms: Millis | None = None,
) -> Decision:
    """Give what follows a failed try.

    `Permanent`, values that cannot be stored and misuse of steps end the matter, also as the cause
    of the error. `RetryLater`, and an HTTP ``Retry-After`` on the error, on its ``response`` or on
    a cause, replace the policy's delay by a minimum; such a try counts like any other.

    Args:
        policy: the step's or the run's policy.
        tries: tries made so far, the failed one included, counted from 1.
        error: what the try raised.
        elapsed_ms: time since the first try began.
        draw: a number in [0, 1), from the caller.
        now_ms: the time in Unix milliseconds; without it a ``Retry-After`` that is a date is ignored.

    Raises:
        ValueError: *tries* is below 1 or *draw* is outside [0, 1).
    """
    asked = _asked(error, now_ms)
    if asked.final is not None:
        return Decision(None, f"{asked.final} is not tried again")
    chosen = _policy_for(policy, error) or (policy if asked.by_user else None)
    if chosen is None:
        return Decision(None, f"the policy does not try {type_name(error)} again")
    delay_ms = next_delay(chosen, tries, draw)
    if delay_ms is None:
        return Decision(None, f"all tries are used up ({tries} of {chosen.max_tries})")
    if asked.delay_ms:
        delay_ms = asked.delay_ms + int(asked.delay_ms * ASKED_JITTER * draw)
    total_ms = policy.total_ms if chosen.total_ms is None else chosen.total_ms
    if total_ms is not None and elapsed_ms + delay_ms > total_ms:
        return Decision(None, f"the next try would begin after the total of {show(total_ms)}")
    note = f", {asked.note}" if asked.note else ""
    return Decision(delay_ms, f"try {tries + 1} of {chosen.max_tries} in {show(delay_ms)}{note}")


def is_final(error: BaseException) -> bool:
    """Say whether the error itself, or a cause of it, says that no later try can end differently."""
    return _asked(error, None).final is not None


def is_unknown(error: BaseException) -> bool:
    """Say whether the error, or a cause of it, leaves open whether the effect happened.

    `Permanent` and its like above or beside that say that it did not.
    """
    for level in _levels(error):
        if any(isinstance(node, _FINAL) for node in level):
            return False
        if any(isinstance(node, OutcomeUnknown | StepTimedOut) for node in level):
            return True
    return False


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the error itself, or a cause of it, says about another try."""

    final: str | None = None
    delay_ms: Millis = 0
    note: str = ""
    by_user: bool = False


def _asked(error: BaseException, now_ms: Millis | None) -> _Asked:
    """Give the word nearest to the error: its own, then its parts' and causes', level by level."""
    for level in _levels(error):
        for node in level:
            if isinstance(node, _FINAL) or (isinstance(node, StepFailed) and node.is_final):
                return _Asked(final=type_name(node))
        for node in level:
            if isinstance(node, RetryLater):
                return _retry_later(node)
        for node in level:
            delay_ms = _retry_after_ms(node, now_ms)
            if delay_ms:
                return _Asked(delay_ms=min(delay_ms, RETRY_AFTER_MS_MAX), note="asked for by Retry-After")
    return _Asked()


def _levels(error: BaseException) -> Iterator[list[BaseException]]:
    """Give the error, then what it was raised from or groups, and so on; bounded, each error once."""
    level = [error]
    seen = {id(error)}
    while level:
        yield level
        below: list[BaseException] = []
        for node in level:
            related = [node.__cause__] if node.__cause__ is not None else []
            if isinstance(node, BaseExceptionGroup):
                related += node.exceptions
            for other in related:
                if id(other) not in seen and len(seen) < _ERRORS_MAX:
                    seen.add(id(other))
                    below.append(other)
        level = below


def _retry_later(error: RetryLater) -> _Asked:
    delay: Any = error.delay
    try:
        delay_ms = to_ms(delay, what="delay of RetryLater")
    except ConfigError:
        # A try is worth more than a figure: what computed it (a header's time minus now) may
        # well have gone below zero, so the policy's own delay takes its place.
        return _Asked(note=f"RetryLater's delay {shown(delay)} cannot be read", by_user=True)
    return _Asked(delay_ms=delay_ms, note="asked for by RetryLater", by_user=True)


def _policy_for(policy: Retry, error: BaseException) -> Retry | None:
    """Give the policy that applies to the error, or None when it is not tried again."""
    for cls in type(error).__mro__:
        if cls in policy.never:
            return None
        if cls in policy.on:
            return policy.on[cls]
    return policy if policy.only is None or isinstance(error, policy.only) else None


# --- Retry-After, RFC 9110 section 10.2.3 -------------------------------------------------------


def _retry_after_ms(error: BaseException, now_ms: Millis | None) -> Millis | None:
    """Give what the HTTP answer behind an error asks for, or None; never raises.

    Clients put the answer's headers on the error (urllib, aiohttp, stripe) or on its ``response``
    (requests, httpx), as a mapping of their own, a dict or pairs.
    """
    try:
        text = _retry_after_text(error)
        if text is None:
            return None
        if _SECONDS.fullmatch(text):
            return math.ceil(float(text) * 1_000)
        return None if now_ms is None else max(0, _http_date_ms(text) - now_ms)
    except Exception:  # noqa: BLE001 (attributes of foreign errors run foreign code)
        return None


def _retry_after_text(error: BaseException) -> str | None:
    for holder in (error, _part(error, "response")):
        headers = _part(holder, "headers")
        if headers is None:
            continue
        pairs = headers.items() if hasattr(headers, "items") else headers
        for count, (name, value) in enumerate(pairs):
            if count >= _HEADERS_MAX:
                break
            if _text(name).lower() == "retry-after":
                return _text(value).strip()
    return None


def _part(holder: Any, name: str) -> Any:
    if isinstance(holder, Mapping):
        return holder.get(name)
    try:
        return getattr(holder, name, None)
    except Exception:  # noqa: BLE001 (httpx raises RuntimeError where no response was set)
        return None


def _text(value: object) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _http_date_ms(text: str) -> Millis:
    # Here and not above: it imports sockets and much else, and few errors carry a date.
    from email.utils import parsedate_to_datetime

    when = parsedate_to_datetime(text)
    return round((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1_000)


# --- checks --------------------------------------------------------------------------------------


def _check_types(name: str, types: object) -> None:
    wanted = "a tuple of exception types" if name != "on" else "a dict from exception type to Retry"
    if not isinstance(types, tuple):
        _refuse(name, types, wanted)
    for cls in types:
        if not (isinstance(cls, type) and issubclass(cls, BaseException)):
            _refuse(name, cls, wanted)


def _refuse(name: str, value: object, wanted: str) -> NoReturn:
    given = class_name(value) if isinstance(value, type) else shown(value)
    raise ConfigError(
        f"The {name} of a Retry cannot be {given}.",
        means="Failures could not be tried again by such a policy.",
        todo=f"Give {wanted}.",
    )


NO_RETRY = Retry(max_tries=1)
