"""How often somebody may fail: counts in a window of time, for a bounded number of keys."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

KEYS_MAX = 10_000
"""The keys that are remembered; beyond it the one that failed longest ago is forgotten."""


class Failures:
    """Counts failures of each key.

    Args:
        count_max: failures in a window, after which the key is refused until the window is over.
        window_s: its length in seconds, from the first failure on.
        monotonic: gives seconds that only grow.
        keys_max: how many keys are remembered.
    """

    def __init__(
        self, count_max: int, window_s: float, monotonic: Callable[[], float], *, keys_max: int = KEYS_MAX
    ) -> None:
        self._count_max = count_max
        self._window_s = window_s
        self._monotonic = monotonic
        self._keys_max = keys_max
        self._found: OrderedDict[str, tuple[float, int]] = OrderedDict()  # since when, how many

    def wait_of(self, key: str) -> float:
        """Give the seconds for which a key is refused; 0 where it is not."""
        since, count = self._found.get(key, (0.0, 0))
        left = since + self._window_s - self._monotonic()
        return left if count >= self._count_max and left > 0 else 0.0

    def note(self, key: str) -> None:
        """Count one failure."""
        now = self._monotonic()
        since, count = self._found.pop(key, (now, 0))
        if since + self._window_s <= now:
            since, count = now, 0
        self._found[key] = (since, count + 1)
        if len(self._found) > self._keys_max:
            self._found.popitem(last=False)

    def forget(self, key: str) -> None:
        """Let a key begin anew."""
        self._found.pop(key, None)

    def __len__(self) -> int:
        """Give how many keys are remembered."""
        return len(self._found)
