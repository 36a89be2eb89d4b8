"""`onceward redeliver`: stored deliveries are read again, one by one, all unparsed ones, or elsewhere."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from onceward.cli import target
from onceward.cli.main import main
from onceward.cli.redeliver import _signed_anew
from onceward.sources.fixture import fixtures_of
from tests.engine.running import make_app, run_app
from tests.pages import call
from tests.web.serving import serving
from tests.web.test_every_source import KINDS, deliver, source_of

SHOP = """
from pathlib import Path
from onceward import App
from onceward.core.arrival import Incoming, Verified
from onceward.core.messages import HttpRequest
from onceward.sources import Source, Stripe
from onceward.sources.base import parse_json

app = App("sqlite:///{home}/shop.db")
stripe = app.source(Stripe(secrets="whsec_receiver_0123456789"))

class Acme(Source):
    kind = "acme"
    def verify(self, request, now_ms):
        return Verified(0)
    def normalize(self, request):
        if not Path("{home}/fixed").exists():
            raise KeyError("not yet")
        return [Incoming(id=i, type="acme.event", payload={{}}) for i in parse_json(request.body)]

app.source(Acme(secrets="x"))

@app.workflow(on=stripe["*"])
async def paid(ctx, event):
    return event.id
"""
BODY = b'{"id": "evt_1", "type": "invoice.paid"}'


class Shop:
    def __init__(self, home: Path, name: str) -> None:
        self.home = home
        self.name = f"{name}:app"

    def take(self, source: str, body: bytes, seconds_ago: int = 0) -> None:
        """Have a delivery arrive."""
        app = target.load(self.name)
        at_ms = (int(time.time()) - seconds_ago) * 1000
        headers = app.sources["stripe"].sign(body, at_ms)

        async def deliver() -> None:
            await app.open(runs=False)
            try:
                status, text = await call(app.asgi(), "POST", f"/hooks/{source}", headers, body)
                assert status == 202, text
            finally:
                await app.close()

        asyncio.run(deliver())

    def redeliver(self, *words: str) -> tuple[int, str]:
        done = CliRunner().invoke(main, ["redeliver", self.name, *words])
        return done.exit_code, done.output

    def ask(self, verb: str, *arguments: Any, **named: Any) -> Any:
        app = target.load(self.name)

        async def asked() -> Any:
            await app.open(runs=False)
            try:
                return await getattr(app, verb)(*arguments, **named)
            finally:
                await app.close()

        return asyncio.run(asked())


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    name = f"redelivered_shop_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(SHOP.format(home=tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    return Shop(tmp_path, name)


def test_an_event_or_a_delivery_is_read_again_and_its_runs_are_told(shop: Shop) -> None:
    shop.take("stripe", BODY)
    (run,) = shop.ask("runs")
    (delivery,) = shop.ask("deliveries")

    for wanted in ("stripe/evt_1", delivery.delivery_id):
        assert shop.redeliver(wanted) == (0, f"{delivery.delivery_id} evt_1 duplicate {run.run_id}\n")
    assert len(shop.ask("runs")) == 1


def test_unparsed_deliveries_are_read_after_the_fix(shop: Shop) -> None:
    shop.take("acme", b'["a", "b"]')
    shop.take("acme", b'["c"]')

    code, text = shop.redeliver("--unparsed")
    assert code == 1
    assert text.count("cannot be read: KeyError") == 2
    (shop.home / "fixed").touch()
    code, text = shop.redeliver("--unparsed")

    assert code == 0
    first, second = text.splitlines()
    assert first.endswith(" a accepted; b accepted")
    assert second.endswith(" c accepted")
    assert shop.redeliver("--unparsed") == (0, "No delivery is unparsed.\n")
    assert {event.id for event in shop.ask("events", source="acme")} == {"a", "b", "c"}


def test_a_request_is_sent_to_another_receiver_signed_anew(shop: Shop) -> None:
    shop.take("stripe", BODY, seconds_ago=200)
    with serving() as served:
        # Its clock stands where the stored signature is long too old.
        url = f"http://127.0.0.1:{served.port}/hooks/stripe"
        served.intake.now_ms = lambda: int(time.time() * 1000) + 200_000  # type: ignore[method-assign]
        code, text = shop.redeliver("stripe/evt_1", "--to", url)
        refused = shop.redeliver("stripe/evt_1", "--to", url.replace("stripe", "nobody"))

        assert (code, " accepted 202 " in text) == (0, True), text
        [(_, request, _)] = served.intake.requests
        assert request.body == BODY
    assert (refused[0], " refused 404 " in refused[1]) == (1, True)
    assert len(shop.ask("deliveries")) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_signed_anew_names_the_same_event(kind: str) -> None:
    app = make_app("sqlite:///:memory:")
    source = app.source(source_of(kind))

    async def scenario() -> None:
        for event_type in fixtures_of(kind):
            await deliver(app, kind, event_type)
            (first, *_) = await app.deliveries()
            stored = await app.request(first.delivery_id)

            request = await _signed_anew(app, first.delivery_id, stored.url)

            source.verify(request, app.worker.now_ms())
            # Where the id is made of the time of receipt, the receiver of the copy decides.
            request = msgspec.structs.replace(request, received_at_ms=stored.received_at_ms)
            again, came = source.normalize(request), source.normalize(stored)
            assert [(one.id, one.type) for one in again] == [(one.id, one.type) for one in came]
            assert b"user-agent" not in dict(request.headers)

    run_app(app, scenario)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 2, "Name deliveries or events"),
        (("del_x", "--unparsed"), 2, "Name deliveries or events"),
        (("del_x",), 1, "There is no delivery 'del_x'"),
        (("stripe/evt_9",), 1, "There is no event 'evt_9'"),
        (("stripe/evt_1", "--to", "ftp://x"), 2, "no http or https address"),
        (("stripe/evt_1", "--to", "http://127.0.0.1:1/"), 1, "There is no reply"),
    ],
)
def test_what_cannot_be_done_is_told(shop: Shop, words: tuple[str, ...], code: int, said: str) -> None:
    shop.take("stripe", BODY)

    found, text = shop.redeliver(*words)

    assert (found, said in text) == (code, True), text
