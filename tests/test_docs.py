"""The documentation: what it shows runs, every link leads somewhere, every page is current."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import click
import pytest

from onceward import App, Context, Event, RunHandle, StepFailed, sources
from onceward.authoring.current import Session
from onceward.authoring.verbs import StepVerbs
from onceward.cli.main import main
from onceward.core import errors, states
from onceward.core.model import AttemptRow, DeliveryRow, RunRow, StepRow
from onceward.core.settings import OTHER_VARIABLES, SETTINGS
from onceward.sync import SyncApp
from scripts import generate_docs
from tests.pages import NOTES, PAGES, ROOT, Fence, Folder, by_name, faults, fences, matches, programs, visible

LINK = re.compile(r"\]\((?!https?://|mailto:|#)([^)#\s]+)")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


RUN = [page for page in PAGES if any(fence.language in NOTES for fence in fences(page.read_text()))]


# --- what is shown ---------------------------------------------------------------------------


@pytest.mark.parametrize("page", RUN, ids=name_of)
def test_what_a_page_shows_runs_from_top_to_bottom(page: Path, tmp_path: Path) -> None:
    Folder(tmp_path, page).follow()


def test_what_a_page_shows_is_strictly_typed(tmp_path: Path) -> None:
    """In as few checks as there are files of the same name: each takes seconds."""
    folders: list[Path] = []
    for page in RUN:
        files = programs(visible(page.read_text()), f"{page.stem.replace('-', '_')}.py")
        free = [folder for folder in folders if not any((folder / name).exists() for name in files)]
        if not free:
            folders.append(tmp_path / str(len(folders)))
            folders[-1].mkdir()
        for name, code in files.items():
            (free or folders)[-1].joinpath(name).write_text(code)
    assert 1 < len(folders) < len(RUN)

    complaints = []
    for folder in folders:
        allowed = (
            *("--allow-untyped-defs", "--allow-incomplete-defs"),  # where a page is about just that
            "--disable-error-code=import-untyped",  # Django has no types
        )
        checked = subprocess.run(
            [sys.executable, "-m", "mypy", "--strict", *allowed, f"--cache-dir={tmp_path}", "."],
            cwd=folder,
            capture_output=True,
            text=True,
            env=os.environ | {"MYPYPATH": str(ROOT / "src")},
        )
        complaints += [line for line in checked.stdout.splitlines() if re.match(r"\w+\.py:\d+: error", line)]
        assert checked.stderr == ""
        assert "source files" in checked.stdout

    assert complaints == []


def test_every_fence_says_what_is_done_with_it() -> None:
    wrong = [
        f"{name_of(page)}, line {fence.line}: {fault}"
        for page in PAGES
        for fence in fences(page.read_text())
        if (fault := faults(fence)) is not None
    ]

    assert wrong == []


def test_what_a_test_is_said_to_run_it_runs() -> None:
    said = [
        (page, fence.note)
        for page in PAGES
        for fence in fences(page.read_text())
        if fence.note.startswith(" run-by:")
    ]

    assert said != []
    for page, note in said:
        _, test, name = note.split()
        assert f'"{name}"' in (ROOT / test).read_text()
        assert by_name(page, name)


@pytest.mark.parametrize(
    ("language", "note"),
    [
        ("python", " no-run:"),
        ("python", " no-run: later"),
        ("python", " run"),
        ("sh", " no-run"),
        ("sh", " run-by: nobody"),
        ("console", ""),
        ("text", " no-run: it is only text"),
        ("", ""),
    ],
)
def test_a_fence_without_a_known_note_is_found(language: str, note: str) -> None:
    assert faults(Fence(language, note, "", 1)) is not None


def test_a_block_keeps_its_line_numbers_and_goes_to_the_file_that_it_names() -> None:
    text = """a
