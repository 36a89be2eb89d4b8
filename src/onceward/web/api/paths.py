"""The parts of an address, each decoded for itself: an id may hold any character, a slash too."""

from __future__ import annotations

from urllib.parse import unquote

from onceward.web.port import Scope
from onceward.web.receiver import path_below_mount

PREFIX = "/api/v1"
OWN_SOURCES = ("emit", "start", "run", "schedule")
"""First words of sources of ours, whose names hold one slash."""


def parts_of(scope: Scope) -> list[str]:
    """Give the parts of the path below the API's prefix, as they were between the slashes sent."""
    below = path_below_mount(scope)
    raw: bytes = scope.get("raw_path") or b""
    sent = raw.partition(b"?")[0].decode("latin-1")
    # The prefix of a mount may or may not be in it: the longest rest that means the same path is ours.
    place = 0
    while place >= 0:
        if unquote(sent[place:]) == below:
            return [unquote(part) for part in sent[place:].split("/")[3:]]
        place = sent.find("/", place + 1)
    return below.split("/")[3:]


def event_of(parts: list[str]) -> tuple[str, str] | None:
    """Give source and id of an event; None where there are not both.

    Two parts are what they are. Of more, somebody on the way has decoded slashes, and which of them
    was between the two is told by the sources' names.
    """
    if len(parts) > 2 and parts[0] in OWN_SOURCES:
        parts = [f"{parts[0]}/{parts[1]}", *parts[2:]]
    if len(parts) < 2 or not parts[0]:
        return None
    return parts[0], "/".join(parts[1:])
