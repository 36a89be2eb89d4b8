"""What is done in a forked child: tests are run over modules that count their lines, or over one that is changed."""

from __future__ import annotations

import ast
import functools
import gc
import importlib
import inspect
import os
import re
import sys
import time
from collections.abc import Callable, Container, Generator, Mapping, Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.campaign.mutation.changes import with_hits
from tests.campaign.mutation.children import Children

TEST_SECONDS_MAX = 120
"""How long one test may wait, on the clock: what is changed may wait for ever."""

PLUGINS = ("pytest_timeout", "_hypothesis_pytestplugin", "onceward.testing.plugin")

_HIT = "__onceward_hit__"
_ELSEWHERE = "postgres"
"""A parameter, marker or fixture of a test that needs a server, which no child waits for."""


def warm(modules: Sequence[str]) -> None:
    """Import what the children need and what is not under test, once for all of them."""
    for name in modules:
        importlib.import_module(name)
    assert len(os.listdir("/proc/self/task")) == 1, "a process with threads cannot be forked"


def measured(folder: Path, test_files: Sequence[str], sources: Mapping[str, Path]) -> dict[str, Any]:
    """Run files of tests and give, by test, its cost and the lines of *sources* that it runs.

    Returns:
        ``tests``: by id, seconds of the processor and hexadecimal masks of lines by module;
        ``failed``: ids, which are not asked about anything.
    """
    hits: dict[str, set[int]] = {name: set() for name in sources}

    def before(module: ModuleType) -> None:
        module.__dict__[_HIT] = hits[module.__name__].add

    _take(sources, lambda name: with_hits(sources[name].read_text(), _HIT), before)
    measuring = _Measuring(hits)
    code = _pytest(folder, test_files, [measuring])
    if code not in (0, 1, 5):
        raise RuntimeError(f"pytest ended with {code} over {test_files}")
    return {"tests": measuring.tests, "failed": measuring.failed}


def tried(
    folder: Path,
    name: str,
    source: Path,
    changed: Callable[[], ast.Module],
    tests: Sequence[str],
    known: Container[str],
) -> dict[str, Any]:
    """Run tests over a changed module and give which of them noticed it, or None as ``by``.

    Args:
        folder: for what the tests write.
        name: of the module.
        source: its file.
        changed: gives what it becomes.
        tests: in the order in which they are run.
        known: all that there are without the change: some take their ids from what is changed.
    """
    _take({name: source}, lambda _: changed())
    try:
        importlib.import_module(name)
    except Exception as error:  # noqa: BLE001  # whatever the change makes of it
        return {"by": f"import: {type(error).__name__}"}
    trying = _Trying(tests, known)
    files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
    code = _pytest(folder, ["-x", *files], [trying])
    # 5: no test is left, as where what is changed names them, and none has noticed it.
    return {"by": None if code in (0, 5) else trying.failed or f"pytest: {code}"}


@dataclass(frozen=True)
class Order:
    """What is tried: a change of a module, by some tests, within some seconds of the processor."""

    name: str
    source: Path
    changed: Callable[[], ast.Module]
    tests: Sequence[str]
    cpu_seconds: float


def sifted(
    folder: Path, orders: Sequence[Order], width: int, tell: Callable[[str], None]
) -> list[str | None]:
    """Try many changes in forks of one process that has imported everything and collected the tests.

    Only what functions do when they are called can be changed there. So this sifts: what a test
    notices here is noticed, and of the rest, None, nothing is said.
    """
    sifting = _Sifting(orders, width, tell)
    files = sorted({test.partition("::")[0] for order in orders for test in order.tests})
    code = _pytest(folder, files, [sifting])
    if code != 0:
        raise RuntimeError(f"pytest ended with {code} before a change was made")
    return sifting.found


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
        settings.register_profile(
            "mutants",
            parent=found,
            phases=[Phase.explicit, Phase.generate],
            # A machine that others use, too, is slow: such a test failed without any change, and was not asked.
            suppress_health_check=[*found.suppress_health_check, HealthCheck.too_slow],
        )
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
        self.caches: list[Any] = []

    def pytest_collection_finish(self) -> None:
        self.caches = [
            cache for cache in _objects(functools._lru_cache_wrapper) if cache.__module__ in self.hits
        ]
        for lines in self.hits.values():
            lines.clear()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        for cache in self.caches:  # else only the first test runs what is remembered
            cache.cache_clear()
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
    def __init__(self, tests: Sequence[str], known: Container[str]) -> None:
        self.ranks = {test: rank for rank, test in enumerate(tests)}
        self.functions = {test.partition("[")[0]: rank for rank, test in enumerate(tests)}
        self.known = known
        self.failed = ""

    def chosen(self, items: list[pytest.Item]) -> list[pytest.Item]:
        ranked = [(rank, item) for item in items if (rank := self.rank(item.nodeid)) is not None]
        return [item for _, item in sorted(ranked, key=lambda one: one[0])]

    def rank(self, test: str) -> int | None:
        return self.ranks.get(test) if test in self.known else self.functions.get(test.partition("[")[0])

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid


