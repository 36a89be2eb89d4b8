"""What a server's process does once, before it serves."""

from __future__ import annotations

import gc

from onceward.cli.starting import YOUNG_OBJECTS_MAX, spare_collections


def test_what_is_there_already_is_passed_over_and_the_collector_looks_less_often() -> None:
    # The tests' own process does the same once it has collected them: here it has not yet.
    before = gc.get_threshold()
    gc.unfreeze()
    gc.set_threshold(700, *before[1:])
    try:
        spare_collections()

        assert gc.get_freeze_count() > 1_000
        assert gc.get_threshold() == (YOUNG_OBJECTS_MAX, *before[1:])
        assert gc.isenabled()
    finally:
        gc.set_threshold(*before)
