"""The settings table: who wins, what is refused and how it is said."""

from __future__ import annotations

from dataclasses import fields
from datetime import timedelta

import pytest

from onceward.core.errors import ConfigError
from onceward.core.notices import NoticeAddress
from onceward.core.setting import Kind, Setting
from onceward.core.settings import (
    CONTRADICTIONS,
    HEARTBEATS_PER_LEASE,
    SETTINGS,
    Contradiction,
    Settings,
    resolve,
    settings_markdown,
)

SECRET = "whsec_" + "QUJD" * 8
DURATIONS = [setting for setting in SETTINGS if setting.kind is Kind.DURATION]
NUMBERS = [setting for setting in SETTINGS if setting.kind in {Kind.COUNT, Kind.SIZE, Kind.DURATION}]


def refusal(arguments: dict[str, object], environ: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        resolve(SETTINGS, arguments, environ or {})
    return str(caught.value)


def test_without_arguments_and_environment_the_defaults_hold() -> None:
    settings = resolve(SETTINGS, {}, {})

    assert settings == Settings(
        store=None,
        namespace="default",
        concurrency=64,
        lease_ms=10_000,
        poll_ms=1_000,
        linger_ms=200,
        instance=None,
        body_bytes_max=5 * 1024 * 1024,
        value_bytes_max=1024 * 1024,
        drain_ms=25_000,
        threads=32,
        notify=True,
        pooler=None,
        strict=False,
        public_url=None,
        promise_secret=None,
        host="127.0.0.1",
        port=8000,
        metrics_port=None,
        trusted_proxies=None,
        api=True,
        dashboard=True,
        allowed_hosts=None,
        redact=None,
        notices=None,
        log_level="info",
        log_format="text",
    )


def test_numbers_have_the_bounds_that_users_know() -> None:
    assert {
        setting.name: (setting.show(setting.minimum), setting.show(setting.maximum)) for setting in NUMBERS
    } == {
        "concurrency": ("1", "100000"),
        "lease": ("200ms", "1d"),
        "poll": ("10ms", "10m"),
        "linger": ("0s", "1m"),
        "body_bytes_max": ("1KiB", "256MiB"),
        "value_bytes_max": ("1KiB", "256MiB"),
        "drain": ("0s", "1d"),
        "threads": ("1", "1000"),
        "port": ("0", "65535"),
        "metrics_port": ("0", "65535"),
    }


def test_every_setting_of_the_table_is_an_attribute_and_the_other_way_round() -> None:
    assert [setting.field for setting in SETTINGS] == [field.name for field in fields(Settings)]


def test_an_argument_wins_over_the_variable_which_wins_over_the_default() -> None:
    environ = {"ONCEWARD_CONCURRENCY": "7", "ONCEWARD_THREADS": "9"}

    settings = resolve(SETTINGS, {"concurrency": 3}, environ)

    assert (settings.concurrency, settings.threads, settings.port) == (3, 9, 8000)


def test_none_is_not_given() -> None:
    assert resolve(SETTINGS, {"concurrency": None}, {"ONCEWARD_CONCURRENCY": "7"}).concurrency == 7


@pytest.mark.parametrize("given", ["2s", "2000ms", timedelta(seconds=2), 2, 2.0])
def test_a_duration_is_read_in_each_of_its_forms(given: object) -> None:
    assert resolve(SETTINGS, {"lease": given}, {}).lease_ms == 2_000


@pytest.mark.parametrize(
    ("given", "size"), [("1KiB", 1024), ("2 MiB", 2 * 1024 * 1024), ("2048", 2048), (2048, 2048)]
)
def test_a_size_is_read_in_each_of_its_forms(given: object, size: int) -> None:
    assert resolve(SETTINGS, {"body_bytes_max": given}, {}).body_bytes_max == size


@pytest.mark.parametrize(
    ("given", "flag"),
    [
        *((text, True) for text in ("1", "true", "yes", "on", "TRUE", True)),
        *((text, False) for text in ("0", "false", "no", "off", "No", False)),
    ],
)
def test_a_flag_is_read_in_each_of_its_forms(given: object, flag: bool) -> None:
    assert resolve(SETTINGS, {"notify": given}, {}).notify is flag


@pytest.mark.parametrize(
    ("name", "choices"), [("log_level", "debug info warning error"), ("log_format", "text json")]
)
def test_a_choice_is_one_of_its_words_in_any_case(name: str, choices: str) -> None:
    found = [getattr(resolve(SETTINGS, {name: word.upper()}, {}), name) for word in choices.split()]

    assert found == choices.split()
    assert f"It is one of {', '.join(found)}." in refusal({name: "loud"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("concurrency", "100000"),
        ("port", "0"),
        ("namespace", "a" * 100),
        ("namespace", "A9._-"),
        ("host", "::"),
    ],
)
def test_a_value_at_the_edge_of_what_works_is_taken(name: str, value: str) -> None:
    assert str(getattr(resolve(SETTINGS, {name: value}, {}), name)) == value


@pytest.mark.parametrize("setting", NUMBERS, ids=lambda setting: setting.name)
def test_the_least_of_a_number_is_taken_and_less_is_not(setting: Setting) -> None:
    unit = timedelta(milliseconds=1) if setting in DURATIONS else 1

    assert setting.read(setting.minimum * unit) == setting.minimum
    assert setting.read(setting.maximum * unit) == setting.maximum
    with pytest.raises(ConfigError):
        setting.read((setting.minimum - 1) * unit)


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("store", None, "none"),
        ("notify", True, "on"),
        ("notify", False, "off"),
        ("lease", 90_000, "1m 30s"),
        ("body_bytes_max", 5 * 1024 * 1024, "5MiB"),
        ("body_bytes_max", 1024 * 1024 + 1024, "1025KiB"),
        ("body_bytes_max", 1025, "1025"),
        ("body_bytes_max", 0, "0"),
        ("port", 8_000, "8000"),
        ("concurrency", 1_024, "1024"),
        ("store", "postgresql://u:hunter2@h/d", "postgresql://u:***@h/d"),
        ("public_url", "https://u:hunter2@shop.example", "https://u:***@shop.example"),
    ],
)
def test_a_value_is_shown_as_it_could_be_written(name: str, value: object, shown: str) -> None:
    setting = next(setting for setting in SETTINGS if setting.name == name)

    assert setting.show(value) == shown


