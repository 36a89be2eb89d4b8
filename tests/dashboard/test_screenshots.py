"""The pictures in the documentation are of the dashboard as it is: the script that takes them works."""

from __future__ import annotations

import re
from pathlib import Path

from scripts import screenshots
from tests.pages import ROOT


def test_the_script_takes_every_picture_that_is_shown(tmp_path: Path) -> None:
    shown = {
        name
        for page in (ROOT / "README.md", ROOT / "docs" / "dashboard.md")
        for name in re.findall(r"images/([a-z-]+\.png)", page.read_text())
    }
    screenshots.main(tmp_path, minutes_back=3)

    taken = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert set(taken) == shown == {path.name for path in (ROOT / "docs" / "images").iterdir()}
    assert all(picture.startswith(b"\x89PNG") and len(picture) > 20_000 for picture in taken.values())
