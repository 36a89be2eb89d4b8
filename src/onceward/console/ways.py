"""What went wrong with a run, what it means, and the way out: the words of every front end."""

from __future__ import annotations

from dataclasses import dataclass

from onceward.console.views import RunSummary


@dataclass(frozen=True)
class Way:
    """What a kind of problem means and what to do about it.

    Attributes:
        means: what happened.
        todo: the way out.
        verb: the verb that is the way out.
        is_bulk: whether it is one for all that are alike.
        first: what must be so before *verb* is of any use.
    """

    means: str
    todo: str
    verb: str = "retry"
    is_bulk: bool = True
    first: str = "once its reason is gone"


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
            first="if the step did not take effect",
        ),
    ),
    (
        "poison",
        Way(
            "Its process was lost several times in a row while it ran: it probably kills it, by memory or in C code.",
            "Find out by what, deploy, then answer retry. Nothing of it is lost.",
            "answer",
            first="once what kills it is found and mended code is deployed",
        ),
    ),
    (
        "code mismatch",
        Way(
            "The code asks for another kind of step than was saved, or a saved result or argument no longer fits its type.",
            "Deploy code that fits, then answer retry; or restart it.",
            "answer",
            first="once code that fits is deployed",
        ),
    ),
    (
        "damaged",
        Way(
            "Rows of it cannot be read.",
            "Restore them, or mend the row that the reason names; then answer retry.",
            "answer",
            first="once its rows are restored or mended",
        ),
    ),
    (
        "no key",
        Way(
            "Its workflow has a key, and this event does not tell which.",
            "Correct key=, deploy, then answer retry.",
            "answer",
            first="once key= is corrected and deployed",
        ),
    ),
    (
        "not storable",
        Way(
            "The store refused what the run wants to save.",
            "Mend the value, deploy, then answer retry.",
            "answer",
            first="once the value is mended and deployed",
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
    first="once the cause is mended",
)
UNDONE = Way(
    "It failed, and steps of it were undone: a retry would count them as done.",
    "It was undone: restart it, once the reason is mended. Every step runs again, with new keys. Or dismiss it.",
    "restart",
    is_bulk=False,
    first="once the cause is mended",
)


def way_of(run: RunSummary) -> Way:
    """Give what the trouble of one run means, and the way out."""
    if run.state != "held":
        return UNDONE if run.is_undone else FAILED
    reason = run.reason or ""
    return next((way for begin, way in HELD if reason.startswith(begin)), OTHER)
