"""Who may look into a store and steer it: users, tokens, links for once, and their sessions, as rows.

A row holds nothing that lets anybody in: of a password a slow hash, of what is random a quick one.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

import msgspec

from onceward.core.model import AuditRow, Millis


class Kind(StrEnum):
    """What lets somebody in."""

    USER = "user"
    TOKEN = "token"  # noqa: S105 (the word, not one)
    LINK = "link"


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    """A user, a token, or a link that works once.

    Attributes:
        kind: which of them.
        id: of a user the name, of the others the public beginning of what was shown once.
        name: for people and the audit.
        role: see `onceward.web.access.Role`.
        secret: a hash, with what it takes to compute it again.
        expires_at: from then on it lets nobody in; None for never.
        used_at: roughly when it let somebody in for the last time.
    """

    kind: Kind
    id: str
    name: str
    role: str
    secret: str
    created_at: Millis
    expires_at: Millis | None = None
    used_at: Millis | None = None

    def __repr__(self) -> str:
        """Give what it is, without the hash."""
        return f"<{self.kind} {self.name!r}, {self.role}>"


class SessionRow(msgspec.Struct, frozen=True, kw_only=True):
    """A browser that is logged in.

    Attributes:
        id: a hash of what its cookie holds.
        name: of the user; empty for who came by a link.
        csrf: what its forms carry.
        used_at: roughly when it was used for the last time.
    """

    id: str
    name: str
    csrf: str
    created_at: Millis
    used_at: Millis


class Credentials(Protocol):
    """What a store does about who may come in. Every method blocks; each is one transaction."""

    def credential(self, kind: Kind, id: str) -> Credential | None:  # noqa: A002 (the glossary's word)
        """Give one credential, or None."""
        ...

    def credentials(self) -> list[Credential]:
        """Give all of them, by kind and id."""
        ...

    def add_credential(self, row: Credential, audit: AuditRow) -> bool:
        """Write a new one with its audit entry; False where kind and id are taken."""
        ...

    def change_credential(self, row: Credential, audit: AuditRow) -> bool:
        """Put another secret and role in place and end the user's sessions; False where there is none."""
        ...

    def drop_credential(self, kind: Kind, id: str, audit: AuditRow) -> bool:  # noqa: A002
        """Delete one, and the sessions of a user; False where there is none."""
        ...

    def touch_credential(self, kind: Kind, id: str, now: Millis) -> None:  # noqa: A002
        """Note that it let somebody in."""
        ...

    def session(self, id: str) -> SessionRow | None:  # noqa: A002
        """Give one session, or None."""
        ...

    def add_session(self, row: SessionRow, audit: AuditRow) -> None:
        """Write a new session, with its audit entry."""
        ...

    def touch_session(self, id: str, now: Millis) -> None:  # noqa: A002
        """Note that it was used."""
        ...

    def drop_session(self, id: str, audit: AuditRow) -> bool:  # noqa: A002
        """End one, with its audit entry; False where there is none."""
        ...

    def drop_sessions(self, *, unused_since: Millis, made_before: Millis) -> None:
        """Delete the sessions that are over."""
        ...
