"""How far bulk actions have come, as both stores keep it: the statements of ``bulk.sql``."""

from __future__ import annotations

import msgspec

from onceward.core.bulks import KEPT_MS, SILENT_MS, BulkRow
from onceward.stores.access import StoredAccess
from onceward.stores.rows import to_value


class StoredBulks(StoredAccess):
    """The part of a store that implements `onceward.core.bulks.KeepsBulks`; asked as who may come in is."""

    def bulk(self, bulk_id: str) -> BulkRow | None:
        """Give one, or None."""
        rows = self._look("bulk", bulk_id=bulk_id)
        return to_value(BulkRow, rows[0]) if rows else None

    def take_bulk(self, row: BulkRow) -> bool:
        """Write that it begins, or begins again where nobody is at it; False where somebody is."""
        taken = ("take_bulk", {**_values(row), "silent_before": row.told_at - SILENT_MS})
        return bool(self._change(taken, ("drop_old_bulks", {"before": row.told_at - KEPT_MS}))[0])

    def bulk_runs(self, bulk_id: str) -> str | None:
        """Give the runs of one as they were chosen, or None where they were not yet."""
        rows = self._look("bulk_runs", bulk_id=bulk_id)
        return rows[0][0] if rows else None

    def choose_bulk(self, bulk_id: str, teller: str, runs: str) -> bool:
        """Write which runs it is about, once, before any is touched; False where another teller has taken it."""
        return bool(self._change(("choose_bulk", {"bulk_id": bulk_id, "teller": teller, "runs": runs}))[0])

    def tell_bulk(self, row: BulkRow) -> bool:
        """Write how far it has come; False where another teller has taken it."""
        values = _values(row)
        for kept in ("begun_at", "actor", "asked"):
            del values[kept]
        return bool(self._change(("tell_bulk", values))[0])


def _values(row: BulkRow) -> dict[str, str | int | None]:
    return {**msgspec.structs.asdict(row), "is_over": int(row.is_over)}
