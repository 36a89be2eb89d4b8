"""Failpoints: which there are, what a commit passes, and that none costs anything while nobody listens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from onceward.core import failpoints
from onceward.core.model import AuditRow, EventRow, StepRow
from onceward.core.ports import Accept, Advance, Batch, Claim, RunMove, Steer
from onceward.core.states import RunState, StepState

COMMITS = ["accept", "claim", "step_start", "save", "sleep", "release", "cancel", "steer", "prune", "takeover", "end"]  # fmt: skip
OTHERS = """
    accept.before_insert accept.before_reply step.before_body step.after_body transaction.before_commit
    transaction.after_commit outbox.before_accept outbox.after_accept notice.before_send notice.after_send
    heartbeat.before_renew load.after_claim migrate.statement migrate.before_commit
"""
ACCEPT = Accept(EventRow("stripe", "evt_1", "order.paid", "{}", 1), [])


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.arm(None)


def move(state: RunState, due_at: int | None = None) -> RunMove:
    return RunMove(state, 1, 1, 0, 0, None, None, due_at=due_at)


def advance(state: StepState | None = None, kind: str = "run", to: RunMove | None = None) -> Advance:
    row: dict[str, Any] = {"item": "", "ordinal": 1, "seq": 1, "attempt": 1, "started_at": 1}
    steps = [] if state is None else [StepRow(name="pay", kind=kind, state=state, **row)]
    return Advance("run_1", 1, 1, steps=steps, move=to)


def test_scripts_find_the_failpoints_that_they_name() -> None:
    of_commits = {f"{kind}.{when}_commit" for kind in COMMITS for when in ("before", "after")}

    assert set(failpoints.REGISTRY) == {*of_commits, *OTHERS.split()}
    assert all(said.endswith(".") for said in failpoints.REGISTRY.values())


@pytest.mark.parametrize(
    ("batch", "kinds"),
    [
        ({}, ()),
        ({"accepts": [ACCEPT]}, ("accept",)),
        ({"claims": [Claim(1, ("buy",), 1)]}, ("claim",)),
        ({"advances": [advance()]}, ()),
        ({"advances": [advance(StepState.OPEN)]}, ("step_start",)),
        ({"advances": [advance(StepState.OPEN, "undo")]}, ("step_start",)),
        ({"advances": [advance(StepState.OPEN, "sleep")]}, ()),
        ({"advances": [advance(StepState.DONE, "sleep")]}, ("save",)),
        ({"advances": [advance(StepState.FAILED)]}, ("save",)),
        ({"advances": [advance(to=move(RunState.QUEUED, 1))]}, ("release",)),
        ({"advances": [advance(to=move(RunState.RUNNING))]}, ()),
        *(
            ({"advances": [advance(to=move(state, 1))]}, ("sleep",))
            for state in (RunState.SLEEPING, RunState.WAITING, RunState.BACKOFF)
        ),
        *(
            ({"advances": [advance(to=move(state))]}, ("end",))
            for state in (RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED, RunState.HELD)
        ),
        (
            {"accepts": [ACCEPT], "advances": [advance(StepState.DONE), advance(to=move(RunState.FAILED))]},
            ("accept", "save", "end"),
        ),
    ],
)
def test_a_commit_passes_the_failpoints_of_all_that_is_in_it(
    batch: dict[str, Any], kinds: tuple[str, ...]
) -> None:
    assert failpoints.kinds(Batch("b", **batch)) == kinds


@pytest.mark.parametrize(("verb", "kind"), [("cancel", "cancel"), ("retry", "steer"), ("answer", "steer")])
def test_only_a_cancel_is_told_from_what_else_operators_do(verb: str, kind: str) -> None:
    audit = AuditRow("aud_1", 1, "run_1", verb, "ann")
    steer = Steer("run_1", RunState.RUNNING, 1, 1, move(RunState.CANCELLING), audit)

    assert failpoints.steer_kind(steer) == kind


def test_who_listens_is_told_of_each_pass_until_nobody_does() -> None:
    passed: list[tuple[str, str]] = []
    failpoints.hit("save.before_commit")
    assert not failpoints.is_armed()

    failpoints.arm(lambda name, detail: passed.append((name, detail)))
    assert failpoints.is_armed()
    failpoints.hit("step.after_body", "pay")
    failpoints.hit("save.before_commit")
    failpoints.arm(None)
    failpoints.hit("save.after_commit")

    assert passed == [("step.after_body", "pay"), ("save.before_commit", "")]
