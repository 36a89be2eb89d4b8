"""``onceward prune`` and ``onceward export``, on a store of each kind."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from onceward import App, Context, Event
from onceward.cli.main import main
from onceward.console.pruning import subject_hash
from onceward.testing.invariants import check_invariants
from tests.engine.running import open_store, run_app
from tests.helpers import eventually_async
from tests.recycled import migrated_file


class Told:
    def __init__(self, url: str, *arguments: str) -> None:
        env = {"ONCEWARD_STORE": url, "NO_COLOR": "1"}
        done = CliRunner(env=env).invoke(main, list(arguments), prog_name="onceward")
        self.status, self.text, self.errors = done.exit_code, done.stdout, done.stderr

    @property
    def json(self) -> Any:
        return json.loads(self.text)


@pytest.fixture(params=("sqlite", "postgres"))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Three runs that ended, and an event of which there is none."""
    if request.param == "postgres":
        url = str(request.getfixturevalue("postgres_store"))
    else:
        url = migrated_file(tmp_path / "store.db")
    app = App(url, poll="50ms", linger="20ms", drain="2s")

    @app.workflow(on="order.paid")
    async def fulfil(ctx: Context, event: Event) -> dict[str, str]:
        return await ctx.step.run("charge", charge)

    async def charge() -> dict[str, str]:
        return {"charge": "ch_1", "client_secret": "hunter2"}

    async def scenario() -> None:
        await app.emit("nobody.wants", {"password": "hunter2"}, id="lone")
        for number in range(3):
            (run,) = (await app.emit("order.paid", {"order": number}, id=f"order-{number}")).runs
            await run.result()

    run_app(app, scenario)
    yield url
    with open_store(url) as store:
        assert check_invariants(store) == []


def test_prune_counts_first_and_then_takes_what_it_counted(url: str) -> None:
    counted = Told(url, "prune", "--older-than", "0s", "--runs", "--dry-run", "--json").json
    assert counted["dry_run"] is True
    assert counted["pruned"]["runs"] == {"values": 3, "rows": 3}
    assert len(Told(url, "export").text.splitlines()) == 4 + 3 + 3
    assert Told(url, "export", "--subject", "nobody").text == ""

    told = Told(url, "prune", "--older-than", "0s", "--runs", "--json").json["pruned"]
    assert (told["runs"], told["events"]["values"]) == ({"values": 3, "rows": 3}, 4)
    assert Told(url, "prune", "--older-than", "0s", "--runs", "--json").json["pruned"]["runs"]["rows"] == 0
    left = [json.loads(line) for line in Told(url, "export").text.splitlines()]
    assert {(line["row"], line["payload"]) for line in left} == {("event", None)}
    assert len(left) == 4

    gone = Told(url, "prune", "--older-than", "0s", "--identity")
    assert "ids of 4 events" in gone.text
    assert Told(url, "export").text == ""


def test_prune_takes_payloads_and_keeps_the_runs_by_default(url: str) -> None:
    told = Told(url, "prune", "--older-than", "0s", "--workflow", "fulfil")
    assert told.text.splitlines() == [
        "Pruned:",
        "  values of 3 runs, and 0 runs whole",
        "  payloads of 3 events",
    ]
    events = {line["id"]: line["payload"] for line in _lines(url) if line["row"] == "event"}
    assert events.pop("lone") == {"password": "[redacted]"}
    assert set(events.values()) == {None}
    assert all(line["pruned_at"] for line in _lines(url) if line["row"] == "run")


def test_prune_takes_all_about_one_subject(url: str) -> None:
    """Counted first, noted with a hash of whom, and the page says that nothing is left."""
    app = App(url, poll="50ms", linger="20ms", drain="2s")

    @app.workflow(on="order.paid")
    async def fulfil(ctx: Context, event: Event) -> str:
        return str(event.payload["mail"])

    async def scenario() -> None:
        for name in ("ada", "bob"):
            told = {"mail": f"{name}@example.com"}
            (run,) = (await app.emit("order.paid", told, id=name, subject=f"cus_{name}")).runs
            await run.result()

    run_app(app, scenario)
    dry = Told(url, "prune", "--subject", "cus_ada", "--dry-run", "--json").json
    assert (dry["runs"], dry["events"], dry["kept"]) == (1, 1, [])
    assert "ada@example.com" in Told(url, "export").text

    assert Told(url, "prune", "--subject", "cus_ada").text.splitlines() == [
        "Pruned:",
        "  results, inputs and errors of 1 run",
        "  payloads of 1 event, and 0 requests",
    ]
    left = Told(url, "export").text
    assert ("ada@example.com" in left, "bob@example.com" in left) == (False, True)
    with open_store(url) as store:
        entry = next(row for row in store.all_audits(None, 10) if row.verb == "prune")
    assert "cus_ada" not in str(entry)
    assert subject_hash("cus_ada") in str(entry.detail)
    assert Told(url, "prune", "--subject", "cus_ada", "--older-than", "1d").status == 2
    assert Told(url, "prune", "--subject", "").status == 2


