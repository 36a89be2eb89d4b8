"""Workflows that a newer process registers: what an older one accepts afterwards starts them too."""

from __future__ import annotations

from tests.attack.site import Site
from tests.helpers import eventually


def test_what_an_older_process_accepts_after_a_registration_starts_its_workflows(site: Site) -> None:
    """From outside a run, by a step and in a step's body; the older process does not look meanwhile."""
    site.env |= {"ONCEWARD_LEASE": "10m", "ONCEWARD_POLL": "5m", "ONCEWARD_NOTIFY": "false"}
    app = site.load("market").app
    app.sync.open()
    before = app.sync.emit("bought", {})
    before.runs[0].result("20s")

    site.worker("market:app", MARKET_COUNTS="1", ONCEWARD_LEASE="2s", ONCEWARD_POLL="100ms")
    after = app.sync.emit("bought", {})

    assert [run.workflow for run in app.sync.event("emit/bought", before.id).runs] == ["bought"]
    runs = app.sync.event("emit/bought", after.id).runs
    assert sorted(run.workflow for run in runs) == ["bought", "counted"]
    eventually(lambda: sum(run.workflow == "counted" for run in app.sync.runs()) == 3, 20, what=site.logs())
    assert site.wait_all(app, 5) == {"completed": 5}
    site.check(app)
