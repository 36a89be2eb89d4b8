"""The REST API: who may, what is read, what is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import msgspec
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from onceward.console.port import Completion, Emit, ExportQuery, Prune, RunQuery
from onceward.console.views import BulkReply
from onceward.core.errors import (
    ConfigError,
    LeaseLost,
    NotStorable,
    OncewardError,
    StateConflict,
    StoreDamaged,
    StoreUnavailable,
)
from onceward.web.access import Role
from onceward.web.api.bodies import BODIES
from onceward.web.api.bulks import Bulks
from onceward.web.api.calls import ENDPOINTS, Endpoint
from onceward.web.api.openapi import document
from onceward.web.auth.headers import HEADERS
from tests.web.fake_console import NASTY
from tests.web.site_world import World

V1 = "/api/v1"
PARTS = {"run_id": "run_1", "source": "stripe", "event_id": "evt_1", "delivery_id": "del_1", "bulk_id": "b1"}
BODY_OF = {"answer": {"answer": "retry"}, "plan": {"verb": "retry"}}
BULK = {"query": {"state": "failed"}, "action": {"verb": "retry"}}


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


def address(endpoint: Endpoint) -> str:
    path = endpoint.path.format(**PARTS)
    query = {"/event": "?source=a&id=b"}.get(path, "?verb=retry" if endpoint.path.endswith("/plan") else "")
    return f"{V1}{path}{query if endpoint.method == 'GET' else ''}"


def body_of(endpoint: Endpoint) -> Any:
    if endpoint.path == "/runs/bulk":
        return BULK
    if endpoint.path == "/events":
        return {"type": "order.paid"}
    return BODY_OF.get(endpoint.path.rsplit("/", 1)[1], {})


async def call(world: World, endpoint: Endpoint, headers: dict[str, str]) -> httpx.Response:
    async with world.client() as client:
        if endpoint.method == "GET":
            return await client.get(address(endpoint), headers=headers)
        return await client.post(address(endpoint), json=body_of(endpoint), headers=headers)


def named(endpoint: Endpoint) -> str:
    return f"{endpoint.method}{endpoint.path}"


# --- who may ------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=named)
async def test_a_call_is_for_those_who_may(world: World, endpoint: Endpoint) -> None:
    revoked = world.token("admin", "revoked")
    world.accounts.revoke_token("revoked", actor="test")
    expired = world.token("admin", "expired", lasts_ms=1)
    elsewhere = world.accounts_on(world.factory.open("other")).add_token("x", Role.ADMIN, actor="test")
    world.now += 1
    strangers = {
        "nobody": {},
        "revoked": revoked,
        "expired": expired,
        "another namespace's": {"Authorization": f"Bearer {elsewhere}"},
        "made up": {"Authorization": f"Bearer owt_{'a' * 12}_{'b' * 43}"},
        "no token": {"Authorization": "Bearer ''"},
        "by basic": {"Authorization": "Basic YW5uOnB3"},
    }

    told = {name: (await call(world, endpoint, headers)).status_code for name, headers in strangers.items()}
    asked = len(world.console.asked)
    roles = [(await call(world, endpoint, world.token(role))).status_code for role in Role]

    assert told == dict.fromkeys(strangers, 401)
    assert asked == 0
    done = 404 if endpoint.path == "/bulk/{bulk_id}" else 200
    may = [role is Role.ADMIN or role is endpoint.role or endpoint.role is Role.VIEWER for role in Role]
    assert roles == [done if is_allowed else 403 for is_allowed in may]


@pytest.mark.anyio
@pytest.mark.parametrize("path", ["/openapi.json", "/docs", "/docs.css", "/nothing", "/", "/runs/a/b/c"])
async def test_a_stranger_is_told_nothing_of_what_there_is(world: World, path: str) -> None:
    async with world.client() as client:
        reply = await client.get(f"{V1}{path}")

    assert reply.status_code == 401
    assert reply.json()["code"] == "unauthorized"
    assert reply.headers["www-authenticate"] == "Bearer"


@pytest.mark.anyio
@pytest.mark.parametrize(
    "path", [*(address(one) for one in ENDPOINTS), f"{V1}/docs", f"{V1}/no", "/", "/login", "/no", "/runs/x"]
)
async def test_every_reply_carries_the_headers(world: World, path: str) -> None:
    async with world.client() as client:
        replies = [await client.get(path), await client.get(path, headers=world.token("viewer"))]

    for reply in replies:
        told = {name: reply.headers.get(name.decode(), "").encode() for name, _ in HEADERS}
        assert told == dict(HEADERS)
        assert not [name for name in reply.headers if name.startswith("access-control")]
    assert b"frame-ancestors 'none'" in dict(HEADERS)[b"content-security-policy"]


# --- what is read -------------------------------------------------------------------------------


async def get(world: World, path: str, **headers: str) -> httpx.Response:
    async with world.client() as client:
        return await client.get(f"{V1}{path}", headers={**_token(world), **headers})


async def post(world: World, path: str, body: Any = None, **headers: str) -> httpx.Response:
    async with world.client() as client:
        content = body if isinstance(body, bytes) else json.dumps(body or {}).encode()
        given = {"Content-Type": "application/json", **_token(world), **headers}
        return await client.post(f"{V1}{path}", content=content, headers=given)


def _token(world: World) -> dict[str, str]:
    for row in world.accounts._store.credentials():
        if row.name == "caller":
            world.accounts.revoke_token("caller", actor="test")
    return world.token("operator", "caller")


@pytest.mark.anyio
async def test_parameters_become_the_query(world: World) -> None:
    reply = await get(
        world, "/runs?workflow=null&state=failed&problems=true&since=5&limit=7&after=run_9&subject="
    )

    assert reply.status_code == 200
    assert world.console.asked == [
        RunQuery(workflow="null", state="failed", problems=True, since=5, limit=7, after="run_9", subject="")
    ]
    assert reply.json()["next"] == "run_2"
    assert reply.headers["content-type"] == "application/json"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/runs?worklow=a", "Did you mean workflow?"),
        ("/counts?a=1", "There are none."),
        ("/runs?state=failed&state=held", "twice"),
        ("/runs?limit=ten", "whole number"),
        ("/runs?limit=99999999999999999999", "whole number"),
        ("/runs?problems=perhaps", "true or false"),
        ("/runs?workflow=%00", "character"),
        ("/runs?workflow=%ff", "cannot be read"),
        (f"/runs?workflow={'a' * 20_000}", "too long"),
        ("/event?source=a", "id is missing"),
    ],
)
async def test_a_query_that_cannot_be_meant_is_refused(world: World, path: str, said: str) -> None:
    reply = await get(world, path)

    assert reply.status_code == 400
    assert reply.headers["content-type"] == "application/problem+json"
    assert said in reply.json()["detail"]
    assert world.console.asked == []


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("source", "event_id"),
    [
        ("stripe", "evt_1"),
        ("stripe", "a/b"),
        ("stripe", "/"),
        ("stripe", "a//b/"),
        ("emit/order.paid", "order-7"),
        ("emit/order.paid", "a/b"),
        ("run/run_1", '["a",1]'),
        ("stripe", "%2F"),
        ("stripe", "q?x=1#y"),
        ("stripe", "ünï cödé +&"),
    ],
)
async def test_an_event_is_found_whatever_its_id_holds(world: World, source: str, event_id: str) -> None:
    both = [
        await get(world, f"/events/{quote(source, safe='')}/{quote(event_id, safe='')}"),
        await get(world, f"/event?source={quote(source, safe='')}&id={quote(event_id, safe='')}"),
    ]

    assert [reply.status_code for reply in both] == [200, 200]
    assert world.console.asked == [(source, event_id)] * 2


@pytest.mark.anyio
async def test_an_event_is_found_where_somebody_on_the_way_decoded_slashes(world: World) -> None:
    await get(world, "/events/emit/order.paid/a/b")
    await get(world, "/events/stripe/a/b")

    assert world.console.asked == [("emit/order.paid", "a/b"), ("stripe", "a/b")]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("body", "kind", "status", "said"),
    [
        (b'{"request_id": 5}', "application/json", 400, "request_id"),
        (b'{"requestid": "x"}', "application/json", 400, "unknown field"),
        (b"{", "application/json", 400, "cannot be read"),
        (b"[]", "application/json", 400, "cannot be read"),
        (b'{"request_id": "\xff"}', "application/json", 400, "cannot be read"),
        (b"[" * 9_000, "application/json", 400, "cannot be read"),
        (b'{"request_id": "x"}', "text/plain", 415, "application/json"),
        (b'{"request_id": "x"}', "application/x-www-form-urlencoded", 415, "application/json"),
        (b" " * 20_000, "application/json", 413, "larger"),
    ],
)
async def test_a_body_that_cannot_be_meant_is_refused(
    world: World, body: bytes, kind: str, status: int, said: str
) -> None:
    reply = await post(world, "/runs/run_1/retry", body, **{"Content-Type": kind})

    assert (reply.status_code, reply.headers["content-type"]) == (status, "application/problem+json")
    assert said in reply.json()["detail"]
    assert world.console.asked == []


@pytest.mark.anyio
async def test_a_payload_that_is_nested_too_deeply_is_refused(world: World) -> None:
    body = b'{"payload": ' + b"[" * 4_000 + b"]" * 4_000 + b"}"

    reply = await post(world, "/runs/run_1/replay", body)

    assert reply.status_code in (200, 400)  # the parser's own bound; never a 500


@pytest.mark.anyio
@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "POST"])
async def test_another_method_is_refused_by_name(world: World, method: str) -> None:
    async with world.client() as client:
        reply = await client.request(method, f"{V1}/runs/run_1", headers=_token(world))

    assert reply.status_code == 405
    assert reply.headers["allow"] == "GET, HEAD"


@pytest.mark.anyio
async def test_nothing_is_changed_by_get(world: World) -> None:
    for verb in BODIES:
        assert (await get(world, f"/runs/run_1/{verb}")).status_code == 405

    assert world.console.asked == []


@pytest.mark.anyio
async def test_a_head_has_no_body(world: World) -> None:
    async with world.client() as client:
        reply = await client.head(f"{V1}/counts", headers=_token(world))

    assert (reply.status_code, reply.content) == (200, b"")


# --- what is told -------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ConfigError("a", means="b", todo="c"), 400),
        (StateConflict("a"), 409),
        (LeaseLost("a"), 409),
        (NotStorable("a"), 422),
        (StoreUnavailable("a"), 503),
        (StoreDamaged("a"), 500),
    ],
)
async def test_an_error_is_told_with_its_code(world: World, error: OncewardError, status: int) -> None:
    world.console.fault = error

    reply = await get(world, "/counts")

    problem = reply.json()
    assert (reply.status_code, problem["status"], problem["code"]) == (status, status, error.code)
    assert problem["type"] == f"urn:onceward:problem:{error.code}"
    assert (problem["what"], problem["means"], problem["todo"]) == (error.what, error.means, error.todo)
    assert ("retry-after" in reply.headers) == (status == 503)


@pytest.mark.anyio
async def test_a_bug_of_ours_says_nothing_of_itself(world: World) -> None:
    world.console.fault = ZeroDivisionError("a secret")

    reply = await get(world, "/counts")

    assert reply.status_code == 500
    assert "secret" not in reply.text
    assert "Zero" not in reply.text


@pytest.mark.anyio
async def test_a_taken_key_names_its_holder(world: World) -> None:
    reply = await post(world, "/runs/run_key/retry")

    assert reply.status_code == 409
    assert (reply.json()["code"], reply.json()["holder_run_id"]) == ("key_taken", "run_1")


def texts_of(value: Any) -> Iterator[str]:
    """Give every text in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for one in value:
            yield from texts_of(one)
    elif isinstance(value, dict):
        yield from texts_of([*value, *value.values()])


