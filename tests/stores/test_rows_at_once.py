"""Many rows by one statement."""

from __future__ import annotations

import sqlite3

import pytest

from onceward.stores.sqlite.rows_at_once import ROWS_MAX, SHAPES_MAX, RowsAtOnce, portions


@pytest.mark.parametrize("count", [0, 1, 2, 3, 50, ROWS_MAX, ROWS_MAX + 1, 3 * ROWS_MAX + 7])
def test_every_row_is_written_once_by_few_statements(count: int) -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("create table t (a integer primary key, b text)")
    seen: list[str] = []
    connection.set_trace_callback(seen.append)

    written = RowsAtOnce("insert into t (a, b) values (?, ?) on conflict do nothing").execute(
        connection, [(number, f"row {number}") for number in range(count)]
    )
    assert written == count

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


def _table() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("create table t (a integer primary key, b text, fixed integer, c text, d text)")
    return connection


INSERT = "insert into t (a, b, fixed, c, d) values (?, ?, 7, ?, ?) on conflict do nothing"


@pytest.mark.parametrize("count", [1, 2, 3, 64, 100])
def test_empty_columns_are_written_as_they_are(count: int) -> None:
    """In every mixture: a column that is empty in some rows only, in all, in none, in the first alone."""
    connection = _table()
    rows = RowsAtOnce(INSERT)
    wanted = []
    for shape in range(8):
        some = [
            (
                shape * 1_000 + number,
                None if shape & 1 else "b",
                None if shape & 2 and number % 2 == 0 else "c",
                None if shape & 4 and number == 0 else "d",
            )
            for number in range(count)
        ]
        assert rows.execute(connection, some) == count
        assert rows.execute(connection, some) == 0, "they are there already"
        wanted += [(a, b, 7, c, d) for a, b, c, d in some]
    assert connection.execute("select * from t order by a").fetchall() == sorted(wanted)
    connection.close()


def test_no_more_than_so_many_shapes_are_prepared() -> None:
    """Whatever comes, the texts that stay prepared are few; what has no shape of its own is bound."""
    columns = [f"c{number}" for number in range(12)]
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute(f"create table t (a integer primary key, {', '.join(columns)})")
    rows = RowsAtOnce(f"insert into t values (?, {', '.join('?' * len(columns))})")
    seen: list[str] = []
    for number in range(4 * SHAPES_MAX):
        row = (number, *(None if number >> place & 1 else place for place in range(12)))
        connection.set_trace_callback(lambda text: seen.append(text.partition("values")[0]))
        rows.execute(connection, [row])
        connection.set_trace_callback(None)
        assert connection.execute("select * from t where a = ?", (number,)).fetchone() == row
    assert len(rows.shapes) <= SHAPES_MAX + 1
    assert len(seen) == 4 * SHAPES_MAX
    connection.close()


@pytest.mark.parametrize("count", [1, 2, 3, 64, 100])
def test_what_all_rows_share_is_bound_once_and_stands_in_each(count: int) -> None:
    connection = _table()
    rows = RowsAtOnce("insert into t (b, a, fixed, c, d) values (?1, ?, 7, ?, ?)", "shared")
    some = [(number, None, "d" if number % 3 else None) for number in range(count)]

    assert rows.execute(connection, some) == count

    stored = connection.execute("select a, b, fixed, c, d from t order by a").fetchall()
    assert stored == [(a, "shared", 7, c, d) for a, c, d in some]
    connection.close()
