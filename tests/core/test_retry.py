"""Retry policies: which delays they give, what they refuse, and who may overrule them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from email.message import Message
from itertools import repeat
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceward.core.duration import DURATION_MS_MAX
from onceward.core.errors import (
    ConfigError,
    NotStorable,
    OutcomeUnknown,
    Permanent,
    RetryLater,
    StepNameRepeated,
    ValueTooLarge,
)
from onceward.core.retry import NO_RETRY, TRIES_MAX, Decision, Retry, decide, next_delay
from tests.helpers import named

MINUTE_MS = 60_000
DAY_MS = 86_400_000


def decided(
    error: BaseException,
    policy: Retry | None = None,
    *,
    tries: int = 1,
    elapsed_ms: int = 0,
    draw: float = 0.0,
    now_ms: int | None = None,
) -> Decision:
    return decide(
        policy or Retry(), tries=tries, error=error, elapsed_ms=elapsed_ms, draw=draw, now_ms=now_ms
    )


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    error.__cause__ = cause
    return error


# --- delays --------------------------------------------------------------------------------------


@given(
    base_ms=st.integers(0, 10**7),
    extra_ms=st.integers(0, 10**12),
    factor=st.floats(1, 1_000),
    attempt=st.integers(1, TRIES_MAX - 1),
    draw=st.floats(0, 1, exclude_max=True),
)
@settings(deadline=None)
def test_every_delay_lies_between_zero_and_the_cap(
    base_ms: int, extra_ms: int, factor: float, attempt: int, draw: float
) -> None:
    cap_ms = base_ms + extra_ms
    policy = Retry(TRIES_MAX, base=f"{base_ms}ms", cap=f"{cap_ms}ms", factor=factor)

    delay_ms = next_delay(policy, attempt, draw)

    assert delay_ms is not None
    assert 0 <= delay_ms <= cap_ms


def test_the_longest_delay_doubles_up_to_the_cap() -> None:
    policy = Retry(10, base="1s", cap="10s")
    almost_one = math.nextafter(1.0, 0.0)

    longest = [next_delay(policy, attempt, almost_one) for attempt in range(1, 8)]

    assert longest == [1_000, 2_000, 4_000, 8_000, 10_000, 10_000, 10_000]


def test_a_draw_of_one_half_gives_half_of_the_longest_delay() -> None:
    assert next_delay(Retry(base="1s"), 3, 0.5) == 2_000


@given(st.integers(0, DURATION_MS_MAX))
@settings(deadline=None)
def test_the_largest_draw_gives_the_longest_delay_and_not_a_millisecond_more(cap_ms: int) -> None:
    policy = Retry(base=f"{cap_ms}ms", cap=f"{cap_ms}ms")

    assert next_delay(policy, 1, math.nextafter(1.0, 0.0)) == cap_ms


def test_the_millionth_attempt_neither_overflows_nor_passes_the_cap() -> None:
    policy = Retry(TRIES_MAX, factor=1_000)

    assert next_delay(policy, TRIES_MAX - 1, 0.999) in range(599_000, 600_001)
    assert next_delay(policy, TRIES_MAX, 0.999) is None


def test_a_base_of_zero_stays_zero_at_every_attempt() -> None:
    policy = Retry(TRIES_MAX, base=0)

    assert [next_delay(policy, attempt, 0.99) for attempt in (1, 5, 2_000)] == [0, 0, 0]


def test_runs_that_failed_together_do_not_return_together() -> None:
    """B025: no second holds more than 2 % of 10,000 retries, at a longest delay of 64 s."""
    draws = [index / 10_000 for index in range(10_000)]
    delays_ms = [next_delay(Retry(10, cap="10m"), 7, draw) or 0 for draw in draws]

    busiest = max(sum(delay // 1_000 == second for delay in delays_ms) for second in range(65))

    assert busiest <= 200


@pytest.mark.parametrize(("attempt", "draw"), [(0, 0.5), (-1, 0.5), (1, 1.0), (1, -0.1), (1, math.nan)])
def test_an_impossible_attempt_or_draw_is_a_programming_error(attempt: int, draw: float) -> None:
    with pytest.raises(ValueError, match=r"count from 1|in \[0, 1\)"):
        next_delay(Retry(), attempt, draw)


# --- the policy itself -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        {"max_tries": 0},
        {"max_tries": -1},
        {"max_tries": True},
        {"max_tries": 2.0},
        {"max_tries": None},
        {"max_tries": TRIES_MAX + 1},
        {"base": -1},
        {"base": math.nan},
        {"base": "soon"},
        {"base": None},
        {"cap": math.inf},
        {"base": "1h"},
        {"base": "2s", "cap": "1s"},
        {"factor": 0.5},
        {"factor": math.nan},
        {"factor": math.inf},
        {"factor": True},
        {"factor": "2"},
        {"factor": 10**400},
        {"total": "-1s"},
        {"total": True},
        {"only": ()},
        {"only": ValueError},
        {"only": (int,)},
        {"only": ("ValueError",)},
        {"never": [ValueError]},
        {"never": (None,)},
        {"on": {int: Retry()}},
        {"on": {ValueError: 3}},
        {"on": [(ValueError, Retry())]},
        {"on": {ValueError: Retry(on={OSError: Retry()})}},
        {"on": {ValueError: Retry(never=(OSError,))}},
        {"on": {ValueError: Retry(only=(OSError,))}},
    ],
    ids=named,
)
def test_a_policy_that_cannot_work_is_refused_when_it_is_written(arguments: Mapping[str, Any]) -> None:
    name = next(iter(arguments))

    with pytest.raises(ConfigError, match=f"^The {name} of a Retry cannot be ") as refused:
        Retry(**arguments)

    if name in ("never", "on"):
        assert ("dict" in refused.value.todo or "for each type" in refused.value.todo) is (name == "on")


def test_a_policy_does_not_change_with_the_dict_it_was_made_from() -> None:
    policies: dict[type[BaseException], Retry] = {OSError: NO_RETRY}
    policy = Retry(on=policies)

    policies.clear()

    assert policy.on == {OSError: NO_RETRY}


def test_equal_policies_are_equal_and_hash_alike() -> None:
    first, second = Retry(3, on={OSError: NO_RETRY}), Retry(3, on={OSError: NO_RETRY})

    assert first == second
    assert hash(first) == hash(second)
    assert first != Retry(3)


def test_a_policy_is_once_where_nothing_is_tried_a_second_time() -> None:
    once, twice = Retry(1), Retry(2)

    assert [policy.is_once for policy in (once, twice, NO_RETRY)] == [True, False, True]
    assert Retry(1, on={OSError: once}).is_once
    assert not Retry(1, on={OSError: once, KeyError: twice}).is_once


# --- decisions ---------------------------------------------------------------------------------


def test_an_ordinary_failure_is_tried_again_until_the_tries_are_used_up() -> None:
    policy = Retry(3, base="1s")

    decisions = [decided(OSError(), policy, tries=tries, draw=0.5) for tries in (1, 2, 3)]

    assert decisions == [
        Decision(500, "try 2 of 3 in 500ms"),
        Decision(1_000, "try 3 of 3 in 1s"),
        Decision(None, "all tries are used up (3 of 3)"),
    ]


def test_no_retry_makes_one_try() -> None:
    assert decided(OSError(), NO_RETRY).delay_ms is None


@pytest.mark.parametrize(
    "error",
    [
        Permanent("no such card"),
        NotStorable("x"),
        ValueTooLarge("x"),
        StepNameRepeated("x"),
        ConfigError("x"),
        raised(ValueError("no"), Permanent("no such card")),
        raised(ValueError("no"), raised(KeyError("k"), Permanent("no such card"))),
        ExceptionGroup("two", [OSError(), Permanent("no such card")]),
        ExceptionGroup("two", [RetryLater("1s"), Permanent("no such card")]),
        raised(Permanent("no"), RetryLater("1s")),
    ],
    ids=named,
)
def test_an_error_that_is_final_is_never_tried_again(error: BaseException) -> None:
    decision = decided(error, Retry(100, on={BaseException: Retry(100)}))

    assert decision.delay_ms is None
    assert decision.reason.endswith("is not tried again")


@pytest.mark.parametrize(
    "error", [OSError(), OutcomeUnknown(), KeyboardInterrupt(), SystemExit(1)], ids=named
)
def test_any_other_error_is_tried_again_by_default(error: BaseException) -> None:
    assert decided(error).delay_ms is not None


def test_a_permanent_that_was_only_handled_meanwhile_does_not_count() -> None:
    error = OSError()
    error.__context__ = Permanent("handled")

    assert decided(error).delay_ms is not None


def test_a_cycle_of_causes_ends() -> None:
    first, second = OSError(), ValueError()
    first.__cause__, second.__cause__ = second, first

    assert decided(first).delay_ms is not None


@pytest.mark.parametrize(("count", "is_heard"), [(63, True), (64, False), (10_000, False)])
def test_a_chain_of_causes_is_followed_for_64_errors(count: int, is_heard: bool) -> None:
    error: BaseException = Permanent("deep down")
    for _ in range(count):
        error = raised(OSError(), error)

    assert (decided(error).delay_ms is None) is is_heard


@pytest.mark.parametrize(("before", "is_heard"), [(0, True), (62, True), (63, False)])
def test_of_a_group_of_any_size_the_first_63_errors_are_heard(before: int, is_heard: bool) -> None:
    """A group of more was not looked into at all."""
    parts = [*(OSError() for _ in range(before)), Permanent("no"), *(OSError() for _ in range(100))]

    assert (decided(ExceptionGroup("many", parts)).delay_ms is None) is is_heard


def test_only_and_never_choose_by_exception_type() -> None:
    policy = Retry(only=(OSError,), never=(FileNotFoundError,))

    assert decided(ConnectionError(), policy).delay_ms is not None
    assert decided(FileNotFoundError(), policy).delay_ms is None
    assert decided(ValueError(), policy) == Decision(None, "the policy does not try ValueError again")


def test_the_entry_nearest_to_the_errors_type_decides() -> None:
    policy = Retry(
        2,
        never=(ConnectionRefusedError, LookupError),
        on={ConnectionError: Retry(50, base="40s"), KeyError: Retry(9)},
    )

    assert decided(ConnectionResetError(), policy, tries=49, draw=0.5).delay_ms == 5 * MINUTE_MS
    assert decided(ConnectionRefusedError(), policy).delay_ms is None
    assert decided(KeyError(), policy, tries=8).delay_ms is not None
    assert decided(IndexError(), policy).delay_ms is None
    assert decided(ValueError(), policy, tries=2).delay_ms is None


def test_an_entry_in_on_needs_no_place_in_only() -> None:
    policy = Retry(only=(OSError,), on={ValueError: Retry()})

    assert decided(ValueError(), policy).delay_ms is not None


def test_no_try_begins_later_than_the_total_after_the_first() -> None:
    policy = Retry(100, base="10s", cap="10s", total="1m")

    assert decided(OSError(), policy, elapsed_ms=50_000, draw=0.9999999).delay_ms == 10_000
    assert decided(OSError(), policy, elapsed_ms=50_001, draw=0.9999999).delay_ms is None
    assert decided(OSError(), policy, elapsed_ms=60_000).delay_ms == 0
    assert decided(OSError(), policy, elapsed_ms=60_001).delay_ms is None
    assert decided(RetryLater("2m"), policy).delay_ms is None


def test_the_total_of_the_whole_policy_holds_for_an_entry_without_one() -> None:
    policy = Retry(total="1m", on={OSError: Retry(), ValueError: Retry(total="1h")})

    assert decided(OSError(), policy, elapsed_ms=60_001).delay_ms is None
    assert decided(ValueError(), policy, elapsed_ms=60_001).delay_ms is not None


# --- RetryLater --------------------------------------------------------------------------------


@given(st.floats(0, 1, exclude_max=True))
@settings(deadline=None)
def test_retry_later_waits_at_least_as_asked_and_at_most_a_tenth_more(draw: float) -> None:
    delay_ms = decided(RetryLater("90s"), draw=draw).delay_ms

    assert delay_ms is not None
    assert 90_000 <= delay_ms <= 99_000


def test_retry_later_counts_a_try() -> None:
    assert decided(RetryLater("90s"), Retry(3), tries=2).delay_ms == 90_000
    assert decided(RetryLater("90s"), Retry(3), tries=3).delay_ms is None


def test_retry_later_needs_no_place_in_the_policys_types() -> None:
    assert decided(RetryLater("90s"), Retry(only=(OSError,))).delay_ms == 90_000


def test_retry_later_without_a_delay_waits_as_the_policy_says() -> None:
    assert decided(RetryLater(), draw=0.5).delay_ms == 500


def test_retry_later_raised_from_a_permanent_overrules_it() -> None:
    assert decided(raised(RetryLater("90s"), Permanent("no"))).delay_ms == 90_000


def test_retry_later_as_a_cause_is_heard() -> None:
    assert decided(raised(ValueError(), RetryLater("90s"))).delay_ms == 90_000


@pytest.mark.parametrize("delay", [-1, math.nan, math.inf, 1e308, None, "P-1D", [1]], ids=named)
def test_a_delay_that_cannot_be_read_does_not_cost_the_try(delay: object) -> None:
    decision = decided(RetryLater(delay), Retry(only=(OSError,)), draw=0.5)

    assert decision.delay_ms == 500
    assert "RetryLater's delay" in decision.reason


# --- Retry-After -------------------------------------------------------------------------------


class HttpError(Exception):
    """An error with whatever attributes a client puts on it."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__("429")
        self.__dict__.update(attributes)


