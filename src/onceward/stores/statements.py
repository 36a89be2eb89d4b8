"""Named SQL statements, kept in ``.sql`` files and rendered for one database.

A file holds statements that each begin with ``-- name: <name>`` and end before the next. What several
of them share stands above them as ``-- part: <name>``, and in them as ``{<name>}``. The macros of the schema (``{t}`` and friends) are filled in once, when a store is made; nothing of
a user's ever becomes SQL text (F44).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType

from onceward.core.model import Skip
from onceward.core.states import NoticeState, PromiseState, RunState, StepState

_NAME = re.compile(r"^-- (name|part): (\w+)\s*$", re.MULTILINE)


def _any_of(
    values: type[RunState | StepState | PromiseState | NoticeState | Skip], column: str = "state"
) -> str:
    """Give the condition of a CHECK for SQLite, which would build the list of an ``in`` anew for each row."""
    return " or ".join(f"{column} = '{value.value}'" for value in values)


def _in(values: type[RunState | StepState | PromiseState | NoticeState | Skip], column: str = "state") -> str:
    return f"{column} in ({', '.join(repr(value.value) for value in values)})"


SQLITE_MACROS: Mapping[str, str] = {
    "is_run_state": _any_of(RunState),
    "is_step_state": _any_of(StepState),
    "is_promise_state": _any_of(PromiseState),
    "is_notice_state": _any_of(NoticeState),
    "is_skip": _any_of(Skip, "reason"),
    "t": "onceward_",
    "i": "onceward_",
    "key": "text",
    "int": "integer",
    "small": "integer",
    "bytes": "blob",
    "packed": " without rowid",
    "hot": "",
    "if_received": "",
    "if_source": "",
    "if_delivery": "",
    "if_type": "",
    "by_identity": " indexed by onceward_run_identity",
    "if_at": "",
    "by_problem": " indexed by onceward_run_problem",
    "by_open": " indexed by onceward_run_open",
    "by_audit_time": " indexed by onceward_audit_time",
    "by_audit_request": " indexed by onceward_audit_request",
    "by_parent": " indexed by onceward_run_parent",
    "by_key": " indexed by onceward_run_key",
    "by_owner": " indexed by onceward_queue_owned",
    "by_event": " indexed by onceward_delivery_event",
    "by_body": " indexed by onceward_event_body",
    "by_replaced": " indexed by onceward_holder_replaced",
    "by_joined": " indexed by onceward_skipped_joined",
    "by_type": " indexed by onceward_wait_type",
    "by_subject": " indexed by onceward_event_subject",
    "by_received": " indexed by onceward_event_received",
    "by_replay": " indexed by onceward_run_replay",
    "by_due": " indexed by onceward_notice_due",
    "by_notice_time": " indexed by onceward_notice_time",
    "in_ids": "in (select value from json_each(:ids))",
    "for_update": "",
}


@functools.lru_cache(maxsize=16)
def postgres_macros(schema: str) -> Mapping[str, str]:
    """Give the macros for PostgreSQL; *schema* is a checked identifier."""
    macros = {
        "is_run_state": _in(RunState),
        "is_step_state": _in(StepState),
        "is_promise_state": _in(PromiseState),
        "is_notice_state": _in(NoticeState),
        "is_skip": _in(Skip, "reason"),
        "t": f'"{schema}".',
        "i": "",
        "key": 'text collate "C"',
        "int": "bigint",
        "small": "integer",
        "bytes": "bytea",
        "packed": "",
        "hot": " with (fillfactor = 45)",
        "if_received": " where received_at > 0",
        "if_source": " where source is not null",
        "if_delivery": " where delivery_id is not null",
        "if_type": " where type is not null",
        "by_identity": "",
        "if_at": " where at > 0",
        "by_problem": "",
        "by_open": "",
        "by_audit_time": "",
        "by_audit_request": "",
        "by_parent": "",
        "by_key": "",
        "by_owner": "",
        "by_event": "",
        "by_body": "",
        "by_replaced": "",
        "by_type": "",
        "by_subject": "",
        "by_received": "",
        "by_replay": "",
        "by_due": "",
        "by_notice_time": "",
        "in_ids": "= any (array(select json_array_elements_text(cast(:ids as json))))",
        "for_update": " for update",
    }
    return MappingProxyType(macros)


def render(text: str, macros: Mapping[str, str]) -> str:
    """Give *text* with each ``{macro}`` filled in; an unknown one is an error."""
    return re.sub(r"\{(\w+)\}", lambda match: macros[match.group(1)], text)


def read_sql(name: str) -> str:
    """Give the text of a file of the ``sql`` folder."""
    return files("onceward.stores").joinpath("sql", *name.split("/")).read_text("utf-8")


def load(name: str, macros: Mapping[str, str]) -> dict[str, str]:
    """Give the named statements of one file, comments stripped, macros filled in."""
    return dict(_loaded(name, tuple(macros.items())))


@functools.lru_cache(maxsize=16)
def _loaded(name: str, macros: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    found = _NAME.split(read_sql(name))
    statements, known = {}, dict(macros)
    for kind, its_name, body in zip(found[1::3], found[2::3], found[3::3], strict=True):
        lines = [line for line in body.splitlines() if not line.lstrip().startswith("--")]
        text = render("\n".join(lines).strip().rstrip(";"), known)
        if kind == "name":
            statements[its_name] = text
        else:
            assert its_name not in known, f"a part of {name} has the name of a macro: {its_name}"
            known[its_name] = text
    return statements
