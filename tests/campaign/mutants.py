"""Mutation testing: ``python -m tests.campaign.mutants [--seed N] [--sample N] [--module NAME]``.

One change at a time is made in a module (`tests.campaign.mutation.changes`), and the tests that run
the changed line are run over it, in a process that is forked before anything of ours is imported.
A change that no test notices survives: a test is missing, or the code is dead, or it means the same.

Which tests run which line is measured once, without a change, and kept in ``.campaign`` for as long
as neither changes; the cheapest tests of the module's own file come first. Tests that need PostgreSQL
or a process of their own are no part of this. What survives is in ``.campaign/mutants-survivors.txt``.
"""

from __future__ import annotations

import argparse
import ast
import functools
import hashlib
import itertools
import json
import os
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.campaign.counters import FOLDER, record
from tests.campaign.mutation.changes import Change, changed, changes, lines_naming
from tests.campaign.mutation.children import Children
from tests.campaign.mutation.trials import Order, measured, sifted, tried, warm

FIRST_SECONDS = 2.0
"""Of tests in the warm process that sifts."""

SIFT_SECONDS = 36_000.0

SPARE_SECONDS = 30.0
"""Of the processor, for what a child does beside its tests, and for tests that a change makes slower."""

MEASURE_SECONDS = 900.0
FILES_TOGETHER = 6
"""Files of tests that one child measures: it has to import what they use once."""


@dataclass(frozen=True)
class Table:
    """What is changed, and what should notice it.

    Attributes:
        groups: patterns of files by the group's name.
        floors: the percentage of changes that must be noticed, by group.
        tests: folders of tests.
        warm: modules that the tests need, imported before the first fork.
        src: where the names of modules begin.
    """

    groups: Mapping[str, Sequence[str]]
    floors: Mapping[str, float]
    tests: Sequence[str]
    warm: Sequence[str] = ()
    src: Path = Path("src")

    def sources(self) -> dict[str, Path]:
        """Give the files by the name of the module."""
        files = [
            path for patterns in self.groups.values() for pattern in patterns for path in _files(pattern)
        ]
        return {".".join(path.relative_to(self.src).with_suffix("").parts): path.resolve() for path in files}

    def group_of(self, path: Path) -> str:
        """Give the group of a file."""
        return next(
            name
            for name, patterns in self.groups.items()
            if any(path == file.resolve() for pattern in patterns for file in _files(pattern))
        )

    def test_files(self, folders: Sequence[str]) -> list[str]:
        """Give the files of tests in some folders, all by default."""
        return [
            str(path) for folder in folders or self.tests for path in sorted(Path(folder).rglob("test_*.py"))
        ]


TABLE = Table(
    groups={
        "core": ["src/onceward/core/*.py"],
        "runtime": [
            f"src/onceward/runtime/{name}.py"
            for name in ("pace", "recall", "branches", "tries", "journal", "ending")
        ],
        "stores": ["src/onceward/stores/sqlite/judging.py"],
        "sources": [
            *(f"src/onceward/sources/{name}.py" for name in ("signing", "timed", "stripe", "hmac_source")),
            "src/onceward/sources/standard_webhooks.py",
            "src/onceward/sources/parts/*.py",
        ],
        "authoring": ["src/onceward/authoring/*.py"],
    },
    floors={"core": 90.0},
    tests=[
        f"tests/{name}"
        for name in ("core", "authoring", "console", "runtime", "engine", "sources", "stores", "sim", "web")
    ],
    warm=(
        "asyncio",
        "click",
        "cryptography.hazmat.primitives.asymmetric.rsa",
        "http.client",
        "hypothesis.strategies",
        "jwt",
        "msgspec",
        "opentelemetry.sdk.trace",
        "psycopg",
        "pydantic",
        "sqlite3",
        "starlette.applications",
        "uvicorn",
        "xdist.scheduler",
    ),
)


def _files(pattern: str) -> list[Path]:
    return [path for path in sorted(Path().glob(pattern)) if path.name != "__init__.py"]


# --- which tests run a line ---------------------------------------------------------------------


@dataclass(frozen=True)
class Lines:
    """Which tests run a line of a module; those that fail without a change are only `known`."""

    costs: Mapping[str, float]
    known: frozenset[str]
    tests: Mapping[str, Mapping[int, Sequence[str]]]

    def of(self, module: str, lines: Iterable[int]) -> list[str]:
        """Give the tests that run any of some lines, those of the module's own file first."""
        by_line = self.tests.get(module, {})
        return self._sorted(module, {test for line in lines for test in by_line.get(line, ())})

    def of_import(self, module: str, lines: Iterable[int]) -> list[str]:
        """Give the tests of what runs at the import: which those are nobody can tell.

        First those that run some lines, which name what is changed, and those of the module's own file;
        then those that run any line of it; then all others.
        """
        own = [test for test in self.costs if _is_own(test, module)]
        any_line = self.of(module, self.tests.get(module, {}))
        near = self._sorted(module, {*self.of(module, lines), *own})
        return list(dict.fromkeys([*near, *any_line, *self._sorted(module, set(self.costs))]))

    def _sorted(self, module: str, tests: set[str]) -> list[str]:
        return sorted(tests, key=lambda test: (not _is_own(test, module), self.costs[test], test))


