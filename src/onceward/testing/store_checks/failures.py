"""A commit that fails leaves nothing; one that succeeded leaves everything, told or not (F12)."""

from __future__ import annotations

from collections.abc import Callable

from onceward.core.model import RunRow
from onceward.core.ports import Accept, Accepted, Advance, Batch, RunFilter
from onceward.core.states import RunState
from onceward.testing.store_scene import (
    LEASE_MS,
    Planted,
    Process,
    StoreFactory,
    accept,
    audit,
    delivery,
    event,
    failing_at,
    move,
    new_run,
    raised,
    restarted,
    rows,
    steer,
    step,
)

Action = Callable[[], object]


def _scenes(process: Process) -> dict[str, Action]:
    """Give, for each kind of commit, something that makes one; each may be done once."""
    now = process.stores.now
    runs = {name: process.start(f"evt_{name}") for name in ("save", "step", "sleep", "free", "end", "cancel")}
    failed = process.move(process.start("evt_steer"), RunState.FAILED)
    done = process.move(process.start("evt_replay"), RunState.COMPLETED)
    process.queue("evt_claim")
    fact = event("evt_accept")

    def into(run: RunRow, state: RunState, due_at: int | None = None) -> Action:
        return lambda: process.save(run, step("last"), becomes=move(run, state, now=now, due_at=due_at))

    def give_up(run: RunRow) -> bool:
        return process.save(run, becomes=move(run, RunState.QUEUED, now=now, due_at=now))

    def replay() -> Accepted:
        wish = new_run(replay_id="request-1", replay_of=done.run_id)
        return process.store.replay(Accept(event("evt_replay"), [wish]), [], audit(done.run_id, "replay"))

    def cancel() -> bool:
        becomes = move(runs["cancel"], RunState.CANCELLING, now=now, due_at=now)
        return process.store.steer(steer(runs["cancel"], "cancel", becomes))

    return {
        "accept": lambda: process.accept(Accept(fact, [new_run()], [delivery(fact)])),
        "claim": process.claim,
        "step_start": lambda: process.save(runs["step"], step(state="open")),
        "save": lambda: process.save(runs["save"], step()),
        "sleep": into(runs["sleep"], RunState.SLEEPING, now + 50),
        "release": lambda: give_up(runs["free"]),
        "cancel": cancel,
        "steer": lambda: process.store.steer(restarted(failed, now=now)),
        "replay": replay,
        "end": into(runs["end"], RunState.COMPLETED),
    }


def _failpoint(kind: str, side: str) -> str:
    return f"{'steer' if kind == 'replay' else kind}.{side}_commit"


def a_failure_before_the_commit_leaves_nothing(stores: StoreFactory) -> None:
    """Whatever the commit was about; and the same call goes through afterwards."""
    process = Process(stores)
    for kind, action in _scenes(process).items():
        before = rows(process.store)
        with failing_at(_failpoint(kind, "before")):
            raised(Planted, action)
        assert before == rows(process.store), kind

        assert action(), kind
        assert before != rows(process.store), kind


def a_failure_after_the_commit_leaves_everything(stores: StoreFactory) -> None:
    """The caller was not told, but it is all there: the same call again finds it done."""
    process = Process(stores)
    for kind, action in _scenes(process).items():
        before = rows(process.store)
        with failing_at(_failpoint(kind, "after")):
            raised(Planted, action)
        after = rows(process.store)
        assert before != after, kind
        for table in ("run", "step", "audit"):
            assert len(after[table]) >= len(before[table]), kind

    store = process.store
    assert store.event("stripe", "evt_accept") is not None
    (claimed,) = store.runs(RunFilter(source="stripe", event_id="evt_claim"))
    assert (claimed.state, claimed.fence) == (RunState.RUNNING, 1)
    assert claimed.run_id in store.owned("p1")
    assert len(store.runs(RunFilter(source="stripe", event_id="evt_replay"))) == 2


def a_takeover_that_fails_before_its_commit_leaves_nothing(stores: StoreFactory) -> None:
    """The dead process is still there, its runs still its own; the next look frees them."""
    dead = Process(stores, "p1")
    dead.start("evt_1")
    rescuer = stores.open()
    stores.now += LEASE_MS + 1
    before = rows(rescuer)

    with failing_at("takeover.before_commit"):
        raised(Planted, lambda: rescuer.take_over(stores.now, crash_limit=4, skip=""))
    assert before == rows(rescuer)

    with failing_at("takeover.after_commit"):
        raised(Planted, lambda: rescuer.take_over(stores.now, crash_limit=4, skip=""))
    assert rescuer.processes() == []
    assert rescuer.take_over(stores.now, crash_limit=4, skip="").processes == ()
    (run,) = rescuer.runs(RunFilter())
    assert (run.attempt, run.crashes) == (2, 1)


def a_lost_reply_is_resolved(stores: StoreFactory) -> None:
    """Whoever does not know whether a batch is committed can ask, and repeats only what is not."""
    process = Process(stores)
    fact = event("evt_1")
    wanted = Accept(fact, [new_run()], [delivery(fact)])

    with failing_at("accept.before_commit"):
        raised(Planted, lambda: process.accept(wanted))
    assert not process.store.resolve("p1", process.last_batch)

    with failing_at("accept.after_commit"):
        raised(Planted, lambda: process.accept(wanted))
    assert process.store.resolve("p1", process.last_batch)
    assert not process.store.resolve("p1", "another batch")
    assert not process.store.resolve("p2", process.last_batch)

    process.queue("evt_2")
    assert process.store.resolve("p1", process.last_batch)
    assert len(process.store.runs(RunFilter(source="stripe", event_id="evt_1"))) == 1


def a_batch_of_a_process_that_was_evicted_is_not_resolved(stores: StoreFactory) -> None:
    """Its rows are gone with it; repeating the batch is refused by its epoch."""
    process, other = Process(stores, "p1"), Process(stores, "p2")
    process.queue("evt_1")
    stores.now += LEASE_MS + 1
    other.heartbeat()
    other.store.take_over(stores.now, crash_limit=4, skip="p2")

    assert not process.store.resolve("p1", process.last_batch)


def a_batch_that_cannot_be_written_leaves_nothing_of_itself(stores: StoreFactory) -> None:
    """One impossible row fails the whole transaction, which can be tried again in parts."""
    process = Process(stores)
    run = process.start("evt_1")
    before = rows(process.store)
    broken = step("broken")
    parts = Batch(
        "batch",
        [accept("evt_2")],
        [
            process.advance(run, step("good")),
            Advance(run.run_id, run.generation, run.fence, [broken], [accept("bad \ud800")]),
        ],
    )

    raised(Exception, lambda: process.store.apply("p1", 1, parts))

    assert before == rows(process.store)
    assert process.save(run, step("good"))


def an_empty_batch_is_a_commit_of_its_own(stores: StoreFactory) -> None:
    """It proves the lease and can be resolved."""
    process = Process(stores)

    result = process.apply()

    assert (result.accepted, result.held, result.claimed) == ([], [], [])
    assert process.store.resolve("p1", process.last_batch)
