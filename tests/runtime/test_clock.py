"""The store's time as a process knows it, when somebody sets a clock."""

from __future__ import annotations

import pytest

from onceward.runtime.clock import JUMP_MS, StoreClock
from onceward.stores.postgres.clock import ServerClock

HOUR = 3_600_000


class _Clocks:
    def __init__(self) -> None:
        self.passed = 0
        self.store = 1_000_000

    def run(self, ms: int) -> None:
        self.passed += ms
        self.store += ms


@pytest.mark.parametrize("jump", [HOUR, -HOUR, JUMP_MS + 1, -JUMP_MS - 1])
def test_a_jump_of_this_hosts_clock_is_not_followed_and_one_of_a_server_is(jump: int) -> None:
    clocks = _Clocks()
    own = StoreClock(lambda: clocks.store, lambda: clocks.passed * 1_000_000)
    servers = StoreClock(lambda: clocks.store, lambda: clocks.passed * 1_000_000, follows=True)
    clocks.run(5_000)
    clocks.store += jump

    assert [own.refresh(), servers.refresh()] == [False, True]
    assert own.now_ms() == 1_005_000
    assert servers.now_ms() == 1_005_000 + jump
    assert not servers.refresh(), "it is over"


def test_drift_is_followed_by_both(caplog: pytest.LogCaptureFixture) -> None:
    clocks = _Clocks()
    both = [
        StoreClock(lambda: clocks.store, lambda: clocks.passed * 1_000_000, follows=follows)
        for follows in (False, True)
    ]
    clocks.run(60_000)
    clocks.store += 1_500

    assert [clock.refresh() for clock in both] == [False, False]
    assert [clock.now_ms() for clock in both] == [clocks.store] * 2
    assert not caplog.records


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
def test_a_servers_clock_that_is_set_counts_from_the_next_measurement(jump: int) -> None:
    """Also where it was asked more quickly before; a slow reply alone is no jump."""
    clocks = _Clocks()
    clock = ServerClock(lambda: clocks.passed)

    def ask(out_ms: int, back_ms: int) -> float:
        clocks.run(out_ms)
        at = clocks.store
        clocks.run(back_ms)
        return at

    clock.measure(lambda: ask(1, 1))
    clock.measure(lambda: ask(9_000, 0))
    assert clock.now_ms() == clocks.store

    clocks.store += jump
    clock.measure(lambda: ask(20, 20))

    assert clock.now_ms() == clocks.store
