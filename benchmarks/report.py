"""Measures every work on both stores and writes the tables in ``README.md``."""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.catalogue import WORKS

README = Path(__file__).with_name("README.md")
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"

STORES = ("sqlite", "postgres")


class Asked(NamedTuple):
    """One command of the report."""

    work: str
    store: str
    peer: str
    processes: int = 1

    def arguments(self, rounds: int) -> list[str]:
        """Give it as it would be typed."""
        words = [self.work, "--store", self.store, "--peer", self.peer, "--rounds", str(rounds)]
        return [*words, "--peer-processes", str(self.processes)] if self.processes > 1 else words


def commands() -> Iterator[Asked]:
    """Give what the report measures, in its order."""
    for store in STORES:
        yield Asked("three-step", store, "dbos")
        yield Asked("three-step", store, "dbos", 2)
        yield Asked("three-step", store, "prototype")
        yield Asked("low-load", store, "dbos")
        for work in WORKS:
            if work not in ("three-step", "low-load"):
                yield Asked(work, store, "none")


def write(rounds: int, measure: Callable[[list[str]], dict[str, Any]]) -> None:
    """Measure everything and put the tables into the README.

    Args:
        rounds: of each side.
        measure: does what a command line says and gives its result.
    """
    found = [(asked, measure(asked.arguments(rounds))) for asked in commands()]
    text = README.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    assert after, f"{README.name} has lost its marks"
    README.write_text(f"{before}{BEGIN}\n\n{tables(found, rounds)}\n{END}{after}")


def tables(found: list[tuple[Asked, dict[str, Any]]], rounds: int) -> str:
    """Give the tables as Markdown."""
    lines = [
        f"{machine()}. Medians of {rounds} alternating rounds. "
        f"Stores: {'; '.join(sorted({one['machine']['store'] for _, one in found}))}, full durability.",
        "",
        "| work | store | beside | ours | peer | ours is better by |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for asked, one in found:
        if one["peer"] is None:
            continue
        beside = asked.peer if asked.processes == 1 else f"{asked.peer}, {asked.processes} processes"
        unit = one["ratio_of"]
        lines.append(
            f"| {asked.work} | {asked.store} | {beside} | {_figure(unit, one['ours'][unit])} "
            f"| {_figure(unit, one['peer'][unit])} | {one['ratio']:g} times |"
        )
    lines += ["", "| work | store | ours |", "| --- | --- | --- |"]
    seen = set()
    for asked, one in found:
        if (asked.work, asked.store) not in seen:
            seen.add((asked.work, asked.store))
            shown = [
                _figure(name, one["ours"][name]) for name in WORKS[asked.work].shown if name in one["ours"]
            ]
            lines.append(f"| {asked.work} | {asked.store} | {'; '.join(shown)} |")
    return "\n".join(lines) + "\n"


def machine() -> str:
    """Describe the machine without saying which it is."""
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{os.cpu_count()} cores, {memory_gb:.0f} GiB of memory, {filesystem(tempfile.gettempdir())}, "
        f"{platform.system()}, Python {platform.python_version()}"
    )


def filesystem(directory: str) -> str:
    """Give the kind of file system that a directory is on: a sync to memory would cost nothing."""
    best, kind = "", "an unknown file system"
    with open("/proc/mounts") as file:
        for line in file:
            _, place, found, *_ = line.split()
            if directory.startswith(place) and len(place) > len(best):
                best, kind = place, found
    return kind


def _figure(name: str, value: Any) -> str:
    shown = f"{value:,.0f}" if isinstance(value, float) and value >= 1_000 else f"{value:g}"
    return f"{name} {shown}"
