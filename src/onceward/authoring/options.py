"""What a step or a workflow may be told about failing and time."""

from __future__ import annotations

from dataclasses import dataclass

from onceward.core.model import Millis
from onceward.core.retry import Retry

DEFAULT_STEP_RETRY = Retry()
DEFAULT_RUN_RETRY = Retry(max_tries=1)
"""A run has one attempt by default: its steps already retry, and code between steps that failed
once fails again. Lost holders are not counted here."""


@dataclass(frozen=True, slots=True)
class StepOptions:
    """How one step is tried."""

    retry: Retry = DEFAULT_STEP_RETRY
    timeout_ms: Millis | None = None


DEFAULT_OPTIONS = StepOptions()
