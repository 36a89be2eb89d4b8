"""Promises: tokens that are completed once from outside, and the runs that wait for that.

The row of a promise decides alone what became of it: it is completed, failed or expired by one
update that finds it open. So whoever is told that his completion counts, is told the truth.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from onceward.core import errors, json_plain, promises
from onceward.core.model import Millis, PromiseRow, StepKey, StepRow
from onceward.core.states import PromiseState, StepState
from onceward.runtime.records import failure_of, json_text
from onceward.runtime.waiting import not_before, timed_out

if TYPE_CHECKING:
    from onceward.runtime.execution import Execution

Made = tuple[str, str, datetime | None, str | None]


async def promise(execution: Execution, key: StepKey, timeout_ms: Millis | None) -> Made:
    """Make a promise once: give its token, the hash of it, when it expires, and the public address."""
    worker = execution.worker
    record = await execution.saved(key, "promise")
    has_address = worker.settings.public_url is not None
    try:
        secrets = promises.secrets_of(worker.settings.promise_secret, has_address=has_address)
    except errors.ConfigError as error:
        # What the code did so far stands, and no setting is its fault: a person sets it and answers.
        execution.hold_reason = f"at step {str(key)!r}: {error}"
        execution.stop("hold")
        raise errors.Suspended("the run is held") from None
    tokens = {
        promises.hash_of(token): token
        for secret in secrets
        for token in [
            promises.token_of(secret, worker.settings.namespace, execution.run_id, execution.generation, key)
        ]
    }
    if record is None or record.output is None:
        now = worker.now_ms()
        token_hash = next(iter(tokens))
        record = execution.row(
            key,
            "promise",
            StepState.DONE,
            now,
            wake_at=None if timeout_ms is None else now + timeout_ms,
            output=json_text(token_hash),
        )
        execution.save(record)
        execution.operation().advance.promises.append(
            PromiseRow(
                token_hash, execution.run_id, execution.generation, *key, now, expires_at=record.wake_at
            )
        )
        if execution.recall.has_queue():
            await execution.recall.take_turn()
        await execution.durable()  # what the code does with the token may be heard of at once
    saved = msgspec.json.decode(record.output or "null")
    if record.origin is not None and saved not in tokens:
        return await _copied(execution, key, record, saved)
    if saved not in tokens:
        execution.mismatch(
            key, "its token was made with a secret that is not in the setting promise_secret any more"
        )
    return tokens[saved], saved, _time(record.wake_at), worker.settings.public_url


async def _copied(execution: Execution, key: StepKey, record: StepRow, token_hash: str) -> Made:
    """Give a promise of an older generation, or of the run that this one is a replay of.

    What became of that counts for both; a replay copies it only when it has ended.
    """
    worker = execution.worker
    run_id, generation = execution.maker_of(record)
    secrets = promises.secrets_of(worker.settings.promise_secret)  # it was there just now
    made = [
        promises.token_of(secret, worker.settings.namespace, run_id, generation, key) for secret in secrets
    ]
    token = next((one for one in made if promises.hash_of(one) == token_hash), None)
    if token is None:
        execution.mismatch(key, "its token was made by another run, or with another secret")
    if run_id == execution.run_id:
        # A restart that keeps it: the link that is out completes it still, now for this generation.
        now, expires_at = worker.now_ms(), record.wake_at
        row = PromiseRow(token_hash, run_id, execution.generation, *key, now, expires_at=expires_at)
        execution.operation().advance.promises.append(row)
        await execution.durable()
    return token, token_hash, _time(record.wake_at), worker.settings.public_url


async def promised(
    execution: Execution, key: StepKey, token_hash: str, expires_at: Millis | None, *, is_raising: bool
) -> tuple[bool, Any]:
    """Wait for the end of a promise; give whether it was completed, and with what.

    Raises:
        WaitTimedOut: it expired, and the code wants it so.
        StepFailed: it was failed.
    """
    record = await execution.saved(key, "promise")
    if record is None or record.state is StepState.OPEN:
        record = await _promised(execution, key, record, token_hash, expires_at)
    if record.output is not None:
        return True, json_plain.decode_plain(record.output)
    told = msgspec.json.decode(record.error or "{}")
    if told.get("type") != "WaitTimedOut":
        raise failure_of(record)
    if is_raising:
        raise timed_out(record)
    return False, None


async def _promised(
    execution: Execution, key: StepKey, record: StepRow | None, token_hash: str, expires_at: Millis | None
) -> StepRow:
    worker = execution.worker
    if record is None or record.tries == 0:
        record = execution.row(
            key, "promise", StepState.OPEN, worker.now_ms(), record=record, wake_at=expires_at
        )
        execution.save(record)
    opened = execution.waits.open(key, (), f"promise {key.name.removesuffix(promises.RESULT)}")
    try:
        await execution.durable()
        while True:
            opened.has_news = False
            row = await _look(execution, key, token_hash, expires_at)
            if row.state is not PromiseState.OPEN:
                break
            if not opened.has_news:
                await execution.waits.park(opened, expires_at)
    finally:
        execution.waits.close(key)
    saved = _outcome(execution, key, record, row)
    execution.save(saved)
    if execution.recall.has_queue():
        await execution.recall.take_turn()
    return saved


async def _look(execution: Execution, key: StepKey, token_hash: str, expires_at: Millis | None) -> PromiseRow:
    """Give the promise as it stands; one whose time is over is closed, so that nobody completes it yet."""
    worker, now = execution.worker, execution.worker.now_ms()
    if expires_at is not None and now >= expires_at:
        settled = await worker.insist(
            worker.read, worker.store.settle, token_hash, PromiseState.EXPIRED, None, now
        )
        row: PromiseRow | None = None if settled is None else settled.promise
    else:
        found = await worker.insist(worker.read, worker.store.promises, [token_hash])
        row = found.get(token_hash)
    execution.check_usable()
    if row is None:
        execution.mismatch(key, "there is no such promise in the store")
    return row


def _outcome(execution: Execution, key: StepKey, record: StepRow, row: PromiseRow) -> StepRow:
    now = execution.worker.now_ms()
    if row.state is PromiseState.COMPLETED:
        return execution.row(
            key, "promise", StepState.DONE, now, record=record, wake_at=record.wake_at, output=row.output
        )
    if row.state is PromiseState.FAILED:
        error = {"type": "PromiseFailed", "message": msgspec.json.decode(row.output or '""')}
    else:
        error = {"type": "WaitTimedOut", "message": "it was not completed in time"}
    failed = execution.row(
        key,
        "promise",
        StepState.FAILED,
        now,
        record=record,
        wake_at=record.wake_at,
        error=json_text(error),
    )
    return failed if row.state is PromiseState.FAILED else not_before(failed)


def _time(at: Millis | None) -> datetime | None:
    return None if at is None else datetime.fromtimestamp(at / 1000, UTC)


def to_ms(at: datetime | None) -> Millis | None:
    """Give a time as it is stored."""
    return None if at is None else round(at.timestamp() * 1000)


def check_strict(execution: Execution, key: StepKey, timeout_ms: Millis | None) -> None:
    """Refuse what may wait for ever, where the app wants it so.

    Raises:
        ConfigError: there is no time-out and the setting ``strict`` is on.
    """
    if timeout_ms is None and execution.worker.settings.strict:
        raise errors.ConfigError(
            f"The wait {str(key)!r} has no timeout=, and the app is strict.",
            means="If what it waits for is lost, the run would wait for ever, and nobody would be told.",
            todo='Give it a time, such as timeout="7d", and what to do then: default=, or except WaitTimedOut.',
        )
