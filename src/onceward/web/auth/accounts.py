"""Users, tokens, links and sessions of one namespace: made, changed, looked up, ended.

Every function blocks and asks the store; the command line calls them as they are, the web application
away from its event loop. Each change is in the audit, with who made it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from onceward.core import errors
from onceward.core.credentials import Credential, Kind, SessionRow
from onceward.core.model import AuditRow, Millis
from onceward.core.ports import Store
from onceward.core.shown import shown
from onceward.web.access import Principal, Role
from onceward.web.auth import passwords, secrets
from onceward.web.auth.passwords import Cost

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
IDLE_MS = HOUR
"""A session that nobody used for so long is over; a page that shows what is going on uses it."""
AGE_MS = DAY
"""A session is over then, however often it is used."""
LINK_MS = 10 * MINUTE
"""For so long a link works, once."""
GRAIN_MS = MINUTE
"""How finely it is noted when something was used; each note is a write."""

LOCAL = "local"
"""The name of who came by a link, which only the owner of the terminal has seen."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,99}")


@dataclass(frozen=True)
class Opened:
    """A new session.

    Attributes:
        cookie: what the browser is to keep; nobody else has it.
        principal: who it is.
    """

    cookie: str
    principal: Principal


class Accounts:
    """The users, tokens and sessions of a store's namespace.

    Args:
        store: which.
        now_ms: gives the store's time.
        new_id: gives ids that grow, for the audit.
        random_bytes: gives so many.
        cost: what a guess at a new password costs.
    """

    def __init__(
        self,
        store: Store,
        *,
        now_ms: Callable[[], Millis],
        new_id: Callable[[], str],
        random_bytes: Callable[[int], bytes],
        cost: Cost | None = None,
    ) -> None:
        self._store = store
        self._now_ms = now_ms
        self._new_id = new_id
        self._random_bytes = random_bytes
        self._cost = cost or Cost()

    def is_empty(self) -> bool:
        """Say whether there is neither a user nor a token that works."""
        now = self._now_ms()
        return not any(row.kind is not Kind.LINK and _is_valid(row, now) for row in self._store.credentials())

    def all_of(self, kind: Kind) -> list[Credential]:
        """Give those of a kind, by id."""
        return [row for row in self._store.credentials() if row.kind is kind]

    # --- users -----------------------------------------------------------------------------------

    def add_user(self, name: str, role: Role, password: str, *, actor: str) -> None:
        """Let somebody in by name and password.

        Raises:
            ConfigError: the name or the password cannot be used, or the name is taken.
        """
        kept = self._hash(passwords.checked_password(password))
        self._add(Kind.USER, _checked(name, "user"), name, role, kept, actor, None)

    def set_password(self, name: str, password: str, *, actor: str) -> None:
        """Give a user another password; browsers with the old one are logged out.

        Raises:
            ConfigError: the password cannot be used.
            NotFound: there is no such user.
        """
        user = self._known(Kind.USER, name)
        row = msgspec.structs.replace(user, secret=self._hash(passwords.checked_password(password)))
        if not self._store.change_credential(row, self._entry("user_password", actor, name)):
            raise _gone(Kind.USER, name)

    def set_role(self, name: str, role: Role, *, actor: str) -> None:
        """Give a user another role; they log in again.

        Raises:
            NotFound: there is no such user.
        """
        row = msgspec.structs.replace(self._known(Kind.USER, name), role=role.value)
        if not self._store.change_credential(row, self._entry("user_role", actor, f"{name}: {role}")):
            raise _gone(Kind.USER, name)

    def remove_user(self, name: str, *, actor: str) -> None:
        """Let a user in no more, and end their sessions.

        Raises:
            NotFound: there is no such user.
        """
        if not self._store.drop_credential(Kind.USER, name, self._entry("user_removed", actor, name)):
            raise _gone(Kind.USER, name)

    # --- tokens and links ------------------------------------------------------------------------

    def add_token(self, name: str, role: Role, *, actor: str, lasts_ms: Millis | None = None) -> str:
        """Make a token for programs, and give it: it is shown this once.

        Raises:
            ConfigError: the name cannot be used, or is that of another token.
        """
        if any(row.name == name for row in self.all_of(Kind.TOKEN)):
            raise _taken(Kind.TOKEN, name)
        drawn = secrets.draw(Kind.TOKEN, self._random_bytes)
        expires_at = None if lasts_ms is None else self._now_ms() + lasts_ms
        self._add(Kind.TOKEN, drawn.id, _checked(name, "token"), role, drawn.kept, actor, expires_at)
        return drawn.text

    def revoke_token(self, wanted: str, *, actor: str) -> None:
        """Let a token work no more.

        Args:
            wanted: its name, or its id.
            actor: who asks.

        Raises:
            NotFound: there is no such token.
        """
        for row in self.all_of(Kind.TOKEN):
            if wanted in (row.name, row.id):
                entry = self._entry("token_revoked", actor, f"{row.name} ({row.id})")
                if self._store.drop_credential(Kind.TOKEN, row.id, entry):
                    return
        raise _gone(Kind.TOKEN, wanted)

    def add_link(self, *, actor: str) -> str:
        """Make a link that lets its first user in as an admin, and give its secret."""
        now = self._now_ms()
        for row in self.all_of(Kind.LINK):
            if not _is_valid(row, now):
                self._store.drop_credential(Kind.LINK, row.id, self._entry("link_expired", actor, row.id))
        drawn = secrets.draw(Kind.LINK, self._random_bytes)
        self._add(Kind.LINK, drawn.id, LOCAL, Role.ADMIN, drawn.kept, actor, now + LINK_MS)
        return drawn.text

    # --- coming in -------------------------------------------------------------------------------

    def by_token(self, text: str) -> Principal | None:
        """Give the holder of a token; None where it does not work."""
        row = self._by_secret(Kind.TOKEN, text)
        if row is None:
            return None
        now = self._now_ms()
        if row.used_at is None or now - row.used_at >= GRAIN_MS:
            self._store.touch_credential(row.kind, row.id, now)
        return Principal(f"token:{row.name}", Role(row.role))

    def by_link(self, text: str) -> Opened | None:
        """Give a session for a link, which works no more from then on."""
        row = self._by_secret(Kind.LINK, text)
        if row is None or not self._store.drop_credential(
            row.kind, row.id, self._entry("link_used", LOCAL, row.id)
        ):
            return None
        return self._open("", LOCAL, Role.ADMIN, "by a link")

    def by_password(self, name: str, password: str, *, detail: str) -> Opened | None:
        """Give a session for a user; None, after the same work, where name or password are wrong."""
        user = self._store.credential(Kind.USER, name) if _NAME.fullmatch(name) else None
        is_right = passwords.is_match(
            password, passwords.of_nobody(self._cost) if user is None else user.secret
        )
        if user is None or not is_right or not password:
            return None
        return self._open(user.id, user.name, Role(user.role), detail)

    def refused(self, name: str, *, detail: str) -> None:
        """Note a login that failed; what is no user's name is not kept, since it may be a password."""
        known = _NAME.fullmatch(name) and self._store.credential(Kind.USER, name) is not None
        self._store.add_audit(self._entry("login_refused", name if known else "unknown", detail))

    def by_cookie(self, cookie: str) -> Principal | None:
        """Give who is logged in with a cookie; None where the session is over."""
        row = self._store.session(secrets.digest(cookie))
        now = self._now_ms()
        if row is None or now - row.used_at >= IDLE_MS or now - row.created_at >= AGE_MS:
            return None
        if row.name:
            user = self._store.credential(Kind.USER, row.name)
            if user is None:
                return None
            principal = Principal(user.name, Role(user.role), row.csrf)
        else:
            principal = Principal(LOCAL, Role.ADMIN, row.csrf)
        if now - row.used_at >= GRAIN_MS:
            self._store.touch_session(row.id, now)
        return principal

    def log_out(self, cookie: str, *, actor: str) -> None:
        """End a session."""
        self._store.drop_session(secrets.digest(cookie), self._entry("logout", actor, None))

    # --- the parts -------------------------------------------------------------------------------

    def _open(self, user: str, name: str, role: Role, detail: str) -> Opened:
        now = self._now_ms()
        self._store.drop_sessions(unused_since=now - IDLE_MS, made_before=now - AGE_MS)
        cookie, csrf = secrets.opaque(self._random_bytes), secrets.opaque(self._random_bytes)
        row = SessionRow(id=secrets.digest(cookie), name=user, csrf=csrf, created_at=now, used_at=now)
        self._store.add_session(row, self._entry("login", name, detail))
        return Opened(cookie, Principal(name, role, csrf))

    def _by_secret(self, kind: Kind, text: str) -> Credential | None:
        found = secrets.read(text)
        if found is None or found[0] is not kind:
            return None
        row = self._store.credential(*found)
        if row is None or not secrets.is_same(text, row.secret) or not _is_valid(row, self._now_ms()):
            return None
        return row

    def _hash(self, password: str) -> str:
        return passwords.hashed(password, self._random_bytes(passwords.SALT_BYTES), self._cost)

    def _add(
        self, kind: Kind, key: str, name: str, role: Role, kept: str, actor: str, expires_at: Millis | None
    ) -> None:
        row = Credential(
            kind=kind,
            id=key,
            name=name,
            role=role.value,
            secret=kept,
            created_at=self._now_ms(),
            expires_at=expires_at,
        )
        if not self._store.add_credential(row, self._entry(f"{kind}_added", actor, f"{name}: {role}")):
            raise _taken(kind, name)

    def _known(self, kind: Kind, key: str) -> Credential:
        row = self._store.credential(kind, key)
        if row is None:
            raise _gone(kind, key)
        return row

    def _entry(self, verb: str, actor: str, detail: str | None) -> AuditRow:
        return AuditRow(self._new_id(), self._now_ms(), "", verb, actor, detail)


def _is_valid(row: Credential, now: Millis) -> bool:
    return row.expires_at is None or now < row.expires_at


def _checked(name: str, what: str) -> str:
    if not _NAME.fullmatch(name):
        raise errors.ConfigError(
            f"The {what} name {shown(name)} cannot be used.",
            means="It is up to 100 letters, digits and . _ @ + - and begins with a letter or a digit.",
            todo="Choose such a name.",
        )
    return name


def _taken(kind: Kind, name: str) -> errors.ConfigError:
    return errors.ConfigError(
        f"There is a {kind} {shown(name)} already.",
        means="Nothing was changed.",
        todo="Choose another name, or remove the old one first.",
    )


def _gone(kind: Kind, name: str) -> errors.NotFound:
    return errors.NotFound(f"There is no {kind} {shown(name)} in this namespace.")
