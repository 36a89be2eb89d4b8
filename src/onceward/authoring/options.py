"""What a step or a workflow may be told about failing and time."""

from __future__ import annotations

from dataclasses import dataclass

from onceward.authoring.keys import KEY_SCOPES, KeyScope
from onceward.core import errors
from onceward.core.duration import Duration, to_ms
from onceward.core.model import Millis
from onceward.core.retry import Retry
from onceward.core.shown import shown

DEFAULT_STEP_RETRY = Retry()
DEFAULT_RUN_RETRY = Retry(max_tries=1)
"""A run has one attempt by default: its steps already retry, and code between steps that failed
once fails again. Lost holders are not counted here."""


@dataclass(frozen=True, slots=True)
class StepOptions:
    """How one step is tried.

    Attributes:
        retry: its policy.
        timeout_ms: how long one try may take.
        key_scope: what its idempotency key belongs to.
        key_memory_ms: how long the receiver remembers the key, if that is known.
    """

    retry: Retry = DEFAULT_STEP_RETRY
    timeout_ms: Millis | None = None
    key_scope: KeyScope = "step"
    key_memory_ms: Millis | None = None

    def __post_init__(self) -> None:
        """Refuse what is no policy before it is asked for one, which is when the step fails."""
        check_retry(self.retry, "step")
        if self.key_scope not in KEY_SCOPES:
            raise errors.ConfigError(
                f"The key_scope of a step cannot be {shown(self.key_scope)}.",
                means="It says what the step's idempotency key belongs to.",
                todo='Write key_scope="step" for a key of this run\'s generation, or key_scope="business" '
                "for one that a restart and a replay hand out again.",
            )


def key_memory_of(key_memory: Duration | None, whose: str) -> Millis | None:
    """Give a ``key_memory=`` in milliseconds.

    Raises:
        ConfigError: it is no length of time.
    """
    return None if key_memory is None else to_ms(key_memory, what=f"key_memory of {whose}")


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
