"""What a process does about others that use its SQLite file, where that could damage the file.

A transactional step then does not begin: it waits, charged nothing, and goes on when one process is
left, as after the seconds for which a redeploy has two. What must stay true: who has to end one of
them is told in the log of each, whichever came first (RULINGS 9).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from onceward.core.model import Millis
from onceward.core.within_ports import FileShared
from onceward.runtime.outage import Outage

if TYPE_CHECKING:
    from onceward.runtime.worker import Worker

_log = logging.getLogger("onceward.worker")

PAUSE_MS_MIN, PAUSE_MS_MAX = 500, 10_000
"""How long a refused step waits: as long as others have been there, within these."""

SPELL_MS = 60_000
"""Refusals that are further apart are about different processes."""


class Sharing:
    """What one worker knows of other processes that keep its transactions waiting."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._outage = Outage(
            _log,
            "transactional steps wait until no other process uses the store's file",
            "no other process uses the store's file: transactional steps go on",
        )
        self._since: Millis | None = None
        self._last: Millis = 0
        self._looked_at: Millis | None = None

    def refused(self, refusal: FileShared) -> Millis:
        """Hear that a transaction could not begin; give how long its step waits before it asks again."""
        now = self._worker.now_ms()
        if self._since is None or not 0 <= now - self._last <= SPELL_MS:
            self._since = now
        self._last = now
        self._outage.failed(refusal)
        pause_ms = min(max(now - self._since, PAUSE_MS_MIN), PAUSE_MS_MAX)
        return int(pause_ms * (0.5 + 0.5 * self._worker.ids.draw()))

    def alone(self) -> None:
        """Hear that a transaction could begin."""
        self._since = None
        self._outage.worked()

    async def look(self) -> None:
        """Look once a lease whether a transaction could begin, so that its process tells before one waits."""
        worker = self._worker
        is_bound = any(one.is_careful for one in worker.transactions.told)
        now = worker.now_ms()
        is_time = self._looked_at is None or not 0 <= now - self._looked_at < worker.settings.lease_ms
        if not is_bound or not is_time or worker.store.kind != "sqlite":
            return
        self._looked_at = now
        refusal = await worker.read(worker.transactions.words.refusal, worker.process_id)
        if refusal is None:
            self.alone()
        else:
            self._outage.failed(refusal)
