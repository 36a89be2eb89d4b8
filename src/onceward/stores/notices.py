"""Notices, as both stores keep them: the statements of ``notices.sql``, asked in one way.

Those that write notices are not here: that is part of the transaction in which a run fails or is held.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from onceward.core import errors
from onceward.core.model import Millis
from onceward.core.notices import TAKEN_MS, UNSEEN_MS, NoticeAddressRow, NoticeRow
from onceward.core.states import NoticeState
from onceward.stores.rows import to_value, to_values
from onceward.stores.subjects import Do

T = TypeVar("T")

TOLD, GIVEN_UP = NoticeState.TOLD.value, NoticeState.GIVEN_UP.value


class StoredNotices:
    """The part of a store that implements `onceward.core.notices.Notices`."""

    def _look(self, name: str, **values: str | int | None) -> list[tuple[Any, ...]]:
        """Give the rows of one statement that only reads."""
        raise NotImplementedError

    def _transact(self, work: Callable[[Do], T]) -> T:
        """Do *work* in one transaction of its own."""
        raise NotImplementedError

    def know_addresses(self, rows: Sequence[NoticeAddressRow], *, is_start: bool) -> None:
        """Note that a process has these; forget those that none has had for long."""

        def work(do: Do) -> None:
            for row in sorted(rows, key=lambda row: row.address_id):
                do(
                    "know_address",
                    address_id=row.address_id,
                    shown=row.shown,
                    kinds=row.kinds,
                    seen_at=row.seen_at,
                )
                if is_start:
                    do("turn_on_address", address_id=row.address_id)
            if rows:
                do("forget_addresses", before=max(row.seen_at for row in rows) - UNSEEN_MS)

        self._transact(work)

    def notice_addresses(self) -> list[NoticeAddressRow]:
        """Give the addresses that there are notices for."""
        return to_values(NoticeAddressRow, self._look("notice_addresses"))

    def take_notices(self, address_ids: Sequence[str], now: Millis, limit: int) -> list[NoticeRow]:
        """Take notices that are due; those that another process takes first are left out."""

        def work(do: Do) -> list[NoticeRow]:
            due = do("due_notices", ids=_list(address_ids), now=now, limit=limit)
            taken: list[NoticeRow] = []
            for notice_id, address_id in sorted(due):
                key = {"notice_id": notice_id, "address_id": address_id}
                for row in do("take_notice", **key, now=now, until=now + TAKEN_MS):
                    try:
                        taken.append(to_value(NoticeRow, row))
                    except errors.StoreDamaged as error:
                        # Taken again and again it would keep the others from being sent (F27).
                        do("end_notice", **key, state=GIVEN_UP, now=now, trouble=f"damaged: {error.what}")
            return taken

        return sorted(self._transact(work), key=lambda row: (row.at, row.notice_id))

    def notice_told(self, row: NoticeRow, now: Millis) -> None:
        """Note that a receiver has it, whoever sent it."""
        self._transact(lambda do: do("end_notice", **_key(row), state=TOLD, now=now, trouble=None))

    def put_off_notices(self, rows: Sequence[NoticeRow]) -> None:
        """Write when they are sent next, save where another process took them since."""

        def work(do: Do) -> None:
            for row in sorted(rows, key=_order):
                do("put_off_notice", **_key(row), due_at=row.due_at, trouble=row.trouble, tries=row.tries)

        self._transact(work)

    def give_up_notices(self, rows: Sequence[NoticeRow], now: Millis) -> None:
        """Note that they are not sent any more."""

        def work(do: Do) -> None:
            for row in sorted(rows, key=_order):
                do("end_notice", **_key(row), state=GIVEN_UP, now=now, trouble=row.trouble)

        self._transact(work)

    def turn_off_address(self, address_id: str, now: Millis, trouble: str) -> int:
        """Write no more notices for an address and give up those it is owed."""

        def work(do: Do) -> int:
            do("turn_off_address", address_id=address_id, now=now)
            return len(do("give_up_notices_of", address_id=address_id, now=now, trouble=trouble))

        return self._transact(work)

    def give_up_old_notices(self, before: Millis, now: Millis, trouble: str) -> int:
        """Give up every notice of before, whosever it is."""
        return len(
            self._transact(lambda do: do("give_up_old_notices", before=before, now=now, trouble=trouble))
        )

    def notices(self, limit: int) -> list[NoticeRow]:
        """Give the latest, newest first."""
        return to_values(NoticeRow, self._look("notices", limit=limit))


def _order(row: NoticeRow) -> tuple[str, str]:
    return row.notice_id, row.address_id


def _key(row: NoticeRow) -> dict[str, str | int | None]:
    return {"notice_id": row.notice_id, "address_id": row.address_id}


def _list(values: Sequence[str]) -> str:
    return msgspec.json.encode(list(values)).decode()