```python
x = 1
```
```python no-run: needs a second machine
y
```
```python look.py
z
```
"""

    found = {name: code.rstrip("\n").split("\n") for name, code in programs(text, "page.py").items()}
    assert found == {"page.py": ["", "", "x = 1"], "look.py": ["", "", "", "", "", "", "", "", "z"]}


@pytest.mark.parametrize(
    ("shown", "printed", "is_same"),
    [
        ("202 run_…\n", "202 run_01\n", True),
        ("a\n…\nz", "a\nb\nc\nz", True),
        ("202 run_…", "401 run_01", False),
        ("202", "202\nmore", False),
    ],
)
def test_an_output_that_differs_from_the_page_is_found(shown: str, printed: str, is_same: bool) -> None:
    assert matches(shown, printed) is is_same


@pytest.mark.parametrize("page", PAGES, ids=name_of)
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
    example = programs((ROOT / "README.md").read_text(), "shop.py")["shop.py"]

    assert len([line for line in example.splitlines() if line.strip()]) <= 15


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


def test_the_catalogue_has_every_kind_with_its_documentation() -> None:
    page = generate_docs.sources_page()

    for kind in sources.kinds():
        assert f"\n### {kind}\n" in page
        assert f'create("{kind}", …)' in page
        assert f"[Documentation]({sources.source_class(kind).docs_url})" in page
    assert "| [`gocardless`](#gocardless) |  | yes |  | 10s |" in page
    assert "The id is at `/event/id`; the type is at `/event/event_type`" in page


def test_the_page_of_states_has_every_cell_and_a_reason_for_each_refusal() -> None:
    page = generate_docs.states_page()

    rows = [line for line in page.splitlines() if line.startswith("| **") and line.count(" | ") > 2]
    assert len(rows) == len(states.RunState)
    assert sum(row.count(" | ") for row in rows) == len(states.TABLE)
    for cell in states.TABLE.values():
        assert cell.reply in page
        assert cell.hint in page


# --- names -----------------------------------------------------------------------------------


def prose() -> Iterator[tuple[str, str]]:
    """Give the pages that speak of the library, each with what it shows and says."""
    for page in PAGES:
        if page.name != "CHANGELOG.md" and "adr" not in page.parts:
            yield name_of(page), visible(page.read_text())


@pytest.mark.parametrize(
    ("pattern", "owner"),
    [
        (r"\bapp\.sync\.(\w+)", SyncApp),
        (r"\bapp\.(?!sync\.|py\b)(\w+)", App("sqlite:///:memory:")),
        (r"\bctx\.step\.(\w+)", StepVerbs),
        (r"\bctx\.(?!step\.)(\w+)", Context(cast("Session", None), cast("Event", None))),
        (r"\b(?:run|handle)\.(\w+)\(", RunHandle),
        (r"\brow\.(\w+)", RunRow),
        (
            r"\bstep\.(?!run|ensure|sleep|uuid|now|random|emit|start|call|undo|wait_for|wait_any|promise"
            r"|transaction|try|py|key|after|before)(\w+)",
            StepRow,
        ),
        (r"\bdelivery\.(\w+)", DeliveryRow),
        (r"\battempt\.(\w+)", AttemptRow),
        (r"\bfailure\.(\w+)", StepFailed("", "", "")),
    ],
)
def test_names_that_pages_use_exist(pattern: str, owner: object) -> None:
    used = {(name, page) for page, text in prose() for name in re.findall(pattern, text)}
    assert used != set()

    assert {(name, page) for name, page in used if name not in dir(owner)} == set()


def test_variables_that_pages_name_are_settings() -> None:
    known = {setting.env for setting in SETTINGS} | set(OTHER_VARIABLES)

    named = {name for _, text in prose() for name in re.findall(r"\bONCEWARD_[A-Z_]*[A-Z]", text)}
    assert len(named) > 4
    assert named - known == set()


def test_commands_that_pages_name_are_there_with_their_options() -> None:
    called = set()
    for _, text in prose():
        for line in re.findall(r"(?:^|[`/ ])onceward ((?:check|serve|worker|migrate|demo)\b[^`\n]*)", text):
            called.add(re.split(r" [>|]| #|\)", line)[0].strip())
    assert len(called) > 6

    for line in called:
        name, *arguments = shlex.split(line)
        if not arguments:  # spoken of, not written out
            continue
        command = main.get_command(click.Context(main), name)
        assert command is not None
        command.make_context(name, [*arguments], resilient_parsing=False)
