"""What is asked at three in the morning by the command line alone: how it stands, who did what, since when."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from onceward.core.model import RefusalRow
from tests.cli.running import environment
from tests.cli.test_console_commands import BODY, Told
from tests.console.shop import Shop
from tests.console.test_local import change
from tests.engine.running import open_store, run_app
from tests.helpers import eventually_async
from tests.pages import call
from tests.starts import run

KILLED = """
import os, signal, sys
from onceward import App, Context

app = App(sys.argv[1])

@app.workflow
async def flow(ctx: Context) -> None:
    await ctx.step.run("die", lambda: os.kill(os.getpid(), signal.SIGKILL))

app.sync.open()
app.sync.start(flow)
signal.pause()
"""


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    is_sqlite = request.param == "sqlite"
    return (
        f"sqlite:///{tmp_path / 'shop.db'}" if is_sqlite else str(request.getfixturevalue("postgres_store"))
    )


def test_the_overview_says_what_waits_for_code_that_nobody_has(url: str) -> None:
    shop = Shop(url)

    async def scenario() -> None:
        await shop.stands((await shop.app.start(shop.nap, "x")).run_id, "sleeping")

    run_app(shop.app, scenario)
    change(url, "update {t}run set state = 'queued'")
    change(url, "update {t}queue set due_at = due_at - 3700000")
    change(url, "update {t}workflow set seen_at = 1")  # whoever had it is long gone
    said = re.sub(r" +", " ", Told("overview", url=url).text)
    assert "nobody has the code of nap, 1 run is due\n" in said


def test_a_look_that_takes_runs_of_a_dead_process_over_says_so_and_the_doctor_takes_none(
    url: str, tmp_path: Path
) -> None:
    killed = run("-c", KILLED, url, cwd=tmp_path, env=environment())
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    change(url, "update {t}process set lease_until = 1")

    assert "no process is alive" in Told("doctor", url=url).text
    first = Told("runs", "list", "--json", url=url)
    again = Told("runs", "list", "--json", url=url)

    assert re.fullmatch(
        r"Note: took over 1 run of a process that died or lost its lease: p_\w+\.\n", first.errors
    )
    assert again.errors == ""
    assert [row["state"] for row in first.json["items"]] == ["queued"]


def test_how_it_stands_and_who_did_what(url: str) -> None:
    shop = Shop(url)

    async def scenario() -> str:
        failed = [await shop.failed(f"order-{number}") for number in range(3)]
        shop.is_mended = True
        await shop.app.run(failed[0]).retry(actor="eve")
        await shop.stands(failed[0], "completed")
        for extra in (b" ", b"  "):
            headers = shop.stripe.sign(BODY, shop.app.worker.now_ms())
            await call(shop.app.asgi(), "POST", "/hooks/stripe", headers, BODY + extra)

        async def are_counted() -> bool:
            return sum(row.count for row in await shop.app.refusals()) == 2

        await eventually_async(are_counted, 20, what="the refusals are counted")
        return failed[0]

    mended = run_app(shop.app, scenario)
    told = Told("overview", url=url)
    assert told.status == 0
    said = re.sub(r" +", " ", told.text)
    for line in (
        "failed, open 2\n",
        "oldest due none\n",
        "events 3\n",
        "completed 1\n",
        "refused 2, the last",
    ):
        assert line in said, (line, said)
    assert "0 alive: nothing runs" in said  # not this command itself
    assert "onceward dead\n" in said
    assert Told("overview", "--window", "24h", "--json", url=url).json["counts"]["states"]["failed"] == 2

    assert Told("runs", "dismiss", "--problems", "--actor", "sam", "--yes", url=url).status == 0
    rows = [line.split() for line in Told("audit", url=url, columns=None).text.splitlines()]
    assert rows[0] == ["WHEN", "WHO", "DID", "RUN", "MORE"]
    assert rows[-1][1:] == ["eve", "retry", mended, "-"]
    assert [row[1:3] for row in rows[1:-1] if row[2] == "dismiss"] == [["sam", "dismiss"]] * 2
    assert any(" ".join(row[1:]) == "sam bulk dismiss - 2 of 2 done, 0 refused" for row in rows)
    page = Told("audit", "--limit", "1", "--json", url=url).json
    assert len(page["items"]) == 1
    rest = Told("audit", "--after", page["next"], "--json", url=url).json
    assert page["items"][0] not in rest["items"]

    refused = Told("deliveries", "refused", url=url).text
    assert re.search(r"2 times, since .*, the last ", " ".join(refused.split()))
    shown = Told("runs", "show", mended, url=url).text
    assert '  load  {"order":"order-0"' in shown.partition("Results of steps")[2]
    why = shown.partition("Why attempt 1 of generation 1 failed\n")[2].split()
    assert "card declined for order-0," in " ".join(why)


def test_thousands_stand_apart_as_on_the_dashboard(url: str) -> None:
    run_app(Shop(url).app, _nothing)
    with open_store(url) as store:
        store.add_refusals([RefusalRow("stripe", "no signature matches", 2_000, 1, 2)])

    assert "  2,000 times, since" in Told("deliveries", "refused", url=url).text


def test_nothing_yet_is_said_so(url: str) -> None:
    run_app(Shop(url).app, _nothing)
    assert Told("audit", url=url).text == "Nobody did anything yet.\n"
    assert "Runs now\n  oldest due  none\n" in Told("overview", url=url).text


async def _nothing() -> None:
    """The app was open, so that there is a store."""
