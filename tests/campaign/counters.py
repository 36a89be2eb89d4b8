"""What the long tiers counted: each tool writes its own figures, and `report` reads them all."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

FOLDER = Path(os.environ.get("ONCEWARD_TEST_CAMPAIGN_FOLDER", ".campaign"))
"""Where the figures are; a campaign of several commands leaves one file for each of them."""


def record(tool: str, figures: dict[str, Any], *, variant: str = "") -> None:
    """Write what a tool counted, over what it counted the last time.

    Args:
        tool: its name, as in ``python -m tests.campaign.<tool>``.
        figures: counts by what was counted; ``violations`` is a list, and empty where all is well.
        variant: tells several runs of one campaign apart, such as the store.
    """
    FOLDER.mkdir(exist_ok=True)
    name = f"{tool}-{variant}" if variant else tool
    (FOLDER / f"{name}.json").write_text(json.dumps({"tool": tool, "variant": variant, **figures}) + "\n")


def recorded() -> list[dict[str, Any]]:
    """Give everything that was written, by name."""
    return [json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))]
