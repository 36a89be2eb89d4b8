"""The seed decides everything about the story but the times and the processes' ids."""

from __future__ import annotations

import json

import pytest

from onceward.cli.demo.plan import BAD_DELIVERIES, COPIES, DEPLOYS, ORDERS, Kind, planned
from onceward.cli.demo.sender import Sender
from onceward.core.errors import SignatureInvalid
from onceward.core.messages import HttpRequest
from onceward.sources import GitHub, Stripe

NOW = 1_764_000_000
SEEDS = range(40)


def test_a_seed_gives_the_same_story_twice() -> None:
    assert planned(7, NOW) == planned(7, NOW)


def test_seeds_vary_orders_amounts_order_deliveries_and_the_crash() -> None:
    plans = [planned(seed, NOW) for seed in SEEDS]

    for varied in (
        {tuple(plan.amounts) for plan in plans},
        {tuple(plan.amounts.values()) for plan in plans},
        {tuple(delivery.event.source for delivery in plan.deliveries) for plan in plans},
    ):
        assert len(varied) == len(plans)
    assert len({plan.kill_at for plan in plans}) > 5
    assert len({len(plan.deliveries) for plan in plans}) > 10


@pytest.mark.parametrize("seed", SEEDS)
def test_every_plan_can_be_told(seed: int) -> None:
    plan = planned(seed, NOW)
    genuine = [delivery for delivery in plan.deliveries if delivery.kind is Kind.GENUINE]

    assert ORDERS[0] <= len(plan.amounts) <= ORDERS[1]
    assert DEPLOYS[0] <= len(plan.events) - len(plan.amounts) <= DEPLOYS[1]
    assert 1 <= plan.kill_at <= len(plan.amounts)
    assert len({event.id for event in plan.events}) == len(plan.events)
    assert BAD_DELIVERIES[0] <= plan.count(genuine=False) <= BAD_DELIVERIES[1]
    for event in plan.events:
        times = [delivery.at for delivery in genuine if delivery.event is event]
        assert COPIES[0] <= len(times) <= COPIES[1]
        assert times[0] == times[1], "two copies arrive at the same instant"
    assert [delivery.at for delivery in plan.deliveries] == sorted(
        delivery.at for delivery in plan.deliveries
    )


def test_what_strangers_send_is_told_by_its_kinds() -> None:
    told = [planned(seed, NOW) for seed in SEEDS]

    for plan in told:
        assert set(plan.wrongs) == {str(delivery.kind) for delivery in plan.deliveries} - {"genuine"}
    assert min(len(plan.wrongs) for plan in told) < 4, "the story cannot say the same of all of them"


def test_the_providers_sources_believe_what_is_genuine_and_nothing_else() -> None:
    ours = {"stripe": Stripe(secrets="whsec_ours"), "github": GitHub(secrets="ours")}
    strangers = {"stripe": Stripe(secrets="whsec_theirs"), "github": GitHub(secrets="theirs")}
    sender = Sender(1, ours, strangers)
    seen = set()
    for delivery in planned(3, NOW).deliveries + planned(4, NOW).deliveries:
        headers, body = sender.written(delivery, now_ms=NOW * 1000)
        request = HttpRequest.of(body, headers)
        seen.add(delivery.kind)
        if delivery.kind is Kind.GENUINE:
            ours[delivery.event.source].verify(request, NOW * 1000)
            (incoming,) = ours[delivery.event.source].normalize(request)
            assert (incoming.id, incoming.type) == (delivery.event.id, delivery.event.type)
            assert json.loads(body) == delivery.event.payload
        else:
            with pytest.raises(SignatureInvalid):
                ours[delivery.event.source].verify(request, NOW * 1000)
    assert seen == set(Kind)
