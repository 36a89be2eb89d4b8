"""Stopping: the first signal asks for it, the second ends the process at once.

A process may always be ended at once; what it leaves is taken over. Draining only spares others
the wait for that, and steps a second try.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

_SECOND = b"onceward: stopped at once by a second signal; what was under way is taken over.\n"


@contextlib.contextmanager
def stop_signals(stop: Callable[[], object]) -> Iterator[None]:
    """Call *stop* at the first SIGTERM or SIGINT, and end the process at the second.

    Args:
        stop: runs in the main thread between two instructions, so it must only set a flag or
            wake an event loop.
    """
    is_asked = False

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal is_asked
        if is_asked:
            # Not through logging: its lock may be held by what this signal interrupted.
            os.write(2, _SECOND)
            os._exit(128 + number)
        is_asked = True
        stop()

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def stop_with_parent(descriptor: int) -> None:
    """Send this process SIGTERM when the other end of the pipe *descriptor* is closed.

    Whoever started us holds that end, so it closes however he dies.
    """

    def wait() -> None:
        with contextlib.suppress(OSError):
            while os.read(descriptor, 1):
                pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="onceward-parent", daemon=True).start()
