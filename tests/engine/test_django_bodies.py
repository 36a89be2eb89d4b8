"""What bodies of transactional steps do to Django's connections, beyond inserting their rows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'store.db'}"
    return str(request.getfixturevalue("postgres_dsn"))


def test_djangos_connections_commit_what_is_saved_or_say_why_not(store: str) -> None:
    """On SQLite the very first transaction cannot begin, and its second try has the same connection."""
    played = subprocess.run(
        [sys.executable, "-m", "tests.engine.django_bodies", store],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert played.returncode == 0, played.stderr
    found = json.loads(played.stdout)
    told = found["told"]
    assert (told["in_a_savepoint"], told["after_the_commit"]) == ("done", "done")
    for case in ("close", "close_old"):
        assert "after 1 try" in told[case]
        assert "closed its connection" in told[case]
    assert "Django's database 'off' has AUTOCOMMIT off" in told["without_autocommit"]
    assert found["things"] == ["kept", "kept too"]
    assert "is committed, and raised: ValueError: after the commit" in played.stderr