def _is_own(test: str, module: str) -> bool:
    return Path(test.partition("::")[0]).stem == f"test_{module.rpartition('.')[2]}"


def lines_of(table: Table, files: Sequence[str], children: Children) -> Lines:
    """Give what was measured of some files of tests, and measure what has changed since."""
    sources = table.sources()
    kept_in = FOLDER / "mutants-lines.json"
    kept: dict[str, Any] = json.loads(kept_in.read_text()) if kept_in.exists() else {}
    of_sources = b"".join(path.read_bytes() for path in sources.values())
    digests = {file: hashlib.sha256(of_sources + Path(file).read_bytes()).hexdigest() for file in files}
    stale = [file for file in files if kept.get(file, {}).get("digest") != digests[file]]

    def then(measured_files: Sequence[str], found: Any, became: str) -> None:
        if found is None:
            raise SystemExit(f"{', '.join(measured_files)} cannot be measured: {became}")
        for test in found["failed"]:
            print(f"{test} fails without any change, and is not asked", file=sys.stderr)
        for file in measured_files:
            tests = {test: told for test, told in found["tests"].items() if test.startswith(f"{file}::")}
            failed = [test for test in found["failed"] if test in tests]
            kept[file] = {"digest": digests[file], "tests": tests, "failed": failed}
        left = sum(kept.get(file, {}).get("digest") != digests[file] for file in files)
        print(f"measured {', '.join(measured_files)}; {left} files are left", file=sys.stderr)
        FOLDER.mkdir(exist_ok=True)
        kept_in.write_text(json.dumps(kept))

    for begin in range(0, len(stale), FILES_TOGETHER):
        together = stale[begin : begin + FILES_TOGETHER]
        work = functools.partial(measured, test_files=together, sources=sources)
        children.add(work, MEASURE_SECONDS, functools.partial(then, together))
    children.run()
    costs: dict[str, float] = {}
    tests: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    for found in (kept[file] for file in files):
        for test, (cost, masks) in found["tests"].items():
            if test not in found["failed"]:
                costs[test] = cost
                for module, mask in masks.items():
                    for line in _bits(int(mask, 16)):
                        tests[module][line].append(test)
    known = frozenset(test for file in files for test in kept[file]["tests"])
    return Lines(costs, known, tests)