@pytest.mark.anyio
async def test_stored_text_comes_as_json_and_nothing_else(world: World) -> None:
    replies = [await get(world, path) for path in ("/runs", "/runs/run_1", "/deliveries/del_1", "/overview")]
    missing = await get(world, f"/runs/{quote(NASTY, safe='')}")

    for reply in replies:
        assert reply.headers["content-type"] == "application/json"
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert NASTY in texts_of(reply.json())
        assert b"\x1b" not in reply.content
    assert missing.status_code == 404
    assert missing.headers["content-type"] == "application/problem+json"


# --- acting -------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize("verb", BODIES)
async def test_a_verb_reaches_the_console_with_who_asks(world: World, verb: str) -> None:
    reply = await post(world, f"/runs/run_1/{verb}", BODY_OF.get(verb, {}))

    assert reply.status_code == 200
    ((run_id, action),) = world.console.acted
    assert (run_id, action.actor) == ("run_1", "token:caller")
    assert action.verb == ("answer" if verb == "resume" else verb)
    assert action.answer == ("retry" if verb in ("resume", "answer") else None)


@pytest.mark.anyio
async def test_fields_of_a_body_are_those_of_the_action(world: World) -> None:
    body = {"from_step": "charge", "payload": {"a": 1}, "keep": ["load"], "plan": "p1", "request_id": "r1"}

    await post(world, "/runs/run_1/replay", body)

    ((_, action),) = world.console.acted
    assert (action.from_step, action.payload, action.keep, action.plan, action.request_id) == (
        *("charge", {"a": 1}, ["load"], "p1", "r1"),
    )


