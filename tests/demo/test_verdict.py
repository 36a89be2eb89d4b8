"""The verdict: right only when every count is; each lie is found by name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from onceward.cli.demo.plan import Kind, planned
from onceward.cli.demo.sender import Tally
from onceward.cli.demo.verdict import Counted, as_json, judged, money

PLAN = planned(5, 1_764_000_000)
ORDERS, EVENTS = len(PLAN.amounts), len(PLAN.events)
GENUINE, BAD = PLAN.count(genuine=True), PLAN.count(genuine=False)


def counted() -> Counted:
    tally = Tally(delivered=GENUINE, duplicates=GENUINE - EVENTS)
    tally.refused[Kind.FORGED] = BAD
    tally.runs = {(event.source, event.id): {(f"run_{event.id}",)} for event in PLAN.events}
    return Counted(
        tally=tally,
        events=EVENTS,
        runs=EVENTS,
        completed=EVENTS,
        asked=ORDERS + 1,
        made=ORDERS,
        amount=sum(PLAN.amounts.values()),
        orders=dict.fromkeys(PLAN.amounts, 1),
        kills=1,
    )


def test_what_was_promised_is_right() -> None:
    verdict = judged(PLAN, counted())

    assert (verdict.is_right, verdict.wrong) == (True, [])


FIRST = next(iter(PLAN.amounts))


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"events": EVENTS + 1}, ["events stored"]),
        ({"runs": EVENTS - 1}, ["runs"]),
        ({"completed": EVENTS - 1}, ["runs completed"]),
        ({"kills": 0}, ["deaths by SIGKILL"]),
        ({"asked": ORDERS}, ["charges asked for"]),
        ({"made": ORDERS + 1}, ["charges made"]),
        ({"made": ORDERS - 1}, ["charges made"]),
        ({"amount": 1}, ["amount charged, EUR"]),
        ({"orders": dict.fromkeys(PLAN.amounts, 1) | {FIRST: 2}}, ["amount charged, EUR"]),
        ({"orders": {}}, ["amount charged, EUR"]),
    ],
)
def test_each_wrong_count_is_named(change: dict[str, object], wrong: list[str]) -> None:
    verdict = judged(PLAN, replace(counted(), **change))  # type: ignore[arg-type]

    assert not verdict.is_right
    assert verdict.wrong == wrong


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (lambda tally: setattr(tally, "delivered", GENUINE - 1), "deliveries answered"),
        (lambda tally: tally.refused.clear(), "deliveries refused"),
        (lambda tally: setattr(tally, "duplicates", GENUINE - EVENTS - 1), "deduplicated"),
        (lambda tally: tally.runs[("stripe", PLAN.events[0].id)].add(("another",)), "deduplicated"),
    ],
)
def test_each_wrong_reply_is_named(change: object, wrong: str) -> None:
    found = counted()
    change(found.tally)  # type: ignore[operator]

    assert judged(PLAN, found).wrong == [wrong]


def test_a_reply_that_the_crash_cut_off_makes_one_duplicate_more() -> None:
    found = counted()
    found.tally.duplicates += 1

    assert judged(PLAN, found).is_right


def test_the_object_for_scripts_has_the_counts() -> None:
    found = counted()

    told = as_json(PLAN, found, judged(PLAN, found))

    assert told["ok"] is True
    assert (told["delivered"], told["refused"], told["events"], told["runs"]) == (
        GENUINE,
        BAD,
        EVENTS,
        EVENTS,
    )
    assert (told["charges_asked"], told["charges_made"]) == (ORDERS + 1, ORDERS)


def test_money_is_shown_as_people_read_it() -> None:
    assert [money(0), money(5), money(123_456)] == ["0.00", "0.05", "1,234.56"]
