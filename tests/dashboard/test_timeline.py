"""The timeline: to scale, whatever a run went through."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward.console.views import AttemptView, RunDetail, RunSummary, StepView
from onceward.web.dashboard.timeline import HAIR, Part, Timeline, Window, timeline

T0 = 1_764_000_000_000


def step(label: str, begin: int, end: int | None = None, **fields: object) -> StepView:
    state = fields.pop("state", "done" if end is not None else "open")
    known = {"name": label, "item": "", "ordinal": 1, "seq": 1, "kind": "run", "generation": 1, "attempt": 1}
    return StepView(
        **{**known, "tries": 1, **fields},  # type: ignore[arg-type]
        label=label,
        state=str(state),
        started_at=T0 + begin,
        ended_at=None if end is None else T0 + end,
    )


def detail(
    *steps: StepView,
    state: str = "completed",
    ended: int | None = 1_000,
    attempts: tuple[AttemptView, ...] = (),
    **fields: object,
) -> RunDetail:
    known = {"generation": 1, "attempt": len(attempts) + 1, "started_at": T0, "workflow": "w", "source": "s"}
    run = RunSummary(
        **{**known, "event_id": "e", **fields},  # type: ignore[arg-type]
        run_id="r",
        state=state,
        created_at=T0,
        ended_at=None if ended is None else T0 + ended,
    )
    return RunDetail(
        run=run, event=None, payload=None, steps=list(steps), shown_generation=1, attempts=list(attempts),
        audits=[], children=[], verbs=[],
    )  # fmt: skip


def drawn(line: Timeline) -> dict[str, list[tuple[float, float]]]:
    return {lane.label: [(bar.x, bar.width) for bar in lane.bars] for lane in line.attempts + line.steps}


def test_lengths_are_to_scale() -> None:
    line = timeline(detail(step("load", 0, 250), step("charge", 250, 1_000)), T0 + 5_000)

    assert drawn(line) == {"attempt 1": [(0, 100)], "load": [(0, 25)], "charge": [(25, 75)]}
    assert line.ticks == [(0, "0"), (20, "+200 ms"), (40, "+400 ms"), (60, "+600 ms"), (80, "+800 ms"), (100, "+1.0 s")]  # fmt: skip
    assert line.now is None


def test_what_is_too_short_to_see_is_seen() -> None:
    line = timeline(detail(step("drawn", 1_000, 1_000)), T0 + 5_000)

    assert drawn(line)["drawn"] == [(100 - HAIR, HAIR)]


def test_a_sleep_is_drawn_to_now_and_on_to_its_end_without_squeezing_the_past() -> None:
    sleeping = detail(
        step("load", 0, 1_000),
        step("cool", 1_000, kind="sleep", wake_at=T0 + 3_600_000),
        state="sleeping",
        ended=None,
        due_at=T0 + 3_600_000,
    )
    line = timeline(sleeping, T0 + 2_000)

    past, future = line.steps[1].bars
    assert (past.state, past.is_future, future.is_future) == ("asleep", False, True)
    assert past.x + past.width == pytest.approx(future.x)
    assert future.x + future.width == pytest.approx(100)
    assert drawn(line)["load"] == [(0, 25)]
    assert line.now == 50


def test_each_attempt_has_a_lane_and_can_be_shown_alone() -> None:
    lost = AttemptView(generation=1, attempt=1, started_at=T0, ended_at=T0 + 400, outcome="lost")
    of_another_life = AttemptView(generation=2, attempt=1, ended_at=T0 + 900, outcome="failed")
    run = detail(step("load", 100, 200), step("charge", 500, 900, attempt=2), attempts=(lost,))
    run.attempts.append(of_another_life)
    line = timeline(run, T0 + 5_000)

    assert [(lane.label, lane.state, lane.from_ms) for lane in line.attempts] == [
        ("attempt 1", "lost", 0),
        ("attempt 2", "completed", 500),
    ]
    alone = timeline(run, T0 + 5_000, Window(line.attempts[1].begin, line.attempts[1].end))
    assert alone.is_zoomed
    assert drawn(alone)["charge"] == [(0, 80)]
    assert drawn(alone)["load"] == []


def test_an_old_generation_ends_with_its_last_attempt() -> None:
    """And not with the run, which went on in a later one."""
    restarted = AttemptView(generation=1, attempt=1, ended_at=T0 + 1_000, outcome="restarted")
    run = detail(step("load", 0, 500), attempts=(restarted,), generation=2, ended=90_000)
    line = timeline(run, T0 + 100_000)

    assert line.end - line.begin == 1_000
    assert [lane.label for lane in line.attempts] == ["attempt 1"]


def test_copied_steps_are_told_and_take_no_time() -> None:
    line = timeline(detail(step("load", -90_000, -80_000, origin="r2 1"), step("charge", 0, 1_000)), T0)

    assert line.begin == T0
    assert line.steps[0].told == "load: done, copied from r2 1"


def test_a_run_of_thousands_of_steps_is_shown_in_parts_the_last_first() -> None:
    steps = timeline(detail(*(step(str(number), 0, 1) for number in range(450))), T0).steps

    def shown(at: int | None) -> tuple[int, str, str]:
        part = Part.of(steps, at)
        return part.first, part.steps[0].label, part.steps[-1].label

    assert shown(None) == (400, "400", "449")
    assert shown(0) == (0, "0", "199")
    assert shown(250) == (200, "200", "399")
    assert shown(10**9) == (400, "400", "449")
    assert Part.of([], None).steps == []


times = st.integers(-(10**13), 10**13)


@given(st.lists(st.tuples(times, st.none() | times, st.none() | times), max_size=5), st.none() | times, times)
def test_no_clock_can_break_the_picture(
    rows: list[tuple[int, int | None, int | None]], ended: int | None, now: int
) -> None:
    """Hosts' clocks differ: an end may lie before its beginning."""
    steps = [
        step(f"s{number}", begin, end, wake_at=None if wake is None else T0 + wake)
        for number, (begin, end, wake) in enumerate(rows)
    ]
    line = timeline(detail(*steps, ended=ended, state="completed" if ended else "running"), T0 + now)

    assert len(line.steps) == len(rows)
    for lane in line.attempts + line.steps:
        for bar in lane.bars:
            assert 0 <= bar.x <= 100
            assert 0 < bar.width <= 100 + HAIR
    assert len(line.ticks) <= 7
