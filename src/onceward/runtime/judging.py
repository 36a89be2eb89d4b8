"""What a workflow's rules say of an event before there is a run: read in the accepting process.

Nothing here may keep an event out: whatever a rule does with an event that it was not made for, the
event is stored and its sender told so.
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from onceward.authoring.event import Event
from onceward.authoring.workflow import Workflow
from onceward.core import ids
from onceward.core.model import EventRow, NewRun
from onceward.core.paths import Expr
from onceward.core.rules import Place, Rules, fields_of, key_text, read, version_text
from onceward.core.shown import shown
from onceward.runtime.records import one_line

_log = logging.getLogger("onceward.rules")


class Reading:
    """One event, as rules read it; decoded when the first of them asks.

    Args:
        event: as it will be stored.
        namespace: of this process.
        version: what its source says that it is.
    """

    def __init__(self, event: EventRow, namespace: str, version: int | None = None) -> None:
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

    @property
    def payload_hash(self) -> str:
        """Give what tells its payload from another."""
        return ids.content_hash(self._event.payload or "")

    def _named(self) -> dict[str, Any]:
        if self._fields is None:
            self._fields = fields_of(self._event, self._namespace, self._version)
        return self._fields


def as_seen(event: EventRow, workflow: Workflow[..., Any] | None) -> EventRow:
    """Give an event as rules see it: a start of a workflow with arguments has them by name."""
    if workflow is None or workflow.takes_event or not ids.is_start(event.source, event.id):
        return event
    return msgspec.structs.replace(event, payload=workflow.arguments_by_name(event.payload))


def judged(run: NewRun, event: EventRow, rules: Rules, reading: Reading) -> NewRun:
    """Give a new run with what its workflow's rules say of the event."""
    if rules.version is not None:
        version = _version(rules.version, event, run.workflow, reading)
        if version is not None:
            run = msgspec.structs.replace(run, version=version, drops_stale=rules.drops_stale)
    if rules.key is None:
        return run
    try:
        key = key_at(rules.key, reading)
    except KeyUntold as error:
        _log.error("a run of %s is held: %s", run.workflow, error)
        return msgspec.structs.replace(run, hold_reason=str(error))
    return msgspec.structs.replace(
        run,
        key=key,
        once=rules.once,
        window_ms=rules.window_ms,
        clash=rules.clash,
        payload_hash=reading.payload_hash,
    )


class KeyUntold(Exception):
    """An event from which the key of its run cannot be told, and why."""


def key_at(place: Place, reading: Reading) -> str:
    """Give the key of an event's run.

    Raises:
        KeyUntold: the event does not have one there, or the user's function raised.
    """
    try:
        value = reading.at(place)
    except Exception as error:
        raise KeyUntold(f"no key: {one_line(error)}") from error
    key = key_text(value)
    if key is None:
        raise KeyUntold(f"no key: {shown(value)} cannot be one")
    return key


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
