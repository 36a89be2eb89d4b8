"""Errors as programs tell them apart, over HTTP and by name, and what their messages are made of."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import onceward
from onceward.core import access_errors, errors
from onceward.core.errors import OncewardError

CODES = {
    "access_errors": {
        401: "unauthorized",
        403: "forbidden",
        421: "host_unknown",
        429: "too_many",
    },
    "errors": {
        400: "body_malformed body_not_storable",
        401: "signature_invalid",
        404: "not_found source_unknown workflow_unknown",
        409: "already_completed id_clash key_cycle key_taken lease_lost plan_needed pruned run_cancelled "
        "state_conflict",
        410: "promise_over",
        413: "body_too_large value_too_large",
        422: "not_storable path_missing",
        500: "call_outside_step config deadline_exceeded error history_mismatch not_awaited run_failed "
        "schema_newer schema_outdated step_failed step_misuse step_name_repeated step_timed_out store "
        "store_damaged store_forked transaction_misuse wait_timed_out",
        503: "key_unavailable registry_moved reply_lost store_unavailable",
    },
}
"""What callers of the API have in their code: neither a code nor its status ever changes."""


def errors_of(module: object) -> Iterator[type[OncewardError]]:
    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, OncewardError):
            yield value


@pytest.mark.parametrize("name", CODES)
def test_every_error_has_a_code_and_a_status_that_stay(name: str) -> None:
    module = {"errors": errors, "access_errors": access_errors}[name]
    others = {OncewardError} if name == "access_errors" else set()
    found: dict[int, set[str]] = {}
    for error in {*errors_of(module)} - others:
        found.setdefault(error.http_status, set()).add(error.code)

    assert found == {status: set(codes.split()) for status, codes in CODES[name].items()}


def test_an_error_that_can_be_imported_from_the_package_says_so_in_what_is_saved_of_it() -> None:
    exported = {name for name in vars(errors) if name in onceward.__all__ and name[0].isupper()}

    assert len(exported) > 25
    assert {name for name in exported if getattr(errors, name).__module__ != "onceward"} == set()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OncewardError("It broke.", means="It is lost.", todo="Mend it."), "It broke. It is lost. Mend it."),
        (OncewardError("It broke.", todo="Mend it."), "It broke. Mend it."),
        (OncewardError("It broke."), "It broke."),
        (errors.SignatureInvalid("no signature"), "The delivery was refused: no signature."),
        (errors.RunFailed("run_1", "ValueError", "no"), "Run run_1 failed: ValueError: no"),
        (errors.StepFailed("pay", "ValueError", "no"), "Step 'pay' failed after 1 try: ValueError: no"),
        (errors.StepFailed("pay", "E", "no", tries=2), "Step 'pay' failed after 2 tries: E: no"),
        (errors.WaitTimedOut("paid", "3 days"), "Step 'paid' failed after 1 try: WaitTimedOut: 3 days"),
        (errors.RetryLater("90s"), "asked to be tried again after 90s"),
        (errors.RetryLater("90s", "they are full"), "they are full"),
    ],
)
def test_a_message_has_what_happened_what_it_means_and_what_to_do(error: Exception, said: str) -> None:
    assert str(error) == said


def test_what_a_program_decides_by_is_on_the_error() -> None:
    refused = errors.SignatureInvalid("too old", skew_ms=7)
    taken = errors.KeyTaken("buy", "o-1", "run_1")
    failed = errors.StepFailed("pay", "ValueError", "no", tries=3, is_final=True)
    ended = errors.RunFailed("run_1", "ValueError", "no")

    assert (refused.check, refused.skew_ms) == ("too old", 7)
    assert (taken.key, taken.holder_run_id) == ("o-1", "run_1")
    assert (failed.step, failed.error_type, failed.message) == ("pay", "ValueError", "no")
    assert (failed.tries, failed.is_final, errors.StepFailed("pay", "E", "no").is_final) == (3, True, False)
    assert (ended.run_id, ended.error_type, ended.message) == ("run_1", "ValueError", "no")
    assert (errors.RetryLater("90s").delay, errors.RetryLater().delay) == ("90s", 0)
    assert access_errors.TooMany("Too often.", wait_s=9).wait_s == 9
