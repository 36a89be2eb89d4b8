"""Arms failpoints of a real process from ``ONCEWARD_FAILPOINT=name[@detail]:action[:n][,…]``.

Actions: ``kill`` ends the process as SIGKILL does, ``pause`` stops it as SIGSTOP does until it is
continued, ``raise`` fails there, ``drop-reply`` loses the reply of the commit that just happened.
``n`` is which pass through the failpoint triggers it, counted from 1. With a detail only passes
with that detail count: ``step.after_body@charge:kill:3`` is the third end of a body of ``charge``.
"""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import dataclass

from onceward.core import errors
from onceward.core import failpoints as core

VARIABLE = "ONCEWARD_FAILPOINT"
ACTIONS = ("kill", "raise", "drop-reply", "pause")


class FailpointRaised(RuntimeError):
    """What the action ``raise`` raises."""


@dataclass
class _Armed:
    action: str
    nth: int
    passed: int = 0


def parse(text: str) -> dict[str, _Armed]:
    """Read the variable.

    Raises:
        ConfigError: a failpoint or an action does not exist.
    """
    armed = {}
    for part in filter(None, text.split(",")):
        place, _, rest = part.strip().partition(":")
        action, _, nth = rest.partition(":")
        if (
            place.partition("@")[0] not in core.REGISTRY
            or action not in ACTIONS
            or not (nth or "1").isdigit()
        ):
            raise errors.ConfigError(
                f"{VARIABLE}={part!r} names no failpoint and action.",
                means="Nothing would fail.",
                todo=f"Write name[@detail]:action[:n] with an action of {', '.join(ACTIONS)}; "
                "onceward.testing.failpoints() lists the names.",
            )
        armed[place] = _Armed(action, int(nth or "1"))
    return armed


def arm_from_environment() -> None:
    """Arm what the environment names; does nothing when it names nothing."""
    text = os.environ.get(VARIABLE, "")
    if not text:
        return
    armed = parse(text)
    lock = threading.Lock()

    def hook(name: str, detail: str) -> None:
        for place in (name, f"{name}@{detail}"):
            one = armed.get(place)
            if one is None:
                continue
            with lock:
                one.passed += 1
                is_due = one.passed == one.nth
            if is_due:
                act(one.action, name)

    core.arm(hook)


def act(action: str, name: str) -> None:
    """Do what a failpoint is armed with."""
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "pause":
        # To this thread: sent to the process, it lets this thread run on until another one sees it.
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
    elif action == "drop-reply":
        raise errors.ReplyLost(f"The failpoint {name} dropped a reply.")
    else:
        raise FailpointRaised(f"the failpoint {name} raised")