def _bits(mask: int) -> Iterator[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


# --- trying -------------------------------------------------------------------------------------


@dataclass
class Mutant:
    """One change of one module, and what became of it."""

    module: str
    path: Path
    number: int
    change: Change
    by: str | None = None
    """What noticed it."""
    tests: int = 0
    """How many were run or would have been."""

    def __str__(self) -> str:
        place = f"{self.path.relative_to(Path.cwd())}:{self.change.at}"
        return f"{place} [{self.change.scope}] {self.change.what}  ({self.tests} tests)"


@dataclass
class Campaign:
    """Tries mutants and counts them."""

    table: Table
    lines: Lines
    budget_s: float
    children: Children
    tried: list[Mutant] = field(default_factory=list)

    def run(self, mutants: Sequence[Mutant]) -> None:
        """Try all: first by a few tests in a warm process, then what is left by all in the budget."""
        tests = [self._tests(mutant) for mutant in mutants]
        orders = [
            Order(
                mutant.module,
                mutant.path,
                functools.partial(_changed, mutant),
                first,
                3 * sum(map(self.lines.costs.__getitem__, first)) + SPARE_SECONDS,
            )
            for mutant, of_it in zip(mutants, tests, strict=True)
            for first in [self._within(of_it, FIRST_SECONDS)]
        ]
        descriptor = os.dup(2)

        def tell(text: str) -> None:
            os.write(descriptor, f"{text}\n".encode())

        def then(found: Any, became: str) -> None:
            if found is None:
                raise SystemExit(f"nothing can be sifted: {became}")
            for mutant, of_it, by in zip(mutants, tests, found, strict=True):
                if by is None:
                    self._try(mutant, self._within(of_it, self.budget_s))
                else:
                    self._end(mutant, by)

        work = functools.partial(sifted, orders=orders, width=self.children.width, tell=tell)
        self.children.add(work, SIFT_SECONDS, then)
        self.children.run()

    def _within(self, tests: Sequence[str], seconds: float) -> list[str]:
        """Give the first of some tests, as many as take so long."""
        spent = itertools.accumulate(map(self.lines.costs.__getitem__, tests))
        return [
            test
            for place, (test, cost) in enumerate(zip(tests, spent, strict=True))
            if cost <= seconds or not place
        ]

    def _tests(self, mutant: Mutant) -> list[str]:
        change = mutant.change
        if change.tested_by and (tests := self.lines.of(mutant.module, change.tested_by)):
            return tests
        named = lines_naming(ast.parse(mutant.path.read_text()), change.names)
        return self.lines.of_import(mutant.module, named)

    def _try(self, mutant: Mutant, tests: list[str]) -> None:
        mutant.tests = len(tests)
        if not tests:
            self._end(mutant, None)
            return

        def then(found: Any, became: str) -> None:
            self._end(mutant, became[-200:] if found is None else found["by"])

        work = functools.partial(
            tried,
            name=mutant.module,
            source=mutant.path,
            changed=functools.partial(_changed, mutant),
            tests=tests,
            known=self.lines.known,
        )
        seconds = 3 * sum(map(self.lines.costs.__getitem__, tests)) + SPARE_SECONDS
        self.children.add(work, seconds, then)

    def _end(self, mutant: Mutant, by: str | None) -> None:
        mutant.by = by
        self.tried.append(mutant)
        if by is None:
            print(f"survived: {mutant}", file=sys.stderr)
        if len(self.tried) % 50 == 0:
            noticed = sum(tried.by is not None for tried in self.tried)
            print(f"{len(self.tried)} tried, {noticed} noticed", file=sys.stderr)


def _changed(mutant: Mutant) -> ast.Module:
    return changed(mutant.path.read_text(), mutant.number)


def drawn(table: Table, modules: Sequence[str], sample: int, seed: int) -> list[Mutant]:
    """Give the changes to try: all of the modules', or so many of them by chance."""
    found = [
        Mutant(module, path, number, change)
        for module, path in table.sources().items()
        if not modules or any(f".{name}." in f".{module}." for name in modules)
        for number, change in enumerate(changes(ast.parse(path.read_text())))
    ]
    generator = random.Random(seed)
    return generator.sample(found, min(sample, len(found))) if sample else found


def main(arguments: Sequence[str] | None = None, table: Table = TABLE) -> int:
    """Run a campaign and give its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign.mutants", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sample", type=int, default=0, help="how many changes, drawn by chance; 0: all")
    parser.add_argument(
        "--module", action="append", default=[], help="only these: core, core.retry; may be repeated"
    )
    parser.add_argument("--tests", action="append", default=[], help="only these folders of tests")
    parser.add_argument("--jobs", type=int, default=2, help="how many processes at a time")
    parser.add_argument("--budget", type=float, default=20.0, help="seconds of tests for each change")
    asked = parser.parse_args(arguments)
    warm(table.warm)
    children = Children(asked.jobs)
    mutants = drawn(table, asked.module, asked.sample, asked.seed)
    print(f"{len(mutants)} changes are drawn; measuring which tests run which line", file=sys.stderr)
    lines = lines_of(table, table.test_files(asked.tests), children)
    campaign = Campaign(table, lines, asked.budget, children)
    campaign.run(mutants)
    return _report(campaign, asked.seed, sys.argv[1:] if arguments is None else arguments)


def _report(campaign: Campaign, seed: int, arguments: Sequence[str]) -> int:
    survivors = sorted(str(mutant) for mutant in campaign.tried if mutant.by is None)
    (FOLDER / "mutants-survivors.txt").write_text("".join(f"{line}\n" for line in survivors))
    noticed, total = Counter[str](), Counter[str]()
    for mutant in campaign.tried:
        group = campaign.table.group_of(mutant.path)
        total[group] += 1
        noticed[group] += mutant.by is not None
    scores = {group: 100 * noticed[group] / total[group] for group in total}
    violations = [
        f"{group}: {scores[group]:.1f} % of {total[group]} changes are noticed, {floor:g} % should be"
        for group, floor in campaign.table.floors.items()
        if scores.get(group, 100.0) < floor
    ]
    figures: dict[str, Any] = {
        "seed": seed,
        "changes": len(campaign.tried),
        "noticed": sum(noticed.values()),
        "by_time": sum(mutant.by == "time" for mutant in campaign.tried),
        "survived": len(survivors),
        **{f"score_{group}": f"{score:.1f} %" for group, score in sorted(scores.items())},
        "violations": violations,
    }
    record("mutants", figures)
    print(json.dumps(figures))
    if violations:
        print(f"again: python -m tests.campaign.mutants {' '.join(arguments)}", file=sys.stderr)
    return int(bool(violations))


if __name__ == "__main__":
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    sys.path[:0] = [str(Path("src").resolve())]
    sys.exit(main())
