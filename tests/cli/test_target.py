"""MODULE:APP: found beside where one stands, or refused with the reason."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from onceward.cli.target import load
from onceward.core.errors import ConfigError, OncewardError


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, in no path yet; what is imported is forgotten again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return tmp_path


def write(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


APP = 'from onceward import App\napp = App("sqlite:///a.db")\n'


def test_an_app_beside_us_is_found(here: Path) -> None:
    write(here, "shop_a.py", APP)

    assert load("shop_a:app").settings.store == "sqlite:///a.db"


def test_an_app_in_a_package_and_in_a_class_is_found(here: Path) -> None:
    write(here, "shop_b/main.py", f"{APP}class Box:\n    inner = app\n")

    assert load("shop_b.main:Box.inner") is load("shop_b.main:app")


@pytest.mark.parametrize(
    ("files", "target", "what", "todo"),
    [
        ({}, "shop_c", "'shop_c' names no application.", "Did you mean shop_c:app?"),
        ({}, "shop_c:", "'shop_c:' names no application.", "Did you mean shop_c:app?"),
        ({}, ":app", "':app' names no application.", "Write MODULE:APP"),
        ({}, "shop_c.py:app", "'shop_c.py' is a file, not a module.", "Did you mean shop_c:app?"),
        ({}, "src/shop_c.py:app", "'src/shop_c.py' is a file, not a module.", "Did you mean src.shop_c:app?"),
        ({"shop_c.py": ""}, "shpo_c:app", "There is no module 'shpo_c' in", "Did you mean shop_c:app?"),
        ({}, "nothing_here:app", "There is no module 'nothing_here' in", "Change to its directory"),
        ({"shop_c.py": "import absent_thing"}, "shop_c:app", "shop_c imports 'absent_thing'", "pip install"),
        ({"shop_c.py": "a =\n"}, "shop_c:app", "shop_c.py, line 1: invalid syntax.", "Correct the file."),
        (
            {"shop_c.py": 'import os\nos.environ["ABSENT_SECRET"]\n'},
            "shop_c:app",
            "shop_c raised KeyError: 'ABSENT_SECRET' while it was imported",
            "Correct the file",
        ),
        ({"shop_c.py": "raise SystemExit(3)"}, "shop_c:app", "shop_c raised SystemExit: 3", "no work"),
        ({"shop_c.py": APP}, "shop_c:ap", "has no 'ap'.", "Did you mean shop_c:app?"),
        ({"shop_c.py": ""}, "shop_c:app", "has no 'app'.", "Write app = App("),
        ({"shop_c.py": f"{APP}shop = 3"}, "shop_c:shop", "is no onceward.App but of type int", "shop_c:app?"),
        ({"shop_c.py": "app = print"}, "shop_c:app", "is no onceward.App", "mount app.asgi()"),
    ],
)
def test_what_cannot_be_had_is_explained(
    here: Path, files: dict[str, str], target: str, what: str, todo: str
) -> None:
    for name, text in files.items():
        write(here, name, text)

    with pytest.raises(ConfigError) as caught:
        load(target)

    assert what in caught.value.what
    assert todo in caught.value.todo


def test_what_the_file_itself_raised_is_told_with_its_line(here: Path) -> None:
    write(here, "shop_d.py", "def read():\n    return 1 / 0\n\nread()\n")

    with pytest.raises(ConfigError) as caught:
        load("shop_d:app")

    assert f"({here / 'shop_d.py'}, line 2)" in caught.value.what


def test_an_error_of_ours_in_the_file_is_told_as_it_is(here: Path) -> None:
    write(here, "shop_e.py", "from onceward import App\napp = App(cuncurrency=3)\n")

    with pytest.raises(OncewardError, match="There is no setting 'cuncurrency'"):
        load("shop_e:app")