class _Sifting(_Choosing):
    def __init__(self, orders: Sequence[Order], width: int, tell: Callable[[str], None]) -> None:
        self.orders = orders
        self.width = width
        self.tell = tell
        self.found: list[str | None] = [None] * len(orders)
        self.unfit = frozenset[str]()
        self.sifted = self.noticed = 0
        self.failed = ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        names = {order.name for order in self.orders}
        functions = [one for one in _objects(FunctionType) if one.__module__ in names]
        caches = _objects(functools._lru_cache_wrapper)
        children = Children(self.width)
        wanted = dict.fromkeys(test for order in self.orders for test in order.tests)
        children.add(functools.partial(self.control, [items[test] for test in wanted]), 3_600.0, self.heed)
        children.run()
        items = {test: item for test, item in items.items() if test not in self.unfit}
        for number, order in enumerate(self.orders):
            work = functools.partial(self.tried, order, items, functions, caches)
            children.add(work, order.cpu_seconds, functools.partial(self.then, number))
        children.run()
        return True

    def control(self, items: Sequence[pytest.Item], folder: Path) -> list[str]:
        """Give the tests that fail here without any change."""
        failed: set[str] = set()
        for item in items:
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
            failed.add(self.failed)
        return sorted(failed - {""})

    def heed(self, found: Any, became: str) -> None:
        if found is None:
            raise RuntimeError(became)
        self.unfit = frozenset(found)
        for test in found:
            self.tell(f"{test} fails in a fork without any change, and is not asked there")

    def then(self, number: int, found: Any, became: str) -> None:
        self.found[number] = (became[-200:] or "time") if found is None else found["by"]
        self.sifted += 1
        self.noticed += self.found[number] is not None
        if self.sifted % 50 == 0:
            self.tell(f"{self.sifted} of {len(self.orders)} are sifted, {self.noticed} of them were noticed")

    def tried(
        self,
        order: Order,
        items: Mapping[str, pytest.Item],
        functions: Sequence[FunctionType],
        caches: Sequence[Any],
        folder: Path,
    ) -> dict[str, Any]:
        old = compile(order.source.read_text(), order.source, "exec", dont_inherit=True)
        pairs = codes_changed(old, compile(order.changed(), order.source, "exec", dont_inherit=True))
        changed = [one for one in functions if one.__code__ in pairs]
        try:
            for one in changed:
                one.__code__ = pairs[one.__code__]
        except ValueError:  # it does without a variable of the function around it
            return {"by": None}
        for cache in caches:
            cache.cache_clear()
        for item in [items[test] for test in order.tests if changed and test in items]:
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
            if self.failed:
                return {"by": self.failed}
        return {"by": None}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed = report.nodeid


def codes_changed(old: CodeType, new: CodeType) -> dict[CodeType, CodeType]:
    """Give the codes of functions that differ between two modules; none where the import differs, too."""
    pairs: dict[CodeType, CodeType] = {}

    def compare(one: CodeType, other: CodeType) -> bool:
        if one.co_flags & inspect.CO_OPTIMIZED:
            pairs[one] = other
        elif _bare(one) != _bare(other):
            return False
        inner = [[part for part in code.co_consts if isinstance(part, CodeType)] for code in (one, other)]
        # Fewer of them in a function: it is another as a whole, and so is what it makes.
        both = zip(*inner, strict=False)
        return all(compare(*codes) for codes in both if codes[0] != codes[1])

    return pairs if compare(old, new) else {}


def _bare(code: CodeType) -> CodeType:
    """Give what runs at the import, without the functions that it makes."""
    return code.replace(
        co_consts=tuple(None if isinstance(part, CodeType) else part for part in code.co_consts)
    )


def is_for_a_server(test: str) -> bool:
    """Say whether a test's id has the server among its parameters; a URL of one is only a text."""
    return re.search(rf"[\[-]{_ELSEWHERE}[\]-]", test) is not None


def _objects(kind: type) -> list[Any]:
    """Give all objects of one type, by their types alone: what tests have made may raise when it is asked."""
    gc.unfreeze()  # what is frozen is not listed
    found = [one for one in gc.get_objects() if type(one) is kind]
    gc.freeze()
    return found


def _is_elsewhere(item: pytest.Item) -> bool:
    return (
        item.get_closest_marker(_ELSEWHERE) is not None
        or is_for_a_server(item.nodeid)
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
