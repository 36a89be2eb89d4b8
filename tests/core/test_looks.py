"""What is looked for where nothing is said: everything, a page of it, and no more rows than one look reads."""

from __future__ import annotations

from onceward.core.asked import LOOK_MAX
from onceward.core.filters import DeliveryFilter, EventFilter, RunFilter
from onceward.core.looks import EventLook, RunLook


def test_a_look_finds_what_a_list_finds() -> None:
    for look, listed in ((RunLook(), RunFilter()), (EventLook(), EventFilter())):
        for name in type(listed).__struct_fields__:
            assert getattr(look, name) == getattr(listed, name), name


def test_a_page_has_a_hundred_rows_of_any_kind_and_age() -> None:
    runs, events, deliveries = RunLook(), EventLook(), DeliveryFilter()

    assert {one.limit for one in (runs, events, deliveries, RunFilter(), EventFilter())} == {100}
    assert (runs.look, events.look) == (LOOK_MAX, LOOK_MAX)
    assert (runs.since, deliveries.since, runs.created_since, events.since) == ("", "", 0, 0)
    assert runs.created_until >= 2**62
    assert not any((runs.problems, events.without_runs))
