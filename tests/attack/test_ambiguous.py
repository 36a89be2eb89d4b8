"""Commits whose reply is lost, and failures at the same places: nothing happens twice, nothing is lost."""

from __future__ import annotations

import pytest

from tests.attack.site import Site

KINDS = ("accept", "claim", "save", "sleep", "end", "release", "takeover", "cancel", "steer")


@pytest.mark.parametrize("kind", ["accept", "claim", "save", "sleep", "end"])
@pytest.mark.parametrize("fault", ["before_commit:raise", "after_commit:raise", "after_commit:drop-reply"])
def test_a_fault_at_a_commit_of_a_worker(site: Site, kind: str, fault: str) -> None:
    server = site.serve(failpoint=f"{kind}.{fault}")
    app = site.desk().app
    replies = [site.deliver(server.port, "evt_1", "A") for _ in range(3)]
    shop = site.desk()
    nap = shop.app.sync.start(shop.sleeper, "S", "300ms")
    accepted = [reply for reply in replies if reply.status == 202]
    assert {reply.status for reply in replies} <= {202, 503}, replies
    assert len({tuple(reply.runs) for reply in accepted}) == 1, replies
    assert replies[-1].status == 202
    assert site.wait_ended(app, accepted[0].runs[0]) == "completed"
    assert nap.result("30s") >= 0.3
    charges = site.notes("charge")
    assert len(set(charges)) == 1
    assert max(site.counts().values()) <= 2, site.counts()
    site.check(app)
