"""A rerun plan on a terminal: what becomes of each step, and what would happen again outside."""

from __future__ import annotations

from typing import Any

import msgspec

from onceward.cli.console.words import print_table, say, text


def as_dict(plan: Any) -> dict[str, Any]:
    """Give a plan as its JSON, whether it is a struct or came over the API."""
    found: dict[str, Any] = msgspec.to_builtins(plan)
    return found


def print_plan(plan: Any) -> None:
    """Print a plan."""
    told = as_dict(plan)
    rows = []
    for step in told["steps"]:
        is_again = step["happens_again"] and step["effect"] == "outside"
        fate = step["fate"] + (", outside AGAIN" if is_again else "")
        rows.append((step["step"], step["state"], text(fate, "bold red" if is_again else "")))
    if rows:
        print_table("STEP", "STATE", "WOULD BE", rows=rows, narrow=("STEP",), is_indented=True)
        if told["outside_again"]:
            say(
                '  A step counts as outside unless its effect= says otherwise: effect="pure" of one that only reads.'
            )
    else:
        say("  No step has a record.")
    for child in told["children"]:
        say(f"  run {child['run_id']} of {child['workflow']} ({child['state']}): {child['fate']}")
    for warning in told["warnings"]:
        say(f"  ! {warning}", "yellow")
