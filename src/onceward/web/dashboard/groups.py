"""The dead letters of one page: what went wrong alike, with what it means and the way out of it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from onceward.console.views import RunSummary
from onceward.console.ways import HELD, Way, way_of
from onceward.core.model import Millis
from onceward.web.dashboard import words

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
    groups: dict[tuple[str, str, str, str, bool], Group] = {}
    for run in runs:
        kind, sample = _told(run)
        alike = _VARYING.sub("…", words.gist(kind, sample))[:80]
        key = (run.workflow, run.state, kind, alike, run.is_undone)
        if key not in groups:
            groups[key] = Group(run.workflow, run.state, kind, sample, way_of(run))
        groups[key].runs.append(run)
    return sorted(groups.values(), key=lambda group: -len(group.runs))


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
