"""How much is under way at once: deliveries and bytes, and no source more than half of either.

Without the half, one sender that floods would get every other sender refused with it.
"""

from __future__ import annotations


class Admission:
    """Counts what is under way, in one event loop.

    Args:
        deliveries_max: deliveries that are being verified and stored at once.
        bytes_max: bytes of bodies that are being read, verified and stored at once.
    """

    def __init__(self, deliveries_max: int, bytes_max: int) -> None:
        self._deliveries_max = deliveries_max
        self._bytes_max = bytes_max
        self.deliveries = 0
        self.bytes = 0
        self._deliveries_of: dict[str, int] = {}
        self._bytes_of: dict[str, int] = {}

    def enter(self, source: str) -> bool:
        """Count a delivery of *source* as under way; False, and nothing counted, when there are too many."""
        own = self._deliveries_of.get(source, 0)
        if self.deliveries >= self._deliveries_max or own * 2 >= self._deliveries_max:
            return False
        self.deliveries += 1
        self._deliveries_of[source] = own + 1
        return True

    def leave(self, source: str) -> None:
        """Take a delivery that entered off again."""
        self.deliveries -= 1
        _take(self._deliveries_of, source, 1)

    def hold(self, source: str, size: int) -> bool:
        """Count bytes that are held for *source*, and say whether that is still within bounds."""
        self.bytes += size
        own = self._bytes_of[source] = self._bytes_of.get(source, 0) + size
        return self.bytes <= self._bytes_max and own * 2 <= self._bytes_max

    def release(self, source: str, size: int) -> None:
        """Take bytes off again."""
        if size:
            self.bytes -= size
            _take(self._bytes_of, source, size)


def _take(counts: dict[str, int], source: str, number: int) -> None:
    left = counts[source] - number
    if left:
        counts[source] = left
    else:
        del counts[source]
