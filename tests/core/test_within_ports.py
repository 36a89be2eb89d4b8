"""What is saved of a transaction that could not begin beside another process."""

from __future__ import annotations

import json

import pytest

from onceward.core.failure_text import describe_error
from onceward.core.within_ports import FileShared, is_shared


@pytest.mark.parametrize(
    ("error", "shared"),
    [
        (json.dumps(describe_error(FileShared("Another process uses the file."))), True),
        (json.dumps(describe_error(OSError("away"))), False),
        ('{"message":"away"}', False),
        ("damaged", False),
        (None, False),
    ],
    ids=range(5),
)
def test_a_failure_for_a_shared_file_is_told_from_others_by_what_is_saved(
    error: str | None, shared: bool
) -> None:
    assert is_shared(error) is shared
