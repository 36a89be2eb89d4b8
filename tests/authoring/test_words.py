"""Keywords that there are not are told by the word that was meant."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from onceward import App, ConfigError, Context, Retry, SyncContext
from onceward.authoring.calls import prepare
from onceward.core.keywords import meant
from tests.engine.running import make_app, run_app

MEANT = [
    ("step", {"tries": 5}, r"'tries'.*Write retry=Retry\(max_tries=5\)"),
    ("step", {"max_tries": "many"}, r"Write retry=Retry\(max_tries=5\)"),
    ("step", {"timout": "5s"}, r"'timout'.*Write timeout=\"30s\""),
    ("step", {"time_limit": 5}, r"Write timeout="),
    ("step", {"key_scop": "business"}, r"Write key_scope=\"business\""),
    ("step", {"colour": "red"}, r"There are: name, retry, timeout, key_scope, key_memory, effect"),
    ("step", {"undo": print}, r"'undo'.*with @charge\.undo, where charge is the step"),
    ("step", {"compensate": print}, r"@charge\.undo"),
    ("transaction", {"undo": print}, r"@charge\.undo.*@app\.transaction"),
    ("transaction", {"retries": 3}, r"'retries'.*Write retry=Retry\(max_tries=3\)"),
    ("workflow", {"retries": 3}, r"'retries'.*Write retry=Retry\(max_tries=3\)"),
    ("workflow", {"timeout": "1h"}, r"'timeout'.*Write deadline=\"1h\""),
    ("workflow", {"trigger": "paid"}, r"Write on=\"order.paid\""),
    ("workflow", {"onn": "paid"}, r"Write on="),
    ("workflow", {"dead_line": "1h"}, r"Write deadline="),
]


@pytest.mark.parametrize(("decorator", "options", "told"), MEANT)
def test_a_decorator_names_the_right_word(decorator: str, options: dict[str, Any], told: str) -> None:
    app = App("sqlite:///:memory:")
    with pytest.raises(ConfigError, match=told) as caught:
        getattr(app, decorator)(**options)
    assert f"@app.{decorator} has no option" in caught.value.what


@pytest.mark.parametrize(
    ("words", "ours"),
    [
        ("tries max_tries retries max_retries attempts max_attempts retry_policy", "retry"),
        ("backoff delay base cap factor", "retry"),
        ("time_limit time_out timeout_s timeout_ms timeout_seconds max_time timeout", "deadline"),
        ("trigger triggers event events source listen", "on"),
        ("id index element", "item"),
        ("idempotency_key idempotency scope", "key_scope"),
        ("side_effect effects pure", "effect"),
        ("unique dedup dedupe", "key"),
    ],
)
def test_words_of_others_are_answered_with_ours(words: str, ours: str) -> None:
    known = ["retry", "deadline", "on", "item", "key_scope", "effect", "key"]

    assert {word: meant(word, known) for word in words.split()} == dict.fromkeys(words.split(), ours)
    assert meant("colour", known) is None


def test_the_options_that_there_are_are_seen_by_tools() -> None:
    for function in (App.step, App.workflow):
        assert "retry" in inspect.signature(function).parameters
        assert "**" not in str(inspect.signature(function))


async def charge(order: str, *, cents: int = 0) -> None: ...


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"max_tries": 3}, r"step 'charge'.*'max_tries'.*Write retry=Retry\(max_tries=3\)"),
        ({"undo": print}, r"'undo'.*with @charge\.undo.*made with @app\.step"),
        ({"timeoutt": "3s"}, r"Write timeout=\"30s\""),
        ({"cent": 3}, r"'cent'.*Write cents=…"),
        ({"colour": 3}, r"There are: item, retry, .*effect.*, cents, order"),
    ],
)
def test_a_run_step_names_the_right_word(options: dict[str, Any], told: str) -> None:
    for _ in range(2):  # what is remembered of the function says the same
        with pytest.raises(ConfigError, match=told):
            prepare("charge", charge, ("A-1",), dict(options))


def test_what_a_function_takes_is_passed() -> None:
    class Shop:
        def method(self, order: str, cents: int) -> None: ...

    def anything(**words: Any) -> None: ...

    assert prepare("a", charge, ("A",), {"cents": 3, "retry": Retry()})[3] == {"cents": 3}
    assert prepare("a", Shop().method, ("A",), {"cents": 3})[3] == {"cents": 3}
    assert prepare("a", anything, (), {"max_tries": 3})[3] == {"max_tries": 3}
    assert prepare("a", dict, (), {"max_tries": 3})[3] == {"max_tries": 3}
    with pytest.raises(ConfigError, match=r"'max_tries'.*retry=Retry"):
        prepare("a", Shop().method, ("A",), {"max_tries": 3})


def test_a_workflow_with_such_a_word_fails_at_once(tmp_path: Any) -> None:
    app = make_app(f"sqlite:///{tmp_path / 'store.db'}")
    told: list[str] = []

    @app.workflow
    async def flow(ctx: Context) -> None:
        step: Any = ctx.step
        for verb, args in ((step.run, (charge, "A")), (step.ensure, (charge, charge))):
            try:
                await verb("charge", *args, max_tries=3)
            except ConfigError as error:
                told.append(error.what)

    @app.workflow
    def plain(ctx: SyncContext) -> None:
        step: Any = ctx.step
        for verb, args in ((step.run, (charge, "A")), (step.ensure, (charge, charge))):
            try:
                verb("charge", *args, max_tries=3)
            except ConfigError as error:
                told.append(error.what)

    async def scenario() -> None:
        await (await app.start(flow)).result()
        await (await app.start(plain)).result()

    run_app(app, scenario)

    assert (
        told
        == [
            "Neither step.run nor the function of step 'charge' has a keyword 'max_tries'.",
            "step.ensure has no option 'max_tries'.",
        ]
        * 2
    )
