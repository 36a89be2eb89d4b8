"""What a workflow's rules say of an event before there is a run: read in the accepting process.

Nothing here may keep an event out: whatever a rule does with an event that it was not made for, the
event is stored and its sender told so.
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from onceward.authoring.event import Event
from onceward.core import json_plain
from onceward.core.model import EventRow, NewRun
from onceward.core.paths import Expr
from onceward.core.rules import Place, Rules, read, version_text
from onceward.core.shown import shown

_log = logging.getLogger("onceward.rules")


class Reading:
    """One event, as rules read it; decoded when the first of them asks.

    Args:
        event: as it will be stored.
        namespace: of this process.
        version: what its source says that it is.
    """

    def __init__(self, event: EventRow, namespace: str, version: int | None) -> None:
        self._event = event
        self._namespace = namespace
        self._version = version
        self._fields: dict[str, Any] | None = None

    def at(self, place: Place) -> Any:
        """Give the value at *place*.

        Raises:
            Exception: whatever a function raises; `PathMissing` where an expression finds nothing.
        """
        return read(place, self._named() if isinstance(place, Expr) else {}, Event(self._event))

    def _named(self) -> dict[str, Any]:
        if self._fields is None:
            event = self._event
            self._fields = {
                "namespace": self._namespace,
                "source": event.source,
                "id": event.id,
                "type": event.type,
                "subject": event.subject,
                "payload": None if event.payload is None else json_plain.decode_plain(event.payload),
                "occurred_at": event.occurred_at,
                "received_at": event.received_at,
                # Never the time instead: a mark of milliseconds would make every later number stale.
                "version": self._version,
            }
        return self._fields


def judged(run: NewRun, event: EventRow, rules: Rules, reading: Reading) -> NewRun:
    """Give a new run with what its workflow's rules say of the event."""
    if rules.version is None:
        return run
    version = _version(rules.version, event, run.workflow, reading)
    if version is None:
        return run
    return msgspec.structs.replace(run, version=version, drops_stale=rules.drops_stale)


def _version(place: Place, event: EventRow, workflow: str, reading: Reading) -> str | None:
    """Give the event's version; None, and a line in the log, where it cannot be compared with others."""
    try:
        value = reading.at(place)
    except Exception as error:  # noqa: BLE001 - the user's function, or an event it was not made for
        why = f"{type(error).__name__} was raised"
    else:
        text = version_text(value)
        if text is not None and event.subject is not None:
            return text
        why = "it has no subject" if text is not None else f"{shown(value)} is neither a number nor a time"
    _log.warning(
        "event %r of %r has no version for %s (%s); it runs as if it were the newest",
        event.id,
        event.source,
        workflow,
        why,
    )
    return None
