"""What bodies of transactional steps do to Django's connections, beyond inserting their rows."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.starts import ROOT, SRC, run


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'store.db'}"
    return str(request.getfixturevalue("postgres_dsn"))


def test_djangos_connections_commit_what_is_saved_or_say_why_not(store: str) -> None:
    """On SQLite the very first transaction cannot begin, and its second try has the same connection."""
    environment = {**os.environ, "PYTHONPATH": f"{SRC}{os.pathsep}{ROOT}"}
    played = run("-m", "tests.engine.django_bodies", store, cwd=ROOT, env=environment)

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
