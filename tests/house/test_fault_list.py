"""Each fault that others reported and that could be ours has a test of its own, or a reason why not yet."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

TESTED = {
    "B001": "web/test_receiver_http.py::test_concurrent_redeliveries_all_get_2xx_and_one_run_each",
    "B002": "lifecycle/test_crashes.py::test_a_lost_reply_at_every_commit",
    "B004": "attack/test_sqlite.py::test_a_full_disk_answers_503_and_recovers_without_a_restart",
    "B005": "attack/test_accept.py::test_a_kill_around_accept_and_redelivery_to_three_processes_give_one_run",
    "B007": "engine/test_order.py::test_an_older_event_is_stored_and_makes_no_run",
    "B008": "engine/test_reported_faults.py::test_sleepers_and_runs_that_wait_for_a_retry_hold_no_lease",
    "B010": "attack/test_zombie.py::test_a_holder_frozen_at_a_failpoint_past_its_lease",
    "B011": "attack/test_zombie.py::test_a_holder_stopped_in_a_body_cannot_save_when_it_goes_on",
    "B013": "lifecycle/test_takeover.py::test_a_process_whose_row_was_deleted_leaves_no_orphans",
    "B014": "lifecycle/test_takeover.py::test_a_step_ten_times_as_long_as_the_lease_runs_once",
    "B019": "core/test_settings.py",
    "B020": "lifecycle/test_takeover.py::test_twenty_runs_wait_behind_one_slot_and_all_go_on",
    "B022": "lifecycle/test_takeover.py::test_a_blocked_event_loop_keeps_its_lease_and_is_reported",
    "B023": "lifecycle/test_drain.py::test_the_lease_is_renewed_while_a_process_drains",
    "B025": "core/test_retry.py::test_runs_that_failed_together_do_not_return_together",
    "B026": "lifecycle/test_takeover.py::test_a_run_that_kills_its_process_is_held_and_its_neighbours_go_on",
    "B028": "engine/test_reported_faults.py::test_a_run_that_fails_twice_has_its_three_children_once",
    "B029": "lifecycle/test_verbs.py::test_a_retry_runs_what_failed_and_nothing_that_was_saved",
    "B031": "engine/test_reported_faults.py::test_odd_durations_are_refused_by_name_and_no_run_hangs",
    "B032": "lifecycle/test_sleepers.py::test_none_is_lost_and_none_goes_on_twice",
    "B034": "engine/test_waits.py::test_an_event_counts_that_came_before_the_wait_but_not_before_the_run",
    "B035": "engine/test_wait_races.py::test_four_hundred_races_lose_and_double_nothing",
    "B037": "engine/test_reported_faults.py::test_a_thrown_out_race_runs_each_body_once",
    "B038": "engine/test_reported_faults.py::test_big_results_are_the_same_after_a_recall",
    "B044": "stores/test_postgres_batches.py::test_processes_that_wake_and_end_each_others_runs_never_deadlock",
    "B046": "lifecycle/test_cancel.py::test_a_cancel_at_any_moment_lets_nothing_begin_after_its_reply",
    "B047": "lifecycle/test_cancel.py::test_runs_cancelled_in_the_queue_while_workers_claim_have_no_body_or_say_so",
    "B049": "engine/test_tries.py::test_whatever_a_body_raises_is_its_steps_failure",
    "B050": "engine/test_values.py::test_a_result_that_cannot_be_stored_fails_the_step_at_once",
    "B053": "engine/test_hostile_values.py::test_each_hostile_value_is_refused_and_changes_nothing",
    "B055": "typing/test_types.py",
    "B056": "engine/test_recall.py::test_code_decides_the_same_after_a_recall_at_any_point",
    "B058": "engine/test_reported_faults.py::test_steps_of_nested_tasks_and_threads_belong_to_their_own_run",
    "B059": "engine/test_reported_faults.py::test_the_branch_that_lost_a_race_does_not_keep_the_run",
    "B061": "engine/test_code_changes.py::test_what_fits_goes_on_with_each_steps_own_value",
    "B062": "lifecycle/test_drain.py::test_ten_rolling_restarts_during_one_step_charge_nothing",
    "B064": "attack/test_sqlite.py::test_eight_writers_beside_a_stranger_who_locks_the_file",
    "B065": "lifecycle/test_crashes.py::test_a_kill_at_every_failpoint",
    "B067": "attack/test_postgres.py::test_backends_are_terminated_under_load",
    "B068": "engine/test_waits.py::test_a_failing_run_that_is_tried_again_keeps_the_event_that_it_got",
    "B070": "web/test_receiver_http.py::test_an_unreadable_body_that_is_not_genuine_is_a_401",
    "B071": "cli/test_listen.py::test_an_insecure_source_is_for_the_loopback_address_or_by_consent",
    "B074": "web/test_receiver_http.py::test_a_compressed_body_is_a_415",
    "B079": "dashboard/test_inert.py::test_nothing_that_is_stored_runs_on_any_page",
    "B080": "cli/test_accounts.py::test_it_is_not_served_to_a_network_before_somebody_may_use_it",
    "B082": "lifecycle/test_interrupts.py::test_an_interrupted_body_runs_again_and_is_not_charged",
    "B085": "lifecycle/test_sleepers.py::test_none_is_lost_and_none_goes_on_twice",
    "B086": "attack/test_postgres.py::test_restarts_as_in_a_crash_under_load",
    "B088": "engine/test_tries.py::test_abandoned_bodies_do_not_shrink_the_pool",
    "B089": "attack/test_postgres.py::test_through_a_pooler_in_transaction_mode",
    "B091": "stores/test_postgres_faults.py::test_claims_whose_reply_was_lost_are_adopted_or_made",
    "B092": "web/test_receiver_http.py::test_neither_payload_nor_secrets_are_logged",
}
"""The test that tries each, below ``tests``; a whole file where several do."""

CHECKED = {
    "B052": ("values.py", "escaped_nul_in_json_text_survives"),
    "B077": ("console.py", "filters_that_want_to_be_sql_find_what_they_say"),
}
"""Those that every store is tried with."""

NOT_YET = {
    "B016": "schedules",
    "B017": "schedules",
    "B040": "schedules",
    "B041": "schedules",
    "B043": "schedules",
    "B073": "server mode",
    "B076": "server mode",
    "B083": "a limit of memory; 20,000 sleepers are measured by the benchmarks",
}
"""What each needs that there is not yet."""


@pytest.mark.parametrize("number", TESTED)
def test_the_test_of_a_fault_exists(number: str) -> None:
    file, _, name = TESTED[number].partition("::")
    text = (ROOT / "tests" / file).read_text()

    assert re.search(rf"def {name}\(", text) if name else number in text


@pytest.mark.parametrize("number", CHECKED)
def test_the_check_of_a_fault_exists(number: str) -> None:
    file, name = CHECKED[number]

    assert f"def {name}(" in (ROOT / "src/onceward/testing/store_checks" / file).read_text()


def test_no_fault_is_both_tested_and_not_yet() -> None:
    assert not TESTED.keys() & NOT_YET.keys()


def test_what_the_tests_and_the_contract_cite_is_tested() -> None:
    files = [*(ROOT / "tests").rglob("*.py"), ROOT / "docs/contract.md"]
    texts = [re.sub(r"noqa:.*", "", file.read_text()) for file in files]  # ruff numbers its rules alike
    cited = {number for text in texts for number in re.findall(r"\bB0\d\d\b", text)}

    assert cited - NOT_YET.keys() == TESTED.keys() | CHECKED.keys()
