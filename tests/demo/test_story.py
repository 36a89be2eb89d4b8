"""The story as it is told: real processes, three seeds, both kinds of sabotage, nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.cli.running import environment
from tests.helpers import eventually

SECONDS = 100
KEYS = {"ok", "delivered", "refused", "events", "runs", "charges_asked", "charges_made"}


def begun(folder: Path, *arguments: str, mark: str = "") -> subprocess.Popen[str]:
    """Start a story whose temporary files go to *folder* and whose processes carry the mark."""
    return subprocess.Popen(
        [sys.executable, "-m", "onceward", "demo", *arguments],
        env=environment(TMPDIR=str(folder), STORY_MARK=mark),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def told(folder: Path, *arguments: str) -> tuple[int, str, str]:
    with begun(folder, *arguments) as process:
        output, errors = process.communicate(timeout=SECONDS)
    return process.returncode, output, errors


def told_json(folder: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    status, output, errors = told(folder, "--json", *arguments)
    assert output, errors
    lines = output.splitlines()
    assert len(lines) == 1, "the standard output is the machine's"
    found: dict[str, Any] = json.loads(lines[-1])
    assert found.keys() >= KEYS
    return status, found


@pytest.mark.parametrize("seed", [1, 20, 333])
def test_every_count_is_as_promised(tmp_path: Path, seed: int) -> None:
    status, found = told_json(tmp_path, "--seed", str(seed))

    assert (status, found["ok"], found["wrong"]) == (0, True, [])
    assert found["events"] == found["runs"] == found["runs_completed"] > 0
    assert found["delivered"] > found["events"]
    assert found["refused"] > 0
    assert found["charges_asked"] > found["charges_made"] == found["orders"]
    assert found["kills"] == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.postgres
def test_postgresql_tells_the_same_story_on_a_server_of_its_own(tmp_path: Path) -> None:
    status, found = told_json(tmp_path, "--seed", "2", "--store", "postgres")

    assert (status, found["ok"], found["store"]) == (0, True, "PostgreSQL")
    assert found["charges_asked"] > found["charges_made"] == found["orders"]


@pytest.mark.postgres
def test_two_stories_on_one_store_have_a_namespace_each(tmp_path: Path, postgres_dsn: str) -> None:
    arguments = ("--json", "--seed", "3", "--store", postgres_dsn)
    with begun(tmp_path, *arguments) as first, begun(tmp_path, *arguments) as second:
        for process in (first, second):
            output, errors = process.communicate(timeout=SECONDS)

            assert output, errors
            found = json.loads(output)
            assert (process.returncode, found["ok"], found["store"]) == (0, True, postgres_dsn)


def test_without_dedup_every_copy_is_an_event_and_the_verdict_fails(tmp_path: Path) -> None:
    status, found = told_json(tmp_path, "--seed", "4", "--break", "no-dedup")

    assert (status, found["ok"]) == (1, False)
    assert found["events"] >= found["delivered"] > found["orders"]
    assert found["charges_made"] > found["orders"]
    assert {"deduplicated", "events stored", "runs", "charges made"} <= set(found["wrong"])


def test_without_a_key_the_crash_charges_twice_and_the_verdict_fails(tmp_path: Path) -> None:
    status, found = told_json(tmp_path, "--seed", "5", "--break", "no-key")

    assert (status, found["ok"]) == (1, False)
    assert found["charges_made"] == found["charges_asked"] > found["orders"]
    assert found["wrong"] == ["charges made", "amount charged, EUR"]


def test_a_person_is_told_what_happens_and_where_to_look(tmp_path: Path) -> None:
    status, output, errors = told(tmp_path, "--seed", "6", "--keep")

    assert (status, errors) == (0, "")
    assert "\x1b" not in output
    assert output.isascii()
    assert "SIGKILL. The shop dies: charge " in output
    assert "As promised: each event has one run, each order was charged once." in output
    rows = [line for line in output.splitlines() if line.endswith("ok") or "  ok  " in line]
    assert len(rows) == 10
    assert max(len(line) for line in rows) <= 80
    assert len({line.index("  ok") for line in rows}) == 1, "the columns are aligned"
    (kept,) = tmp_path.glob("onceward-demo-*")
    assert f"{kept}\n            shop.db, ledger.jsonl, shop.log\n" in output
    assert {"shop.db", "ledger.jsonl", "shop.log"} <= {path.name for path in kept.iterdir()}


@pytest.mark.postgres
def test_what_is_kept_of_a_story_on_postgresql_is_what_is_there(tmp_path: Path) -> None:
    status, output, errors = told(tmp_path, "--seed", "6", "--keep", "--store", "postgres")

    assert (status, errors) == (0, "")
    (kept,) = tmp_path.glob("onceward-demo-*")
    said = output.partition(f"{kept}\n")[2].splitlines()
    assert {name.strip() for name in said[0].split(",")} <= {path.name for path in kept.iterdir()}
    assert said[1].strip() == "The PostgreSQL server was the story's own, and is gone with its data."


@pytest.mark.postgres
def test_a_story_on_a_store_of_the_users_says_in_which_namespace_it_is(
    tmp_path: Path, postgres_dsn: str
) -> None:
    status, output, errors = told(tmp_path, "--seed", "6", "--keep", "--store", postgres_dsn)

    assert (status, errors) == (0, "")
    with psycopg.connect(postgres_dsn) as connection:
        ((namespace,),) = connection.execute("select distinct namespace from onceward.run").fetchall()
    assert f"{postgres_dsn}\n            namespace {namespace}\n" in output


def test_the_command_that_looks_again_tells_the_same_story_and_can_be_copied(tmp_path: Path) -> None:
    _, output, _ = told(tmp_path, "--seed", "5", "--break", "no-key")

    *_, look, below = output.splitlines()
    assert look.endswith("onceward demo --seed 5 --break no-key --keep")
    assert below.strip() == "leaves store, ledger and log behind"
    assert max(len(look), len(below)) <= 80


def test_a_seed_that_is_no_number_is_refused_as_one(tmp_path: Path) -> None:
    status, _, errors = told(tmp_path, "--seed", "x")

    assert status == 2
    assert "'x' is not a valid integer." in errors


def marked(mark: str) -> list[int]:
    """Give the processes that carry the mark in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                environ = (entry / "environ").read_bytes()
            except OSError:
                continue
            if f"STORY_MARK={mark}".encode() in environ.split(b"\0"):
                found.append(int(entry.name))
    return found


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_a_story_that_is_cut_off_leaves_no_process_behind(
    tmp_path: Path, number: signal.Signals, status: int
) -> None:
    mark = uuid.uuid4().hex
    with begun(tmp_path, "--seed", "7", mark=mark) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "Strangers send" in line:
                break
        os.kill(process.pid, signal.SIGSTOP)  # looking at every process of a busy machine takes a while
        assert len(marked(mark)) == 3, "the director, the shop and the payment process"
        os.kill(process.pid, number)
        os.kill(process.pid, signal.SIGCONT)
        _, errors = process.communicate(timeout=SECONDS)

    assert process.returncode == status
    assert "Traceback" not in errors
    eventually(lambda: marked(mark) == [], 20, what="the end of every process")
    if number is not signal.SIGKILL:
        assert list(tmp_path.iterdir()) == []


def test_a_wrong_store_is_refused_before_anything_starts(tmp_path: Path) -> None:
    status, output, errors = told(tmp_path, "--store", "mysql://a")

    assert status == 2
    assert "SQLite and PostgreSQL are the stores there are." in errors
    assert "The shop runs" not in output
    assert list(tmp_path.iterdir()) == []
