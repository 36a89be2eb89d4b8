"""Arguments and results of workflows, steps and handles keep their types, for mypy and for pyright.

Each checker runs once for both files: ``shapes`` must have no error, ``mistakes`` one or more at
each line marked as wrong and at no other (B055).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CHECK_SECONDS = 170

pytestmark = pytest.mark.timeout(CHECK_SECONDS + 10)

Found = dict[str, dict[int, list[str]]]


def marked(text: str) -> set[int]:
    return {number for number, line in enumerate(text.splitlines(), start=1) if "# wrong: " in line}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("typing")
    mistakes, shapes = folder / "mistakes.py", folder / "shapes.py"
    mistakes.write_text((HERE / "mistakes.txt").read_text())
    shapes.write_text((HERE / "shapes.py").read_text())
    settings = {"extraPaths": [str(ROOT / "src")], "typeCheckingMode": "strict"}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    return [mistakes, shapes]


def run(command: list[str], cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=cwd,
        env={**os.environ, "MYPYPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=CHECK_SECONDS,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


def mypy(files: list[Path]) -> Found:
    folder = files[0].parent
    command = ["mypy", "--strict", "--no-error-summary", "--config-file=", f"--cache-dir={folder / 'cache'}"]
    output = run([*command, *map(str, files)], folder)
    found: Found = {}
    for line in output.splitlines():
        if match := re.match(r"(.+?):(\d+): error: (.*)", line):
            name, number, message = match.groups()
            found.setdefault(Path(name).name, {}).setdefault(int(number), []).append(message)
    return found


def pyright(files: list[Path]) -> Found:
    folder = files[0].parent
    output = run(["pyright", "--outputjson", "--pythonpath", sys.executable, *map(str, files)], folder)
    found: Found = {}
    for one in json.loads(output)["generalDiagnostics"]:
        if one["severity"] == "error":
            number = one["range"]["start"]["line"] + 1
            found.setdefault(Path(one["file"]).name, {}).setdefault(number, []).append(one["message"])
    return found


@pytest.mark.parametrize("checker", [mypy, pyright], ids=lambda checker: checker.__name__)
def test_types_are_kept_and_mistakes_found(files: list[Path], checker: Callable[[list[Path]], Found]) -> None:
    wrong = marked(files[0].read_text())
    assert len(wrong) >= 10

    found = checker(files)

    assert found.get("shapes.py", {}) == {}
    assert set(found["mistakes.py"]) == wrong, found["mistakes.py"]
    assert set(found) == {"mistakes.py"}