@pytest.mark.anyio
async def test_an_event_and_the_end_of_a_promise_reach_the_console_with_who_asks(world: World) -> None:
    told = await post(world, "/events", {"type": "paid", "payload": [1]}, **{"Idempotency-Key": "r1"})
    await post(world, "/runs/run_1/complete", {"promise": "approval", "value": "yes", "request_id": "r2"})

    assert world.console.asked == [
        Emit(type="paid", actor="token:caller", payload=[1], request_id="r1"),
        ("run_1", Completion(actor="token:caller", promise="approval", value="yes", request_id="r2")),
    ]
    assert told.json()["event"]["type"] == "paid"
    assert (await post(world, "/events", {"type": "paid", "actor": "ann"})).status_code == 400


@pytest.mark.anyio
async def test_what_is_not_redacted_is_for_admins_and_pruning_counts_unless_it_says_otherwise(
    world: World,
) -> None:
    async with world.client() as client:
        admin = world.token("admin", "root")
        pruned = await client.post(f"{V1}/prune", json={"runs": True, "older_than": "1d"}, headers=admin)
        raw = await client.get(f"{V1}/export?raw=true&since=5&after=x", headers=admin)

    assert pruned.json()["is_dry_run"] is True
    assert b'{"row":"event","id":1.0}' in raw.content  # as it is stored, to the digit
    assert world.console.asked == [
        Prune(actor="token:root", older_than="1d", runs=True),
        ExportQuery(since=5, raw=True, after="x"),
    ]
    assert (await get(world, "/export?raw=true")).status_code == 403
    assert (await get(world, "/export")).status_code == 200


