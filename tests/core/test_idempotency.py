"""Idempotency keys: what receivers remember, so the same parts give the same key in every release."""

from __future__ import annotations

from onceward.core.idempotency import business_parts, composed_key


def test_a_key_is_the_same_in_every_release_and_another_for_other_parts() -> None:
    parts = [("run_1", 1, "charge", "", 1), ("run_1", 1, "charge", "", 2), ("run_11", "charge", "", 1)]
    keys = [composed_key(*one) for one in parts]

    assert keys[0] == "ow_4d227d80d065f5c84a4dba6b44c64e0035c7be13"
    assert len(set(keys)) == 3


def test_a_key_of_the_business_is_about_the_runs_key_or_else_its_event() -> None:
    by_event = business_parts("default", "buy", None, "stripe", "evt_1")
    by_key = business_parts("default", "buy", "o-1", "stripe", "evt_1")

    assert by_event == ("business", "default", "buy", "event", "stripe", "evt_1")
    assert by_key == ("business", "default", "buy", "key", "o-1")
