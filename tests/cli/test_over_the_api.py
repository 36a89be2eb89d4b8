"""The same commands over the REST API of a served instance: its answers, its verbs, its refusals."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from onceward.cli.console.reach import Reach
from onceward.cli.main import main
from tests import starts
from tests.cli.running import environment, onceward, running

SHOP = """
from onceward import App, Context, Event, Permanent, Retry

app = App("sqlite:///shop.db", poll="100ms")

@app.step(retry=Retry(max_tries=1))
async def pay(order: str) -> str:
    raise Permanent("card declined, password=hunter2")

@app.workflow(on="order.paid")
async def charge(ctx: Context, event: Event) -> str:
    return await pay(event.payload["order"])

@app.workflow
async def sell(ctx: Context) -> None:
    for number in range(3):
        await ctx.step.emit(f"order {number}", "order.paid", {"order": str(number)})
"""
SELL = """
import asyncio
import shop

async def main() -> None:
    async with shop.app:
        await (await shop.app.start(shop.sell)).result()

asyncio.run(main())
"""


def test_the_commands_reach_an_instance_over_its_api(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    starts.run("-c", SELL, cwd=tmp_path, env=environment()).check_returncode()
    made = onceward("tokens", "add", "robot", "--role", "operator", "shop:app", cwd=tmp_path)
    found = re.search(r"^owt_\S+$", made.stdout, re.MULTILINE)
    assert found is not None, made.stdout + made.stderr
    made = onceward("tokens", "add", "root", "--role", "admin", "shop:app", cwd=tmp_path)
    admin = made.stdout.strip().splitlines()[-1]

    with running("serve", "shop:app", "--port", "0", cwd=tmp_path) as server:
        env = {"ONCEWARD_API_URL": f"http://127.0.0.1:{server.port()}", "ONCEWARD_TOKEN": found[0]}

        def told(*arguments: str, token: str = "") -> tuple[int, str]:
            given = env | ({"ONCEWARD_TOKEN": token} if token else {})
            done = CliRunner(env=given).invoke(main, list(arguments), prog_name="onceward")
            return done.exit_code, done.stdout + done.stderr

        def failed() -> list[str]:
            status, text = told("runs", "list", "--state", "failed", "--json")
            assert status == 0, text
            return [run["run_id"] for run in json.loads(text)["items"]]

        for run_id in json.loads(told("runs", "list", "--workflow", "charge", "--json")[1])["items"]:
            assert told("runs", "tail", run_id["run_id"])[0] == 1
        runs = failed()
        assert len(runs) == 3
        shown = told("runs", "show", runs[0])[1]
        assert "card declined, password=[redacted]" in shown
        assert "pay" in told("runs", "restart", runs[0], "--dry-run")[1]
        refused = told("runs", "restart", runs[0])
        assert refused[0] == 1
        assert "--acknowledge" in refused[1]
        assert (
            json.loads(told("runs", "restart", runs[0], "--acknowledge", "--json")[1])[0]["generation"] == 2
        )
        assert told("runs", "tail", runs[0])[0] == 1

        but_one = told("runs", "dismiss", "--problems", "--except", runs[0], "--dry-run", "--json")
        assert json.loads(but_one[1])["matched"] == 2
        done = told("runs", "dismiss", "--problems", "--yes", "--request", "mend", "--json")
        assert (done[0], json.loads(done[1])["done"]) == (0, 3)
        assert told("dead", "--check")[0] == 0
        audits = json.loads(told("runs", "show", runs[0], "--json")[1])["audits"]
        assert [entry["verb"] for entry in audits] == ["restart", "dismiss"]
        assert all("robot" in entry["actor"] for entry in audits)
        assert "alive" in told("workers")[1]
        status, text = told("emit", "order.paid", "--data", '{"order": "9"}', "--id", "nine", "--json")
        assert (status, json.loads(text)["event"]["id"]) == (0, "nine")
        rows = [json.loads(line) for line in told("export", "--workflow", "charge")[1].splitlines()]
        assert {row["row"] for row in rows} >= {"event", "run", "step", "audit"}
        assert "hunter2" not in told("export")[1]
        assert told("export", "--raw")[0] == 2
        assert told("prune", "--older-than", "0s", "--dry-run")[0] == 2
        counted = told("prune", "--older-than", "0s", "--dry-run", "--json", token=admin)
        assert (counted[0], json.loads(counted[1])["pruned"]["runs"]["values"]) == (0, 4)
        assert told("prune", "--older-than", "0s", token=admin)[0] == 0
        assert "payloads of 0 events" in told("prune", "--older-than", "0s", "--dry-run", token=admin)[1]
        assert told("runs", "show", "nope")[0] == 1
        assert told("workers", token="owt_wrong")[0] == 2


@pytest.mark.parametrize(
    ("url", "is_warned"),
    [
        ("http://hooks.invalid", True),
        ("http://localhost.invalid", True),
        ("https://hooks.invalid", False),
        ("http://localhost:1", False),
        ("http://127.0.0.1:1", False),
        ("http://[::1]:1", False),
        ("http://[", False),
    ],
)
def test_a_token_that_goes_over_http_to_another_machine_is_warned_of_once(url: str, is_warned: bool) -> None:
    done = CliRunner().invoke(main, ["runs", "list", "--api", url, "--token", "owt_x"])
    assert done.stderr.count("in clear") == int(is_warned)
    assert "in clear" not in CliRunner().invoke(main, ["runs", "list", "--api", url]).stderr


def test_a_proposed_command_names_the_store_as_one_word(tmp_path: Path) -> None:
    folder = tmp_path / "it's $(touch pwned); here"
    folder.mkdir()
    url = f"sqlite:///{folder / 'shop.db'}"
    reach = Reach(target="shop:app", api=None, token=None, settings={"store": url}, as_json=False)

    assert shlex.split(reach.shown()) == ["--app", "shop:app", "--store", url]
