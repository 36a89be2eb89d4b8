"""What callers of the app hand in beside their payloads, checked before anything is done with it."""

from __future__ import annotations

from onceward.core import errors
from onceward.core.states import RunState

LIMIT_MAX = 1_000


def checked_state(state: RunState | str) -> RunState:
    """Give the state of that name."""
    try:
        return RunState(state)
    except ValueError:
        raise errors.ConfigError(
            f"There is no state {str(state)[:60]!r}.",
            means="No run could be in it.",
            todo=f"States are: {', '.join(RunState)}.",
        ) from None


DELIVERY_STATES = ("accepted", "duplicate", "clash", "unparsed")


def checked_delivery_state(state: str) -> str:
    """Give the state of a delivery if it is one."""
    if state not in DELIVERY_STATES:
        raise errors.ConfigError(
            f"There is no state {str(state)[:60]!r} of deliveries.",
            means="No delivery could be in it.",
            todo=f"States are: {', '.join(DELIVERY_STATES)}.",
        )
    return state


def checked_limit(limit: int) -> int:
    """Give the limit of a list if it is in range."""
    if not 1 <= limit <= LIMIT_MAX:
        raise errors.ConfigError(
            f"limit={limit} is not between 1 and {LIMIT_MAX:,}.", todo="Page with before=."
        )
    return limit


def clash(source: str, event_id: str) -> errors.IdClash:
    """Give the error for an id that stands for other content."""
    return errors.IdClash(
        f"The event {event_id!r} of {source!r} exists with other content.",
        means="The first stays as it is; nothing was stored.",
        todo="Use another id for another fact, or leave the id out.",
    )
