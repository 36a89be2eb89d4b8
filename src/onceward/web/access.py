"""Who may do what at the dashboard and the REST API."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Role(StrEnum):
    """What somebody may do; each includes the ones before it.

    A viewer sees everything that redaction lets through, an operator steers runs and redelivers, an
    admin also makes users and tokens.
    """

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


_RANK = {Role.VIEWER: 0, Role.OPERATOR: 1, Role.ADMIN: 2}


class Principal(msgspec.Struct, frozen=True):
    """Somebody who is known: a person with a session, or the holder of a token.

    Attributes:
        name: for the audit.
        role: what they may do.
        csrf: what a form of theirs must carry; empty for tokens, which browsers do not send by themselves.
    """

    name: str
    role: Role
    csrf: str = ""

    def may(self, role: Role) -> bool:
        """Say whether they have at least *role*."""
        return _RANK[self.role] >= _RANK[role]
