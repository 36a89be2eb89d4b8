"""What no output shows: values under names of secrets, wherever and however they are written."""

from __future__ import annotations

from typing import Any

import pytest

from onceward.core.errors import ConfigError
from onceward.core.redact import DEFAULT_RULES, DEPTH_MAX, HIDDEN, Redaction, words_of

USUAL = Redaction()


@pytest.mark.parametrize(
    "name",
    [
        "password",
        "userPassword",
        "USER_PASSWORD",
        "user-password",
        "client_secret",
        "accessToken",
        "Authorization",
        "proxy-authorization",
        "Set-Cookie",
        "x-api-key",
        "APIKey",
        "cardNumber",
    ],
)
def test_a_value_is_hidden_by_the_end_of_its_name(name: str) -> None:
    assert USUAL.value({"a": [{name: {"deep": "x"}}]}) == {"a": [{name: HIDDEN}]}
    assert USUAL.headers({name: "x", "accept": "y"}) == {name: HIDDEN, "accept": "y"}


def test_every_usual_name_is_hidden() -> None:
    names = [
        "authorization",
        "cookie",
        "password",
        "passwd",
        "passphrase",
        "passcode",
        "pwd",
        "secret",
        "secret_key",
        "signing_key",
        "token",
        "api_key",
        "apikey",
        "private_key",
        "access_key",
        "credential",
        "credentials",
        "card_number",
        "cvc",
        "cvv",
        "iban",
        "account_number",
        "ssn",
    ]

    assert {name for name in names if not USUAL.hides(name)} == set()
    assert {*names, "card.number"} == set(DEFAULT_RULES)


@pytest.mark.parametrize("name", ["token_count", "passwords_changed", "secretary", "number", "cookies"])
def test_a_name_that_only_resembles_one_is_shown(name: str) -> None:
    assert USUAL.value({name: "x"}) == {name: "x"}


def test_a_path_hides_a_field_only_below_the_other() -> None:
    rules = Redaction(["customer.email"])
    value = {"customer": {"email": "a", "id": 1}, "email": "b", "card": {"number": "4242"}}

    assert rules.value(value) == {
        "customer": {"email": HIDDEN, "id": 1},
        "email": "b",
        "card": {"number": HIDDEN},
    }
    assert value["email"] == "b"


def test_what_is_not_there_is_not_said_to_be_hidden() -> None:
    assert USUAL.value({"password": None}) == {"password": None}


def test_a_usual_rule_can_be_taken_away() -> None:
    assert Redaction(["!iban"]).value({"iban": "DE"}) == {"iban": "DE"}


@pytest.mark.parametrize("rule", ["a b", "", "!", "!color", "a..b", "a[0]", "-"])
def test_a_rule_that_means_nothing_is_refused(rule: str) -> None:
    with pytest.raises(ConfigError):
        Redaction([rule])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("user=ann&password=hunter2&x=1", f"user=ann&password={HIDDEN}&x=1"),
        ("Authorization: Bearer abc.def-1, next", f"Authorization: Bearer {HIDDEN}, next"),
        ('{"client_secret": "a \\"b", "id": 1', f'{{"client_secret": {HIDDEN}, "id": 1'),
        ("refused api_key='k 1' of ann", f"refused api_key={HIDDEN} of ann"),
        ("tokens: 3, secretary: Jo", "tokens: 3, secretary: Jo"),
        ("got {'password': 'hunter2 and mo…", f"got {{'password': {HIDDEN}"),
        ('"{\\"password\\": \\"hunter2\\"}"', f'"{{\\"password\\": {HIDDEN}}}"'),
        ("{'token': b'hunter2'}", f"{{'token': {HIDDEN}}}"),
        ("tokens=['a'], token=['hunter2']", f"tokens=['a'], token={HIDDEN}"),
        ("password2=hunter2", f"password2={HIDDEN}"),
        ("no reply of postgres://ann:hunter2@db/x", f"no reply of postgres://ann:{HIDDEN}@db/x"),
        ("('authorization', 'Bearer abcdefghijklmnop1')", f"('authorization', 'Bearer {HIDDEN}')"),
        ("https://example.com:8000/a@b", "https://example.com:8000/a@b"),
    ],
)
def test_texts_are_searched_for_names_with_values(text: str, shown: str) -> None:
    assert USUAL.text(text) == shown


