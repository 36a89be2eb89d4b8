"""A short time of chaos on each store, and a judge that finds what it is made for."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping

import pytest

from tests.campaign.chaos.evidence import Action, Evidence, Fault, Made, Note, Reply, Sent, Stop
from tests.campaign.chaos.judge import RULES, judge
from tests.campaign.chaos.shape import MADE, OUTPUTS
from tests.campaign.chaos.world import Plan, play

SECOND = 1_000_000_000


@pytest.mark.timeout(900)  # a busy host starts servers and processes slowly
@pytest.mark.parametrize("store", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_processes_that_are_killed_stopped_and_deployed_break_no_promise(store: str) -> None:
    plan = Plan(
        "short",
        store,
        6,
        processes=3,
        every_s=(0.2, 1.0),
        lease_s=1.0,
        senders=2,
        clients=1,
        pause_s=0.5,
        faults_min=8,
    )

    outcome = play(plan)

    assert outcome.violations == [], outcome.home
    assert outcome.counts["faults"] >= 8
    assert outcome.counts["run: completed"] >= 8
    assert outcome.counts["process: starts"] > 3


# --- the judge --------------------------------------------------------------------------------------


def begin(run_id: str, stage: int, step: str, seconds: float, **more: int | str) -> Note:
    key = str(more.pop("key", f"key of {run_id} {more.get('generation', 1)} {step}"))
    given = {"generation": 1, "attempt": 1, "try_number": 1, "pid": 1, **more}
    return Note("begin", run_id, stage=stage, step=step, key=key, ns=int(seconds * SECOND), **given)  # type: ignore[arg-type]


def row(run_id: str, workflow: str, event_id: str = "", **more: object) -> dict[str, object]:
    return {
        "run_id": run_id,
        "workflow": workflow,
        "source": "stripe" if event_id else "start/works",
        "event_id": event_id or run_id,
        "state": "completed",
        "generation": 1,
        "output": OUTPUTS.get(workflow),
        "key": None,
        "replay_id": "",
        "replay_of": None,
        "is_called": False,
        "parent_run_id": None,
        "reason": None,
        "error": None,
        **more,
    }


def peace() -> Evidence:
    """Give evidence of a store of which nothing can be said."""
    about = {"nap": 1.0}
    rows = [
        row("p", "paid", "e1"),
        row("a", "audited", "e1"),
        row("n", "naps", "e2"),
        row("f", "family", "e3"),
        row("o", "order", "e4", key="order1"),
        row("t1", "in_turn", "e6", key="stock"),
        row("t2", "in_turn", "e7", key="stock"),
        row("x", "transacts", "e8"),
        row("s", "slow", state="cancelled"),
        row("r", "piece", generation=2),
        row("pp", "paid", "e1", replay_id="again", replay_of="p"),
    ]
    types = {
        "e1": ("charge.succeeded", ("p", "a")),
        "e2": ("payout.paid", ("n",)),
        "e3": ("invoice.paid", ("f",)),
        "e4": ("order.placed", ("o",)),
        "e5": ("order.placed", ("o",)),
        "e6": ("stock.changed", ("t1",)),
        "e7": ("stock.changed", ("t2",)),
        "e8": ("transfer.created", ("x",)),
    }
    return Evidence(
        notes=[
            begin("p", 1, "book", 1),
            begin("p", 2, "charge", 2, key="key of e1"),
            begin("p", 2, "charge", 3, key="key of e1", try_number=2),
            begin("p", 3, "ship", 4),
            begin("p", 3, "ship", 6, pid=2, attempt=2),  # its process was killed in between
            begin("pp", 2, "charge", 7, key="key of e1"),
            begin("n", 1, "before", 1),
            begin("n", 2, "after", 2.5),
            begin("t1", 1, "count", 1),
            begin("t2", 1, "count", 2),
            begin("s", 1, "loop1", 1),
            begin("s", 90, "clean", 9),
            begin("r", 1, "piece", 1),
            begin("r", 1, "piece", 4, generation=2),
        ],
        made=[Made(f"run of {what}", f"f/1/{what}") for what in MADE],
        sent=[
            Sent(event_id, kind, about, [Reply(0), Reply(202, runs), Reply(503), Reply(202, runs[::-1])])
            for event_id, (kind, runs) in types.items()
        ],
        actions=[
            Action("cancel", "s", state="cancelling", generation=1, ns=2 * SECOND),
            Action("restart", "r", "more", False, "new generation", "queued", 2, "", 3 * SECOND),
            Action("restart", "r", "more", False, "join", "running", 2, "", 4 * SECOND),
            Action("restart", "r", "at once", False, "join", "running", 2, "", 4 * SECOND),
            Action("replay", "p", "again", made="pp"),
            Action("replay", "p", "again", made="pp"),
            Action("start", "s", "slow", made="s"),
        ],
        stops=[Stop(7, 1 * SECOND, 8 * SECOND)],
        faults=[Fault("kill", 5 * SECOND, 5 * SECOND)],
        runs={str(one["run_id"]): one for one in rows},
        events=[{"source": "stripe", "id": event_id, "type": kind} for event_id, (kind, _) in types.items()],
        skipped=[{"source": "stripe", "event_id": "e5", "workflow": "order"}],
        rows=[("x", 1)],
    )


def set_row(run_id: str, **columns: object) -> Callable[[Evidence], None]:
    return lambda seen: seen.runs[run_id].update(columns)


def add(*notes: Note) -> Callable[[Evidence], None]:
    return lambda seen: seen.notes.extend(notes)


def act(action: Action) -> Callable[[Evidence], None]:
    return lambda seen: seen.actions.append(action)


PLANTED: Mapping[str, tuple[str, Callable[[Evidence], object]]] = {
    "an accepted event is gone": ("accepted_deliveries", lambda seen: seen.events.pop(0)),
    "a run is gone": ("accepted_deliveries", lambda seen: seen.runs.pop("a")),
    "an event has two runs": (
        "accepted_deliveries",
        lambda seen: seen.runs.update(p2=row("p2", "paid", "e1")),
    ),
    "an event is never accepted": ("accepted_deliveries", lambda seen: seen.sent[0].replies.clear()),
    "an event was never sent": ("accepted_deliveries", lambda seen: seen.sent.pop()),
    "a redelivery is told another run": (
        "replies_agree",
        lambda seen: seen.sent[0].replies.append(Reply(200, ("p",))),
    ),
    "a sender is told of a run that there is not": ("replies_agree", lambda seen: seen.runs.pop("n")),
    "two runs of an order": (
        "one_run_has_a_key",
        lambda seen: seen.runs.update(o2=row("o2", "order", "e5", key="order1")),
    ),
    "a run goes on after its successor began": ("keys_are_held", add(begin("t1", 1, "count", 5, pid=3))),
    "a saved step runs again": (
        "saved_steps",
        add(begin("p", 2, "charge", 9, key="key of e1", try_number=2)),
    ),
    "a body runs twice without reason": (
        "bodies_run_twice",
        add(begin("a", 1, "look", 6), begin("a", 1, "look", 7)),
    ),
    "a step hands out another key": ("idempotency", add(begin("pp", 2, "charge", 9, key="other"))),
    "two steps hand out one key": ("idempotency", add(begin("a", 1, "look", 6, key="key of e1"))),
    "a try too many": ("tries", add(begin("a", 1, "look", 6, try_number=5))),
    "a try is counted back": (
        "tries",
        add(begin("a", 1, "look", 6, try_number=2), begin("a", 1, "look", 7)),
    ),
    "a sleep is cut short": ("sleeps", lambda seen: seen.sent[1].about.update(nap=2.0)),
    "a child is started twice": ("children", lambda seen: seen.made.append(Made("other", "f/1/start"))),
    "an emit is lost": ("children", lambda seen: seen.made.pop()),
    "a row is committed twice": ("transactions", lambda seen: seen.rows.append(("x", 1))),
    "a row is lost": ("transactions", lambda seen: seen.rows.clear()),
    "a run does not end": ("runs_end", set_row("p", state="sleeping")),
    "a run fails that should not": ("runs_end", set_row("n", state="failed")),
    "a run is cancelled by nobody": ("runs_end", set_row("n", state="cancelled")),
    "a run gives something else": ("runs_end", set_row("n", output='"else"')),
    "a cancelled run completes": ("cancels", set_row("s", state="completed")),
    "a cancelled run begins a step": ("cancels", add(begin("s", 2, "loop2", 9, pid=3))),
    "a restart happens twice": ("restarts", set_row("r", generation=4)),
    "a request restarts again": (
        "restarts",
        act(Action("restart", "r", "more", False, "new generation", "queued", 3)),
    ),
    "a restart is lost": ("restarts", set_row("r", generation=1)),
    "an older generation goes on": ("restarts", add(begin("r", 1, "piece", 8.5, pid=3))),
    "a replay is two runs": ("requests", act(Action("replay", "p", "again", made="o"))),
    "a start is two runs": ("requests", act(Action("start", "o", "slow", made="o"))),
}


def test_the_judge_finds_nothing_where_nothing_is() -> None:
    assert judge(peace()) == []


@pytest.mark.parametrize("planted", PLANTED)
def test_the_judge_finds(planted: str) -> None:
    rule, plant = PLANTED[planted]
    seen = copy.deepcopy(peace())
    plant(seen)

    assert any(text.startswith(rule) for text in judge(seen)), judge(seen)


def test_every_rule_has_a_planted_fault() -> None:
    names = [rule.__name__[1:] for rule in RULES]

    assert [name for name in names if not any(name.startswith(rule) for rule, _ in PLANTED.values())] == []


def test_a_stopped_process_may_still_begin_what_it_was_about_to() -> None:
    seen = peace()
    seen.notes += [
        begin("p", 2, "charge", 8.2, key="key of e1", try_number=2, pid=7),
        begin("s", 2, "x", 8.5, pid=7),
    ]

    assert judge(seen) == []
