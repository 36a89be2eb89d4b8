"""Users, tokens and sessions: each change with its entry in the audit, or neither."""

from __future__ import annotations

from typing import Any

import msgspec

from onceward.core.credentials import Credential, Kind, SessionRow
from onceward.core.ports import Store
from onceward.testing.store_scene import START, StoreFactory, audit, together


def _credential(**changes: Any) -> Credential:
    values: dict[str, Any] = {
        "kind": Kind.USER,
        "id": "ann",
        "name": "ann",
        "role": "operator",
        "secret": "scrypt$1",
        "created_at": START,
    }
    return Credential(**{**values, **changes})


def _session(**changes: Any) -> SessionRow:
    values = {"id": "hash-1", "name": "ann", "csrf": "form", "created_at": START, "used_at": START}
    return SessionRow(**{**values, **changes})


def _verbs(store: Store) -> list[str]:
    return sorted(row.verb for row in store.audits(""))


def a_credential_is_written_once(stores: StoreFactory) -> None:
    """The second of a name is refused and changes nothing; the same one again, after a lost reply, is not."""
    store = stores.open()
    ann, entry = _credential(expires_at=START + 9), audit("", "user added")

    assert store.add_credential(ann, entry)
    assert store.add_credential(ann, entry)
    assert not store.add_credential(_credential(secret="scrypt$2", role="admin"), audit("", "user added"))  # noqa: S106
    assert store.add_credential(_credential(kind=Kind.TOKEN), audit("", "token added"))

    assert store.credential(Kind.USER, "ann") == ann
    assert store.credential(Kind.USER, "Ann") is None
    assert [row.kind for row in store.credentials()] == [Kind.TOKEN, Kind.USER]
    assert _verbs(store) == ["token added", "user added"]
    assert stores.open("other").credentials() == []


def one_of_two_that_take_a_name_at_once_gets_it(stores: StoreFactory) -> None:
    """And the audit tells of one."""
    first, second = stores.open(), stores.open()
    rows = [_credential(secret=f"scrypt${number}") for number in range(2)]

    done = together(
        lambda: first.add_credential(rows[0], audit("", "user added")),
        lambda: second.add_credential(rows[1], audit("", "user added")),
    )

    assert sorted(done) == [False, True]
    assert first.credential(Kind.USER, "ann") == rows[done.index(True)]
    assert _verbs(first) == ["user added"]


def another_password_ends_the_sessions_of_the_user(stores: StoreFactory) -> None:
    """And of nobody else; a user that is not there is not made."""
    store = stores.open()
    store.add_credential(_credential(), audit("", "user added"))
    for session in (_session(), _session(id="hash-2", name="bob"), _session(id="hash-3", name="")):
        store.add_session(session, audit("", "login"))

    changed = msgspec.structs.replace(_credential(), secret="scrypt$9", role="viewer")  # noqa: S106
    assert store.change_credential(changed, audit("", "password changed"))
    assert not store.change_credential(_credential(id="bob"), audit("", "password changed"))

    assert store.credential(Kind.USER, "ann") == changed
    assert [store.session(f"hash-{number}") is None for number in (1, 2, 3)] == [True, False, False]
    assert store.credential(Kind.USER, "bob") is None
    assert _verbs(store) == ["login", "login", "login", "password changed", "user added"]


def a_credential_is_dropped_once(stores: StoreFactory) -> None:
    """With the sessions of the user; the audit keeps what was, and tells of it once."""
    store = stores.open()
    store.add_credential(_credential(), audit("", "user added"))
    store.add_credential(_credential(kind=Kind.LINK), audit("", "link made"))
    store.add_session(_session(), audit("", "login"))
    entry = audit("", "user removed")

    assert not stores.open("other").drop_credential(Kind.USER, "ann", audit("", "user removed"))
    assert store.drop_credential(Kind.USER, "ann", entry)
    assert store.drop_credential(Kind.USER, "ann", entry)  # the same call, whose reply was lost
    assert not store.drop_credential(Kind.USER, "ann", audit("", "user removed"))

    assert store.credential(Kind.USER, "ann") is None
    assert store.credential(Kind.LINK, "ann") is not None
    assert store.session("hash-1") is None
    assert _verbs(store) == ["link made", "login", "user added", "user removed"]


def one_of_two_that_take_a_link_at_once_gets_in(stores: StoreFactory) -> None:
    """A link works once."""
    first, second = stores.open(), stores.open()
    first.add_credential(_credential(kind=Kind.LINK), audit("", "link made"))

    done = together(
        lambda: first.drop_credential(Kind.LINK, "ann", audit("", "link used")),
        lambda: second.drop_credential(Kind.LINK, "ann", audit("", "link used")),
    )

    assert sorted(done) == [False, True]


def sessions_are_used_and_end(stores: StoreFactory) -> None:
    """One by one, or all that were not used since or were made too long ago."""
    store = stores.open()
    times = {"hash-1": (START, START), "hash-2": (START - 50, START), "hash-3": (START, START - 50)}
    for name, (created_at, used_at) in times.items():
        store.add_session(_session(id=name, created_at=created_at, used_at=used_at), audit("", "login"))

    store.touch_session("hash-1", START + 7)
    store.drop_sessions(unused_since=START - 49, made_before=START - 49)

    assert store.session("hash-1") == _session(used_at=START + 7)
    assert (store.session("hash-2"), store.session("hash-3")) == (None, None)
    assert stores.open("other").session("hash-1") is None
    assert store.drop_session("hash-1", audit("", "logout"))
    assert not store.drop_session("hash-1", audit("", "logout"))
    assert _verbs(store) == ["login", "login", "login", "logout"]


def what_is_noted_of_nothing_changes_nothing(stores: StoreFactory) -> None:
    """A time of use, of a credential or a session that is gone meanwhile; an entry in the audit stays one."""
    store = stores.open()
    token, entry = _credential(kind=Kind.TOKEN), audit("", "login refused", detail="'; drop table audit; --")
    store.add_credential(token, audit("", "token added"))

    store.touch_credential(Kind.TOKEN, "ann", START + 5)
    store.touch_credential(Kind.TOKEN, "gone", START + 5)
    store.touch_session("gone", START + 5)
    store.add_audit(entry)
    store.add_audit(entry)

    assert store.credentials() == [msgspec.structs.replace(token, used_at=START + 5)]
    assert store.session("gone") is None
    assert entry in store.audits("")
    assert len(store.audits("")) == 2
