"""What the works (tests/attack/apps/works.py) are from outside: which runs an event has, and how they end."""

from __future__ import annotations

from collections.abc import Mapping

SUBSCRIBED: Mapping[str, tuple[str, ...]] = {
    "charge.succeeded": ("paid", "audited"),
    "charge.failed": ("breaks", "audited"),
    "payout.paid": ("naps",),
    "invoice.paid": ("family",),
    "order.placed": ("order",),
    "stock.changed": ("in_turn",),
    "cart.changed": ("newest",),
    "transfer.created": ("transacts",),
}

KEYED = {"order"}
"""Workflows of which an event may have no run of its own: another one holds its key."""

MADE = ("left", "right", "start", "emit", "start inside", "emit inside")
"""What a run of ``family`` makes in each generation."""

ENDS: Mapping[str, tuple[str, ...]] = {"breaks": ("completed", "failed")}
"""How runs may end by themselves, where it is not only well."""

OUTPUTS: Mapping[str, str] = {
    "paid": '"ship"',
    "audited": '"file"',
    "breaks": '"break"',
    "naps": '"after"',
    "family": '"over"',
    "order": '"after"',
    "in_turn": '"count"',
    "newest": '"remind"',
    "transacts": '"after"',
    "piece": '"piece"',
    "told": '"hear"',
}

TRIES_MAX = 4
"""Of the steps that fail some times."""

CLEAN_UP = 90
"""From this stage on steps clean up."""

CANCELLED = ("payout.paid", "invoice.paid", "order.placed", "cart.changed")
RESTARTED = ("charge.succeeded", "payout.paid", "invoice.paid")
REPLAYED = ("charge.succeeded", "payout.paid", "invoice.paid", "order.placed")
"""The types of events whose runs clients do that to."""
