"""Tests that share something costly run in one process, whichever of them are run."""

from __future__ import annotations

import importlib
from types import SimpleNamespace

import pytest

from tests.conftest import TOGETHER, WITH_PAGES, WORLDS, Together


def test_every_module_whose_tests_share_a_browser_is_given_to_one_process(
    pytestconfig: pytest.Config, request: pytest.FixtureRequest
) -> None:
    sharing = {
        str(item.path.relative_to(pytestconfig.rootpath))
        for item in request.session.items
        if {"browser", "drivers"} & set(getattr(item, "fixturenames", ()))
    }

    assert sharing <= TOGETHER.keys()
    assert [name for name in sorted(TOGETHER) if not (pytestconfig.rootpath / name).is_file()] == []


@pytest.mark.parametrize("nodeid", WORLDS)
def test_every_test_that_shares_worlds_is_there(nodeid: str) -> None:
    module, _, name = nodeid.partition("::")
    place = module.removesuffix(".py").replace("/", ".")
    assert callable(getattr(importlib.import_module(place), name.partition("[")[0]))


def test_only_the_tests_of_those_modules_go_together(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pytestconfig.option, "tx", ["popen"])
    scheduler = Together(pytestconfig)

    pages = {scheduler._split_scope(f"{module}::test_a[x]") for module in WITH_PAGES}
    assert pages == {"browser"}
    assert len({scheduler._split_scope(nodeid) for nodeid in WORLDS}) == len(set(WORLDS.values()))
    assert scheduler._split_scope("tests/core/test_ids.py::test_a[x]") == "tests/core/test_ids.py::test_a[x]"


def test_what_is_done_is_forgotten_and_what_a_dead_process_had_left_goes_to_another(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pytestconfig.option, "tx", ["popen", "popen"])
    monkeypatch.setattr(pytestconfig.option, "loadscopereorder", False, raising=False)
    module = next(iter(WITH_PAGES))
    tests = [
        *(f"tests/core/test_ids.py::test_{number}" for number in range(9)),
        f"{module}::a",
        f"{module}::b",
    ]
    given: dict[str, list[list[int]]] = {"one": [], "other": []}
    scheduler = Together(pytestconfig)
    one, other = (_Process(given[name]) for name in given)
    for process in (one, other):
        scheduler.add_node(process)
        scheduler.add_node_collection(process, tests)
    scheduler.schedule()
    assert given == {"one": [[0], [2]], "other": [[1], [3]]}

    for number in (0, 2, 4, 5, 6, 7):
        scheduler.mark_test_complete(one, number)
    assert given["one"] == [[0], [2], [4], [5], [6], [7], [8], [9, 10]]
    assert [*scheduler.assigned_work[one]] == [tests[8], "browser"]
    for number in (8, 9):
        scheduler.mark_test_complete(one, number)
    assert scheduler.assigned_work[one] == {"browser": {tests[9]: True, tests[10]: False}}

    assert scheduler.remove_node(one) == tests[10]
    for number in (1, 3):
        scheduler.mark_test_complete(other, number)
    assert given["other"] == [[1], [3], [10]]
    assert scheduler.has_pending
    scheduler.mark_test_complete(other, 10)
    assert not scheduler.has_pending
    assert scheduler.tests_finished


class _Process:
    """Stands for one of xdist's: takes down which numbers it is given."""

    def __init__(self, given: list[list[int]]) -> None:
        self.shutting_down = False
        self.gateway = SimpleNamespace(id="")
        self.send_runtest_some = given.append

    def shutdown(self) -> None:
        """End, as far as anybody asks."""
