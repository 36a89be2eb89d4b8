"""How the dashboard says and draws things, without a browser."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shlex

import msgspec
import pytest
from httpx import ASGITransport, AsyncClient, Response
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Message, Scope

from onceward.console.asking import fits_error
from onceward.console.port import EventQuery, RunQuery
from onceward.console.views import DeliveryView, Failure, RunSummary, Slot, StepView
from onceward.console.ways import OTHER, way_of
from onceward.core.errors import ConfigError
from onceward.core.states import Effect, RunState, Verb
from onceward.web.dashboard import curl, filters, groups, words
from onceward.web.dashboard.forms import json_of
from onceward.web.dashboard.live import RETRY_MS, Live
from onceward.web.dashboard.pages import did
from onceward.web.dashboard.plots import plots, round_up
from onceward.web.dashboard.questions import asked_of
from onceward.web.dashboard.site import routes
from tests.dashboard.everything import everything
from tests.dashboard.filling import filled

NOW = 1_764_000_000_000


@pytest.mark.parametrize(
    ("ms", "told"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1_000, "1.0 s"),
        (59_999, "59 s"),
        (65_000, "1 min 5 s"),
        (600_000, "10 min"),
        (3_600_000, "1 h"),
        (7_500_000, "2 h 5 min"),
        (90_000_000, "1 d 1 h"),
        (-5, "0 ms"),
    ],
)
def test_lengths(ms: int, told: str) -> None:
    assert words.length(ms) == told


def test_times() -> None:
    assert [words.ago(NOW - ms, NOW) for ms in (0, 1_000, 185_000, -7_200_000)] == [
        "just now",
        "1 s ago",
        "3 min ago",
        "in 2 h",
    ]
    lengths = (59_400, 59_700, 3_580_000, 3 * 86_400_000 - 90_000, 5_300_000)
    assert [words.ago(NOW + ms, NOW) for ms in lengths] == [
        "in 59 s",
        "in 1 min",
        "in 1 h",
        "in 3 d",
        "in 1 h",
    ]
    assert words.exact(NOW) == "2025-11-24 16:00:00.000 UTC"
    assert words.machine_time(NOW) == "2025-11-24T16:00:00.000+00:00"
    # A sender may sign any number as its time.
    assert words.exact(10**30) == words.exact(None) == words.NONE


def test_values_are_cut_and_never_fail() -> None:
    assert words.pretty({"ö": 1}) == '{\n  "ö": 1\n}'
    assert words.pretty("x" * 10**6).endswith("… cut here: 1,000,002 characters in all")
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    assert words.pretty(deep) == "(nested too deeply to be shown)"


def test_filters_become_questions() -> None:
    given = filters.given(
        {"workflow": " fulfil ", "state": "", "since": "1h", "problems": "1"}, filters.RUN_FIELDS
    )

    assert filters.run_query(given, NOW) == RunQuery(workflow="fulfil", since=NOW - 3_600_000, problems=True)
    assert filters.event_query({"without_runs": "1", "until": "2025-11-24T16:00:00"}, NOW) == EventQuery(
        without_runs=True, until=NOW
    )
    assert filters.query_string({"a": "&=", "b": "x"}, b=None, c="é") == "?a=%26%3D&c=%C3%A9"


@pytest.mark.parametrize(
    "given",
    [{"state": "lost"}, {"since": "yesterday"}, {"problems": "perhaps"}, {"until": "-5m"}],
)
def test_filters_that_cannot_be_read_are_refused(given: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        filters.run_query(given, NOW)


def test_a_filter_that_does_not_exist_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="colour"):
        filters.given({"colour": "red"}, filters.RUN_FIELDS)
    with pytest.raises(ConfigError, match="1,001 characters"):
        filters.given({"key": "x" * 1_001}, filters.RUN_FIELDS)


@pytest.mark.parametrize(("value", "edge"), [(0, 1), (1, 1), (3, 5), (11, 20), (201, 500), (5_000, 5_000)])
def test_the_edge_of_a_plot(value: int, edge: int) -> None:
    assert round_up(value) == edge


def test_plots_are_to_scale_and_one_failure_among_many_is_seen() -> None:
    slots = [Slot(at=NOW, events=10, completed=999, failed=1), Slot(at=NOW + 60_000, p50_ms=50, p95_ms=100)]
    received, ended, took = plots(slots, 60_000)

    assert [(bar.x, bar.height) for bar in received.bars] == [(0, 100)]
    assert [(bar.name, bar.height >= 1.5) for bar in ended.bars] == [("failed", True), ("completed", True)]
    assert [(bar.name, bar.height) for bar in took.bars] == [("p95", 100), ("p50", 50)]
    assert ended.summary == "1 ended badly, 999 completed"
    assert all(plot.is_empty for plot in plots([Slot(at=NOW)], 60_000))


def run(state: str = "failed", **fields: object) -> RunSummary:
    known = {"run_id": "r", "workflow": "w", "source": "s", "event_id": "e", "generation": 1, "attempt": 1}
    return RunSummary(**{**known, "created_at": NOW, **fields}, state=state)  # type: ignore[arg-type]


def test_problems_that_are_alike_are_one_group() -> None:
    away = [
        run(failure=Failure(type="ConnectionError", message=f"order {number} at 0x7f3a{number}"))
        for number in range(10)
    ]
    other = run(failure=Failure(type="ValueError", message="no"))
    held = run("held", reason="poison: its process was lost four times")
    found = groups.grouped([*away, other, held])

    assert [(group.kind, len(group.runs)) for group in found] == [
        ("ConnectionError", 10),
        ("ValueError", 1),
        ("poison", 1),
    ]
    assert found[2].told == "poison: its process was lost four times"
    assert (found[0].way.verb, found[2].way.verb) == ("retry", "answer")


def test_the_filter_of_a_group_finds_them_and_what_fails_so_later() -> None:
    def of(step: str, order: int) -> RunSummary:
        message = f"Step '{step}' failed after 3 tries: ConnectionError: order {order} is away"
        return run(failure=Failure(type="onceward.StepFailed", message=message))

    found = groups.grouped([of("charge", 7), of("charge", 8), of("refund", 9)])
    assert [len(group.runs) for group in found] == [2, 1]

    for group in found:
        for other in (of("charge", 100), of("refund", 100)):
            assert other.failure is not None
            is_alike = group.told.split(":")[0] in other.failure.message
            assert fits_error(group.error, other.failure.type, other.failure.message) == is_alike


def test_every_reason_of_the_page_about_operating_has_a_way_out() -> None:
    from tests.pages import ROOT

    section = (ROOT / "docs" / "operate.md").read_text().partition("## Held runs")[2].partition("\n## ")[0]
    told = [line.split("`")[1] for line in section.splitlines() if line.startswith("| `")]
    assert len(told) > 4

    for reason in told:
        begins = reason.partition("…")[0].strip()
        assert way_of(run("held", reason=f"{begins}: more")) is not OTHER


def test_a_command_is_quoted_whatever_is_in_it() -> None:
    nasty = "'; rm -rf / #\n$(reboot)`x`"
    command = curl.delivery(
        DeliveryView(
            delivery_id="d", source="s", received_at=NOW, outcome="accepted", method="POST", url=f"/hooks/{nasty}",
            headers={"X-Evil": nasty, "Host": "left out"}, body=nasty,
        ),
        "http://10.0.0.7:9000",
    )  # fmt: skip
    assert command is not None
    words_of_it = shlex.split(command)

    assert words_of_it[-1] == nasty
    assert f"http://10.0.0.7:9000/hooks/{nasty}" in words_of_it
    assert f"X-Evil: {nasty}" in words_of_it
    assert not any("left out" in word for word in words_of_it)
    assert (
        curl.delivery(DeliveryView(delivery_id="d", source="s", received_at=NOW, outcome="unparsed"), "")
        is None
    )
    assert shlex.split(curl.verb("r'; x", "retry"))[4] == "$ONCEWARD_URL/api/v1/runs/r'; x/retry"


def test_what_was_done_is_said_in_the_words_of_the_table_only() -> None:
    assert did("retry", Effect.NEW_ATTEMPT) == "retrying: saved steps are kept"
    assert did("retry", "you were hacked") is None
    assert did(None, None) is None


def test_answers_are_those_that_are_possible() -> None:
    assert [word for word, _ in asked_of(None).answers] == ["retry", "fail"]
    question = {"why": "its process was lost", "arguments": '{"order": 7}', "answers": ["happened", "fail"]}
    step = msgspec.structs.replace(filled(StepView, str), question=question)
    asked = asked_of(step)
    assert (asked.why, asked.arguments) == ("its process was lost", {"order": 7})
    assert [word for word, means in asked.answers if means] == ["happened", "fail"]
    odd_ones: tuple[object, ...] = ("text", 7, [], {"arguments": "{", "answers": 7}, {"answers": ["other"]})
    for odd in odd_ones:
        assert asked_of(msgspec.structs.replace(step, question=odd)).answers


def test_a_failure_is_told_with_its_cause_first() -> None:
    message = "Step 'charge[o-7]' failed after 3 tries: ConnectionError: away"
    assert words.gist("onceward.StepFailed", message) == "charge[o-7]: ConnectionError: away"
    assert words.gist("StepFailed", "Step failed") == "StepFailed: Step failed"
    assert words.gist("ValueError", message) == f"ValueError: {message}"


def test_what_is_typed_must_be_json() -> None:
    assert json_of('{"a": [1]}', "payload") == {"a": [1]}
    for text in ("{", "NaN", "Infinity", "[" * 200_000):
        with pytest.raises(ConfigError, match="is not JSON"):
            json_of(text, "payload")


def test_every_state_and_verb_has_its_words() -> None:
    from onceward.web.dashboard.actions import MEANS

    assert set(MEANS) == set(Verb)
    assert all(words.meaning(state) for state in RunState)


def test_the_times_of_a_filter_say_which_they_are_and_how_they_are_written() -> None:
    async def told(path: str) -> str:
        transport = ASGITransport(app=Starlette(routes=routes(everything(str), lambda _request: None)))
        async with AsyncClient(transport=transport, base_url="http://shop.example") as client:
            return (await client.get(path)).text

    for path, says in {"/runs": "By when it was accepted.", "/events": "By when it was received."}.items():
        page = asyncio.run(told(path))
        for name in ("since", "until"):
            label = re.search(f'<label([^>]*)>[^<]*<input name="{name}"([^>]*)>', page)
            assert label, (path, name)
            assert (says in label[1], "placeholder=" in label[2]) == (True, True), (path, name)


def test_the_overview_says_how_many_runs_wait_for_code_that_nobody_has() -> None:
    console = everything(str)
    overview = console.answers["overview"]

    async def told(unserved: dict[str, int]) -> str:
        console.answers["overview"] = msgspec.structs.replace(overview, unserved=unserved)
        transport = ASGITransport(app=Starlette(routes=routes(console, lambda _request: None)))
        async with AsyncClient(transport=transport, base_url="http://shop.example") as client:
            page = (await client.get("/")).text
        return re.sub("<[^>]*>", "", page.partition('id="unserved"')[2].partition("</section>")[0])

    assert asyncio.run(told({})) == ""
    assert "1 run is due, and no process that is alive has the workflow: a b (1)." in asyncio.run(
        told({"a b": 1})
    )
    many = asyncio.run(told({"a": 1_999, "b": 1}))
    assert "2,000 runs are due" in many
    assert "workflow: a (1,999), b (1)." in many


@pytest.mark.parametrize(("streams_max", "status"), [(1, 200), (0, 503)])
def test_a_stream_ends_by_itself_and_too_many_are_refused(streams_max: int, status: int) -> None:
    async def ask() -> Response:
        stream = Live(everything(str), stream_seconds=0.05, streams_max=streams_max)
        transport = ASGITransport(app=Starlette(routes=[Route("/live", stream.serve)]))
        async with AsyncClient(transport=transport, base_url="http://shop.example") as client:
            return await client.get("/live")

    reply = asyncio.run(ask())
    assert reply.status_code == status
    assert (reply.text == f"retry: {RETRY_MS}\n\nevent: open\ndata: -\n\n") == (status == 200)


def test_a_burst_of_streams_does_not_pass_the_limit_and_each_gives_its_place_back() -> None:
    """Also who is gone before anything was sent."""
    streams_max = 3
    live = Live(everything(str), stream_seconds=30, streams_max=streams_max)
    statuses: list[int] = []
    answered = asyncio.Semaphore(0)

    async def ask(hold: asyncio.Event, *, goes_away: bool = False) -> None:
        async def send(message: Message) -> None:
            if goes_away:
                raise OSError("the connection is gone")
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
                answered.release()

        async def receive() -> Message:
            await hold.wait()
            return {"type": "http.disconnect"}

        scope: Scope = {
            "type": "http",
            "asgi": {"spec_version": "2.0"},
            "method": "GET",
            "path": "/",
            "headers": [],
        }
        reply = await live.serve(Request(scope))
        await asyncio.sleep(0)  # all of a burst are asked before one of them is sent
        with contextlib.suppress(OSError, ExceptionGroup):
            await reply(scope, receive, send)

    async def scenario() -> None:
        for _ in range(2):
            statuses.clear()
            hold = asyncio.Event()
            async with asyncio.timeout(10), asyncio.TaskGroup() as group:
                for _ in range(streams_max + 5):
                    group.create_task(ask(hold))
                for _ in range(streams_max + 5):
                    await answered.acquire()
                hold.set()
            assert sorted(statuses) == [200] * streams_max + [503] * 5
            gone = asyncio.Event()
            gone.set()
            async with asyncio.timeout(10):
                for _ in range(streams_max + 1):
                    await ask(gone, goes_away=True)

    asyncio.run(scenario())
