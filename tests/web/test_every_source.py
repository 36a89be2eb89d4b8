"""Every built-in source through the receiver and the store: taken, kept, verified and read again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from onceward import App
from onceward.core.errors import SignatureInvalid
from onceward.core.messages import HttpRequest
from onceward.sources import Source
from onceward.sources.described.proof import TokenProof
from onceward.sources.fixture import fixtures_of
from onceward.sources.generic import Generic
from tests.engine.running import make_app, run_app
from tests.sources import test_examples, test_fixtures
from tests.sources.cases import CASES
from tests.sources.test_preset_fixtures import DESCRIBED

PACKAGED = {**test_fixtures.OPTIONS}
KINDS = [*test_examples.KINDS, *PACKAGED, *DESCRIBED]
BY_TOKEN = {*test_examples.UNSIGNED, "google_pubsub"}
"""What proves these senders is a token, and tokens are not stored."""

TOLD_IN_BODY = {"microsoft_graph"}
"""These say the secret in the body, which is kept as it came."""

SECRETS = ["MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", *test_fixtures.SECRETS]


def source_of(kind: str) -> Source:
    if kind in DESCRIBED:
        return CASES[kind].source()
    return test_fixtures.source_of(kind) if kind in PACKAGED else test_examples.source_of(kind)


def is_by_token(source: Source) -> bool:
    return isinstance(source, Generic) and isinstance(source._proof, TokenProof)


async def deliver(app: App, kind: str, event_type: str) -> tuple[int, bytes]:
    """Send an example body as the sender would, and give the status and the body's bytes."""
    source = app.sources[kind]
    fixture = fixtures_of(kind)[event_type]
    body = fixture.body.encode() if isinstance(fixture.body, str) else json.dumps(fixture.body).encode()
    url = f"https://hooks.example.com/hooks/{kind}?b=1"
    if source.insecure:
        request = HttpRequest.of(body, url=url)
    else:
        request = source.signed_request(
            body,
            app.worker.now_ms(),
            event_id=f"ev-{event_type.replace('.', '-')}",
            event_type=event_type,
            url=url,
        )
    added = [(name.lower().encode(), value.encode()) for name, value in fixture.headers.items()]
    scope = {
        "type": "http",
        "method": request.method,
        "path": f"/hooks/{kind}",
        "query_string": request.query.encode(),
        "headers": [(b"host", b"hooks.example.com"), *request.headers, *added],
        "scheme": "https",
    }
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": request.body}

    async def send(message: Any) -> None:
        sent.append(message)

    await app.asgi()(scope, receive, send)
    return int(sent[0]["status"]), request.body


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_kept_of_an_example_is_enough_to_verify_and_read_it_again(kind: str) -> None:
    app = make_app("sqlite:///:memory:")
    app.source(source_of(kind))

    async def scenario() -> None:
        for event_type in fixtures_of(kind):
            known = {delivery.delivery_id for delivery in await app.deliveries(limit=1000)}
            status, body = await deliver(app, kind, event_type)
            assert 200 <= status < 300
            parts = [one for one in await app.deliveries(limit=1000) if one.delivery_id not in known]
            (delivery_id,) = {part.delivery_id for part in parts}

            assert (await app.request(delivery_id)).body == body
            again = await app.redeliver(delivery_id)
            assert all(event.duplicate for event in again.events)
            assert [event.event_id for event in again.events] == [part.event_id for part in parts]  # type: ignore[union-attr]
            if kind in BY_TOKEN or is_by_token(app.sources[kind]):
                with pytest.raises(SignatureInvalid):
                    await app.verify_again(delivery_id)
            else:
                expected = None if app.sources[kind].insecure else 0
                assert (await app.verify_again(delivery_id)).secret_index == expected
        assert await app.deliveries(state="unparsed") == []
        assert await app.refusals() == []
        dumped = app.worker.store.dump("event", "delivery")
        if kind not in TOLD_IN_BODY:
            assert not any(secret in repr(dumped) for secret in SECRETS)

    run_app(app, scenario)