@pytest.mark.anyio
async def test_the_same_request_id_acts_once(world: World) -> None:
    first = await post(world, "/runs/run_1/retry", **{"Idempotency-Key": "k1"})
    again = await post(world, "/runs/run_1/retry", {"request_id": "k1"})
    other = await post(world, "/runs/run_1/retry", {"request_id": "k1"}, **{"Idempotency-Key": "k2"})

    assert [first.json()["is_duplicate"], again.json()["is_duplicate"]] == [False, True]
    assert other.status_code == 400
    assert len(world.console.acted) == 1


@pytest.mark.anyio
@pytest.mark.parametrize("key", ["", '""', " ", "a" * 300, "a\x7fb"])
async def test_a_request_id_that_cannot_be_kept_is_refused(world: World, key: str) -> None:
    reply = await post(world, "/runs/run_1/retry", **{"Idempotency-Key": key})

    assert reply.status_code == 400
    assert world.console.asked == []


@pytest.mark.anyio
async def test_a_plan_is_given_and_nothing_done(world: World) -> None:
    by_get = await get(world, "/runs/run_1/plan?verb=replay&from_step=charge&keep=a&keep=b")
    by_post = await post(world, "/runs/run_1/plan", {"verb": "replay", "payload": {"a": 1}})

    assert (by_get.json()["verb"], by_post.json()["verb"]) == ("replay", "replay")
    assert world.console.asked[0][1].keep == ["a", "b"]
    assert world.console.asked[1][1].payload == {"a": 1}
    assert world.console.acted == []


# --- many at once -------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_reply_that_did_not_change_is_not_sent_again(world: World) -> None:
    """Nothing on the way may keep it for that; and what acts, or goes on, has no tag."""
    first = await get(world, "/runs")
    tag = first.headers["etag"]
    again = [await get(world, "/runs", **{"If-None-Match": named}) for named in (tag, f'"x", W/{tag}', "*")]
    other = await get(world, "/workers", **{"If-None-Match": tag})
    action = await post(world, "/runs/run_1/retry", {}, **{"If-None-Match": "*"})
    gone = await get(world, "/runs/nothing", **{"If-None-Match": "*"})

    assert [(reply.status_code, reply.content, reply.headers["etag"]) for reply in again] == [
        (304, b"", tag)
    ] * 3
    assert {reply.headers["cache-control"] for reply in (first, *again)} == {"no-store"}
    assert (other.status_code, other.headers["etag"] != tag) == (200, True)
    assert (action.status_code, "etag" in action.headers, gone.status_code) == (200, False, 404)
    async with world.client() as client:
        head = await client.head(f"{V1}/runs", headers=_token(world))
    assert (head.headers["etag"], head.content) == (tag, b"")