def test_the_command_line_says_what_stands_behind_an_option() -> None:
    """As ``--lease DURATION``."""
    words = {setting.kind.value for setting in SETTINGS if not setting.choices}

    assert words == {
        "URL",
        "name",
        "text",
        "secrets",
        "number",
        "bytes",
        "duration",
        "on or off",
        "addresses",
    }


def test_durations_and_sizes_say_their_unit() -> None:
    assert {(setting.kind, setting.unit) for setting in NUMBERS} == {
        (Kind.COUNT, ""),
        (Kind.SIZE, "bytes"),
        (Kind.DURATION, "ms"),
    }


def test_the_whole_table_can_be_given_as_variables() -> None:
    environ = {
        "ONCEWARD_STORE": "sqlite:///x.db",
        "ONCEWARD_NAMESPACE": "staging",
        "ONCEWARD_CONCURRENCY": "1",
        "ONCEWARD_LEASE": "4s",
        "ONCEWARD_POLL": "50ms",
        "ONCEWARD_LINGER": "0s",
        "ONCEWARD_INSTANCE": "web-1",
        "ONCEWARD_BODY_BYTES_MAX": "1MiB",
        "ONCEWARD_VALUE_BYTES_MAX": "1KiB",
        "ONCEWARD_DRAIN": "1m",
        "ONCEWARD_THREADS": "2",
        "ONCEWARD_NOTIFY": "off",
        "ONCEWARD_POOLER": "off",
        "ONCEWARD_STRICT": "on",
        "ONCEWARD_PUBLIC_URL": "https://shop.example",
        "ONCEWARD_PROMISE_SECRET": f"{'new-' * 8} {'old-' * 8}",
        "ONCEWARD_HOST": "0.0.0.0",
        "ONCEWARD_PORT": "0",
        "ONCEWARD_METRICS_PORT": "9464",
        "ONCEWARD_TRUSTED_PROXIES": "10.0.0.0/8",
        "ONCEWARD_API": "off",
        "ONCEWARD_DASHBOARD": "off",
        "ONCEWARD_ALLOWED_HOSTS": "runs.example.com",
        "ONCEWARD_REDACT": "birth_date customer.email !iban",
        "ONCEWARD_NOTICES": f"https://ops.example/ {SECRET} held",
        "ONCEWARD_LOG_LEVEL": "DEBUG",
        "ONCEWARD_LOG_FORMAT": "json",
        "PATH": "/usr/bin",
    }
    assert environ.keys() - {"PATH"} == {setting.env for setting in SETTINGS}

    settings = resolve(SETTINGS, {}, environ)

    assert settings == Settings(
        "sqlite:///x.db", "staging", 1, 4_000, 50, 0, "web-1", 2**20, 2**10, 60_000, 2, False, False, True,
        "https://shop.example", f"{'new-' * 8} {'old-' * 8}", "0.0.0.0", 0, 9464, "10.0.0.0/8", False, False, "runs.example.com",
        "birth_date customer.email !iban", (NoticeAddress("https://ops.example/", [SECRET], ["held"]),), "debug",
        "json",
    )  # fmt: skip


