"""What a transaction of the SQLite store reads and writes of waits and promises."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from onceward.core.awaiting import places_of_batch
from onceward.core.model import WaitRow
from onceward.core.ports import Advance, Batch, EventPlace
from onceward.stores.rows import to_values


def waits_at(
    connection: sqlite3.Connection, sql: Mapping[str, str], namespace: str, places: Sequence[EventPlace]
) -> list[WaitRow]:
    """Give the open waits at these places."""
    if not places or not _are_any(connection, sql, namespace):
        return []
    return _waits_at(connection, sql, namespace, places)


def waits_of_batch(
    connection: sqlite3.Connection, sql: Mapping[str, str], namespace: str, batch: Batch
) -> list[WaitRow]:
    """Give the open waits for the events that a batch may store."""
    brings_events = batch.accepts or any(advance.accepts for advance in batch.advances)
    if not brings_events or not _are_any(connection, sql, namespace):
        return []
    return _waits_at(connection, sql, namespace, places_of_batch(batch))


def _are_any(connection: sqlite3.Connection, sql: Mapping[str, str], namespace: str) -> bool:
    """Say whether anybody waits for anything: mostly nobody does, and a batch of deliveries has many places."""
    return connection.execute(sql["any_waits"], (namespace,)).fetchone() is not None


def _waits_at(
    connection: sqlite3.Connection, sql: Mapping[str, str], namespace: str, places: Sequence[EventPlace]
) -> list[WaitRow]:
    rows: list[tuple[Any, ...]] = []
    for place in places:
        rows += connection.execute(sql["waits_for"], (namespace, place.type, place.subject))
    return to_values(WaitRow, rows)


def write_waits(
    connection: sqlite3.Connection, sql: Mapping[str, str], namespace: str, advance: Advance
) -> None:
    """Write what a run's holder commits of its waits and promises."""
    run_id = advance.run_id
    for wait in advance.waits:
        connection.execute(
            sql["open_wait"],
            (
                namespace,
                run_id,
                wait.generation,
                *wait.key,
                wait.part,
                wait.type,
                wait.subject,
                wait.source,
                wait.since_at,
                wait.until_at,
                wait.condition,
            ),
        )
    for done in advance.done_waits:
        connection.execute(sql["end_wait"], (namespace, run_id, advance.generation, *done.key))
        if done.source is not None:
            connection.execute(sql["take_offer"], (namespace, run_id, done.source, done.event_id))
    for promise in advance.promises:
        connection.execute(
            sql["make_promise"],
            (
                namespace,
                promise.token_hash,
                run_id,
                promise.generation,
                *promise.key,
                promise.created_at,
                promise.state,
                promise.expires_at,
            ),
        )
