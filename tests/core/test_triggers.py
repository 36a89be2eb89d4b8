"""Triggers: which events fit which patterns, and that they come back from what is stored of them."""

from __future__ import annotations

import pytest

from onceward.core.errors import ConfigError
from onceward.core.triggers import OWN, Trigger, is_own


@pytest.mark.parametrize(
    ("pattern", "fitting", "other"),
    [
        ("invoice.paid", ["invoice.paid"], ["invoice.paid.late", "invoice", "invoice.pai"]),
        ("invoice.*", ["invoice.paid", "invoice.paid.late"], ["invoice", "invoice.", "invoices.paid"]),
        ("*", ["invoice.paid", "a"], []),
    ],
)
def test_a_pattern_is_exact_or_a_beginning_or_everything(
    pattern: str, fitting: list[str], other: list[str]
) -> None:
    trigger = Trigger("stripe", pattern)

    assert [kind for kind in (*fitting, *other) if trigger.matches("stripe", kind)] == fitting
    assert not any(trigger.matches("github", kind) for kind in fitting)


def test_our_own_events_are_those_that_were_emitted_here() -> None:
    sources = ["emit/order.paid", "run/run_1", "start/buy", "schedule/nightly", "stripe", "own", "emit"]
    own = ["emit/order.paid", "run/run_1"]

    assert [source for source in sources if is_own(source)] == own
    assert [one for one in sources if Trigger(OWN, "x").matches(one, "x")] == [*own, "own"]


@pytest.mark.parametrize("pattern", ["", "*.paid", "in*.paid", "invoice*", "a.*.*", "**"])
def test_a_pattern_that_could_not_be_meant_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigError):
        Trigger("stripe", pattern)


@pytest.mark.parametrize(
    ("trigger", "shown"),
    [
        (Trigger("stripe", "invoice.*"), "stripe invoice.*"),
        (Trigger(OWN, "order.paid"), "order.paid"),
        (Trigger("stripe", "*", ["==", 1, 2]), "stripe *"),
    ],
)
def test_a_trigger_comes_back_from_what_is_stored_and_is_shown_in_short(trigger: Trigger, shown: str) -> None:
    assert Trigger.from_data(trigger.to_data()) == trigger
    assert ("where" in trigger.to_data()) is (trigger.where is not None)
    assert trigger.show() == shown
