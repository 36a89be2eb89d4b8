"""The figures of a campaign in one table: ``python -m tests.campaign.report``. Exits with 1 where a tool found something."""

from __future__ import annotations

import sys
from typing import Any

from tests.campaign.counters import FOLDER, recorded


def main() -> int:
    """Print what each tool counted."""
    found = recorded()
    if not found:
        print(f"Nothing was counted yet: {FOLDER} is empty. Run make campaign.", file=sys.stderr)
        return 1
    for figures in found:
        print(line(figures))
    return int(any(figures["violations"] for figures in found))


def line(figures: dict[str, Any]) -> str:
    """Give a tool's figures on one line."""
    name = " ".join(part for part in (figures["tool"], figures["variant"]) if part)
    counts = [
        f"{what.replace('_', ' ')} {value:,}"
        if isinstance(value, int)
        else f"{what.replace('_', ' ')} {value}"
        for what, value in figures.items()
        if what not in ("tool", "variant", "violations")
    ]
    verdict = f"{len(figures['violations'])} VIOLATIONS" if figures["violations"] else "nothing found"
    return f"{name:<22} {verdict:<15} {', '.join(counts)}"


if __name__ == "__main__":
    sys.exit(main())
