"""Optional facts and forms: what is odd is None, and nothing is raised."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward.sources.parts.fields import (
    at,
    first_at,
    integer_or_none,
    iso_or_none,
    mail_date_or_none,
    millis_or_none,
    seconds_ms,
)
from onceward.sources.parts.forms import form_fields, form_object

READERS = (integer_or_none, iso_or_none, mail_date_or_none, millis_or_none, seconds_ms)
odd = st.one_of(
    st.text(st.characters(), max_size=70),
    st.from_regex(r"[0-9]{1,4}-[0-9]{2}-[0-9]{2}[T ][0-9:.]{0,12}(Z|[+-][0-9:]{0,6}| UTC)?"),
    st.from_regex(r"[A-Z][a-z]{2}, [0-9]{1,3} [A-Z][a-z]{2} [0-9]{1,6} [0-9:]{0,9} [+-][0-9]{0,6}"),
    st.integers(),
    st.floats(),
    st.booleans(),
    st.none(),
    st.lists(st.integers(), max_size=2),
)


@given(odd)
def test_whatever_stands_there_is_a_number_that_fits_or_none(value: Any) -> None:
    for reader in READERS:
        found = reader(value)
        assert found is None or 0 <= found < 2**63


@pytest.mark.parametrize(
    ("reader", "value", "found"),
    [
        (seconds_ms, 1515449522, 1515449522000),
        (seconds_ms, "1515449522", 1515449522000),
        (seconds_ms, 1515449522.5, 1515449522500),
        (seconds_ms, True, None),
        (seconds_ms, math.nan, None),
        (seconds_ms, 10**12, None),
        (millis_or_none, 1654012591835, 1654012591835),
        (millis_or_none, "165401259183x", None),
        (integer_or_none, 2**63 - 1, 2**63 - 1),
        (integer_or_none, 2**63, None),
        (iso_or_none, "2026-11-29T13:00:00-05:00", 1795975200000),
        (iso_or_none, "2026-11-29 18:00:00 UTC", 1795975200000),
        (iso_or_none, "2026-11-29 20:00:00 +0200", 1795975200000),
        (iso_or_none, "2026-11-29T18:00:00", None),
        (iso_or_none, "1969-12-31T23:59:59Z", None),
        (mail_date_or_none, "Sun, 29 Nov 2026 18:00:00 +0000", 1795975200000),
        (mail_date_or_none, "Sun, 29 Nov 2026", None),
    ],
)
def test_times_are_read(reader: Any, value: Any, found: int | None) -> None:
    assert reader(value) == found


def test_a_place_that_is_not_there_is_none() -> None:
    body = {"a": {"b": 1}, "n": None, "e": ""}

    assert (at(body, "a", "b"), at(body, "a", "b", "c"), at([], "a"), at(body)) == (1, None, None, body)
    assert (first_at(body, "n", "e", "a"), first_at(7, "a")) == ({"b": 1}, None)


@given(st.binary(max_size=60) | st.text(st.characters(), max_size=60))
def test_any_form_is_read_or_none(raw: bytes | str) -> None:
    fields = form_fields(raw)

    assert fields is None or len(form_object(fields)) <= len(fields)
