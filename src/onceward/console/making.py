"""What an operator makes happen that nobody sent: an event, or the end of a promise.

Both are what they would be had they come by themselves: the event is stored and deduplicated like any
other, and a promise ends once. Each leaves an entry in the audit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from onceward.console import audit, shaping
from onceward.console.port import Completion, Console, Emit
from onceward.console.views import ActionReply, EmitReply
from onceward.core import asked, awaiting, errors, ids, json_plain
from onceward.core.awaiting import Seen
from onceward.core.model import EventRow, RunRow, StepRow
from onceward.core.ports import EventPlace
from onceward.core.shown import shown
from onceward.core.states import PromiseState
from onceward.core.texts import checked_id
from onceward.promising import settle
from onceward.runtime.accepting import emitted_event

if TYPE_CHECKING:
    from onceward.app import App

EMIT = "emit"
COMPLETE = "complete"

STANDS_IN = "operator"
"""How ids begin of events that an operator made in another source's name."""


class Making:
    """The half of `LocalConsole` that makes events and ends promises.

    Args:
        app: open.
        console: gives what became of them.
    """

    def __init__(self, app: App, console: Console) -> None:
        self._app = app
        self._console = console

    # --- events ----------------------------------------------------------------------------------

    async def emit(self, emit: Emit) -> EmitReply:
        """Store an event with its runs, and say what became of it."""
        worker = self._app.worker
        asked.checked_actor(emit.actor)
        request_id = None if emit.request_id is None else checked_id(emit.request_id)
        event = await self._event(emit, request_id)
        name = f"{event.source}/{event.id}"
        await self._refuse_other(request_id, EMIT, name)
        waits = await worker.read(worker.store.waits_for, awaiting.places_of([event]))
        seen = Seen(event, self._app.settings.namespace)
        fitting = sorted({wait.run_id for wait in waits if seen.fits(wait)})
        accepted = await worker.accept(worker.routing.accept(event))
        if accepted.is_clash:
            raise asked.clash(event.source, event.id)
        await audit.note(self._app, EMIT, emit.actor, name, request_id=request_id)
        detail = await self._console.event(event.source, event.id)
        return EmitReply(
            event=detail.event,
            is_duplicate=accepted.is_duplicate,
            runs=detail.runs,
            skipped=detail.skipped,
            waits=[] if accepted.is_duplicate else fitting,
        )

    async def _event(self, emit: Emit, request_id: str | None) -> EventRow:
        event_id = emit.id if emit.id is not None else request_id
        if emit.source is not None:
            if emit.id is not None:
                raise errors.ConfigError(
                    f"An event in the name of {shown(emit.source)} was given an id.",
                    means="Should the sender send one of that id, it would be taken for a redelivery and lost.",
                    todo="Leave the id out; a request id makes it happen once.",
                )
            await self._refuse_unknown(emit)
            own = ids.content_hash(request_id) if request_id is not None else self._app.worker.ids.event_id()
            event_id = f"{STANDS_IN}-{own}"
        return emitted_event(
            self._app.worker,
            emit.type,
            emit.payload,
            id=event_id,
            subject=emit.subject,
            source=emit.source,
        )

    async def _refuse_unknown(self, emit: Emit) -> None:
        """Refuse a source of which nobody here has heard: its events would reach nothing."""
        known = {*self._app.sources}
        for workflow in await self._console.workflows():
            known |= {trigger["source"] for trigger in workflow.triggers}
        worker = self._app.worker
        places = [EventPlace(emit.type, subject) for subject in {"", emit.subject or ""}]
        known |= {wait.source for wait in await worker.read(worker.store.waits_for, places)}
        known -= {"own"}
        if emit.source not in known:
            raise errors.ConfigError(
                f"There is no source {shown(emit.source)}.",
                means="No workflow and no wait is for an event of it. Nothing was stored.",
                todo=f"Sources are: {', '.join(sorted(known)) or 'none'}. Without one it is an event of our own.",
            )

    # --- promises --------------------------------------------------------------------------------

    async def complete(self, run_id: str, completion: Completion) -> ActionReply:
        """End an open promise of a run, as whoever has its token could."""
        worker = self._app.worker
        asked.checked_actor(completion.actor)
        asked.checked_text(run_id, "run id")
        request_id = None if completion.request_id is None else checked_id(completion.request_id)
        row: RunRow | None = await worker.read(worker.store.run, run_id)
        if row is None:
            raise errors.NotFound(f"There is no run {shown(run_id)} in this namespace.")
        label, token_hash = await self._promise(run_id, completion.promise)
        state = PromiseState.COMPLETED if completion.reason is None else PromiseState.FAILED
        text = json_plain.encode_payload(
            completion.value if completion.reason is None else completion.reason,
            what="The value of a promise",
            limit_bytes=self._app.settings.value_bytes_max,
        )
        detail = f"{label}: {state.value}"
        await self._refuse_other(request_id, COMPLETE, detail, run_id)
        completed = await settle(worker, token_hash, state, text)
        if completed is None:
            raise _no_promise(run_id, label, [])
        await audit.note(self._app, COMPLETE, completion.actor, detail, run_id=run_id, request_id=request_id)
        was = " before, with the same" if completed.is_duplicate else ""
        return ActionReply(
            run_id=run_id,
            verb=COMPLETE,
            effect=state.value,
            text=f"the promise {label} was {state.value}{was}",
            is_duplicate=completed.is_duplicate,
        )

    async def _promise(self, run_id: str, label: str | None) -> tuple[str, str]:
        """Give the label and the hash of the promise that is meant."""
        worker = self._app.worker
        steps: list[StepRow] = await worker.read(worker.store.steps, run_id)
        made = {str(row.key): found for row in steps if (found := shaping.promise_hash(row)) is not None}
        if label is not None:
            if label not in made:
                raise _no_promise(run_id, label, list(made))
            return label, made[label]
        if not made:
            raise _no_promise(run_id, None, [])
        rows = await worker.read(worker.store.promises, list(made.values()))
        open_ones = [
            name
            for name, token_hash in made.items()
            if token_hash in rows and rows[token_hash].state is PromiseState.OPEN
        ]
        meant = open_ones or list(made)
        if len(meant) > 1:
            raise errors.ConfigError(
                f"Run {run_id} has several promises.",
                means="Nothing was changed.",
                todo=f"Say which: {', '.join(meant)}.",
            )
        return meant[0], made[meant[0]]

    async def _refuse_other(self, request_id: str | None, verb: str, detail: str, run_id: str = "") -> None:
        """Refuse a request that was something else before."""
        if request_id is None:
            return
        entry = await audit.entry_of(self._app, request_id)
        if entry is not None and (entry.verb, entry.detail, entry.run_id) != (verb, detail, run_id):
            raise asked.other_request(request_id, entry)


def _no_promise(run_id: str, label: str | None, known: Sequence[str]) -> errors.NotFound:
    named = "no promise" if label is None else f"no promise {shown(label)}"
    return errors.NotFound(
        f"Run {run_id} has {named} in its present generation.",
        means="Nothing was changed.",
        todo=f"It has: {', '.join(known)}." if known else "Look at what it waits for.",
    )