# --- what is refused ----------------------------------------------------------------------------


def test_an_unknown_variable_is_an_error_with_the_name_that_was_meant() -> None:
    assert "Did you mean ONCEWARD_CONCURRENCY?" in refusal({}, {"ONCEWARD_CONCURENCY": "3"})


def test_an_unknown_argument_is_an_error_with_the_name_that_was_meant() -> None:
    assert "Did you mean lease?" in refusal({"leese": "3s"})


def test_everything_that_is_wrong_is_told_at_once() -> None:
    said = refusal({"leese": "3s", "concurrency": 0, "poll": "1h"}, {"ONCEWARD_DRAIN": " "})

    assert said.startswith("4 settings cannot be used: ")
    for part in (
        "'leese'",
        "concurrency",
        "ONCEWARD_DRAIN",
        "Did you mean lease?",
        "It would have no effect.",
    ):
        assert part in said


def test_a_name_that_resembles_none_gets_the_list() -> None:
    assert "There are: " in refusal({}, {"ONCEWARD_XYZZY": "3"})


def test_variables_of_the_tests_and_of_other_commands_are_not_settings_and_not_errors() -> None:
    environ = {
        "ONCEWARD_FAILPOINT": "save.after_commit:kill",
        "ONCEWARD_TEST_TIER": "campaign",
        "ONCEWARD_SECRET": "s",
        "ONCEWARD_API_URL": "https://shop.example/api",
        "ONCEWARD_TOKEN": "t",
    }

    assert resolve(SETTINGS, {}, environ) == resolve(SETTINGS, {}, {})


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_an_empty_variable_is_an_error_for_every_setting(setting: Setting) -> None:
    env = setting.env

    assert f"The variable {env} is empty" in refusal({}, {env: " "})


@pytest.mark.parametrize("setting", NUMBERS, ids=lambda setting: setting.name)
def test_a_value_outside_its_range_is_refused_with_the_range(setting: Setting) -> None:
    name, maximum = setting.name, setting.maximum
    too_much = timedelta(milliseconds=maximum + 1) if setting in DURATIONS else maximum + 1

    message = refusal({name: too_much})

    assert f"The setting {name!r} cannot be" in message
    assert f" to {setting.show(maximum)}." in message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("concurrency", 0),
        ("concurrency", -1),
        ("concurrency", True),
        ("concurrency", 1.5),
        ("concurrency", "many"),
        ("concurrency", "9" * 40),
        ("lease", "10"),
        ("lease", "soon"),
        ("lease", -1),
        ("lease", float("nan")),
        ("lease", True),
        ("body_bytes_max", "5MB"),
        ("body_bytes_max", 10),
        ("notify", "maybe"),
        ("notify", 1),
        ("log_level", "loud"),
        ("log_format", "xml"),
        ("namespace", ""),
        ("namespace", "a/b"),
        ("namespace", "a" * 101),
        ("instance", 3),
        ("host", "a\nb"),
        ("host", ""),
        ("port", 65_536),
        ("store", 3),
        ("store", "orders.db"),
    ],
)
def test_a_value_that_cannot_work_is_refused_with_its_name(name: str, value: object) -> None:
    message = refusal({name: value})

    assert name in message or name == "store"
    assert message.count(".") >= 2, "what happened, what it means, what to do"


def test_only_a_setting_that_has_a_default_can_be_left_out_for_it() -> None:
    assert refusal({"port": "many"}).endswith("Give it such a value, or leave it out for 8000.")
    assert refusal({"metrics_port": "many"}).endswith("Give it such a value.")


def test_a_refused_store_does_not_show_its_password() -> None:
    message = refusal({}, {"ONCEWARD_STORE": "mysql://root:hunter2@host/db"})

    assert "mysql://root:***@host/db" in message
    assert "hunter2" not in message


def test_settings_do_not_show_the_store_in_their_repr() -> None:
    assert "hunter2" not in repr(resolve(SETTINGS, {"store": "postgresql://u:hunter2@h/d"}, {}))


# --- B019: values that contradict each other ---------------------------------------------------