def test_a_name_that_only_begins_before_a_texts_place_is_read_as_a_whole() -> None:
    rules = Redaction(["!token", "refresh_token"])

    assert rules.text("refresh_token=abc") == f"refresh_token={HIDDEN}"
    assert rules.text("x refreshToken=abc") == f"x refreshToken={HIDDEN}"
    assert rules.text("token=abc, refresh token=abc") == "token=abc, refresh token=abc"


def test_of_a_name_a_hundred_characters_before_its_last_word_are_read() -> None:
    rules = Redaction(["!token", "refresh_token"])

    def text(between: int) -> str:
        return f"refresh{'_' * between}token=abc"

    assert rules.text(text(93)) == text(93).replace("abc", HIDDEN)
    assert rules.text(text(94)) == text(94)


def test_what_is_too_deep_to_be_looked_at_is_hidden() -> None:
    value: Any = {"password": "hunter2"}
    for _ in range(DEPTH_MAX + 1):
        value = [value]

    assert "hunter2" not in str(USUAL.value(value))


@pytest.mark.parametrize(("levels", "shown"), [(200, "x"), (201, HIDDEN)])
def test_two_hundred_levels_are_looked_at(levels: int, shown: str) -> None:
    value: Any = "x"
    for _ in range(levels):
        value = [value]

    found = USUAL.value(value)
    for _ in range(levels):
        (found,) = found
    assert found == shown


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("userPassword", ("user", "password")),
        ("USER_PASSWORD", ("user", "password")),
        ("APIKey", ("api", "key")),
        ("password2", ("password",)),
        ("2", ("2",)),
        ("a2b", ("a", "2", "b")),
        ("--", ()),
    ],
)
def test_a_name_is_taken_apart_into_words(name: str, words: tuple[str, ...]) -> None:
    assert words_of(name) == words


def test_a_rule_has_at_most_a_hundred_characters() -> None:
    assert Redaction(["x" * 100]).hides("x" * 100)
    assert Redaction(["!iban", "iban"]).hides("iban")
    with pytest.raises(ConfigError, match="names no field"):
        Redaction(["x" * 101])
    with pytest.raises(ConfigError, match="takes away what is not there"):
        Redaction(["!colour"])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("bearer " + "x" * 15, "bearer " + "x" * 15),
        ("bearer " + "x" * 16, f"bearer {HIDDEN}"),
        ("db://ann:pw@h, db://bob:pw@h", f"db://ann:{HIDDEN}@h, db://bob:{HIDDEN}@h"),
        ("db://ann@h:1/x", "db://ann@h:1/x"),
        ("an e-mail to ann:pw@h", "an e-mail to ann:pw@h"),
    ],
)
def test_what_stands_in_an_address_or_behind_bearer_is_hidden_without_a_name(text: str, shown: str) -> None:
    assert USUAL.text(text) == shown


def test_without_any_rule_of_a_name_only_paths_hide() -> None:
    rules = Redaction([*(f"!{rule}" for rule in DEFAULT_RULES), "customer.mail"])

    assert not rules.hides("password")
    assert rules.text("password=hunter2") == "password=hunter2"
    assert rules.value({"customer": {"mail": "a"}, "mail": "b"}) == {
        "customer": {"mail": HIDDEN},
        "mail": "b",
    }


def test_texts_inside_values_are_searched_too() -> None:
    value = {"a": ['{"password":"hunter2","id":1}', "id=1"]}

    assert USUAL.value(value) == {"a": [f'{{"password":{HIDDEN},"id":1}}', "id=1"]}


@pytest.mark.parametrize("text", ["a", "-", "token", "token:'", 'token="\\', "://", "bearer "])
def test_a_long_text_takes_a_search_that_grows_with_it(text: str) -> None:
    """A stranger's body held the process up for a minute; the time is that of the watchdog of a test."""
    assert USUAL.text(text * (1_000_000 // len(text)))
