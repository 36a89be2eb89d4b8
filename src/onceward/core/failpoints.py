"""Named places where a test can make the world go wrong; off, and nearly free, by default.

Each place has a sentence, so that a script can loop over all of them. The runtime arms one from
``ONCEWARD_FAILPOINT`` in a real process, the simulation arms many with its own dice; here is
only the list and the hook, since the store must reach it and may not know the runtime.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from onceward.core.states import RUN_AGAIN, RunState

if TYPE_CHECKING:
    from onceward.core.ports import Batch, Steer

_COMMITS = {
    "accept": "an event with its runs is stored",
    "claim": "due runs become this process's own",
    "step_start": "the record that a step begins is stored, for steps that need one",
    "save": "a step's outcome is stored",
    "sleep": "a sleeping, waiting or backing-off run is given up until its time",
    "release": "a run is given back by a process that stops",
    "cancel": "an operator's cancel is stored",
    "steer": "an operator's retry, restart, replay, answer or dismissal is stored",
    "prune": "a page of what is over is pruned",
    "takeover": "the runs of a dead process are freed",
    "end": "a run's end is stored",
}

REGISTRY: dict[str, str] = {
    **{
        f"{kind}.before_commit": f"Just before the commit in which {what}." for kind, what in _COMMITS.items()
    },
    **{
        f"{kind}.after_commit": f"Just after the commit in which {what}, before anyone is told."
        for kind, what in _COMMITS.items()
    },
    "accept.before_insert": "A delivery is verified and about to be handed to the store.",
    "accept.before_reply": "A delivery's reply is about to leave.",
    "step.before_body": "All earlier checkpoints are durable and a step's body is about to run.",
    "step.after_body": "A step's body has ended, its outcome is not yet handed over to be saved.",
    "transaction.before_commit": "A transaction of the user's with a step's checkpoint in it is about to be committed.",
    "transaction.after_commit": "A transaction of the user's with a step's checkpoint in it is committed, nobody is told.",
    "outbox.before_accept": "An event that a transaction wrote was found and is about to be taken in.",
    "outbox.after_accept": "An event that a transaction wrote is taken in and about to leave the outbox.",
    "notice.before_send": "A notice was taken and is about to be sent.",
    "notice.after_send": "A notice's receiver has answered, and nobody is told.",
    "heartbeat.before_renew": "The lease is about to be renewed.",
    "load.after_claim": "Runs are claimed and their histories are about to be read.",
    "migrate.statement": "A statement of a migration has run; its transaction is open.",
    "migrate.before_commit": "A migration is about to be committed.",
}
"""Every failpoint, with the sentence that says where it lies."""

Hook = Callable[[str, str], None]

_hook: Hook | None = None


def arm(hook: Hook | None) -> None:
    """Install what is called at every failpoint with its name and a detail; None disarms."""
    global _hook
    _hook = hook


def is_armed() -> bool:
    """Say whether anything listens, so that hot paths can skip the work of naming their place."""
    return _hook is not None


def hit(name: str, detail: str = "") -> None:
    """Pass a failpoint."""
    if _hook is not None:
        _hook(name, detail)


_SLEEPS = frozenset({RunState.SLEEPING, RunState.WAITING, RunState.BACKOFF})
_ENDS = frozenset({RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED, RunState.HELD})


def kinds(batch: Batch) -> tuple[str, ...]:
    """Give the kinds of commit in a batch, in a fixed order."""
    found = set()
    if batch.accepts:
        found.add("accept")
    if batch.claims:
        found.add("claim")
    for advance in batch.advances:
        if any(step.state != "open" for step in advance.steps):
            found.add("save")
        if any(step.kind in RUN_AGAIN and step.state == "open" for step in advance.steps):
            found.add("step_start")
        if advance.move is not None:
            state = advance.move.state
            if state in _ENDS:
                found.add("end")
            elif state in _SLEEPS:
                found.add("sleep")
            elif advance.move.due_at is not None:
                found.add("release")
    return tuple(kind for kind in _COMMITS if kind in found)


def steer_kind(steer: Steer) -> str:
    """Give the kind of an operator's commit."""
    return "cancel" if steer.audit.verb == "cancel" else "steer"
