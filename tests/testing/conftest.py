"""One sound store for every test of a checker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testing.healthy import Healthy


@pytest.fixture
def healthy(tmp_path: Path) -> Iterator[Healthy]:
    factory = Healthy(tmp_path / "onceward.db")
    yield factory
    factory.close()
