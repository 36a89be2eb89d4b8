"""Who may come in, as both stores keep it: the statements of ``access.sql``, asked in one way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from onceward.core.credentials import Credential, Kind, SessionRow
from onceward.core.model import AuditRow, Millis
from onceward.stores.rows import to_value, to_values

Asked = tuple[str, dict[str, str | int | None]]
"""A statement's name and its values."""


class StoredAccess:
    """The part of a store that implements `onceward.core.credentials.Credentials`."""

    def _look(self, name: str, **values: str | int | None) -> list[tuple[Any, ...]]:
        """Give the rows of one statement that only reads."""
        raise NotImplementedError

    def _change(self, *asked: Asked) -> list[list[tuple[Any, ...]]]:
        """Run statements in one transaction, the rest only where the first gave a row; give their rows."""
        raise NotImplementedError

    def credential(self, kind: Kind, id: str) -> Credential | None:  # noqa: A002 (the glossary's word)
        """Give one credential, or None."""
        rows = self._look("credential", kind=kind.value, id=id)
        return to_value(Credential, rows[0]) if rows else None

    def credentials(self) -> list[Credential]:
        """Give all of them, by kind and id."""
        return to_values(Credential, self._look("credentials"))

    def add_credential(self, row: Credential, audit: AuditRow) -> bool:
        """Write a new one with its audit entry; False where kind and id are taken."""
        return self._done(("add_credential", _values(row)), _entry(audit))

    def change_credential(self, row: Credential, audit: AuditRow) -> bool:
        """Put another secret and role in place and end the user's sessions; False where there is none."""
        return self._done(("change_credential", _values(row)), *_ended(row.kind, row.id), _entry(audit))

    def drop_credential(self, kind: Kind, id: str, audit: AuditRow) -> bool:  # noqa: A002
        """Delete one, and the sessions of a user; False where there is none."""
        dropped: Asked = ("drop_credential", {"kind": kind.value, "id": id})
        return self._done(dropped, *_ended(kind, id), _entry(audit)) or self._has(audit)

    def touch_credential(self, kind: Kind, id: str, now: Millis) -> None:  # noqa: A002
        """Note that it let somebody in."""
        self._change(("touch_credential", {"kind": kind.value, "id": id, "now": now}))

    def session(self, id: str) -> SessionRow | None:  # noqa: A002
        """Give one session, or None."""
        rows = self._look("session", id=id)
        return to_value(SessionRow, rows[0]) if rows else None

    def add_session(self, row: SessionRow, audit: AuditRow) -> None:
        """Write a new session, with its audit entry."""
        self._change(_entry(audit), ("add_session", _values(row)))

    def touch_session(self, id: str, now: Millis) -> None:  # noqa: A002
        """Note that it was used."""
        self._change(("touch_session", {"id": id, "now": now}))

    def drop_session(self, id: str, audit: AuditRow) -> bool:  # noqa: A002
        """End one, with its audit entry; False where there is none."""
        return self._done(("drop_session", {"id": id}), _entry(audit)) or self._has(audit)

    def drop_sessions(self, *, unused_since: Millis, made_before: Millis) -> None:
        """Delete the sessions that are over."""
        self._change(("drop_old_sessions", {"unused_since": unused_since, "made_before": made_before}))

    def _done(self, first: Asked, *rest: Asked) -> bool:
        return bool(self._change(first, *rest)[0])

    def _has(self, audit: AuditRow) -> bool:
        """Say whether a change was made before, by this very call, whose reply was lost."""
        return bool(self._look("has_audit", run_id=audit.run_id, audit_id=audit.audit_id))


def _ended(kind: Kind, id: str) -> Sequence[Asked]:  # noqa: A002
    return [("drop_user_sessions", {"id": id})] if kind is Kind.USER else []


def _entry(audit: AuditRow) -> Asked:
    return "note_audit", _values(audit)


def _values(row: msgspec.Struct) -> dict[str, str | int | None]:
    values: dict[str, str | int | None] = msgspec.structs.asdict(row)
    return {name: str(value) if isinstance(value, str) else value for name, value in values.items()}