def test_prune_of_a_subject_names_the_runs_that_keep_theirs(url: str) -> None:
    app = App(url, poll="50ms", linger="20ms", drain="2s")

    @app.workflow(on="order.late")
    async def late(ctx: Context, event: Event) -> None:
        await ctx.step.sleep("long", "2d")

    async def scenario() -> str:
        (run,) = (await app.emit("order.late", {"order": 1}, subject="cus_ada")).runs

        async def sleeps() -> bool:
            return (await run.row()).state == "sleeping"

        await eventually_async(sleeps)
        return run.run_id

    run_id = run_app(app, scenario)
    told = Told(url, "prune", "--subject", "cus_ada").text
    assert f"  {run_id}  late  sleeping: wait for its end, or cancel it" in " ".join(told.split("\n"))
    assert "payloads of 1 event, and all of these runs" in " ".join(told.split())


def test_prune_says_what_it_would_need(url: str) -> None:
    assert "everything is kept" in Told(url, "prune").text
    for wrong in (
        ["--runs"],
        ["--older-than", "1d", "--identity", "--workflow", "x"],
        ["--older-than", "soon"],
    ):
        assert Told(url, "prune", *wrong).status == 2


def _lines(url: str, *arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Told(url, "export", *arguments).text.splitlines()]


def test_export_writes_a_line_for_each_row_and_hides_secrets(url: str, tmp_path: Path) -> None:
    lines = _lines(url)
    assert [line["row"] for line in lines] == ["event", "run", "step"] * 3 + ["event"]
    assert lines[2]["output"] == {"charge": "ch_1", "client_secret": "[redacted]"}
    assert (lines[1]["workflow"], lines[1]["state"], lines[2]["name"]) == ("fulfil", "completed", "charge")
    assert "hunter2" not in Told(url, "export").text

    file = tmp_path / "out.jsonl"
    assert Told(url, "export", "--raw", "--out", str(file)).status == 0
    raw = [json.loads(line) for line in file.read_text().splitlines()]
    assert raw[2]["output"]["client_secret"] == "hunter2"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert not Path(f"{file}.part").exists()


def test_export_filters_by_workflow_and_time(url: str) -> None:
    events = [line["id"] for line in _lines(url, "--workflow", "fulfil") if line["row"] == "event"]
    assert events == ["order-2", "order-1", "order-0"]
    assert _lines(url, "--workflow", "other") == _lines(url, "--until", "1h") == []
    assert len(_lines(url, "--since", "1h")) == 10


def test_export_goes_page_by_page(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However small a page is, every row comes once."""
    whole = _lines(url)
    monkeypatch.setattr("onceward.console.exporting.EVENTS_PAGE", 1)
    monkeypatch.setattr("onceward.console.exporting.RUNS_PAGE", 1)
    assert _lines(url) == whole
    monkeypatch.setattr("onceward.console.exporting.EVENTS_PAGE", 2)
    monkeypatch.setattr("onceward.console.exporting.BYTES_PAGE", 1)
    assert _lines(url) == whole


def test_what_was_pruned_is_shown_so(url: str) -> None:
    """By `runs show` and `events show`: not as a run that returned nothing."""
    (run_id,) = {
        line["run_id"] for line in _lines(url) if line["row"] == "run" and line["event_id"] == "order-1"
    }
    assert "pruned" not in Told(url, "runs", "show", run_id).text
    assert Told(url, "prune", "--older-than", "0s").status == 0
    shown = Told(url, "runs", "show", run_id, "--json").json
    assert shown["run"]["pruned_at"] is not None
    refused = {verb["verb"] for verb in shown["verbs"] if verb["reply"] == "its values were pruned"}
    assert refused == {"retry", "restart"}
    assert "its values are gone" in Told(url, "runs", "show", run_id).text
    assert "(pruned; the id stays" in Told(url, "events", "show", "emit/order.paid/order-1").text
