"""The packaged example bodies: each is signed, verified and read as the type that it is filed under."""

from __future__ import annotations

import json

import pytest

from onceward.core.messages import HttpRequest
from onceward.sources import kinds, source_class
from onceward.sources.generic import Generic
from tests.sources.cases import CASES
from tests.sources.signed_cases import FIXTURES, has_examples, signed

NOW_MS = 1_780_000_000_000
# Nothing can be said of them before they are configured.
BARE = {"generic", "hmac"}
DESCRIBED = [kind for kind in kinds() if issubclass(source_class(kind), Generic) and kind not in BARE]


def test_every_described_kind_has_examples() -> None:
    assert [kind for kind in DESCRIBED if not has_examples(kind)] == []


@pytest.mark.parametrize("kind", DESCRIBED)
def test_examples_are_taken_and_read_as_their_type(kind: str) -> None:
    source = CASES[kind].source()
    found = []

    for event_type, one in json.loads((FIXTURES / f"{kind}.json").read_bytes()).items():
        body = one["body"].encode() if isinstance(one["body"], str) else json.dumps(one["body"]).encode()
        request = (
            HttpRequest.of(body, one["headers"])
            if source.insecure
            else signed(source, body, "id-1", event_type, one.get("headers", {}), NOW_MS)
        )
        source.verify(request, NOW_MS)
        assert source.handshake(request, NOW_MS) is None
        found.append((event_type, [incoming.type for incoming in source.normalize(request)]))

    assert found == [(event_type, [event_type]) for event_type, _ in found]
