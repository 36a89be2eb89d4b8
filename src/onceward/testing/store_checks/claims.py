"""A claim takes what is due, for one process only, and nothing else."""

from __future__ import annotations

from onceward.core.ports import Claim, RunFilter
from onceward.core.states import RunState
from onceward.testing.store_scene import (
    LEASE_MS,
    WORKFLOWS,
    Process,
    StoreFactory,
    accept,
    move,
    steer,
    step,
    together,
)

CLAIMERS = 4
CLAIMED_RUNS = 60
EMPTY_LOOKS_MAX = 50
"""Claims in a row that may find nothing while others hold the rows for an instant."""


def processes_that_claim_at_once_share_the_runs(stores: StoreFactory) -> None:
    """Four processes claim sixty runs at the same time: each run has one holder."""
    processes = [Process(stores, f"p{number}") for number in range(CLAIMERS)]
    processes[0].accept(*(accept(f"evt_{number}") for number in range(CLAIMED_RUNS)))

    def claim_all(process: Process) -> list[str]:
        mine: list[str] = []
        looks = 0
        while looks < EMPTY_LOOKS_MAX and process.next_due(WORKFLOWS) is not None:
            found = process.claim(7)
            mine += [run.run_id for run in found]
            looks = 0 if found else looks + 1
        return mine

    shares = together(*(lambda process=process: claim_all(process) for process in processes))

    claimed = [run_id for share in shares for run_id in share]
    assert CLAIMED_RUNS == len(claimed) == len(set(claimed))
    for process, share in zip(processes, shares, strict=True):
        assert set(share) == set(process.store.owned(process.process_id))
    assert all(run.fence == 1 for run in processes[0].store.runs(RunFilter(limit=1_000)))


def a_claim_takes_the_longest_due_first_and_no_more_than_its_limit(stores: StoreFactory) -> None:
    """By due time, not by the order of their ids."""
    process = Process(stores)
    runs = [process.start(f"evt_{number}") for number in range(5)]
    for run, offset in zip(runs, (40, 10, 30, 20, 50), strict=True):
        process.move(run, RunState.SLEEPING, due_at=stores.now + offset)
    stores.now += 100

    first = [run.event_id for run in process.claim(2)]
    then = [run.event_id for run in process.claim(10)]

    assert {"evt_1", "evt_3"} == set(first)
    assert {"evt_2", "evt_0", "evt_4"} == set(then)


def a_run_is_not_claimed_before_it_is_due(stores: StoreFactory) -> None:
    """Not a millisecond before; then at once."""
    process = Process(stores)
    run = process.move(process.start("evt_1"), RunState.SLEEPING, due_at=stores.now + 1_000)

    stores.now += 999
    assert process.claim() == []
    stores.now += 1
    assert [run.run_id] == [found.run_id for found in process.claim()]


def only_runs_of_known_workflows_are_claimed(stores: StoreFactory) -> None:
    """A process that lacks a workflow leaves its runs to others; one that has none takes nothing."""
    process = Process(stores)
    process.accept(accept("evt_1", "fulfil", "invoice", "notify"))

    assert process.claim(workflows=["refund"]) == []
    assert process.claim(workflows=[]) == []
    assert {"fulfil", "notify"} == {
        run.workflow for run in process.claim(workflows=["notify", "fulfil", "refund"])
    }
    assert [run.workflow for run in process.claim()] == ["invoice"]


def a_limit_counts_only_what_can_be_claimed(stores: StoreFactory) -> None:
    """Runs of unknown workflows in front of the queue take no place."""
    process = Process(stores)
    process.accept(*(accept(f"evt_{number}", "invoice") for number in range(20)))
    stores.now += 1
    run = process.queue("evt_last", "fulfil")

    assert [run.run_id] == [found.run_id for found in process.claim(1, workflows=["fulfil"])]


def a_claim_gives_the_run_and_its_event(stores: StoreFactory) -> None:
    """What is needed to go on comes with the claim: the run as it is now, the event as it was."""
    process = Process(stores)
    process.queue("evt_1", payload='{"n": 1}')
    stores.now += 5

    (claimed,) = process.apply(claims=[Claim(10, WORKFLOWS, stores.now)]).claimed

    assert (RunState.RUNNING, 1, stores.now) == (claimed.run.state, claimed.run.fence, claimed.run.started_at)
    assert claimed.run == process.read(claimed.run.run_id)
    assert claimed.event == process.store.event("stripe", "evt_1")
    assert claimed.event.payload == '{"n": 1}'