class Answer:
    def __init__(self, headers: Any) -> None:
        self.headers = headers


class RaisesOnAccess(Exception):
    @property
    def response(self) -> Any:
        raise RuntimeError("the response was not set")

    @property
    def headers(self) -> Any:
        raise KeyError("headers")


def message(**headers: str) -> Message:
    made = Message()
    for name, value in headers.items():
        made[name.replace("_", "-")] = value
    return made


@pytest.mark.parametrize(
    "error",
    [
        HttpError(headers={"Retry-After": "30"}),
        HttpError(headers={"retry-after": 30}),
        HttpError(headers={b"RETRY-AFTER": b" 30 "}),
        HttpError(headers=[("date", "x"), ("Retry-After", "30")]),
        HttpError(headers=message(Retry_After="30")),
        HttpError(response=Answer({"Retry-After": "30"})),
        HttpError(response={"headers": {"Retry-After": "30"}}),
        HttpError(headers={}, response=Answer({"Retry-After": "30"})),
        raised(ValueError("wrapped"), HttpError(response=Answer({"Retry-After": "30"}))),
        ExceptionGroup("one", [HttpError(headers={"Retry-After": "30"})]),
    ],
    ids=range(10),
)
def test_retry_after_is_found_where_clients_put_it(error: BaseException) -> None:
    assert decided(error).delay_ms == 30_000
    assert decided(error, draw=0.5).delay_ms == 31_500


