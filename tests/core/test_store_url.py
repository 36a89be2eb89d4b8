"""The store's URL: its forms, its errors, and that no password is ever shown."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward.core.errors import ConfigError
from onceward.core.store_url import MEMORY, PostgresUrl, SqliteUrl, masked, parse


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///orders.db", "orders.db"),
        ("sqlite:///data/orders.db", "data/orders.db"),
        ("sqlite:////var/lib/orders.db", "/var/lib/orders.db"),
        ("sqlite:///with%20space%3F.db", "with space?.db"),
        ("sqlite:///:memory:", MEMORY),
        ("sqlite://:memory:", MEMORY),
    ],
)
def test_a_sqlite_url_names_a_file_or_memory(url: str, path: str) -> None:
    parsed = parse(url)

    assert parsed == SqliteUrl(path)
    assert parsed.is_memory is (path == MEMORY)


@pytest.mark.parametrize(
    ("url", "dsn", "schema"),
    [
        ("postgresql://u:p@h:1/d", "postgresql://u:p@h:1/d", "onceward"),
        ("postgres://u@h/d", "postgresql://u@h/d", "onceward"),
        ("postgresql:///d?host=/run", "postgresql:///d?host=/run", "onceward"),
        ("postgresql://h/d?schema=shop", "postgresql://h/d", "shop"),
        ("postgresql://h/d?a=b+%41&schema=shop_2&c=d", "postgresql://h/d?a=b+%41&c=d", "shop_2"),
        ("postgresql://a:1,b:2/d", "postgresql://a:1,b:2/d", "onceward"),
    ],
)
def test_a_postgresql_url_is_libpqs_with_a_schema(url: str, dsn: str, schema: str) -> None:
    assert parse(url) == PostgresUrl(dsn, schema)


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("orders.db", "It is no URL"),
        ("", "It is no URL"),
        ("sqlite:orders.db", "It is no URL"),
        ("sqlite:///a\0b", "It is no URL"),
        ("sqlite://orders.db", "three slashes"),
        ("sqlite://host/orders.db", "three slashes"),
        ("sqlite://", "three slashes"),
        ("sqlite:///", "names no file"),
        ("sqlite:///data/", "names no file"),
        ("sqlite:///x.db?mode=ro", "no parameters"),
        ("sqlite:///x.db#a", "no parameters"),
        ("mysql://h/d", "the stores there are"),
        ("postgresql+asyncpg://h/d", "names a driver"),
        ("postgres+psycopg://h/d", "names a driver"),
        ("sqlite+aiosqlite:///x.db", "names a driver"),
        ("postgresql://h/d?schema=Shop", "plain lower-case name"),
        ("postgresql://h/d?schema=", "plain lower-case name"),
        ("postgresql://h/d?schema=a%22b", "plain lower-case name"),
        ("postgresql://h/d?schema=a&schema=b", "plain lower-case name"),
    ],
)
def test_another_form_is_refused_with_the_forms_there_are(url: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=hint) as caught:
        parse(url)

    assert "sqlite:///orders.db" in str(caught.value)


def test_a_store_is_shown_without_its_password() -> None:
    store = parse("postgresql://me:secret@h/d?sslpassword=other&schema=shop")

    assert store.show() == "postgresql://me:***@h/d?sslpassword=***&schema=shop"
    assert "secret" not in repr(store)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:///a%20b.db", "sqlite:///a b.db"),
        ("sqlite:////x/y.db", "sqlite:////x/y.db"),
        ("postgres://u@h/d", "postgresql://u@h/d"),
        ("postgresql://h/d?schema=onceward", "postgresql://h/d"),
        ("postgresql://h/d?schema=s", "postgresql://h/d?schema=s"),
        ("postgresql://h/d?schema=s&a=b", "postgresql://h/d?a=b&schema=s"),
    ],
)
def test_a_shown_store_can_be_read_again_and_has_its_schema_where_it_is_not_the_usual(
    url: str, shown: str
) -> None:
    assert parse(url).show() == shown
    assert parse(shown) == parse(url)


@given(
    st.text(st.characters(min_codepoint=33, max_codepoint=0x2FF), min_size=1).map(
        lambda text: f"Pw9{text}9wP"
    ),
    st.booleans(),
    st.sampled_from(
        [
            "postgresql://user:{}@host/db",
            "postgresql://user:{}@host:5432/db?schema=UPPER",
            "mysql://user:{}@host/db",
            "user:{}@host/db",
            "postgresql://us@er:{}@host/db",
            "postgresql+x://user:{}@host/db?password=a",
        ]
    ),
)
def test_no_password_of_any_form_is_shown(password: str, is_quoted: bool, form: str) -> None:
    written = quote(password, safe="") if is_quoted else password
    url = form.format(written)
    try:
        shown = parse(url).show()
    except ConfigError as error:
        shown = str(error)

    assert "Pw9" not in shown
    assert "9wP" not in shown
    assert "***" in shown


@pytest.mark.parametrize(
    "text", ["host=h password=hunter2 dbname=d", "host=h PASSWORD = 'hunter2 hunter2' x=y"]
)
def test_a_connection_string_of_words_is_masked_too(text: str) -> None:
    assert "hunter2" not in masked(text)
    assert "host=h" in masked(text)
