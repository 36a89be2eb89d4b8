"""The words: one meaning each, on the page of the docs and in the dashboard."""

from __future__ import annotations

import re
from pathlib import Path

from onceward.core.asked import DELIVERY_STATES
from onceward.core.glossary import TOLD, WORDS


def test_the_words_are_those_of_the_docs() -> None:
    """One source: the page of the docs has links and marks beside, and nothing else."""
    page = (Path(__file__).parents[2] / "docs" / "concepts.md").read_text("utf-8")
    rows = re.findall(r"^\| (\*\*.*?) \| (.*) \|$", page.partition("## One rule")[0], re.MULTILINE)

    def plain(text: str) -> str:
        return re.sub(r"[*`]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text))

    assert {plain(word): plain(means) for word, means in rows} == WORDS


def test_of_every_outcome_of_a_delivery_it_is_said_what_its_sender_was_told() -> None:
    assert set(TOLD) == set(DELIVERY_STATES)
