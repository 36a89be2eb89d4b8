"""What idempotency keys are made of: a function of what is stored, so that a plan can tell them."""

from __future__ import annotations

import hashlib

from onceward.core import ids


def business_parts(
    namespace: str, workflow: str, key: str | None, source: str, event_id: str
) -> tuple[str, ...]:
    """Give what a key of scope ``"business"`` is made of, beside its step.

    The run's own key where its workflow declares one, else the event: neither changes when the run
    is restarted or replayed.
    """
    about = ("event", source, event_id) if key is None else ("key", key)
    return ("business", namespace, workflow, *about)


def composed_key(*parts: str | int) -> str:
    """Give the key of a step.

    A hash, so that it is short, plain and says nothing about the data; the parts are joined as
    JSON, so that no two steps share one (RULINGS 12).
    """
    return "ow_" + hashlib.sha256(ids.composed(*parts).encode()).hexdigest()[:40]