def a_run_claimed_again_keeps_its_first_start(stores: StoreFactory) -> None:
    """``started_at`` is when it first ran, and a sleep charges no attempt."""
    process = Process(stores)
    run = process.start("evt_1")
    process.move(run, RunState.SLEEPING, due_at=stores.now + 10)
    stores.now += 10

    (again,) = process.claim()

    assert run.started_at == again.started_at
    assert (again.attempt, again.crashes, again.state) == (1, 0, RunState.RUNNING)


def a_run_that_is_being_cancelled_stays_so_when_claimed(stores: StoreFactory) -> None:
    """The claim does not bring it back to life."""
    process = Process(stores)
    run = process.start("evt_1")
    becomes = move(run, RunState.CANCELLING, now=stores.now, due_at=stores.now)
    assert process.store.steer(steer(run, "cancel", becomes))

    (again,) = process.claim()

    assert (run.run_id, RunState.CANCELLING) == (again.run_id, again.state)


def ended_and_held_runs_are_never_claimed(stores: StoreFactory) -> None:
    """They left the queue."""
    process = Process(stores)
    states = (RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED, RunState.HELD)
    for state in states:
        process.move(process.start(f"evt_{state}"), state)
    stores.now += 1_000_000

    assert process.claim() == []
    assert process.store.dump("queue")["queue"] == []


def owned_runs_are_not_claimed_however_due(stores: StoreFactory) -> None:
    """Ownership ends by a release, a takeover or an operator, not by time."""
    process, other = Process(stores, "p1"), Process(stores, "p2")
    process.start("evt_1")
    stores.now += 10 * LEASE_MS

    assert other.claim() == []


def suspects_are_claimed_apart(stores: StoreFactory) -> None:
    """A run that lost two holders in a row comes only to a claim that asks for suspects."""
    process = Process(stores)
    clean, suspect = process.start("evt_1"), process.start("evt_2")
    process.move(clean, RunState.QUEUED, due_at=stores.now, crashes=1)
    process.move(suspect, RunState.QUEUED, due_at=stores.now, crashes=2)

    assert [clean.run_id] == [run.run_id for run in process.claim()]
    (found,) = process.claim(1, suspects=True)
    assert suspect.run_id == found.run_id

    # A checkpoint clears the suspicion, also while the holder keeps the run.
    assert process.save(found, becomes=move(found, RunState.RUNNING, now=stores.now, crashes=0))
    process.move(process.read(found.run_id), RunState.SLEEPING, due_at=stores.now)
    assert [suspect.run_id] == [run.run_id for run in process.claim()]


def suspicion_grows_while_the_holder_keeps_the_run(stores: StoreFactory) -> None:
    """A move without a release sets it as well."""
    process = Process(stores)
    run = process.start("evt_1")
    assert process.save(run, becomes=move(run, RunState.RUNNING, now=stores.now, crashes=2))
    process.store.leave("p1", stores.now)
    other = Process(stores, "p2")

    assert other.claim() == []
    assert [run.run_id] == [found.run_id for found in other.claim(suspects=True)]


def one_batch_may_carry_several_claims(stores: StoreFactory) -> None:
    """Plain and suspect runs come in one answer, none of them twice."""
    process = Process(stores)
    suspect = process.start("evt_1")
    process.move(suspect, RunState.QUEUED, due_at=stores.now, crashes=3)
    clean = process.queue("evt_2")

    found = process.apply(
        claims=[
            Claim(5, WORKFLOWS, stores.now),
            Claim(1, WORKFLOWS, stores.now, suspects=True),
            Claim(5, WORKFLOWS, stores.now),
        ]
    ).claimed

    assert sorted([suspect.run_id, clean.run_id]) == sorted(claimed.run.run_id for claimed in found)


def an_end_and_the_next_claim_share_a_batch(stores: StoreFactory) -> None:
    """A full process ends one run and begins the next in one commit."""
    process = Process(stores)
    run = process.start("evt_1")
    following = process.queue("evt_2")

    result = process.apply(
        advances=[process.advance(run, step(), becomes=move(run, RunState.COMPLETED, now=stores.now))],
        claims=[Claim(1, WORKFLOWS, stores.now)],
    )

    assert result.held == [True]
    assert [following.run_id] == [claimed.run.run_id for claimed in result.claimed]
    assert RunState.COMPLETED is process.read(run.run_id).state
