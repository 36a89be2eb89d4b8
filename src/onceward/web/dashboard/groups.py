"""The dead letters of one page: what went wrong alike, with what it means and the way out of it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from onceward.console.views import RunSummary
from onceward.core.model import Millis
from onceward.web.dashboard import words


@dataclass(frozen=True)
class Way:
    """What a kind of problem means and what to do about it: *verb*, and to all alike where *is_bulk*."""

    means: str
    todo: str
    verb: str = "retry"
    is_bulk: bool = True


QUESTION = Way(
    "A step began, and nobody knows how it ended: only a person can find out.",
    "Look at the other side whether it took effect, then answer on the page of the run.",
    "answer",
    is_bulk=False,
)
HELD: tuple[tuple[str, Way], ...] = (
    ("outcome unknown", QUESTION),
    (
        "the key of step",
        Way(
            "A try that is not known to have ended would run again after its receiver may have forgotten its key.",
            "Look whether the step took effect. Answer retry to run it again, fail to give the run up.",
            "answer",
        ),
    ),
    (
        "poison",
        Way(
            "Its process was lost several times in a row while it ran: it probably kills it, by memory or in C code.",
            "Find out by what, deploy, then answer retry. Nothing of it is lost.",
            "answer",
        ),
    ),
    (
        "code mismatch",
        Way(
            "The code asks for another kind of step than was saved, or a saved result or argument no longer fits its type.",
            "Deploy code that fits, then answer retry; or restart it.",
            "answer",
        ),
    ),
    (
        "damaged",
        Way(
            "Rows of it cannot be read.",
            "Restore them, or mend the row that the reason names; then answer retry.",
            "answer",
        ),
    ),
    (
        "no key",
        Way(
            "Its workflow has a key, and this event does not tell which.",
            "Correct key=, deploy, then answer retry.",
            "answer",
        ),
    ),
    (
        "not storable",
        Way(
            "The store refused what the run wants to save.",
            "Mend the value, deploy, then answer retry.",
            "answer",
        ),
    ),
)
"""Held runs by how their reason begins; the same words as in the page about operating."""

OTHER = Way(
    "It stopped for a person; its reason says why.", "Do what the reason asks, then answer retry.", "answer"
)
FAILED = Way(
    "It used up its tries, or its code raised. Saved steps are kept.",
    "Mend the reason, then retry: it goes on where it failed. Dismiss it where nothing is to be done.",
)

ERROR_WORDS_MAX = 20
ERROR_CHARS_MAX = 400
_VARYING = re.compile(r"[0-9a-f]{8,}(?:-[0-9a-f]{4,})*|\d+|'[^']*'|\"[^\"]*\"")


@dataclass
class Group:
    """Runs of one workflow that failed, or are held, alike; the newest first."""

    workflow: str
    state: str
    kind: str
    sample: str
    way: Way
    runs: list[RunSummary] = field(default_factory=list)

    @property
    def newest(self) -> Millis:
        """Give when the latest of them stopped."""
        return max(_at(run) for run in self.runs)

    @property
    def oldest(self) -> Millis:
        """Give when the first of them stopped."""
        return min(_at(run) for run in self.runs)

    @property
    def told(self) -> str:
        """Give what the newest of them says."""
        if self.state != "held":
            return words.gist(self.kind, self.sample)
        return self.sample if self.sample.startswith(self.kind) else f"{self.kind}: {self.sample}"

    @property
    def error(self) -> str:
        """Give the filter that finds them, and what else fails so: the words that all of them say."""
        texts = [" ".join(_told(run)).split() for run in self.runs]
        others = [set(words_of_one) for words_of_one in texts[1:]]
        said = [
            word
            for word in dict.fromkeys(texts[0])
            if not any(letter.isdigit() for letter in word) and all(word in other for other in others)
        ]
        return " ".join(said[:ERROR_WORDS_MAX])[:ERROR_CHARS_MAX]


def grouped(runs: Iterable[RunSummary]) -> list[Group]:
    """Give the groups of a page of open problems, the largest first."""
    groups: dict[tuple[str, str, str, str], Group] = {}
    for run in runs:
        kind, sample = _told(run)
        key = (run.workflow, run.state, kind, _VARYING.sub("…", words.gist(kind, sample))[:80])
        if key not in groups:
            groups[key] = Group(run.workflow, run.state, kind, sample, way_of(run))
        groups[key].runs.append(run)
    return sorted(groups.values(), key=lambda group: -len(group.runs))


def way_of(run: RunSummary) -> Way:
    """Give what the trouble of one run means, and the way out."""
    if run.state != "held":
        return FAILED
    reason = run.reason or ""
    return next((way for begin, way in HELD if reason.startswith(begin)), OTHER)


def _told(run: RunSummary) -> tuple[str, str]:
    if run.state == "held":
        reason = run.reason or "no reason is recorded"
        begin = next((begin for begin, _ in HELD if reason.startswith(begin)), reason.partition(":")[0])
        return begin, reason
    if run.failure is None:
        return "no failure is recorded", ""
    return run.failure.type, run.failure.message


def _at(run: RunSummary) -> Millis:
    return run.ended_at or run.started_at or run.created_at
