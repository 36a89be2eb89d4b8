"""Compares what was counted with what was promised. Nothing here knows what the shop says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from onceward.cli.demo.plan import Plan
from onceward.cli.demo.sender import Tally


@dataclass(frozen=True)
class Counted:
    """What was counted, each by whoever is in a position to.

    Attributes:
        tally: replies, by the sender.
        events: stored events of the providers, from the store.
        runs: their runs, from the store.
        completed: those of them that ended well, from the store.
        asked: requests for a charge, by the payment process from its ledger.
        made: charges, likewise.
        amount: their sum in cents, likewise.
        orders: how often each order was charged, likewise.
        kills: how often the shop was ended by SIGKILL, from its exit status.
    """

    tally: Tally
    events: int
    runs: int
    completed: int
    asked: int
    made: int
    amount: int
    orders: Mapping[str, int]
    kills: int


@dataclass(frozen=True)
class Check:
    """One line of the verdict."""

    label: str
    expected: str
    found: str
    is_right: bool
    remark: str = ""


@dataclass(frozen=True)
class Verdict:
    """Every check, and what they come to."""

    checks: tuple[Check, ...]

    @property
    def is_right(self) -> bool:
        """Say whether all of them are as promised."""
        return all(check.is_right for check in self.checks)

    @property
    def wrong(self) -> list[str]:
        """Give the labels of those that are not."""
        return [check.label.strip() for check in self.checks if not check.is_right]


def judged(plan: Plan, counted: Counted) -> Verdict:
    """Compare the plan with what was counted."""
    tally, events, orders = counted.tally, len(plan.events), len(plan.amounts)
    genuine, bad = plan.count(genuine=True), plan.count(genuine=False)
    # A reply that the crash cut off may have been the one that said "new".
    duplicates_min = genuine - events
    has_one_run_each = all(len(runs) == 1 for runs in tally.runs.values())
    amount = sum(plan.amounts.values())
    checks = [
        _equal("deliveries answered", genuine, tally.delivered, "; ".join(tally.surprises[:3])),
        _equal("deliveries refused", bad, sum(tally.refused.values()), ", ".join(sorted(tally.refused))),
        Check(
            "deduplicated",
            f">= {duplicates_min}",
            str(tally.duplicates),
            tally.duplicates >= duplicates_min and has_one_run_each,
            "copies got the same run back" if has_one_run_each else "copies got runs of their own",
        ),
        _equal("events stored", events, counted.events),
        _equal("runs", events, counted.runs),
        _equal("runs completed", events, counted.completed),
        _equal("deaths by SIGKILL", 1, counted.kills, f"charge {plan.kill_at} was not saved yet"),
        # More than the orders: without it there was no crash that mattered, and nothing is shown.
        Check(
            "charges asked for",
            f"> {orders}",
            str(counted.asked),
            counted.asked > orders,
            f"{counted.asked - orders} asked for again",
        ),
        _equal("charges made", orders, counted.made, _charged(plan, counted)),
        Check(
            "amount charged, EUR",
            money(amount),
            money(counted.amount),
            counted.amount == amount and dict(counted.orders) == dict.fromkeys(plan.amounts, 1),
        ),
    ]
    return Verdict(tuple(checks))


def as_json(plan: Plan, counted: Counted, verdict: Verdict) -> dict[str, Any]:
    """Give the counts and the verdict as one object."""
    return {
        "ok": verdict.is_right,
        "seed": plan.seed,
        "delivered": counted.tally.delivered,
        "refused": sum(counted.tally.refused.values()),
        "deduplicated": counted.tally.duplicates,
        "unanswered": counted.tally.unanswered,
        "events": counted.events,
        "runs": counted.runs,
        "runs_completed": counted.completed,
        "kills": counted.kills,
        "orders": len(plan.amounts),
        "charges_asked": counted.asked,
        "charges_made": counted.made,
        "amount_charged": counted.amount,
        "wrong": verdict.wrong,
    }


def money(cents: int) -> str:
    """Give an amount as people read it."""
    return f"{cents / 100:,.2f}"


def _equal(label: str, expected: int, found: int, remark: str = "") -> Check:
    return Check(label, str(expected), str(found), expected == found, remark)


def _charged(plan: Plan, counted: Counted) -> str:
    often = sum(counted.orders.get(order, 0) > 1 for order in plan.amounts)
    never = sum(order not in counted.orders for order in plan.amounts)
    if often:
        return f"{often} orders more than once"
    return f"{never} orders never" if never else "each order once"
