"""The example does what its first lines say."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from tests.helpers import eventually

EXAMPLE = Path(__file__).parents[2] / "examples" / "orders.py"


def run(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-u", str(EXAMPLE), "7"], cwd=folder, stdout=subprocess.PIPE, text=True
    )


def test_an_order_is_charged_once_though_its_process_was_killed_and_it_was_asked_for_again(
    tmp_path: Path,
) -> None:
    first = run(tmp_path)
    assert first.stdout is not None
    lines = [first.stdout.readline(), first.stdout.readline()]
    eventually(lambda: _is_saved(tmp_path), what="the charge's checkpoint")
    first.send_signal(signal.SIGKILL)
    first.communicate()

    second, _ = run(tmp_path).communicate(timeout=60)

    assert "new" in lines[0]
    assert lines[1] == "charging 1990 cents for order 7\n"
    assert "charging" not in second
    assert "known already" in second
    assert second.endswith("parcel-7\n")


def _is_saved(folder: Path) -> bool:
    with closing(sqlite3.connect(folder / "orders.sqlite")) as connection:
        try:
            found = connection.execute("select count(*) from onceward_step where state = 'done'").fetchone()
        except sqlite3.OperationalError:
            return False  # not migrated yet
    return bool(found == (1,))
