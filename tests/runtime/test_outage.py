"""An outage is told when it begins and ends, and not at every poll in between."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from onceward.core.errors import StoreUnavailable
from onceward.runtime.outage import Outage

if TYPE_CHECKING:
    import pytest

AWAY = StoreUnavailable("The database is away.", means="Nothing is written.", todo="Look at the server.")


def test_an_hour_of_polls_takes_a_dozen_lines_and_one_that_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outage = Outage(logging.getLogger("onceward.worker"), "the store is away", "the store is back")

    for _ in range(3_600):
        outage.failed(AWAY)
    outage.worked()
    outage.worked()

    first, *between, last = [record.getMessage() for record in caplog.records]
    assert (
        first
        == "the store is away, trying again: The database is away. Nothing is written. Look at the server."
    )
    assert between == [
        f"the store is away, {2**power} times in a row: The database is away." for power in range(1, 12)
    ]
    assert last == "the store is back; failures in a row: 3600"


def test_the_next_outage_is_told_anew(caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage(logging.getLogger("onceward.worker"), "the store is away", "the store is back")
    for _ in range(2):
        outage.failed(AWAY)
        outage.worked()

    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "the store is away, trying again",
        "the store is back; failures in a row",
    ] * 2
