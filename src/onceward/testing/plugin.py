"""The pytest plug-in: an app in a test, and the world outside it, as fixtures.

pytest loads it in every project where Onceward is installed, so it imports nothing until a fixture
is used; `-p no:onceward` keeps it out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from onceward.app import App
    from onceward.testing import AppInTest, Outside


@pytest.fixture
def outside() -> Outside:
    """Give an outside in which nothing has happened: for `crash_matrix`, and for `app_in_test`."""
    from onceward.testing import Outside

    return Outside()


@pytest.fixture
def app_in_test(outside: Outside) -> Iterator[Callable[[App], AppInTest]]:
    """Give what lets an app live until the end of this test."""
    from onceward.testing import AppInTest

    with ExitStack() as stack:

        def begin(app: App) -> AppInTest:
            return stack.enter_context(AppInTest(app, outside=outside))

        yield begin
