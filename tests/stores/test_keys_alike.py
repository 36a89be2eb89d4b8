"""Both stores decide alike about keys and versions: the same story leaves the same rows.

SQLite decides by `onceward.core.claims`, PostgreSQL in its own words. A story is drawn from a seed:
accepts in batches, claims, ends, cancels, retries and restarts, while time passes.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from onceward.core import errors
from onceward.core.model import KeyClaim, NewRun, RunRow
from onceward.core.ports import Accept, RunFilter
from onceward.core.rules import CLASHES, version_text
from onceward.core.states import TERMINAL, RunState
from onceward.core.steer import key_of
from onceward.testing import check_invariants
from onceward.testing.store_scene import (
    START,
    Process,
    StoreFactory,
    attempt_log,
    event,
    move,
    restarted,
    retried,
    rows,
    steer,
)
from tests.stores.factories import Postgres, SqliteMemory

PAIRS = [(once, clash) for once, clashes in CLASHES.items() for clash in clashes]
SEEDS = 3
OPERATIONS = 60
KEYS = 3
WINDOW_MS = 10_000


class Story:
    """One story about one workflow, told on one store.

    Args:
        stores: an empty database.
        seed: what is drawn.
        once: how long keys are held.
        clash: what becomes of the others.
    """

    def __init__(self, stores: StoreFactory, seed: int, once: str, clash: str) -> None:
        self.draw = random.Random(f"{seed} {once} {clash}")
        self.once, self.clash = once, clash
        self.stores = stores
        self.process = Process(stores)
        self.numbers = 0
        self.told: list[Any] = []

    def tell(self) -> list[Any]:
        """Live the story; give what was answered, and the rows in the end."""
        for _ in range(OPERATIONS):
            self.stores.now += self.draw.randrange(2_000)
            act = self.draw.choice([self.accept, self.accept, self.claim, self.end, self.end, self.steer])
            self.told.append((act.__name__, act()))
            broken = check_invariants(self.process.store)
            assert broken == [], self.told[-5:]
        return [
            *self.told,
            rows(self.process.store, "run", "queue", "holder", "waiter", "skipped", "version"),
        ]

    def accept(self) -> Any:
        accepts = [self.one() for _ in range(self.draw.randrange(1, 4))]
        replies = self.process.accept(*accepts)
        return [(reply.runs, sorted(reply.skipped), reply.answers()) for reply in replies]

    def one(self) -> Accept:
        self.numbers += 1
        now, number = self.stores.now, self.numbers
        wish = NewRun(
            run_id=f"run_{number:05}",
            workflow="fulfil",
            created_at=now,
            key=f"order-{self.draw.randrange(KEYS)}",
            once=self.once,
            window_ms=WINDOW_MS if self.once == "window" else None,
            clash=self.clash,
            payload_hash=str(self.draw.randrange(2)),
            version=version_text(self.draw.randrange(60)) if self.draw.random() < 0.3 else None,
            drops_stale=self.draw.random() < 0.5,
            is_claimed=self.clash in CLASHES["ever"] and self.draw.random() < 0.5,
        )
        return Accept(event(f"evt_{number:05}", at=now, subject=f"s{self.draw.randrange(2)}"), [wish])

    def claim(self) -> Any:
        return sorted(run.run_id for run in self.process.claim(self.draw.randrange(1, 4)))

    def pick(self, *states: RunState) -> RunRow | None:
        found = [run for run in self.process.store.runs(RunFilter(limit=1_000)) if run.state in states]
        return self.draw.choice(found) if found else None

    def end(self) -> Any:
        run = self.pick(RunState.RUNNING, RunState.CANCELLING)
        if run is None or run.run_id not in self.process.store.owned("p1"):
            return None
        state = self.draw.choice(sorted(TERMINAL))
        if run.state is RunState.CANCELLING:
            state = RunState.CANCELLED
        becomes = move(run, state, now=self.stores.now)
        becomes.key = key_of(run)
        if state is RunState.FAILED:
            becomes.log = attempt_log(run, "failed", now=self.stores.now)
        return run.run_id, state.value, self.process.save(run, becomes=becomes)

    def steer(self) -> Any:
        run = self.pick(*RunState)
        if run is None:
            return None
        now = self.stores.now
        if run.state is RunState.QUEUED:
            action = steer(run, "cancel", move(run, RunState.CANCELLED, now=now))
        elif run.state is RunState.RUNNING:
            action = steer(run, "cancel", move(run, RunState.CANCELLING, now=now, due_at=now))
        elif run.state is RunState.FAILED:
            action = retried(run, now=now)
            action.move.log = None
        elif run.state in TERMINAL:
            action = restarted(run, now=now)
        else:
            return None
        action.move.key = key_of(run)
        if action.move.state is RunState.QUEUED and self.once == "active":
            action.claim = KeyClaim("fulfil", run.key or "", self.once, "1", None)
        try:
            return run.run_id, action.audit.verb, self.process.store.steer(action)
        except errors.KeyTaken as error:
            return run.run_id, action.audit.verb, error.holder_run_id


@pytest.mark.postgres
@pytest.mark.parametrize(("once", "clash"), PAIRS)
def test_both_stores_tell_the_same_story(shared_database: str, once: str, clash: str) -> None:
    for seed in range(SEEDS):
        ours, theirs = SqliteMemory(), Postgres(shared_database)
        ours.now = theirs.now = START
        try:
            here, there = (Story(stores, seed, once, clash).tell() for stores in (ours, theirs))
        finally:
            ours.close()
            theirs.close()
        for one, other in zip(here, there, strict=True):
            assert one == other, f"seed {seed}"
