"""What is done in a forked child: tests are run over modules that count their lines, or over one that is changed."""

from __future__ import annotations

import ast
import importlib
import os
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import pytest
from hypothesis import Phase, settings

from tests.campaign.mutation.changes import with_hits

TEST_SECONDS_MAX = 60
"""How long one test may wait, on the clock: what is changed may wait for ever."""

PLUGINS = ("pytest_timeout", "_hypothesis_pytestplugin", "onceward.testing.plugin")

_HIT = "__onceward_hit__"
_ELSEWHERE = "postgres"
"""In the id or marker of a test that needs a server, which no child waits for."""


def warm(modules: Sequence[str]) -> None:
    """Import what the children need and what is not under test, once for all of them."""
    for name in modules:
        importlib.import_module(name)
    assert len(os.listdir("/proc/self/task")) == 1, "a process with threads cannot be forked"


def measured(folder: Path, test_file: str, sources: Mapping[str, Path]) -> dict[str, Any]:
    """Run a file of tests and give, by test, its cost and the lines of *sources* that it runs.

    Returns:
        ``tests``: by id, seconds of the processor and hexadecimal masks of lines by module;
        ``failed``: ids, which are not asked about anything.
    """
    hits: dict[str, set[int]] = {name: set() for name in sources}

    def before(module: ModuleType) -> None:
        module.__dict__[_HIT] = hits[module.__name__].add

    _take(sources, lambda name: with_hits(sources[name].read_text(), _HIT), before)
    measuring = _Measuring(hits)
    code = _pytest(folder, [test_file], [measuring])
    if code not in (0, 1, 5):
        raise RuntimeError(f"pytest ended with {code} over {test_file}")
    return {"tests": measuring.tests, "failed": measuring.failed}


def tried(
    folder: Path, name: str, source: Path, changed: Callable[[], ast.Module], tests: Sequence[str]
) -> dict[str, Any]:
    """Run tests over a changed module and give which of them noticed it, or None as ``by``."""
    _take({name: source}, lambda _: changed())
    try:
        importlib.import_module(name)
    except Exception as error:  # noqa: BLE001  # whatever the change makes of it
        return {"by": f"import: {type(error).__name__}"}
    trying = _Trying({test: rank for rank, test in enumerate(tests)})
    files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
    code = _pytest(folder, ["-x", *files], [trying])
    # 5: no test is left, as where what is changed names them, and none has noticed it.
    return {"by": None if code in (0, 5) else trying.failed or f"pytest: {code}"}


def _pytest(folder: Path, arguments: Sequence[str], plugins: Sequence[object]) -> int:
    for name in [name for name in os.environ if name.startswith(("ONCEWARD_", "PYTEST_"))]:
        del os.environ[name]
    # Most of what is installed beside pytest takes longer to load than a test to run.
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    options = ["-q", "--tb=short", f"--basetemp={folder / 'tests'}", f"--timeout={TEST_SECONDS_MAX}"]
    loaded = [part for name in PLUGINS for part in ("-p", name)]
    return int(pytest.main([*options, *loaded, "-p", "no:cacheprovider", *arguments], [*plugins]))


class _Choosing:
    """Leaves out tests that need a server, and has Hypothesis stop at the first example that fails."""

    def pytest_configure(self) -> None:
        found = settings.default
        assert found is not None
        settings.register_profile("mutants", parent=found, phases=[Phase.explicit, Phase.generate])
        settings.load_profile("mutants")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = self.chosen([item for item in items if not _is_elsewhere(item)])

    def chosen(self, items: list[pytest.Item]) -> list[pytest.Item]:
        return items


class _Measuring(_Choosing):
    def __init__(self, hits: Mapping[str, set[int]]) -> None:
        self.hits = hits
        self.tests: dict[str, tuple[float, dict[str, str]]] = {}
        self.failed: list[str] = []

    def pytest_collection_finish(self) -> None:
        for lines in self.hits.values():
            lines.clear()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        began = time.process_time()
        done = yield
        masks = {name: f"{sum(1 << line for line in lines):x}" for name, lines in self.hits.items() if lines}
        self.tests[item.nodeid] = (round(time.process_time() - began, 4), masks)
        for lines in self.hits.values():
            lines.clear()
        return done

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)


class _Trying(_Choosing):
    def __init__(self, ranks: Mapping[str, int]) -> None:
        self.ranks = ranks
        self.failed = ""

    def chosen(self, items: list[pytest.Item]) -> list[pytest.Item]:
        ours = [item for item in items if item.nodeid in self.ranks]
        return sorted(ours, key=lambda item: self.ranks[item.nodeid])

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid


def _is_elsewhere(item: pytest.Item) -> bool:
    return (
        item.get_closest_marker(_ELSEWHERE) is not None
        or _ELSEWHERE in item.nodeid.partition("[")[2]
        or any(_ELSEWHERE in name or name == "pgbouncer" for name in getattr(item, "fixturenames", ()))
    )


# --- modules that are not as they are written ---------------------------------------------------


class _Loader(SourceFileLoader):
    def __init__(
        self, name: str, path: str, tree: Callable[[str], ast.Module], before: Callable[[ModuleType], None]
    ) -> None:
        super().__init__(name, path)
        self.tree = tree
        self.before = before

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.tree(fullname), self.path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        self.before(module)
        super().exec_module(module)


class _Finder(MetaPathFinder):
    def __init__(self, loaders: Mapping[str, _Loader]) -> None:
        self.loaders = loaders

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        loader = self.loaders.get(fullname)
        return spec_from_file_location(fullname, loader.path, loader=loader) if loader else None


def _take(
    sources: Mapping[str, Path],
    tree: Callable[[str], ast.Module],
    before: Callable[[ModuleType], None] = lambda module: None,
) -> None:
    """Have the modules of *sources* imported as *tree* gives them, by name."""
    assert not set(sources) & set(sys.modules), "a module to change was imported already"
    loaders = {name: _Loader(name, str(path), tree, before) for name, path in sources.items()}
    sys.meta_path.insert(0, _Finder(loaders))
