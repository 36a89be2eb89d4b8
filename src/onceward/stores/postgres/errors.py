"""PostgreSQL's errors as ours: what is worth another try, what sinks one commit, what a person reads.

SQLSTATE decides, never the text, which the server may translate. The one exception is a failed
connection attempt, for which libpq gives nothing but text.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from onceward.core import errors

if TYPE_CHECKING:
    import psycopg


class Fault(Enum):
    """What an error means for whoever sent the statements."""

    LOST = "the connection is gone, and with it what was under way"
    AGAIN = "rolled back; the same statements may work now"
    MOVED = "rolled back; this server only reads, the primary may be another one now"
    DOWN = "rolled back; trying again at once is no use"
    REFUSED = "rolled back; these statements will never work"
    EVICTED = "rolled back; the guard found no row"
    UNPREPARED = "the server does not know a prepared statement: a pooler is in between"
    OUTDATED = "a table or column is missing"


PASSING = frozenset({Fault.LOST, Fault.AGAIN, Fault.MOVED, Fault.UNPREPARED})
"""Faults that another try, perhaps on a new connection, may not meet."""

BREAKING = frozenset({Fault.LOST, Fault.MOVED, Fault.DOWN, Fault.UNPREPARED})
"""Faults after which the connection is not used again."""

_FAULTS = {
    "22012": Fault.EVICTED,  # division by zero, which only the guard can do
    "25006": Fault.MOVED,  # read-only transaction
    "25P03": Fault.LOST,  # idle in transaction for too long
    "25P04": Fault.LOST,  # transaction time-out
    "26000": Fault.UNPREPARED,
    "3D000": Fault.DOWN,  # no such database
    "3F000": Fault.OUTDATED,  # no such schema
    "40001": Fault.AGAIN,
    "40P01": Fault.AGAIN,
    "42703": Fault.OUTDATED,  # no such column
    "42P01": Fault.OUTDATED,  # no such table
    "42P05": Fault.UNPREPARED,
    "53100": Fault.DOWN,  # disk full
    "55P03": Fault.AGAIN,  # a lock was not free in time
    "57014": Fault.AGAIN,  # statement time-out
}
_FAULT_CLASSES = {
    "08": Fault.LOST,
    "28": Fault.DOWN,  # authentication
    "53": Fault.AGAIN,  # out of memory, too many connections
    "57": Fault.LOST,  # shut down, crashed, starting up
    "58": Fault.DOWN,  # the server's own files
    "XX": Fault.DOWN,
}

_HOPELESS = ("authentication failed", "does not exist", "no pg_hba.conf entry", "no password supplied")
"""What libpq says of an attempt to connect that the next attempt will not change."""

_ADVICE = {
    "25006": "Connect to the primary, or wait until the standby is promoted; a process that runs tries again, one that starts ends with this.",
    "53100": "Free space on the database's disk; a process that runs tries again, one that starts ends with this.",
    "53300": "Raise max_connections, or put a pooler in between; a process that runs tries again, one that starts ends with this.",
    "42501": "Grant this role the rights on Onceward's schema; while there is none, CREATE on the database.",
}


def fault_of(error: psycopg.Error) -> Fault:
    """Say what *error* means."""
    state = error.sqlstate
    if state is None:
        is_hopeless = any(part in str(error) for part in _HOPELESS)
        return Fault.DOWN if is_hopeless else Fault.LOST
    return _FAULTS.get(state) or _FAULT_CLASSES.get(state[:2], Fault.REFUSED)


def text_of(error: psycopg.Error) -> str:
    """Give what the server said, on one line, without its details: those may show a row."""
    return " ".join((error.diag.message_primary or str(error)).split()) or type(error).__name__


def unavailable(error: psycopg.Error, address: str) -> errors.StoreUnavailable:
    """Give the error for a database that cannot be used now."""
    state = f"{error.sqlstate}: " if error.sqlstate else ""
    return errors.StoreUnavailable(
        f"The database {address} cannot be used now ({state}{text_of(error)}).",
        means="Nothing that was under way is known to be written.",
        todo=_ADVICE.get(
            error.sqlstate or "",
            "Check that the server runs, its address, name and password; a process that runs tries again, one that starts ends with this.",
        ),
    )


def refused(error: psycopg.Error, address: str) -> errors.StoreError:
    """Give the error for statements that the database will never take."""
    return errors.StoreError(
        f"The database {address} refused a statement ({error.sqlstate}: {text_of(error)}).",
        means="Nothing of this commit was written.",
        todo=_ADVICE.get(error.sqlstate or "", ""),
    )


def outdated(error: psycopg.Error, address: str) -> errors.SchemaOutdated:
    """Give the error for a schema that lacks what the statements name."""
    return errors.SchemaOutdated(
        f"The database {address} lacks a part of Onceward's schema ({error.sqlstate}: {text_of(error)}).",
        means="This Onceward cannot use it yet; nothing was written.",
        todo="Run `onceward migrate MODULE:APP`, or with --store.",
    )


def evicted(process_id: str) -> errors.LeaseLost:
    """Give the error for a process that the store no longer knows."""
    return errors.LeaseLost(
        f"Process {process_id} is no longer registered in the store.",
        means="Its lease ended and another process took its runs over; nothing of this commit was written.",
        todo="It registers anew by itself. If this happens often, give `lease` more time.",
    )


def translated(error: psycopg.Error, address: str) -> errors.StoreError:
    """Give our error for *error*, whatever it is."""
    fault = fault_of(error)
    if fault is Fault.REFUSED:
        return refused(error, address)
    if fault is Fault.OUTDATED:
        return outdated(error, address)
    return unavailable(error, address)
