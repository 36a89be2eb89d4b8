"""``onceward check``: what it prints, for people and machines, and how it exits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from onceward.cli.main import main

BAD = """from onceward import App, Context
import time

app = App()

@app.workflow
async def flow(ctx: Context) -> float:
    return time.time()
"""
GOOD = BAD.replace("time.time()", "1.0")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(main, ["check", *arguments], prog_name="onceward")
    return done.exit_code, done.stdout, done.stderr


def test_a_finding_is_told_with_its_place_its_reason_and_what_to_do(here: Path) -> None:
    (here / "shop.py").write_text(BAD)

    status, said, complained = run("shop.py")

    assert (status, complained) == (1, "")
    first, second, last = said.splitlines()
    assert first.startswith("shop.py:8: time-outside-step: time.time() looks at the clock")
    assert "ctx.step.now" in second
    assert last == "1 finding: 1 workflow and 0 steps in 1 file read."


def test_nothing_to_say_is_said(here: Path) -> None:
    (here / "shop.py").write_text(GOOD)

    assert run("shop.py") == (0, "Nothing found: 1 workflow and 0 steps in 1 file read.\n", "")
    assert run("shop:app")[0] == 0


def test_machines_get_a_list(here: Path) -> None:
    (here / "shop.py").write_text(BAD)

    status, said, _ = run("shop.py", "--json")

    (finding,) = json.loads(said)
    assert status == 1
    assert list(finding) == ["file", "line", "rule", "message", "fix"]
    assert (finding["file"], finding["line"], finding["rule"]) == ("shop.py", 8, "time-outside-step")
    (here / "shop.py").write_text(GOOD)
    assert run("shop.py", "--json") == (0, "[]\n", "")


def test_folders_are_searched_and_environments_in_them_left_out(here: Path) -> None:
    for folder in ("a/b", ".venv/lib", "a/__pycache__"):
        (here / folder).mkdir(parents=True)
        (here / folder / "shop.py").write_text(BAD)

    status, said, _ = run(".")

    assert status == 1
    assert said.count("time-outside-step") == 1
    assert "a/b/shop.py:8" in said


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file"),
        (b"def broken(:\n", "line 1"),
        (b"x = 1\x00\n", "null bytes"),
        (b"# coding: latin-1\nx = '\xe9'\n# coding: utf-9\n" + b"\xff\xfe", ""),
        (b"\xff\xfe\x00", ""),
    ],
)
def test_what_cannot_be_read_is_told_and_the_rest_checked(
    here: Path, content: bytes | None, reason: str
) -> None:
    (here / "good.py").write_text(BAD)
    if content is not None:
        (here / "bad.py").write_bytes(content)

    status, said, complained = run("bad.py", "good.py")

    if complained:
        assert status == 2
        assert complained.startswith("Error: bad.py cannot be read: ")
        assert reason in complained
    else:
        assert status == 1
    assert "good.py:8: time-outside-step" in said


def test_nothing_found_is_not_said_where_nothing_was_read(here: Path) -> None:
    status, said, complained = run("gone.py")

    assert (status, said) == (2, "")
    assert "gone.py cannot be read" in complained


def test_something_must_be_named() -> None:
    assert run()[0] == 2
