"""The store as one simulated process reaches it: a gate before each call, a witness after each commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from onceward.core.model import AuditRow, Millis, Offer, ProcessRow, StepRow, WorkflowRow
from onceward.core.ports import Accept, Accepted, Batch, BatchResult, Steer, TakenOver
from onceward.stores.sqlite.store import SqliteStore

if TYPE_CHECKING:
    from onceward.testing.simulation.process import Process


class GatedStore:
    """A `Store` whose calls pass the world.

    Before a call the world may kill the process, refuse the call or lose it on its way; after a
    commit it looks at what was written, and may then lose the reply or kill the process.

    Args:
        process: whose store it is.
        inner: the real one; a planted bug may have replaced methods of it.
    """

    def __init__(self, process: Process, inner: SqliteStore) -> None:
        self._process = process
        self._world = process.world
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        """Give a read of the real store behind the gate."""
        method = getattr(self._inner, name)
        if not callable(method):
            return method

        def call(*args: Any, **kwargs: Any) -> Any:
            self._world.before(self._process, name, is_write=False)
            return method(*args, **kwargs)

        self.__dict__[name] = call
        return call

    def _write(self, name: str, subject: Any, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        world, process = self._world, self._process
        world.before(process, name, is_write=True)
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            world.refused(process, name, error)
            raise
        world.committed(process, name, subject, result)
        world.after(process, name)
        return result

    def apply(self, process_id: str, epoch: int, batch: Batch) -> BatchResult:
        """Commit a batch."""
        result: BatchResult = self._write(
            "apply", (process_id, batch), self._inner.apply, process_id, epoch, batch
        )
        return result

    def begin(self, process_id: str, epoch: int, batch: Batch) -> None:
        """Give None: every commit passes the gate as a whole."""
        return

    def steer(self, steer: Steer) -> bool:
        """Commit an operator's action."""
        result: bool = self._write("steer", steer, self._inner.steer, steer)
        return result

    def replay(self, accept: Accept, copies: Sequence[StepRow], audit: AuditRow) -> Accepted:
        """Add a run to an existing event."""
        result: Accepted = self._write("replay", accept, self._inner.replay, accept, copies, audit)
        return result

    def offer(self, offers: Sequence[Offer], now: Millis) -> None:
        """Tell runs of events."""
        self._write("offer", offers, self._inner.offer, offers, now)

    def join(self, process: ProcessRow, workflows: Sequence[WorkflowRow]) -> None:
        """Register a process."""
        self._write("join", process.process_id, self._inner.join, process, workflows)

    def leave(self, process_id: str, now: Millis) -> None:
        """Take a process off."""
        self._write("leave", process_id, self._inner.leave, process_id, now)

    def heartbeat(self, process_id: str, epoch: int, lease_until: Millis) -> None:
        """Renew a lease."""
        self._write("heartbeat", process_id, self._inner.heartbeat, process_id, epoch, lease_until)

    def take_over(self, now: Millis, *, crash_limit: int, skip: str) -> TakenOver:
        """Free the runs of dead processes."""
        result: TakenOver = self._write(
            "take_over", skip, self._inner.take_over, now, crash_limit=crash_limit, skip=skip
        )
        return result

    def give_back(self, process_id: str, run_ids: Sequence[str], now: Millis) -> None:
        """Make owned runs due again."""
        self._write("give_back", list(run_ids), self._inner.give_back, process_id, run_ids, now)
