"""Where a pruning goes on is a text that anybody may have written: what is none is refused, never a fault of ours."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from httpx import ASGITransport, AsyncClient

from onceward.console.asking import cursor
from onceward.console.local import LocalConsole
from onceward.web.access import Principal, Role
from onceward.web.api.paths import PREFIX
from onceward.web.api.server import Api
from onceward.web.auth.guard import PRINCIPAL
from onceward.web.port import Receive, Scope, Send
from tests.console.shop import Shop
from tests.engine.running import run_app

ADMIN = Principal(name="ann", role=Role.ADMIN, csrf="")
DEEP = "[" * 100_000
FAR = 2**63


def raw(text: str) -> str:
    """Give any text as the places are written."""
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


NO_PLACES = {
    "no text of ours": "x",
    "no JSON": raw("{"),
    "a deep list": raw(DEEP),
    "an object": raw('{"a": 1}'),
    "a number": raw("7"),
    "no list of five": cursor(0, 0),
}
NO_PLACES_OF_ROUNDS: dict[str, tuple[Any, ...]] = {
    "too few": (0, 0, ""),
    "another type": (0, "0", "", 0),
    "true for a number": (True, 0, "", 0),
    "NUL": (0, 0, "\0", 0),
    "a far kind": (0, 99, "", 0),
    "a far round": (99, 0, "", 0),
    "a far number": (0, 0, "", FAR),
    "a number below": (-1, 0, "", 0),
    "another flag": (0, 0, "", 7),
}
NO_PLACES_OF_EVENTS = {
    "no JSON": "{",
    "deep": DEEP,
    "an object": "{}",
    "a number": "7",
    "too few": '[1, "a"]',
    "too many": '[1, "a", "b", "c"]',
    "a text for a time": '["1", "a", "b"]',
    "a far time": f'[{FAR}, "a", "b"]',
    "a huge time": f'[{10**40}, "a", "b"]',
    "a fraction": '[1.5, "a", "b"]',
    "a deep source": f'[1, {DEEP}, "b"]',
    "NUL": '[1, "\\u0000", "b"]',
    "half a pair": '[1, "\\ud800", "b"]',
    "nothing": "null",
}
NO_PLACES_OF_A_SUBJECT = {
    "no JSON": "{",
    "a list": "[]",
    "deep": f'{{"other": {DEEP}',
    "a far time": json.dumps({"until": FAR}),
    "a huge horizon": json.dumps({"until": 1, "horizon": 10**40}),
    "a text for a time": json.dumps({"until": "1"}),
    "NUL in an event": json.dumps({"until": 1, "event": [1, "\0", "b"]}),
    "NUL in a run": json.dumps({"until": 1, "run_id": "\0"}),
    "NUL in what is to do": json.dumps({"until": 1, "todo": [["run_1", "\0", ""]]}),
    "a half thing to do": json.dumps({"until": 1, "todo": [["run_1"]]}),
    "half a pair": '{"until": 1, "run_id": "\\ud800"}',
    "a number for a run": json.dumps({"until": 1, "run_id": 7}),
}


WHOLE: dict[str, Any] = {"older_than": "0s", "runs": True, "deliveries": True, "identity": True}
OF_A_SUBJECT: dict[str, Any] = {"subject": "cus_1"}


def bodies(noted: str, noted_of_a_subject: str) -> list[tuple[str, dict[str, Any]]]:
    """Give every call with a place that is none, by what is wrong with it.

    Args:
        noted: by which the audit knows a pruning that has begun.
        noted_of_a_subject: likewise, of a subject.
    """
    found = [(name, {**WHOLE, "after": after}) for name, after in NO_PLACES.items()]
    found += [
        (name, {**WHOLE, "after": cursor(noted, *place)}) for name, place in NO_PLACES_OF_ROUNDS.items()
    ]
    half = raw(f'["{noted}", 0, 0, "\\ud800", 0]')
    found += [("half a pair", {**WHOLE, "after": half})]
    found += [("a character", {**WHOLE, "after": "é"}), ("empty", {**WHOLE, "after": ""})]
    # What events, notices and ids have as their place is looked at by the store itself.
    found += [
        (f"{name} {number}", {**WHOLE, "after": cursor(noted, 0, number, after, 0)})
        for name, after in NO_PLACES_OF_EVENTS.items()
        for number in range(6)
    ]
    found += [
        (f"{name} of a subject", {**OF_A_SUBJECT, "after": cursor(noted_of_a_subject, after)})
        for name, after in NO_PLACES_OF_A_SUBJECT.items()
    ]
    return found


def said(entry: dict[str, Any]) -> set[str]:
    """Give the names of what was asked for."""
    return set(json.loads(entry["detail"]))


def test_a_place_that_is_none_is_refused_with_a_problem(
    store_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether it is only counted or done. A place of runs or deliveries is any text, and so it may be one."""
    shop = Shop(store_url)

    async def scenario() -> dict[str, tuple[int, str]]:
        await shop.completed("order-1")
        api = Api(LocalConsole(shop.app), body_bytes_max=1_000_000)

        async def as_admin(scope: Scope, receive: Receive, send: Send) -> None:
            await api({**scope, PRINCIPAL: ADMIN}, receive, send)

        told = {}
        async with AsyncClient(
            transport=ASGITransport(app=as_admin), base_url="http://shop.example"
        ) as client:
            for begin in (WHOLE, OF_A_SUBJECT):
                assert (await client.post(f"{PREFIX}/prune", json={**begin, "dry_run": False})).is_success
            entries = await shop.app.worker.read(shop.app.worker.store.dump, "audit")
            noted, noted_of_a_subject = (
                next(
                    row["request_id"]
                    for row in entries["audit"]
                    if (OF_A_SUBJECT.keys() <= said(row)) == is_of
                )
                for is_of in (False, True)
            )
            for name, body in bodies(noted, noted_of_a_subject):
                for dry_run in (True, False):
                    reply = await client.post(f"{PREFIX}/prune", json={**body, "dry_run": dry_run})
                    told[f"{name}, dry_run={dry_run}"] = (reply.status_code, reply.headers["content-type"])
        await api.close()
        return told

    told = run_app(shop.app, scenario)
    texts = {f"{name} {number}" for name in NO_PLACES_OF_EVENTS for number in range(6)}
    refused = {name: reply for name, reply in told.items() if name.partition(",")[0] not in texts}
    assert {
        name: reply for name, reply in refused.items() if reply != (400, "application/problem+json")
    } == {}
    assert {reply for name, reply in told.items() if name not in refused} == {
        (400, "application/problem+json"),
        (200, "application/json"),
    }
    kinds = {name.partition(",")[0] for name, (status, _) in told.items() if status == 400} & texts
    assert {name.rpartition(" ")[0] for name in kinds} == set(NO_PLACES_OF_EVENTS)
    assert len(kinds) == 3 * len(NO_PLACES_OF_EVENTS)  # events, ids and notices
    assert [record.message for record in caplog.records if "failed" in record.message] == []