@pytest.mark.anyio
async def test_a_bulk_action_is_a_dry_run_unless_it_says_otherwise(world: World) -> None:
    reply = await post(world, "/runs/bulk", BULK)

    assert (reply.json()["is_dry_run"], reply.json()["matched"]) == (True, 3)
    assert world.console.acted == []


@pytest.mark.anyio
async def test_a_bulk_action_goes_on_and_tells_how_far_it_is(world: World) -> None:
    world.console.go_on.clear()
    begun = await post(world, "/runs/bulk", {**BULK, "dry_run": False, "request_id": "b1"})
    joined = await post(world, "/runs/bulk", {**BULK, "dry_run": False, "request_id": "b1"})
    before = await get(world, "/bulk/b1")

    world.console.go_on.set()
    reports = [report async for report in world.api.bulks.follow("b1")]
    after = await get(world, "/bulk/b1")

    assert [begun.json()["is_over"], joined.json()["is_over"], before.json()["is_over"]] == [False] * 3
    assert (reports[-1].is_over, reports[-1].done) == (True, 3)
    assert (after.json()["is_over"], after.json()["done"]) == (True, 3)
    assert len(world.console.acted) == 3
    await world.api.close()


@pytest.mark.anyio
async def test_a_bulk_action_of_another_process_is_told_and_followed(world: World) -> None:
    begun = BulkReply(bulk_id="b7", verb="retry", is_dry_run=False, matched=3, done=1, is_over=False)
    over = msgspec.structs.replace(begun, is_over=True, is_interrupted=True)
    world.console.elsewhere = {"b7": [begun, begun, over]}

    assert (await get(world, "/bulk/b7")).json()["done"] == 1
    assert [report async for report in Bulks(world.console, look_s=0).follow("b7")] == [begun, over]
    assert (await get(world, "/bulk/b7")).json()["is_interrupted"]
    assert (await get(world, "/bulk/b8")).status_code == 404


@pytest.mark.anyio
async def test_one_request_id_is_one_bulk_action(world: World) -> None:
    await post(world, "/runs/bulk", {**BULK, "dry_run": False, "request_id": "b1"})
    other = await post(
        world, "/runs/bulk", {**BULK, "query": {"state": "held"}, "dry_run": False, "request_id": "b1"}
    )

    assert (other.status_code, other.json()["code"]) == (409, "id_clash")
    await world.api.close()


@pytest.mark.anyio
async def test_a_bulk_action_is_followed_on_the_line_that_began_it(world: World) -> None:
    reply = await post(world, "/runs/bulk", {**BULK, "dry_run": False}, Accept="text/event-stream")

    assert reply.headers["content-type"].startswith("text/event-stream")
    reports = [json.loads(line[6:]) for line in reply.text.split("\n") if line.startswith("data: ")]
    assert (reports[-1]["is_over"], reports[-1]["done"]) == (True, 3)
    await world.api.close()


@pytest.mark.anyio
async def test_too_many_bulk_actions_wait(world: World) -> None:
    world.console.go_on.clear()
    told = [
        await post(world, "/runs/bulk", {**BULK, "dry_run": False, "request_id": f"b{number}"})
        for number in range(5)
    ]

    assert [reply.status_code for reply in told] == [200] * 4 + [429]
    await world.api.close()
    assert (await get(world, "/bulk/b1")).json()["is_over"]


@pytest.mark.anyio
async def test_a_bulk_action_that_fails_says_so(world: World) -> None:
    world.console.go_on.clear()
    begun = await post(world, "/runs/bulk", {**BULK, "dry_run": False, "request_id": "b1"})
    world.console.fault = StoreUnavailable("The disk is full.")
    world.console.go_on.set()
    reports = [report async for report in world.api.bulks.follow("b1")]

    assert begun.status_code == 200
    assert reports[-1].is_over
    assert "The disk is full." in reports[-1].reasons[-1]


@pytest.mark.anyio
async def test_a_bulk_action_that_did_not_begin_is_refused_and_can_be_asked_for_again(world: World) -> None:
    asked = {**BULK, "dry_run": False, "request_id": "b1"}
    world.console.fault = StoreUnavailable("The disk is full.")
    refused = await post(world, "/runs/bulk", asked)
    world.console.fault = None
    begun = await post(world, "/runs/bulk", asked)

    assert (refused.status_code, refused.json()["code"]) == (503, "store_unavailable")
    assert begun.status_code == 200
    await world.api.close()


