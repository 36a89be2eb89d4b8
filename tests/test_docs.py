"""The documentation: every Python block runs, every link leads somewhere, every page is current."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from onceward.core import errors, states
from scripts import generate_docs

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted(
    path
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    if "generated" not in path.relative_to(ROOT).parts
)
FENCE = re.compile(r"^```python(?P<note>[^\n]*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
NO_RUN = re.compile(r" no-run: \S.{9,}")
LINK = re.compile(r"\]\((?!https?://|mailto:|#)([^)#\s]+)")
RUN_SECONDS_MAX = 60


def runnable(text: str) -> str:
    """Give the Python of a page with every line where it was, so that a traceback points there."""
    lines = [""] * (text.count("\n") + 1)
    for block in FENCE.finditer(text):
        if not NO_RUN.fullmatch(block["note"]):
            first = text.count("\n", 0, block.start("code"))
            code = block["code"].splitlines()
            lines[first : first + len(code)] = code
    return "\n".join(lines)


def with_python() -> list[Path]:
    has_app = (ROOT / "src" / "onceward" / "app.py").exists()
    pages = [page for page in PAGES if runnable(page.read_text()).strip()]
    # Pages that show the library wait for the library.
    return [page for page in pages if has_app or "onceward import" not in page.read_text()]


def test_the_python_of_every_page_runs_from_top_to_bottom(tmp_path: Path) -> None:
    failures = []
    for page in with_python():
        program = tmp_path / f"{page.stem.replace('-', '_')}.py"
        program.write_text(runnable(page.read_text()))
        done = subprocess.run(
            [sys.executable, "-W", "error", program.name],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS_MAX,
            env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        )
        if done.returncode != 0:
            failures.append(f"{page.relative_to(ROOT)}: {done.stderr}")

    assert failures == []


def test_a_block_keeps_its_line_numbers_and_a_reason_is_needed_to_leave_it_out() -> None:
    text = "a\n```python\nx = 1\n```\n```python no-run: needs a second machine\ny\n```\n```python no-run:\nz\n```\n"

    assert runnable(text).rstrip("\n").split("\n") == ["", "", "x = 1", "", "", "", "", "", "z"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_relative_link_leads_to_a_file(page: Path) -> None:
    targets = [page.parent / target for target in LINK.findall(page.read_text())]

    missing = [
        target
        for target in targets
        if not target.exists()
        and not (target.parent.name == "generated" and target.stem in generate_docs.PAGES)
    ]
    assert missing == []


def test_the_readme_example_is_as_short_as_it_says() -> None:
    block = FENCE.search((ROOT / "README.md").read_text())
    assert block is not None

    assert len([line for line in block["code"].splitlines() if line.strip()]) <= 15


def test_every_generated_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text()

    assert set(re.findall(r"^generated/(\w+)$", index, re.MULTILINE)) == set(generate_docs.PAGES)


def test_every_error_has_a_code_and_a_title_of_its_own() -> None:
    classes = list(generate_docs.all_errors())
    assert len(classes) > 20

    assert len({error.code for error in classes}) == len(classes)
    assert len({error.title for error in classes}) == len(classes)
    assert all(400 <= error.http_status <= 599 for error in classes)
    assert all(generate_docs.text_of(error) for error in classes)


def test_the_page_of_errors_has_every_error_and_what_users_raise() -> None:
    page = generate_docs.errors_page()

    for error in generate_docs.all_errors():
        if error is not errors.OncewardError:
            assert f"### {error.__name__}\n" in page
            assert f"`{error.code}`" in page
    for name in ("Permanent", "RetryLater", "OutcomeUnknown", "Suspended", "RunCancelled"):
        assert f"### {name}\n" in page


def test_the_page_of_states_has_every_cell_and_a_reason_for_each_refusal() -> None:
    page = generate_docs.states_page()

    rows = [line for line in page.splitlines() if line.startswith("| **") and line.count(" | ") > 2]
    assert len(rows) == len(states.RunState)
    assert sum(row.count(" | ") for row in rows) == len(states.TABLE)
    for cell in states.TABLE.values():
        assert cell.reply in page
        assert cell.hint in page
