"""Tests that share something costly run in one process, whichever of them are run."""

from __future__ import annotations

import importlib

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