@pytest.mark.anyio
async def test_what_stopped_here_and_went_on_elsewhere_is_told_as_it_stands_there(world: World) -> None:
    world.console.go_on.clear()
    await post(world, "/runs/bulk", {**BULK, "dry_run": False, "request_id": "b1"})
    world.console.fault = StoreUnavailable("The disk is full.")
    world.console.go_on.set()
    assert [report async for report in world.api.bulks.follow("b1")][-1].is_interrupted

    over = BulkReply(bulk_id="b1", verb="retry", is_dry_run=False, matched=3, done=3)
    world.console.elsewhere = {"b1": [over]}

    assert (await get(world, "/bulk/b1")).json()["done"] == 3
    assert [report async for report in world.api.bulks.follow("b1")] == [over]


@pytest.mark.anyio
async def test_the_last_hour_is_the_same_bulk_action_a_minute_later(world: World) -> None:
    replies = [
        await post(
            world,
            "/runs/bulk",
            {**BULK, "query": {"state": "failed", "since": since}, "dry_run": False, "request_id": "b1"},
        )
        for since in (1_000, 61_000)
    ]

    assert [reply.status_code for reply in replies] == [200, 200]
    await world.api.close()


@pytest.mark.anyio
@pytest.mark.parametrize(
    "body",
    [
        {"query": {"stat": "failed"}, "action": {"verb": "retry"}},
        {"query": {}, "action": {"verb": "explode"}},
        {"query": {}},
        {"query": {}, "action": {"verb": "retry", "actor": "root"}},
    ],
)
async def test_a_bulk_action_that_cannot_be_meant_is_refused(world: World, body: Any) -> None:
    reply = await post(world, "/runs/bulk", body)

    assert reply.status_code == 400
    assert world.console.asked == []


@pytest.mark.anyio
async def test_changes_are_told_by_events(world: World) -> None:
    reply = await get(world, "/changes")

    assert reply.headers["content-type"].startswith("text/event-stream")
    assert reply.text.count("event: change\n") == 2
    assert world.api._streams == 0


# --- below a prefix -----------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize("way", ["mounted", "stripped", "told"])
async def test_it_works_below_a_prefix(world: World, way: str) -> None:
    app: Any = world.site
    root = ""
    if way == "mounted":
        app, root = Starlette(routes=[Mount("/ops/x", world.site)]), "/ops/x"
    elif way == "told":  # by the server's own root path
        root = "/ops/x"
    asked = f"{root}{V1}/events/stripe/a%2Fb"
    async with world.client(app, root_path="/ops/x" if way == "told" else "") as client:
        event = await client.get(asked, headers=_token(world))
        docs = await client.get(f"{root}{V1}/docs", headers=_token(world))
        health = await client.get(f"{root}/healthz")

    assert [event.status_code, docs.status_code, health.status_code] == [200] * 3
    assert world.console.asked == [("stripe", "a/b")]
    assert 'href="/' not in docs.text


# --- what describes it --------------------------------------------------------------------------


@pytest.mark.anyio
async def test_the_description_names_every_call_and_the_page_shows_it(world: World) -> None:
    described = (await get(world, "/openapi.json")).json()
    page = (await get(world, "/docs")).text

    assert described == json.loads(json.dumps(document()))
    assert {(method.upper(), path) for path, found in described["paths"].items() for method in found} == {
        (one.method, one.path) for one in ENDPOINTS
    }
    assert all(f"<code>{one.method} .{one.path}</code>" in page for one in ENDPOINTS)
    assert "<script" not in page
    assert "style=" not in page
    assert "http://" not in page.replace("http://www.w3.org", "")


@pytest.mark.anyio
async def test_deliveries_pass_nothing_of_it(world: World) -> None:
    world.guard.hosts.names = ()

    def no_look_up(*_: object) -> None:
        raise AssertionError("a delivery was looked at for who asks")

    world.accounts.by_token = no_look_up  # type: ignore[method-assign, assignment]
    async with world.client() as client:
        source = world.intake.sources["stripe"]
        body = b'{"id": "evt_1", "type": "invoice.paid"}'
        headers = {**source.sign(body, world.intake.now_ms()), "Authorization": "Bearer x", "Host": "any"}
        delivered = await client.post("/hooks/stripe", content=body, headers=headers)
        health = await client.get("/healthz", headers={"Host": "any"})

    assert (delivered.status_code, health.status_code) == (202, 200)
    assert "content-security-policy" not in delivered.headers
    await asyncio.sleep(0)