def test_a_fraction_of_a_second_is_kept() -> None:
    assert decided(HttpError(headers={"Retry-After": "1.5"})).delay_ms == 1_500


@given(st.floats(0, 1, exclude_max=True))
@settings(deadline=None)
def test_a_crowd_told_the_same_time_is_spread_over_the_next_tenth(draw: float) -> None:
    delay_ms = decided(HttpError(headers={"Retry-After": "100"}), draw=draw).delay_ms

    assert delay_ms == 100_000 + int(10_000 * draw)


def test_retry_after_is_bounded_by_one_day() -> None:
    assert decided(HttpError(headers={"Retry-After": "99999999999"})).delay_ms == DAY_MS


def test_retry_after_counts_a_try_and_does_not_overrule_never() -> None:
    error = HttpError(headers={"Retry-After": "30"})

    assert decided(error, Retry(3), tries=3).delay_ms is None
    assert decided(error, Retry(never=(HttpError,))).delay_ms is None


def test_a_date_counts_from_the_time_that_is_given() -> None:
    # The example of RFC 9110, section 5.6.7, is 784,111,777 seconds after 1970.
    error = HttpError(headers={"Retry-After": "Sun, 06 Nov 1994 08:49:37 GMT"})

    assert decided(error, now_ms=784_111_777_000 - MINUTE_MS).delay_ms == MINUTE_MS
    assert decided(error, now_ms=784_111_777_000 + MINUTE_MS, draw=0.5).delay_ms == 500
    assert decided(error, draw=0.5).delay_ms == 500


