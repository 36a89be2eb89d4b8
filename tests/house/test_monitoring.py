"""The alert rules and the board: they are readable, and every metric and label that they name exists."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from onceward.web.metrics import METRICS_TABLE

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
ALERTS = yaml.safe_load((DEPLOY / "prometheus-alerts.yml").read_text())
BOARD = json.loads((DEPLOY / "grafana.json").read_text())

LABELS_OF_PROMETHEUS = {"job", "instance", "le"}
SERIES = {"gauge": ("",), "counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}
SAMPLES = {metric.name + ending: metric for metric in METRICS_TABLE for ending in SERIES[metric.kind]}


def rules() -> list[dict[str, Any]]:
    return [rule for group in ALERTS["groups"] for rule in group["rules"]]


def targets() -> Iterator[dict[str, Any]]:
    for panel in BOARD["panels"]:
        yield from panel["targets"]


EXPRESSIONS = [rule["expr"] for rule in rules()] + [target["expr"] for target in targets()]


def wrong(expression: str) -> list[str]:
    """Give what a PromQL expression names that does not exist, or adds up that every process says alike."""
    said = []
    names = re.findall(r"\bonceward_\w+", expression)
    for name in names:
        if name not in SAMPLES:
            said.append(f"there is no {name}")
        elif SAMPLES[name].of == "store" and not re.search(rf"(max|absent)\b[^+/]*{name}", expression):
            said.append(f"{name} must be taken by max")
    known = LABELS_OF_PROMETHEUS | {
        label for name in names if name in SAMPLES for label in SAMPLES[name].labels
    }
    used = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", expression))
    used |= {
        label for group in re.findall(r"\bby \(([^)]*)\)", expression) for label in re.split(r",\s*", group)
    }
    return [*said, *(f"there is no label {label}" for label in sorted(used - known))]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_what_is_named_exists(expression: str) -> None:
    assert "onceward_" in expression
    assert expression.count("(") == expression.count(")")
    assert wrong(expression) == []


@pytest.mark.parametrize(
    "expression",
    [
        "max(onceward_nothing)",
        "sum(onceward_runs)",
        "onceward_batch_seconds",
        'sum by (place) (onceward_runs_ended_total{outcome="failed"})',
        'rate(onceward_deliveries_total{workflow="w"}[5m])',
    ],
)
def test_what_does_not_is_found(expression: str) -> None:
    assert len(wrong(expression)) == 1


def test_every_rule_says_what_it_is_about() -> None:
    names = [rule["alert"] for rule in rules()]

    assert len(names) == len(set(names)) > 5
    for rule in rules():
        assert rule["annotations"].keys() == {"summary", "description"}, rule["alert"]
        assert rule["labels"]["severity"] in {"warning", "critical"}, rule["alert"]


def test_labels_in_texts_are_those_of_the_expression() -> None:
    for rule in rules():
        shown = set(re.findall(r"\$labels\.(\w+)", "".join(rule["annotations"].values())))
        kept = set(re.findall(r"\w+", "".join(re.findall(r"\bby \(([^)]*)\)", rule["expr"]))))
        assert shown <= kept, rule["alert"]


def test_the_board_shows_every_metric_that_is_not_about_itself() -> None:
    shown = {
        SAMPLES[name].name for target in targets() for name in re.findall(r"\bonceward_\w+", target["expr"])
    }

    assert shown == {metric.name for metric in METRICS_TABLE} - {"onceward_build"}


def test_the_panels_of_the_board_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert max(x for x, _ in cells) < 24
        assert not cells & taken, panel["title"]
        taken |= cells
