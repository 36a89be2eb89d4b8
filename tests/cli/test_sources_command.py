"""``onceward sources``: every kind, from what its class says of itself."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from onceward.cli.main import main
from onceward.sources import kinds, source_class


def told(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["sources", *arguments], prog_name="onceward")
    return done.exit_code, done.output


def facts(*arguments: str) -> Any:
    status, text = told(*arguments, "--json")
    assert status == 0
    return json.loads(text)


def test_every_kind_is_listed_with_its_options() -> None:
    status, text = told()

    assert status == 0
    assert [line.split()[0] for line in text.splitlines()[1:-3]] == list(kinds())
    [hubspot] = [line.split() for line in text.splitlines() if line.startswith("hubspot")]
    assert hubspot == ["hubspot", "-", "yes", "3d", "5s", "public_url", "tolerance"]


def test_the_list_as_json_says_the_same_as_the_classes() -> None:
    rows = facts()

    assert [row["kind"] for row in rows] == list(kinds())
    assert all(row["docs_url"].startswith("https://") and row["scheme"] for row in rows)
    assert all(row["class"] == f"onceward.sources.{source_class(row['kind']).__name__}" for row in rows)


def test_one_kind_as_json() -> None:
    square = facts("square")
    assert square["options"] == {"public_url": "none"}
    assert square["examples"] == ["payment.updated", "order.created", "refund.created"]
    assert (square["retry_horizon"], square["reply_deadline"]) == ("3d", "10s")
    assert square["handshake"] is None
    assert facts("microsoft_graph")["handshake"] == "unverified"
    assert facts("aws_sns")["handshake"] == "verified"
    assert facts("paddle")["options"] == {"tolerance": "5m"}
    assert facts("hmac")["options"]["header"] is None


def test_what_no_page_of_a_sender_says_of_its_retries_is_told_as_that() -> None:
    [paypal] = [line.split() for line in told()[1].splitlines() if line.startswith("paypal")]

    assert paypal[3] == "~3d"
    assert "  retries     3d (no page of the sender's was found that says so)\n" in told("paypal")[1]
    assert "  retries     none published\n" in told("github")[1]
    assert f"  retries     1h 25m ({facts('zoom')['retry_docs']})\n" in told("zoom")[1]
    assert facts("paypal")["retry_docs"] is None


@pytest.mark.parametrize("kind", kinds())
def test_the_page_of_a_kind_names_its_options_docs_and_examples(kind: str) -> None:
    status, text = told(kind)

    said = facts(kind)
    assert status == 0
    assert said["docs_url"] in text
    assert f'create("{kind}"' in text
    assert all(f" {option}={default or '…'}" in text for option, default in said["options"].items())
    assert all(f"  {example}\n" in text for example in said["examples"])


def test_an_unknown_kind_is_told_what_there_is() -> None:
    status, text = told("strype")

    assert status == 2
    assert "Did you mean stripe?" in text
    assert "Use one of adyen," in told("nobody at all")[1]


def test_a_source_is_told_without_the_marks_of_its_code() -> None:
    told = CliRunner().invoke(main, ["sources", "stripe"], prog_name="onceward").stdout

    assert "Args:" not in told
    assert "`" not in told
    assert "  Options:\n      secrets: the endpoint's signing secrets (whsec_…), used as they are" in told
    assert "tolerance: five minutes by default" in told
