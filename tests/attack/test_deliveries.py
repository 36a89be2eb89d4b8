"""Deliveries of one event in parallel to three processes, and batches, while a process is killed."""

from __future__ import annotations

import http.client
import json
import signal
from typing import Any

import pytest

from tests.attack.site import Process, Reply, Site, at_once

COPIES = 50
SALES = 40


@pytest.mark.parametrize("failpoint", ["accept.before_commit", "accept.after_commit", "accept.before_reply"])
def test_fifty_parallel_deliveries_over_three_processes_with_a_kill_give_one_run(
    site: Site, failpoint: str
) -> None:
    doomed = site.serve(failpoint=f"{failpoint}:kill")
    ports = [doomed.port, *(site.serve().port for _ in range(2))]

    def deliver(copy: int) -> Any:
        return site.deliver(ports[copy % 3], "evt_1", "A")

    replies: list[Reply] = at_once(*(lambda copy=copy: deliver(copy) for copy in range(COPIES)))

    assert doomed.wait() == -signal.SIGKILL
    assert all(isinstance(reply, Reply) for reply in replies), replies
    assert {reply.status for reply in replies} == {0, 202}
    assert sum(reply.status == 202 for reply in replies) >= COPIES // 3
    # Whoever got no reply sends again.
    again = [site.deliver(ports[1 + copy % 2], "evt_1", "A") for copy in range(2)]
    answered = [reply for reply in (*replies, *again) if reply.status]
    assert {reply.status for reply in answered} == {202}
    assert len({tuple(reply.runs) for reply in answered}) == 1
    app = site.desk().app
    assert site.wait_all(app, 1) == {"completed": 1}
    event = app.sync.event("stripe", "evt_1")
    assert [run.run_id for run in event.runs] == answered[0].runs
    outcomes = [delivery.outcome for delivery in event.deliveries]
    assert outcomes.count("accepted") == 1
    assert set(outcomes) == {"accepted", "duplicate"}
    assert event.delivery_count >= len(answered)
    site.check(app)


def post(process: Process, source: Any, body: bytes) -> Reply:
    connection = http.client.HTTPConnection("127.0.0.1", process.port, timeout=20)
    try:
        connection.request("POST", "/hooks/till", body, source.sign(body, 0))
        answer = connection.getresponse()
        return Reply(answer.status, json.loads(answer.read()))
    except (OSError, http.client.HTTPException):
        return Reply(0, None)
    finally:
        connection.close()


@pytest.mark.parametrize("failpoint", ["accept.before_commit", "accept.after_commit", "accept.before_reply"])
def test_a_kill_around_a_batch_leaves_all_of_its_events_or_none(site: Site, failpoint: str) -> None:
    body = json.dumps([{"id": f"sale_{number}"} for number in range(SALES)]).encode()
    doomed = site.serve("batches:app", failpoint=f"{failpoint}:kill")
    desk = site.desk("batches")

    assert post(doomed, desk.till, body).status == 0
    assert doomed.wait() == -signal.SIGKILL

    stored = desk.app.sync.events(source="till", limit=1000)
    assert len(stored) == (0 if failpoint == "accept.before_commit" else SALES)
    reply = post(site.serve("batches:app"), desk.till, body)
    assert reply.status == 202
    assert len(set(reply.runs)) == SALES
    assert site.wait_all(desk.app, SALES) == {"completed": SALES}
    event = desk.app.sync.event("till", "sale_7")
    assert [run.run_id for run in event.runs] == [reply.runs[7]]
    request = desk.app.sync.request(event.deliveries[0].delivery_id)
    assert request.body == body
    site.check(desk.app)
