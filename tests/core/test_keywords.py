"""Keywords that there are not: which word was meant, and how ours are written."""

from __future__ import annotations

from typing import Any

import pytest

from onceward.core.errors import ConfigError
from onceward.core.keywords import meant, refuse_unknown, spelled, unknown_word

OURS = ["retry", "timeout", "deadline", "on", "item", "key_scope", "effect", "key"]


@pytest.mark.parametrize(
    ("words", "ours"),
    [
        ("tries max_tries retries max_retries attempts max_attempts retry_policy", "retry"),
        ("backoff delay base cap factor", "retry"),
        ("time_limit time_out timeout_s timeout_ms timeout_seconds max_time", "timeout"),
        ("trigger triggers event events source listen", "on"),
        ("id index element", "item"),
        ("idempotency_key idempotency scope", "key_scope"),
        ("side_effect effects pure", "effect"),
        ("unique dedup dedupe", "key"),
    ],
)
def test_a_word_of_others_means_the_one_of_ours_that_the_place_knows(words: str, ours: str) -> None:
    assert {word: meant(word, OURS) for word in words.split()} == dict.fromkeys(words.split(), ours)
    assert meant("timeout", ["deadline", "on"]) == "deadline"
    assert meant("colour", OURS) is None


@pytest.mark.parametrize(
    ("word", "value", "todo"),
    [
        ("max_tries", 3, "Write retry=Retry(max_tries=3)."),
        ("max_tries", 999, "Write retry=Retry(max_tries=999)."),
        ("max_tries", 1_000, "Write retry=Retry(max_tries=5)."),
        ("max_tries", 1, "Write retry=Retry(max_tries=1)."),
        ("max_tries", 0, "Write retry=Retry(max_tries=5)."),
        ("max_tries", True, "Write retry=Retry(max_tries=5)."),
        ("max_tries", "3", "Write retry=Retry(max_tries=5)."),
        ("time_limit", 3, 'Write timeout="30s".'),
        ("deadlin", 3, 'Write deadline="1h".'),
        ("trigger", 3, 'Write on="order.paid".'),
        ("index", 3, "Write item=order.id."),
        ("idempotency_key", 3, 'Write key_scope="business".'),
        ("pure", 3, 'Write effect="pure".'),
        ("unique", 3, 'Write key=event.payload["order"].'),
        ("key_memor", 3, 'Write key_memory="24h".'),
        ("cent", 3, "Write cents=…."),
        ("colour", 3, f"There are: {', '.join([*OURS, 'key_memory', 'cents'])}."),
    ],
)
def test_an_unknown_word_is_answered_with_what_to_write(word: str, value: object, todo: str) -> None:
    error = unknown_word("@app.step has no option", word, value, [*OURS, "key_memory", "cents"], "No.")

    assert (error.what, error.means, error.todo) == (f"@app.step has no option {word!r}.", "No.", todo)


@pytest.mark.parametrize("word", ["undo", "compensate", "compensation", "rollback"])
def test_what_gives_a_step_back_is_written_beside_it(word: str) -> None:
    assert "@charge.undo" in unknown_word("There is no", word, 3, OURS, "").todo
    assert "@charge.undo" not in unknown_word("There is no", word, 3, [*OURS, word], "").todo


def test_a_function_answers_a_keyword_that_it_does_not_have() -> None:
    seen: list[tuple[str, dict[str, Any]]] = []

    @spelled("@app.step", lambda what, words: seen.append((what, dict(words))))
    def step(name: str, *, retry: int = 0, item: str = "") -> tuple[Any, ...]:
        return name, retry, item

    wrong: Any = step
    assert step("pay", item="a") == ("pay", 0, "a")
    with pytest.raises(ConfigError, match=r"@app\.step has no option 'max_tries'.*max_tries=2"):
        wrong("pay", max_tries=2)
    with pytest.raises(ConfigError, match="There are: retry, item"):
        wrong("pay", colour=2)
    assert seen == [
        ("@app.step", {"item": "a"}),
        ("@app.step", {"max_tries": 2}),
        ("@app.step", {"colour": 2}),
    ]


def test_where_all_stands_by_position_what_comes_after_the_first_are_the_options() -> None:
    @spelled("Retry")
    def made(self: object, tries: int = 1, base: str = "") -> None: ...

    wrong: Any = made
    with pytest.raises(ConfigError, match="There are: tries, base"):
        wrong(None, colour=2)


def test_a_function_that_takes_any_keyword_is_left_as_it_is() -> None:
    def anything(**words: int) -> dict[str, int]:
        return words

    assert spelled("x")(anything) is anything


def test_a_step_takes_the_options_of_run_and_the_keywords_of_its_function() -> None:
    refuse_unknown("pay", {"colour": 1}, None, ["retry"])
    refuse_unknown("pay", {"cents": 1}, frozenset({"cents"}), ["retry"])
    with pytest.raises(ConfigError, match="function of step 'pay' has a keyword 'colour'") as refused:
        refuse_unknown("pay", {"cents": 1, "colour": 1}, frozenset({"retry", "cents", "a"}), ["retry"])
    assert refused.value.todo == "There are: retry, a, cents."
