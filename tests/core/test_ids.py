"""Ids: their form, their order in time, and that nothing is drawn twice."""

from __future__ import annotations

import functools
import operator
import os
import random
import re
import sys
import threading
import uuid
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceward.core.errors import NotStorable
from onceward.core.ids import TIME_MS_MAX, IdSource, composed, content_hash, is_start, run_id, uuid7
from tests.starts import ROOT, run

CROCKFORD = "0123456789abcdefghjkmnpqrstvwxyz"

# 26 digits hold 130 bits, so the first is at most 7; the 11th holds the version (7) and the 14th
# the variant (binary 10) of RFC 9562, each beside random bits.
RUN_ID = re.compile(
    r"run_[0-7][0-9a-hjkmnp-tv-z]{9}[ef][0-9a-hjkmnp-tv-z]{2}[89abrstv][0-9a-hjkmnp-tv-z]{12}"
)

times = st.integers(0, TIME_MS_MAX)
ten_bytes = st.binary(min_size=10, max_size=10)


def uuid_of(text: str) -> uuid.UUID:
    """Read a run id digit by digit, by another way than it was written."""
    number = 0
    for digit in text.removeprefix("run_"):
        number = number * 32 + CROCKFORD.index(digit)
    return uuid.UUID(int=number)


def source(now_ms: Callable[[], int] = lambda: 1_700_000_000_000, seed: int = 1) -> IdSource:
    return IdSource(now_ms, random.Random(seed).randbytes)


@given(times, ten_bytes)
@settings(deadline=None)
def test_a_run_id_is_the_text_of_the_uuid7_of_the_same_moment(now_ms: int, drawn: bytes) -> None:
    text = run_id(now_ms, drawn)

    assert uuid_of(text) == uuid7(now_ms, drawn)
    assert RUN_ID.fullmatch(text)
    assert len(text) == 30


@given(times, ten_bytes)
@settings(deadline=None)
def test_a_uuid7_has_the_version_the_variant_and_the_time_of_rfc_9562(now_ms: int, drawn: bytes) -> None:
    made = uuid7(now_ms, drawn)

    assert made.version == 7
    assert made.variant == uuid.RFC_4122
    assert made.int >> 80 == now_ms


def test_the_example_of_rfc_9562_comes_out() -> None:
    """Appendix A.6: rand_a is 0xCC3 and rand_b 0x18C4DC0C0C07398F, at 0x017F22E279B0 ms."""
    drawn = (0xCC3 << 62 | 0x18C4DC0C0C07398F) << 6

    made = uuid7(0x017F22E279B0, drawn.to_bytes(10, "big"))

    assert str(made) == "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"


@given(times, ten_bytes, times, ten_bytes)
@settings(deadline=None)
def test_run_ids_sort_as_text_by_their_time(
    first_ms: int, first_bytes: bytes, second_ms: int, second_bytes: bytes
) -> None:
    first, second = run_id(first_ms, first_bytes), run_id(second_ms, second_bytes)

    if first_ms != second_ms:
        assert (first < second) == (first_ms < second_ms)


@pytest.mark.parametrize("now_ms", [-1, TIME_MS_MAX + 1])
def test_a_time_outside_48_bits_is_a_programming_error(now_ms: int) -> None:
    with pytest.raises(ValueError, match="milliseconds"):
        uuid7(now_ms, bytes(10))


def test_a_uuid7_takes_exactly_ten_bytes() -> None:
    with pytest.raises(ValueError, match="10 random bytes"):
        run_id(0, bytes(9))


# --- composed ids --------------------------------------------------------------------------------


def test_a_composed_id_is_a_canonical_json_array() -> None:
    assert composed("run_1", 2, 'charge "é"', "") == '["run_1",2,"charge \\"é\\"",""]'
    assert composed() == "[]"


@given(st.lists(st.text() | st.integers()), st.lists(st.text() | st.integers()))
@settings(deadline=None)
def test_different_parts_never_compose_the_same_id(first: list[str | int], second: list[str | int]) -> None:
    assert (composed(*first) == composed(*second)) == (first == second)


@pytest.mark.parametrize(
    "part", [None, True, 1.5, b"x", ["a"], "\ud800", 10**5_000], ids=lambda part: type(part).__name__
)
def test_an_id_is_not_composed_of_anything_else(part: str) -> None:
    with pytest.raises(NotStorable, match="composed"):
        composed("a", part)


def test_content_is_told_by_32_digits_of_a_hash_whether_it_is_text_or_bytes() -> None:
    assert content_hash("é") == content_hash("é".encode()) == "4a99557e4033c3539de2eb65472017ca"
    assert content_hash("e") != content_hash("é")


@pytest.mark.parametrize(
    ("source_name", "event_id", "is_one"),
    [
        ("start/buy", "evt_1", True),
        ("run/run_1", composed("run_1", 1, "pay", "start"), True),
        ("run/run_1", composed("run_1", 1, "start", 1), False),
        ("run/run_1", "evt_1", False),
        ("stripe", composed("run_1", 1, "pay", "start"), False),
        ("starts", "evt_1", False),
    ],
)
def test_a_start_is_an_event_of_the_app_or_of_a_run_that_says_so(
    source_name: str, event_id: str, is_one: bool
) -> None:
    assert is_start(source_name, event_id) is is_one


