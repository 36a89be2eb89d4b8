"""Keys under many processes, of which some die: one run of each, one at a time, the newest wins."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from onceward import App
from tests.attack.site import Reply, Site

ORDERS = 3
PROCESSES = 3


def deliver_all(site: Site, ports: list[int], type_: str, count: int) -> list[Reply]:
    """Deliver *count* events about few orders at once; what got no answer is sent to the next process."""

    def send(number: int) -> Reply:
        for attempt in range(4 * len(ports)):
            port = ports[(number + attempt) % len(ports)]
            reply = site.deliver(port, f"evt_{type_}_{number}", f"order-{number % ORDERS}", type_)
            if reply.status == 202:
                return reply
        return reply

    with ThreadPoolExecutor(12) as pool:
        return list(pool.map(send, range(count)))


def test_events_of_one_order_to_many_processes_make_one_run_of_it(site: Site) -> None:
    ports = [site.serve("keyed:app").port for _ in range(PROCESSES)]
    replies = deliver_all(site, ports, "order.placed", 45)

    assert {reply.status for reply in replies} == {202}
    app = site.desk("keyed").app
    site.wait_all(app, ORDERS)
    for order in range(ORDERS):
        assert len({tuple(reply.runs) for reply in replies[order::ORDERS]}) == 1
    assert {run.key for run in app.sync.runs(limit=1000)} == {f"order-{order}" for order in range(ORDERS)}
    assert len(app.sync.runs(limit=1000)) == ORDERS
    assert sorted(site.counts("end ship").values()) == [1] * ORDERS
    site.check(app)


def test_runs_of_one_key_take_turns_also_when_a_process_dies(site: Site) -> None:
    doomed = site.serve("keyed:app", failpoint="end.after_commit:kill:2")
    ports = [doomed.port, *(site.serve("keyed:app").port for _ in range(PROCESSES - 1))]
    replies = deliver_all(site, ports, "stock.changed", 30)

    assert {reply.status for reply in replies} == {202}
    doomed.kill()  # where the others were so quick that it did not end two runs
    app = site.desk("keyed").app
    tally = site.wait_all(app, 30)
    assert tally == {"completed": 30}
    under_way: dict[str, str] = {}
    for line in site.notes():
        what, run, order = line.split()
        if what == "start":
            # The same run may begin again, where its process died in it; another never.
            assert under_way.get(order, run) == run, f"{run} began beside {under_way[order]}"
            under_way[order] = run
        else:
            under_way.pop(order, None)
    site.check(app)


def test_bodies_of_one_key_never_overlap_by_one_clock(site: Site) -> None:
    """Also where runs fail in one branch, are tried again, and one process is killed."""
    doomed = site.serve("keyed:app", failpoint="end.after_commit:kill:3")
    ports = [doomed.port, *(site.serve("keyed:app").port for _ in range(PROCESSES))]
    replies = deliver_all(site, ports, "stock.moved", 18)

    assert {reply.status for reply in replies} == {202}
    doomed.kill()
    app = site.desk("keyed").app
    assert site.wait_all(app, 18) == {"completed": 12, "failed": 6}
    under_way: dict[str, tuple[str, str]] = {}
    for line in sorted(site.notes(), key=lambda line: int(line.split()[4])):
        what, run, order, pid, _ = line.split()
        if what == "start":
            before = under_way.get(order)
            assert before is None or lost_its_process(app, before[0]), f"{line} beside {before}"
            under_way[order] = run, pid
        elif under_way.get(order) == (run, pid):
            del under_way[order]
    site.check(app)


def lost_its_process(app: App, run_id: str) -> bool:
    """Say whether a run was taken over: nobody can end the body that a dead or frozen process has."""
    return any(attempt.outcome == "lost" for attempt in app.sync.run(run_id).attempts())


def test_the_newest_run_of_a_key_is_the_one_that_ends(site: Site) -> None:
    ports = [site.serve("keyed:app").port for _ in range(PROCESSES)]
    replies = deliver_all(site, ports, "cart.changed", 18)

    assert {reply.status for reply in replies} == {202}
    app = site.desk("keyed").app
    site.wait_all(app, 18)
    rows = app.sync.runs(limit=1000)
    for order in range(ORDERS):
        mine = [row for row in rows if row.key == f"order-{order}"]
        ended = [row for row in mine if row.state == "completed"]
        assert len(ended) == 1
        assert all(row.state == "cancelled" for row in mine if row not in ended)
    site.check(app)
