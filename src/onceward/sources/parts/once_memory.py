"""A bounded memory of signatures that do not cover what they came with.

Some senders sign a token and a time but not the event. Whoever captured one such signature could
send any event under it, so what came first under a signature is remembered: the same again is a
retry, something else is a forgery.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

KEPT_MAX = 10_000


class OnceMemory:
    """What came first under each signature; safe to use from several threads.

    Args:
        kept_max: how many signatures are kept; the one not seen for longest goes first.
    """

    def __init__(self, kept_max: int = KEPT_MAX) -> None:
        self._kept_max = kept_max
        self._lock = threading.Lock()
        self._content: OrderedDict[bytes, str] = OrderedDict()

    def is_first_or_same(self, signature: bytes, content: str) -> bool:
        """Say whether nothing else came under that signature before, and remember it.

        Args:
            signature: genuine, so that strangers cannot fill the memory.
            content: a hash of what came with it.
        """
        with self._lock:
            first = self._content.setdefault(signature, content)
            self._content.move_to_end(signature)
            while len(self._content) > self._kept_max:
                self._content.popitem(last=False)
            return first == content