@pytest.mark.parametrize("pair", CONTRADICTIONS, ids=lambda pair: f"{pair.smaller}-{pair.larger}")
def test_a_contradicting_pair_is_refused_by_naming_both(pair: Contradiction) -> None:
    smaller, larger = pair.smaller, pair.larger

    message = refusal({smaller: "50s", larger: "20s"})

    assert f"{smaller} = 50s is more than {larger} = 20s" in message


def test_equal_values_do_not_contradict_each_other_and_a_default_may_be_the_smaller() -> None:
    settings = resolve(SETTINGS, {"poll": "20s", "lease": "20s", "linger": "20s"}, {})

    assert (settings.poll_ms, settings.linger_ms, settings.lease_ms) == (20_000, 20_000, 20_000)
    assert "linger (the default) = 200ms" not in refusal({"poll": "11s"})
    assert "Lower poll or raise lease." in refusal({"poll": "11s"})
    assert refusal({"poll": "soon", "lease": "5ms"}).startswith("2 settings cannot be used")


def test_a_value_that_contradicts_a_default_says_that_it_is_the_default() -> None:
    message = refusal({}, {"ONCEWARD_POLL": "11s"})

    assert "ONCEWARD_POLL = 11s is more than lease (the default) = 10s" in message


def test_a_lease_always_spans_more_than_two_heartbeats() -> None:
    shortest = next(setting for setting in SETTINGS if setting.name == "lease").minimum

    settings = resolve(SETTINGS, {"lease": timedelta(milliseconds=shortest), "poll": "10ms"}, {})

    assert settings.lease_ms > 2 * settings.heartbeat_ms > 0
    assert HEARTBEATS_PER_LEASE > 2
    assert resolve(SETTINGS, {}, {}).heartbeat_ms == 2_500, "it renews four times as often, as its help says"


# --- the docs ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ({}, "http://127.0.0.1:8000"),
        ({"host": "0.0.0.0", "port": 9000}, "http://127.0.0.1:9000"),
        ({"host": "::", "port": 0}, "http://[::1]:<port>"),
        ({"host": "10.0.0.7"}, "http://10.0.0.7:8000"),
        ({"public_url": "https://shop.example/webhooks/"}, "https://shop.example/webhooks"),
    ],
)
def test_the_address_in_hints_is_the_configured_one(given: dict[str, object], address: str) -> None:
    assert resolve(SETTINGS, given, {}).address == address


def test_the_docs_have_a_row_for_every_setting_with_its_default() -> None:
    rows = settings_markdown().splitlines()[2:]

    assert len(rows) == len(SETTINGS)
    for setting, row in zip(SETTINGS, rows, strict=True):
        assert f"`{setting.name}` | `{setting.env}`" in row
        assert row.count(" | ") == 5, "a cell holds a bar of its own"
    assert "`10s`" in rows[3]
    assert "`5MiB`" in rows[7]
    cells = {row.split("`")[1]: row.split(" | ")[2:5] for row in rows}
    assert cells["lease"] == ["`10s`", "200ms", "1d"]
    assert cells["threads"] == ["`32`", "1", "1000"]
    assert cells["store"] == ["none", "", ""]
    assert cells["log_format"] == ["`text`", "text, json", ""]


def test_every_default_is_accepted_when_it_is_written_out() -> None:
    shown = {
        setting.env: setting.show(setting.default) for setting in SETTINGS if setting.default is not None
    }

    assert resolve(SETTINGS, {}, shown) == resolve(SETTINGS, {}, {})


@pytest.mark.parametrize("value", [7, b"x" * 32, f"{'long-' * 8}\n{'next-' * 8}", "long-" * 8 + "\0"])
def test_a_promise_secret_is_one_line_of_text_and_never_shown(value: object) -> None:
    said = refusal({"promise_secret": value})

    assert said.startswith("The setting 'promise_secret' is no text of one line.")
    assert repr(value) not in said
    assert "long-" not in said


@pytest.mark.parametrize("text", ["short", f"{'long-' * 8} short"])
def test_a_promise_secret_that_is_too_short_is_refused_at_once_and_not_shown(text: str) -> None:
    for given, environ in (({"promise_secret": text}, {}), ({}, {"ONCEWARD_PROMISE_SECRET": text})):
        with pytest.raises(ConfigError, match="fewer than 32 characters") as caught:
            resolve(SETTINGS, given, environ)
        assert "token_urlsafe(32)" in str(caught.value)
        assert "short" not in str(caught.value)
