"""Many rows by one statement."""

from __future__ import annotations

import sqlite3

import pytest

from onceward.stores.sqlite.rows_at_once import ROWS_MAX, RowsAtOnce, portions


@pytest.mark.parametrize("count", [0, 1, 2, 3, 50, ROWS_MAX, ROWS_MAX + 1, 3 * ROWS_MAX + 7])
def test_every_row_is_written_once_by_few_statements(count: int) -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("create table t (a integer primary key, b text)")
    seen: list[str] = []
    connection.set_trace_callback(seen.append)

    RowsAtOnce("insert into t (a, b) values (?, ?) on conflict do nothing").execute(
        connection, [(number, f"row {number}") for number in range(count)]
    )

    connection.set_trace_callback(None)
    rows = connection.execute("select a, b from t order by a").fetchall()
    assert rows == [(number, f"row {number}") for number in range(count)]
    assert len(seen) == len(list(portions(count))) <= count // ROWS_MAX + ROWS_MAX.bit_length()
    connection.close()


def test_portions_are_powers_of_two_that_add_up() -> None:
    for count in range(1, 300):
        sizes = list(portions(count))
        assert sum(sizes) == count
        assert all(size & (size - 1) == 0 and size <= ROWS_MAX for size in sizes)
