"""A console over the REST API gives what the console beside the store gives."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from onceward.console.port import Action, DeliveryQuery, EventQuery, RunQuery
from onceward.console.remote import RemoteConsole
from onceward.core import errors
from onceward.runtime.clock import wall_ms
from onceward.sources import Stripe
from tests.helpers import eventually_async
from tests.web.site_server import Server
from tests.web.test_site import SECRET, make_shop

EVENT_ID = "a/../ü?#%2F"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(make_shop(f"sqlite:///{tmp_path / 'store.db'}")) as found:
        body = json.dumps({"id": EVENT_ID, "type": "invoice.paid"})
        headers = Stripe(secrets=[SECRET]).sign(body.encode(), wall_ms())
        assert requests.post(f"{found.url}/hooks/stripe", body.encode(), headers=headers).status_code == 202
        yield found


@pytest.mark.anyio
async def test_everything_is_asked_and_done_over_the_api(server: Server) -> None:
    console = RemoteConsole(server.url, server.token)

    async def failed() -> list[Any]:
        return (await console.runs(RunQuery(problems=True))).items

    (run,) = await eventually_async(failed)
    event = await console.event("stripe", EVENT_ID)
    listed = [
        (await console.events(EventQuery(limit=1))).items,
        (await console.deliveries(DeliveryQuery(source="stripe"))).items,
        await console.sources(),
        await console.workers(),
        await console.workflows(),
        (await console.audit()).items,
    ]
    detail = await console.run(run.run_id)
    dry = await console.bulk(
        RunQuery(problems=True), Action(verb="retry", actor="", request_id="d1"), dry_run=True
    )
    assert (await console.notices()).latest == []
    reports: list[Any] = []
    done = await console.bulk(
        RunQuery(problems=True),
        Action(verb="retry", actor="", request_id="b1"),
        dry_run=False,
        progress=reports.append,
    )

    async def completed() -> bool:
        return (await console.run(run.run_id)).run.state == "completed"

    await eventually_async(completed)
    replay = await console.act(run.run_id, Action(verb="replay", actor="ignored", request_id="r1"))
    again = await console.act(run.run_id, Action(verb="replay", actor="ignored", request_id="r1"))
    audit = [(row.verb, row.actor) for row in (await console.audit()).items if row.run_id]

    assert [one.run_id for one in event.runs] == [run.run_id]
    assert all(listed)
    assert detail.run.event_id == EVENT_ID
    assert (dry.matched, dry.done, done.done, done.is_over) == (1, 0, 1, True)
    assert reports[-1] == done
    assert replay.run_id == again.run_id != run.run_id
    assert again.is_duplicate
    assert {actor for _, actor in audit} == {"token:fuzz"}


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("token", "kind"), [("owt_x", errors.ConfigError), (None, errors.ConfigError)], ids=["wrong", "none"]
)
async def test_who_may_not_is_told_to_bring_a_token(server: Server, token: str | None, kind: type) -> None:
    with pytest.raises(kind, match="token"):
        await RemoteConsole(server.url, token).counts()
    with pytest.raises(errors.NotFound):
        await RemoteConsole(server.url, server.token).run("run_nothing")
