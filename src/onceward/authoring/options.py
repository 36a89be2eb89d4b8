"""What a step or a workflow may be told about failing and time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from onceward.core import errors
from onceward.core.model import Millis
from onceward.core.retry import Retry
from onceward.core.rules import NO_RULES, STALE, Rules, checked_place
from onceward.core.shown import shown

DEFAULT_STEP_RETRY = Retry()
DEFAULT_RUN_RETRY = Retry(max_tries=1)
"""A run has one attempt by default: its steps already retry, and code between steps that failed
once fails again. Lost holders are not counted here."""


@dataclass(frozen=True, slots=True)
class StepOptions:
    """How one step is tried."""

    retry: Retry = DEFAULT_STEP_RETRY
    timeout_ms: Millis | None = None

    def __post_init__(self) -> None:
        """Refuse what is no policy before it is asked for one, which is when the step fails."""
        check_retry(self.retry, "step")


def check_retry(retry: object, whose: str) -> None:
    """Refuse a ``retry=`` that is no policy, such as a number.

    Raises:
        ConfigError: it is no `Retry`.
    """
    if isinstance(retry, Retry):
        return
    number = retry if type(retry) is int and retry > 0 else 3
    raise errors.ConfigError(
        f"The retry of a {whose} cannot be {shown(retry)}.",
        means="It is a policy, of which the number of tries is a part.",
        todo=f"Write Retry(max_tries={number}).",
    )


DEFAULT_OPTIONS = StepOptions()


def ordering(version: Any, stale: Any) -> tuple[Rules, Callable[[Any], Any] | None]:
    """Give the rules of ``version=`` and ``stale=``, and the function that fetches, if one was given.

    Raises:
        ConfigError: *version* is no place in an event, *stale* is nothing that there is, or stands alone.
    """
    if version is None:
        if stale is None:
            return NO_RULES, None
        raise errors.ConfigError(
            f"A workflow has stale={shown(stale)} and no version=.",
            means="Nothing tells which of two events is newer.",
            todo='Name the place of the version, for example version=event.payload["updated_at"].',
        )
    stale = STALE[0] if stale is None else stale
    fetch = None if isinstance(stale, str) or not callable(stale) else stale
    if fetch is None and stale not in STALE:
        raise errors.ConfigError(
            f"The stale of a workflow cannot be {shown(stale)}.",
            means="It says what becomes of an event that is older than one of the same subject.",
            todo='Write stale="drop", stale="mark", or a function of the event that fetches the current state.',
        )
    return Rules(version=checked_place(version, "version"), drops_stale=stale == STALE[0]), fetch