@pytest.mark.parametrize("zone", ["GMT", "-0000", "+0100"])
def test_a_date_is_read_in_the_zone_that_it_names(zone: str) -> None:
    hour = "09" if zone == "+0100" else "08"
    error = HttpError(headers={"Retry-After": f"Sun, 06 Nov 1994 {hour}:49:37 {zone}"})

    assert decided(error, now_ms=784_111_777_000 - MINUTE_MS).delay_ms == MINUTE_MS


@pytest.mark.parametrize(
    "error",
    [
        HttpError(headers={"Retry-After": "0"}),
        HttpError(headers={"Retry-After": "-5"}),
        HttpError(headers={"Retry-After": "soon"}),
        HttpError(headers={"Retry-After": "1" * 100_000}),
        HttpError(headers={"Retry-After": None}),
        HttpError(headers={"Retry-After": "nan"}),
        HttpError(headers={"Retry-After": "Sun, 99 Nov 9999 99:99:99 GMT"}),
        HttpError(headers="Retry-After: 30"),
        HttpError(headers=7),
        HttpError(headers=[1, 2]),
        HttpError(response=None),
        HttpError(response=Answer(None)),
        RaisesOnAccess(),
    ],
    ids=range(13),
)
def test_a_retry_after_that_cannot_be_read_leaves_the_policys_delay(error: BaseException) -> None:
    assert decided(error, draw=0.5, now_ms=0) == Decision(500, "try 2 of 5 in 500ms")


@pytest.mark.parametrize(("before", "delay_ms"), [(199, 31_500), (200, 500), (None, 500)])
def test_of_an_answers_headers_200_are_read(before: int | None, delay_ms: int) -> None:
    def headers() -> Any:
        yield from repeat(("x", "y")) if before is None else repeat(("x", "y"), before)
        yield ("Retry-After", "30")

    assert decided(HttpError(headers=headers()), draw=0.5).delay_ms == delay_ms