# --- drawing --------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 2**40), min_size=2, max_size=200), st.integers())
@settings(deadline=None)
def test_run_ids_of_a_process_only_rise_whatever_its_clock_does(clock: list[int], seed: int) -> None:
    ticks = iter(clock)
    ids = source(lambda: next(ticks), seed)

    drawn = [ids.run_id() for _ in clock]

    assert drawn == sorted(set(drawn))
    assert all(map(RUN_ID.fullmatch, drawn))


def test_run_ids_only_rise_while_the_clock_stands_still() -> None:
    ids = source()

    drawn = [ids.run_id() for _ in range(20_000)]

    assert drawn == sorted(set(drawn))
    assert all(uuid_of(text).int >> 80 == 1_700_000_000_000 for text in drawn)


def test_a_millisecond_that_is_used_up_borrows_the_next() -> None:
    """With steps as large as they get, and then with as few counts left as it takes."""
    ids = IdSource(lambda: 5, lambda n: b"\xff" * n)
    drawn = [ids.run_id()]
    ids._low = 2**40 - 2**16

    drawn += [ids.run_id(), ids.run_id()]

    assert drawn == sorted(set(drawn))
    assert [uuid_of(text).int >> 80 for text in drawn] == [5, 6, 6]
    assert all(map(RUN_ID.fullmatch, drawn))


def test_uuid7s_and_run_ids_are_in_one_order() -> None:
    ids = source()

    drawn = [ids.uuid7() if index % 2 else uuid_of(ids.run_id()) for index in range(1_000)]

    assert drawn == sorted(set(drawn))
    assert {made.version for made in drawn} == {7}


def test_no_two_threads_draw_the_same() -> None:
    ids = source()
    drawn: list[list[str]] = [[] for _ in range(4)]

    def draw(into: list[str]) -> None:
        into.extend(ids.run_id() for _ in range(5_000))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # so that threads change places inside of a draw
    try:
        threads = [threading.Thread(target=draw, args=(into,)) for into in drawn]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    finally:
        sys.setswitchinterval(interval)

    together = [text for into in drawn for text in into]
    assert len(set(together)) == 20_000
    assert all(into == sorted(into) for into in drawn)


def test_two_processes_of_the_same_millisecond_do_not_meet() -> None:
    first, second = source(seed=1), source(seed=2)

    drawn = {ids.run_id() for ids in (first, second) for _ in range(10_000)}

    assert len(drawn) == 20_000


FORK = """
import os
from onceward.core.ids import IdSource

ids = IdSource(lambda: 1_700_000_000_000, os.urandom)
ids.draw()
child = os.fork()
if child:
    os.waitpid(child, 0)
print(ids.run_id(), ids.uuid4(), ids.draw(), flush=True)
"""


def test_a_forked_child_draws_nothing_that_its_parent_draws() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = run("-c", FORK, cwd=ROOT, env=environment)
    assert ended.returncode == 0, ended.stderr

    drawn = ended.stdout.split()

    assert len(drawn) == len(set(drawn)) == 6


def test_the_seed_decides_every_draw() -> None:
    def draws(seed: int) -> list[object]:
        ids = source(seed=seed)
        return [ids.run_id(), ids.uuid4(), ids.uuid7(), ids.draw(), ids.hex(8), ids.run_id()]

    assert draws(1) == draws(1)
    assert not set(draws(1)) & set(draws(2))


def test_draws_lie_in_zero_to_one_and_are_spread_over_it() -> None:
    ids = source()

    drawn = [ids.draw() for _ in range(10_000)]

    assert all(0 <= value < 1 for value in drawn)
    assert 0.48 < sum(drawn) / len(drawn) < 0.52
    assert IdSource(lambda: 0, lambda n: b"\xff" * n).draw() < 1


def test_a_uuid4_is_one_and_hex_has_two_digits_a_byte() -> None:
    ids = source()

    assert ids.uuid4().version == 4
    assert ids.uuid4() != ids.uuid4()
    drawn = [ids.uuid4().int for _ in range(100)]
    # All bits vary but the six that say which kind of UUID it is.
    varied = functools.reduce(operator.or_, drawn) & ~functools.reduce(operator.and_, drawn)
    assert varied == 2**128 - 1 - (0xF << 76) - (0b11 << 62)
    assert len(bytes.fromhex(ids.hex(16))) == 16


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 4_096])
def test_hex_takes_as_many_random_bytes_as_it_needs(size: int) -> None:
    asked: list[int] = []

    def drawn(count: int) -> bytes:
        asked.append(count)
        return random.Random(1).randbytes(count)

    assert len(IdSource(lambda: 0, drawn).hex(size)) == 2 * size
    assert asked == ([4_096] if size else [])


def test_every_id_says_what_it_is_of() -> None:
    ids = source()

    assert RUN_ID.fullmatch(f"run_{ids.event_id()}")
    assert RUN_ID.fullmatch(ids.delivery_id().replace("del_", "run_", 1))
