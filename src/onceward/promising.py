"""The completing half of `App`: promises are ended from outside, each once."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from onceward.core import errors, json_plain, promises
from onceward.core.duration import show
from onceward.core.ports import Settled
from onceward.core.shown import shown
from onceward.core.states import TERMINAL, PromiseState, RunState

if TYPE_CHECKING:
    from onceward.core.settings import Settings
    from onceward.runtime.worker import Worker


@dataclass(frozen=True, slots=True)
class Completed:
    """What a completion did.

    Attributes:
        run_id: the run that the promise belongs to.
        name: of the step that made it.
        at: when it was completed.
        is_duplicate: it had been completed before, with the same.
    """

    run_id: str
    name: str
    at: datetime
    is_duplicate: bool


class Promising:
    """The verbs that end promises."""

    settings: Settings

    @property
    def worker(self) -> Worker:
        """Give the worker of the open app, or raise."""
        raise NotImplementedError

    async def complete_promise(self, token: str, value: Any = None) -> Completed:
        """Complete a promise; the run that waits for it gets *value*.

        The same again is no error, so that a request whose reply was lost can be sent again.

        Args:
            token: as the run handed it out; the whole address will do.
            value: JSON-native data.

        Raises:
            NotFound: no promise has this token.
            AlreadyCompleted: it was ended before, with something else.
            PromiseOver: it has expired, or its run has ended, was restarted or is being cancelled.
            NotStorable: *value* is more than JSON's own types.
        """
        text = json_plain.encode_payload(
            value, what="The value of a promise", limit_bytes=self.settings.value_bytes_max
        )
        return await self._settle(token, PromiseState.COMPLETED, text)

    async def fail_promise(self, token: str, reason: str) -> Completed:
        """Fail a promise; `StepFailed` with the *reason* is raised in the run that waits for it.

        Args:
            token: as the run handed it out.
            reason: what the run is told.

        Raises:
            ConfigError: *reason* is no text.
            NotFound: as for `complete_promise`; likewise the others.
        """
        if not isinstance(reason, str):
            raise errors.ConfigError(
                f"A promise cannot be failed for {shown(reason)}.",
                means="Nothing was changed.",
                todo="Pass a text that says why.",
            )
        text = json_plain.encode_payload(
            reason, what="The reason of a promise", limit_bytes=self.settings.value_bytes_max
        )
        return await self._settle(token, PromiseState.FAILED, text)

    async def _settle(self, token: str, state: PromiseState, text: str) -> Completed:
        if isinstance(token, str):
            token = token.rpartition("/")[2]  # of an address; a token has none
        settled = await settle(self.worker, promises.hash_of(token), state, text)
        if settled is None:
            raise errors.NotFound(
                "There is no promise with this token.",
                means="It was forged or cut short, or belongs to another namespace. Nothing was changed.",
                todo="Use the token, or the whole address, as the run handed it out.",
            )
        return settled


async def settle(worker: Worker, token_hash: str, state: PromiseState, text: str) -> Completed | None:
    """End the promise whose token has this hash, and wake its run; None where there is none.

    Raises:
        AlreadyCompleted: it was ended before, with something else.
        PromiseOver: it has expired, or its run has ended or was restarted.
    """
    now = worker.now_ms()
    try:
        settled: Settled | None = await worker.read(worker.store.settle, token_hash, state, text, now)
    except errors.ReplyLost:
        # If it was written it is found, and is the same as this, to the millisecond.
        settled = await worker.read(worker.store.settle, token_hash, state, text, now)
        if settled is not None and not settled.is_done:
            row = settled.promise
            is_ours = (row.state, row.output, row.ended_at) == (state, text, now)
            settled = msgspec.structs.replace(settled, is_done=is_ours)
    if settled is None:
        return None
    row = settled.promise
    if not settled.is_done and (row.state, row.output) != (state, text):
        raise _refusal(settled, now)
    if settled.is_done:
        worker.promise_ended(row.run_id)
    at = datetime.fromtimestamp((row.ended_at or now) / 1000, UTC)
    return Completed(row.run_id, row.name, at, not settled.is_done)


def _refusal(settled: Settled, now: int) -> errors.StateConflict:
    row, run = settled.promise, settled.run
    if row.state in (PromiseState.COMPLETED, PromiseState.FAILED):
        ago = show(max(0, now - (row.ended_at or now)) // 1000 * 1000)
        return errors.AlreadyCompleted(
            f"The promise {row.name!r} was {row.state.value} {ago} ago with {shown(row.output)}.",
            means="That is what its run got. Nothing was changed.",
            todo="Nothing, if that is right; to decide anew, restart the run.",
        )
    if run.state in TERMINAL:
        why = f"its run {run.run_id} is {run.state.value}"
    elif run.generation != row.generation:
        why = f"its run {run.run_id} was restarted, and has made a new one"
    elif run.state is RunState.CANCELLING:
        why = f"its run {run.run_id} is being cancelled, and nothing of its clean-up waits for it"
    elif row.state is PromiseState.OPEN and (row.expires_at is None or now < row.expires_at):
        why = f"its run {run.run_id} has failed, and what it did is being undone"
    else:
        why = "its time is over"
    return errors.PromiseOver(
        f"The promise {row.name!r} can no longer be completed: {why}.",
        means="Nothing was changed.",
        todo="Look at the run; a restart makes a new promise.",
    )
