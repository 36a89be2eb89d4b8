"""A store with a bit of everything, all of it sound, for checkers to be tried on."""

from __future__ import annotations

from pathlib import Path

from onceward.core.awaiting import taken_text
from onceward.core.model import EventRow, RunRow, WaitRow
from onceward.core.ports import Accept, Steer
from onceward.core.rules import version_text
from onceward.core.states import RunState
from onceward.testing.store_scene import (
    LEASE_MS,
    NEVER,
    Process,
    attempt_log,
    audit,
    delivery,
    event,
    move,
    new_run,
    restarted,
    retried,
    steer,
    step,
)
from tests.stores.factories import SqliteFile


class Healthy(SqliteFile):
    """Runs in every state; those that tests want to spoil have a name."""

    holder: RunRow
    waiter: RunRow

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        lost = Process(self, "p0")
        lost.start("evt_lost")
        self.now += LEASE_MS + 1
        self.process = Process(self, "p1")
        self.store = self.process.store
        self.store.take_over(self.now, crash_limit=4, skip="p1")
        self.lost = self.process.claim()[0]

        self.parent, self.child = self._called("evt_parent")
        self.process.wait(self.parent)
        self.caller, self.called = self._called("evt_caller")
        self.process.move(self.process.read(self.called.run_id), RunState.COMPLETED, output='"packed"')
        self.process.save(
            self.caller,
            step("pack", kind="call", seq=2, at=self.now, output='"packed"', child_run_id=self.called.run_id),
        )
        self.sleeper = self._run("evt_sleep")
        self.process.save(
            self.sleeper, step("nap", kind="sleep", state="open", at=self.now, wake_at=self.now + 500)
        )
        self.process.move(self.sleeper, RunState.SLEEPING, due_at=self.now + 500)
        self.waiting = self._waiting()
        self.rested = self._run("evt_rested")
        self.process.save(self.rested, step("nap", kind="sleep", at=self.now, wake_at=self.now, output=None))
        self.emitter = self._run("evt_emitter")
        fact = EventRow(f"run/{self.emitter.run_id}", '[1,"charge","",1,1]', "order.paid", "{}", self.now)
        self.process.save(
            self.emitter, step(at=self.now), accepts=[Accept(fact, [new_run("notify", at=self.now)])]
        )

        self.completed = self._ended("evt_done", RunState.COMPLETED)
        self.failed = self._ended("evt_failed", RunState.FAILED)
        self.held = self._ended("evt_held", RunState.HELD)
        self.retried = self._steered(retried(self._ended("evt_retried", RunState.FAILED), now=self.now))
        self.restarted = self._steered(restarted(self._ended("evt_again", RunState.COMPLETED), now=self.now))
        running = self._run("evt_cancel")
        becomes = move(running, RunState.CANCELLING, now=self.now, due_at=self.now)
        self.cancelling = self._steered(steer(running, "cancel", becomes))
        wish = new_run(replay_id="request-1", replay_of=self.completed.run_id, at=self.now)
        reply = self.store.replay(
            Accept(event("evt_done"), [wish]), [], audit(self.completed.run_id, "replay")
        )
        self.replayed = self.process.read(reply.runs["fulfil"])
        self.queued = self.process.queue("evt_queued")
        fact = event("evt_delivered", at=self.now)
        self.process.accept(Accept(fact, [new_run(at=self.now)], [delivery(fact), delivery(fact)]))
        for name in ("holder", "waiter"):
            wish = new_run(at=self.now, key="order-7", once="active", clash="replace", payload_hash="1")
            self.process.accept(Accept(event(f"evt_{name}", at=self.now), [wish]))
            setattr(self, name, self.process.read(wish.run_id))
        for event_id, version in (("evt_new", 7), ("evt_old", 6)):
            wish = new_run(at=self.now, version=version_text(version), drops_stale=True)
            self.process.accept(Accept(event(event_id, at=self.now), [wish]))

    def _waiting(self) -> RunRow:
        """Make a run that has taken an event and waits for another."""
        run, now = self._run("evt_waiting"), self.now
        line = EventRow("emit/line", "evt_line", "line", "{}", now, subject="o")
        self.process.accept(Accept(line, []))
        first = step("first", kind="wait", seq=1, at=now, wake_at=now + 9, output=taken_text(None, line))
        second = step("second", kind="wait", seq=2, state="open", at=now)
        late = step("late", kind="wait", seq=3, at=now, wake_at=now, output=None)
        advance = self.process.advance(run, first, second, late)
        advance.waits = [WaitRow(run.run_id, 1, *second.key, 0, "line", "o", "own", since_at=now)]
        assert self.process.apply(advances=[advance]).held == [True]
        return self.process.move(run, RunState.WAITING, due_at=NEVER)

    def _run(self, event_id: str) -> RunRow:
        return self.process.start(event_id)

    def _called(self, event_id: str) -> tuple[RunRow, RunRow]:
        parent = self._run(event_id)
        self.process.call(parent)
        (child,) = self.process.claim()
        return parent, child

    def _ended(self, event_id: str, state: RunState) -> RunRow:
        run = self._run(event_id)
        self.process.save(
            run, step("load", seq=1, at=self.now), step("ping", seq=2, state="failed", at=self.now)
        )
        log = attempt_log(run, "failed", now=self.now) if state is RunState.FAILED else None
        return self.process.move(run, state, log=log)

    def _steered(self, action: Steer) -> RunRow:
        action.move.log = None
        assert self.store.steer(action)
        return self.process.read(action.run_id)
