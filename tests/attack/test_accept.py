"""Accepting a delivery: one run of each event, whatever dies and whoever asks again."""

from __future__ import annotations

import signal

import pytest

from tests.attack.site import Site


@pytest.mark.parametrize(
    "failpoint",
    [
        "accept.before_insert:kill",
        "accept.before_commit:kill",
        "accept.after_commit:kill",
        "accept.before_reply:kill",
    ],
)
def test_a_kill_around_accept_and_redelivery_to_three_processes_give_one_run(
    site: Site, failpoint: str
) -> None:
    first = site.serve(failpoint=failpoint)
    assert site.deliver(first.port, "evt_1", "A") == (0, None)
    assert first.wait() == -signal.SIGKILL

    ports = [site.serve().port for _ in range(2)]
    replies = site.storm(ports, ["evt_1"], 6)["evt_1"]

    assert {reply.status for reply in replies} == {202}
    assert len({tuple(reply.runs) for reply in replies}) == 1
    app = site.desk().app
    site.wait_all(app, 1)
    event = app.sync.event("stripe", "evt_1")
    assert [run.run_id for run in event.runs] == replies[0].runs
    # Whoever sent first sets the content; a charge is asked for again only by the one that died in it.
    assert all(times == 1 for times in site.counts().values()), site.notes()
    site.check(app)
