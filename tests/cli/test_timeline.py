"""The timeline of a run: bars to scale, whatever their lengths."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from onceward.cli.console.page import lost_with, print_run
from onceward.cli.console.timeline import Bar, bars_of, drawn
from onceward.cli.console.words import length
from onceward.console.views import AttemptView, RunDetail, RunSummary, StepView
from onceward.web.dashboard.timeline import timeline


def bar(start: int, end: int, **changes: bool) -> Bar:
    return Bar("x", start, end, "done", "", **changes)


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (bar(0, 100), "##########"),
        (bar(0, 50), "#####     "),
        (bar(50, 100), "     #####"),
        (bar(20, 21), "  #       "),
        (bar(100, 100), "         #"),
        (bar(0, 50, is_wait=True, is_open=True), "....>     "),
    ],
    ids=str,
)
def test_a_bar_is_drawn_to_scale_and_never_empty(shown: Bar, expected: str) -> None:
    assert drawn(shown, 0, 100, 10, is_ascii=True) == expected


def test_a_run_of_no_time_at_all_can_be_drawn() -> None:
    assert drawn(bar(7, 7), 7, 7, 10, is_ascii=True) == "#         "


def test_attempts_begin_where_the_one_before_ended() -> None:
    run = RunSummary(
        run_id="run_1",
        workflow="w",
        state="running",
        source="s",
        event_id="e",
        generation=1,
        attempt=3,
        created_at=0,
        started_at=100,
    )
    step = StepView(
        name="a",
        item="",
        ordinal=1,
        label="a",
        seq=1,
        kind="sleep",
        state="open",
        generation=1,
        attempt=3,
        tries=1,
        started_at=300,
        wake_at=5_000,
    )
    attempts = [
        AttemptView(generation=1, attempt=number, ended_at=at, outcome="failed", started_at=100)
        for number, at in ((1, 200), (2, 250))
    ]
    detail = RunDetail(
        run=run,
        event=None,
        payload=None,
        steps=[step],
        shown_generation=1,
        attempts=attempts,
        audits=[],
        children=[],
        verbs=[],
    )

    bars = bars_of(detail, 1_000)

    assert [(one.label, one.start, one.end) for one in bars] == [
        ("attempt 1", 100, 200),
        ("attempt 2", 200, 250),
        ("a", 300, 1_000),
    ]
    assert bars[-1].said == "700 ms  sleep, 4.0 s left"


def _of(kind: str, state: str, process_id: str | None, stopped_at: int | None, **step: Any) -> RunDetail:
    """Give a run whose first attempt was lost at 14,000, with one step that began at 1,000."""
    base: dict[str, Any] = {
        "source": "s",
        "event_id": "e",
        "generation": 1,
        "attempt": 2,
        "created_at": 0,
        "started_at": 0,
    }
    run = RunSummary(run_id="run_1", workflow="w", state=state, process_id=process_id, **base)
    one = StepView(
        name="a", item="", ordinal=1, label="a", seq=1, kind=kind, state="done" if "ended_at" in step else "open",
        generation=1, attempt=1, tries=1, started_at=1_000, **step,
    )  # fmt: skip
    lost = AttemptView(generation=1, attempt=1, ended_at=14_000, outcome="lost", started_at=0)
    return RunDetail(
        run=run, event=None, payload=None, steps=[one], shown_generation=1, attempts=[lost] if "ended_at" in step
        else [], audits=[], children=[], verbs=[], stopped_at=stopped_at,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("detail", "cli", "dashboard"),
    [
        (_of("run", "running", "p1", None), "19 s  run, under way", "19 s so far"),
        (_of("run", "running", "p1", 4_000), "at most 3.0 s  run, cut off", "3.0 s at most, cut off"),
        (_of("run", "held", None, 3_000), "at most 2.0 s  run, cut off", "2.0 s at most, cut off"),
        (_of("run", "completed", None, None, ended_at=17_000), "3.0 s  done, begun anew", "3.0 s"),
        (_of("sleep", "held", None, 3_000, wake_at=7_000), "6.0 s  sleep, over", "6.0 s, over"),
        (_of("sleep", "completed", None, None, ended_at=17_000), "16 s  sleep", "16 s"),
    ],
    ids=str,
)
def test_time_in_which_nobody_was_at_a_step_is_not_drawn_as_work(
    detail: RunDetail, cli: str, dashboard: str
) -> None:
    shown = bars_of(detail, 20_000)[-1] if detail.steps[0].ended_at is None else bars_of(detail, 20_000)[1]
    assert shown.said == cli
    assert timeline(detail, 20_000).steps[0].lasted == dashboard
    if "anew" in cli:
        assert drawn(shown, 1_000, 17_000, 16, is_ascii=True) == "............." + "###"


@pytest.mark.parametrize(
    ("ms", "words"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1_250, "1.2 s"),
        (9_960, "10 s"),
        (59_499, "59 s"),
        (59_999, "1 min"),
        (60_000, "1 min"),
        (3_599_000, "1 h"),
        (7_199_000, "2 h"),
        (48 * 3_600_000 - 1_000, "2 d"),
        (3 * 86_400_000 - 1_500, "3 d"),
        (47 * 3_600_000, "47 h"),
        (49 * 3_600_000, "2 d"),
    ],
)
def test_lengths_are_said_in_one_unit(ms: int, words: str) -> None:
    assert length(ms) == words


def test_the_processes_that_a_run_was_taken_over_from_are_named() -> None:
    lost = [
        AttemptView(generation=1, attempt=number, ended_at=number, outcome=outcome, process_id=f"p{number}")
        for number, outcome in enumerate(("lost", "failed", "lost"), 1)
    ]
    assert lost_with(lost) == "p1 (attempt 1), p3 (attempt 3)"
    assert lost_with(lost[1:2]) is None


def test_a_run_that_kills_its_process_says_behind_which_step(capsys: pytest.CaptureFixture[str]) -> None:
    run = RunSummary(
        run_id="run_1",
        workflow="w",
        state="held",
        source="s",
        event_id="e",
        generation=1,
        attempt=4,
        created_at=0,
        reason="poison: its process was lost 4 times",
    )
    step = StepView(
        name="fonts",
        item="",
        ordinal=1,
        label="fonts",
        seq=1,
        kind="run",
        state="done",
        generation=1,
        attempt=1,
        tries=1,
        started_at=1,
        ended_at=2,
    )
    detail = RunDetail(
        run=run,
        event=None,
        payload=None,
        steps=[step],
        shown_generation=1,
        attempts=[],
        audits=[],
        children=[],
        verbs=[],
        waits_for="a person",
    )
    print_run(detail, "", with_values=False)
    assert "What kills it is behind 'fonts', the last step that was saved." in capsys.readouterr().out
    print_run(msgspec.structs.replace(detail, steps=[]), "", with_values=False)
    assert "What kills it is before any step was saved." in capsys.readouterr().out
