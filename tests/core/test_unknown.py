"""Unknown outcomes: what a person is asked, which answers fit, and how a call's arguments are shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from onceward.core.errors import ConfigError, OncewardError, StateConflict
from onceward.core.model import RunRow, StepRow
from onceward.core.states import RunState, StepState
from onceward.core.unknown import (
    OUTCOME,
    Begun,
    answered,
    asked_about,
    begun_of,
    has_result,
    named,
    open_questions,
    reason_of,
    shown_arguments,
    still_asked,
)

HELD = RunRow("run_1", "buy", "start/buy", "evt_1", 1, RunState.HELD, generation=2, reason="lost")


def row(name: str, state: StepState = StepState.OPEN, *, kind: str = "run", **begun: Any) -> StepRow:
    values = {"at": 5, "try_number": 2, "attempt": 3, "process_id": "prc_1", "key": "ow_1", "is_asked": True}
    text = Begun(**{**values, **begun}).to_text()
    return StepRow(
        name=name, item="", ordinal=1, seq=1, kind=kind, state=state, attempt=1, started_at=4, begun=text
    )


def test_a_held_run_asks_about_steps_that_began_and_have_no_end() -> None:
    rows = [
        row("charge", why="its process was lost", arguments=msgspec.Raw(b'{"cents":5}')),
        row("done", StepState.DONE),
        row("not asked", is_asked=False),
        row("answered", answer="happened"),
        msgspec.structs.replace(row("no body"), begun=None),
        row("mail (undo)", kind="undo"),
    ]

    found = list(open_questions(HELD, rows).values())

    assert [(one.step, one.kind) for one in found] == [("charge", "run"), ("mail (undo)", "undo")]
    question = found[0]
    assert (question.run_id, question.generation, question.why) == ("run_1", 2, "its process was lost")
    assert (question.arguments, question.idempotency_key) == ('{"cents":5}', "ow_1")
    assert (question.began_at, question.try_number, question.attempt) == (5, 2, 3)
    assert question.process_id == "prc_1"
    assert question.answers == ("happened", "did_not_happen", "fail")
    running = RunRow("run_1", "buy", "start/buy", "evt_1", 1, RunState.RUNNING)
    assert open_questions(running, rows) == {}


def test_the_only_step_that_is_asked_about_need_not_be_named() -> None:
    rows = [row("charge"), row("mail")]

    assert asked_about(HELD, rows[:1], "happened", None) == rows[0]
    assert asked_about(HELD, rows, "did_not_happen", "mail") == rows[1]
    assert asked_about(HELD, rows, "fail", None) is None
    assert asked_about(HELD, rows, "fail", "mail") is None
    assert asked_about(HELD, [], "retry", None) is None


@pytest.mark.parametrize(
    ("steps", "word", "step", "error", "said"),
    [
        (["charge", "mail"], "happened", None, ConfigError, "does not say which step.*'charge', 'mail'"),
        (["charge"], "happened", "mail", ConfigError, "is about 'mail'.*asked is about 'charge'"),
        (["charge"], "retry", None, StateConflict, "whether something took effect outside"),
        ([], "happened", None, StateConflict, "Nothing is asked about a step's outcome"),
        ([], "maybe", None, ConfigError, "cannot be answered 'maybe': lost"),
        ([], "retry", "charge", ConfigError, "not held because of a step.*lost"),
    ],
)
def test_an_answer_that_does_not_fit_is_refused(
    steps: list[str], word: str, step: str | None, error: type[OncewardError], said: str
) -> None:
    with pytest.raises(error, match=said):
        asked_about(HELD, [row(name) for name in steps], word, step)


def test_of_a_try_that_only_began_nothing_is_known_and_nobody_is_asked() -> None:
    begun = Begun(at=5, try_number=2, attempt=3, process_id="prc_1", key="ow_1")

    assert (begun.why, begun.checks, begun.is_asked, begun.answer) == ("", 0, False, "")
    assert (bytes(begun.arguments), bytes(begun.result)) == (b"{}", b"null")
    assert json.loads(begun.to_text()) == {
        "at": 5,
        "try_number": 2,
        "attempt": 3,
        "process_id": "prc_1",
        "key": "ow_1",
    }


def test_an_answer_is_kept_in_the_record_and_the_others_are_still_asked() -> None:
    rows = [row("charge"), row("mail")]

    kept = answered(rows[0], "happened", '{"id":1}')

    begun = begun_of(kept)
    assert begun is not None
    assert (begun.answer, bytes(begun.result), begun.key) == ("happened", b'{"id":1}', "ow_1")
    assert still_asked(HELD, rows, kept) == ["mail"]
    without = begun_of(answered(rows[0], "fail", None))
    assert without is not None
    assert bytes(without.result) == b"null"
    assert begun_of(None) is None


def test_only_an_undoing_has_no_result() -> None:
    found = [has_result(row(name, kind=kind)) for name, kind in _KINDS]

    assert found == [True, False, True]


_KINDS = (("charge", "run"), ("charge (undo)", "undo"), (f"charge{OUTCOME}", "undo"))


def test_a_reason_names_the_steps_and_of_many_the_first() -> None:
    names = [f"s{number}" for number in range(11)]

    assert reason_of(["charge"]) == "outcome unknown: step 'charge'"
    assert reason_of(["charge", "mail"]) == "outcome unknown: steps 'charge', 'mail'"
    assert reason_of(names[:10]).endswith("'s9'")
    assert reason_of(names).endswith("'s9', …")


def charge(order: str, cents: int = 5, *, key: str = "") -> None: ...


def pay(connection: object, order: str) -> None: ...


class Odd:
    """Something that has no JSON."""


class Model:
    """Something that says itself what it shows, as models of pydantic do."""

    def model_dump(self, mode: str) -> dict[str, str]:
        return {"mode": mode}


class Hostile:
    """Something that cannot be looked at."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


def shown(function: Callable[..., Any], *args: Any, hidden: str | None = None, **kwargs: Any) -> Any:
    return json.loads(bytes(shown_arguments(function, args, kwargs, hidden)))


def test_arguments_are_shown_by_name_without_the_key() -> None:
    assert shown(charge, "A-1", key="ow_1", hidden="key") == {"order": "A-1"}
    assert shown(charge, "A-1", 7) == {"order": "A-1", "cents": 7}
    assert shown(charge, 1, 2, 3) == {"0": 1, "1": 2, "2": 3}
    assert json.loads(bytes(shown_arguments(pay, ("A-1",), {}, None, has_connection=True))) == {
        "order": "A-1"
    }
    assert named(charge, ("A-1",), {}, defaults=True) == {"order": "A-1", "cents": 5, "key": ""}


def test_what_has_no_json_is_shown_by_its_type_and_what_is_long_is_cut() -> None:
    assert shown(charge, Odd()) == {"order": f"<{__name__}.Odd>"}
    assert shown(charge, Model()) == {"order": {"mode": "json"}}
    assert shown(charge, Hostile()) == {"order": f"<{__name__}.Hostile>"}
    most = "x" * 1_998  # and two quotes
    assert shown(charge, most) == {"order": most}
    assert shown(charge, most + "x") == {"order": f'"{most}x… (2,001 bytes)'}


def test_of_very_many_arguments_the_first_are_shown() -> None:
    assert shown(print, *range(51)) == {"args": list(range(51))}
    words: dict[str, Any] = {f"a{number}": number for number in range(51)}

    assert list(shown(dict, **words)) == list(words)[:50]
