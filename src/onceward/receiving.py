"""The receiving half of `App`: what was delivered, what was refused, and reading it again."""

from __future__ import annotations

import functools
import heapq
import itertools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Literal, cast, overload

import msgspec

from onceward.arrivals import Arrivals
from onceward.core import asked
from onceward.core.arrival import Accepted, Verified
from onceward.core.looks import DeliveriesFound, UnparsedFound
from onceward.core.messages import HttpRequest
from onceward.core.model import DeliveryRow, UnparsedRow
from onceward.core.ports import DeliveryFilter
from onceward.refusals import Refusal, Refusals

if TYPE_CHECKING:
    from onceward.app import App
    from onceward.core.settings import Settings
    from onceward.runtime.worker import Worker
    from onceward.sources.base import Source
    from onceward.web.receiver import Receiver
    from onceward.web.site import Site


UNPARSED = "unparsed"


class DeliveryPage(list[DeliveryRow | UnparsedRow]):
    """Deliveries, newest first.

    Attributes:
        next: what to ask for as *before* to go on; None when there are no more.
    """

    next: str | None = None


async def found_deliveries(
    worker: Worker, where: DeliveryFilter, *, look: int = asked.LOOK_MAX
) -> tuple[list[DeliveryRow | UnparsedRow], str | None]:
    """Give deliveries, newest first, and where the look for them stopped; without an outcome, unparsed ones too.

    With a source or an outcome it looks at so many deliveries at most, and at so many unparsed ones.
    """
    store, limit = worker.store, where.limit
    read: list[DeliveryRow] = []
    unparsed: list[UnparsedRow] = []
    edges: list[str | None] = []
    if where.outcome in (None, UNPARSED):
        # Where each that is looked at is meant, a page of them is enough.
        so_many = limit if where.source is None else look
        left: UnparsedFound = await worker.read(
            functools.partial(store.look_for_unparsed, limit=limit, look=so_many), where.source, where.before
        )
        unparsed = left.deliveries
        edges.append(left.edge)
    if where.outcome is None and where.source is None:
        read = await worker.read(store.all_deliveries, where.before, limit)
    elif where.outcome != UNPARSED:
        met: DeliveriesFound = await worker.read(
            functools.partial(store.look_for_deliveries, limit=limit, look=look),
            where.source,
            where.outcome,
            where.before,
        )
        read = met.deliveries
        edges.append(met.edge)
    # The one that stopped first is the edge: what lies behind it comes with the next page, in its place.
    # One that stopped before the oldest that is meant has seen enough.
    edge = max((edge for edge in edges if edge is not None and edge > where.since), default=None)
    oldest = where.since if edge is None else edge
    both: list[Iterable[DeliveryRow | UnparsedRow]] = [read, unparsed]
    merged = heapq.merge(*both, key=lambda row: row.delivery_id, reverse=True)
    near = itertools.takewhile(lambda row: row.delivery_id >= oldest, merged)
    page = [*itertools.islice(near, limit)]
    if len(page) == limit and isinstance(page[-1], DeliveryRow):
        page = await _with_every_part(worker, page, where)
    return page, edge


async def _with_every_part(
    worker: Worker, page: list[DeliveryRow | UnparsedRow], where: DeliveryFilter
) -> list[DeliveryRow | UnparsedRow]:
    """Give a full page with all that is meant of its last delivery: pages go on by ids, which its parts share."""
    last = page[-1].delivery_id
    parts: list[DeliveryRow] = await worker.read(worker.store.delivery, last)
    if not parts:
        return page  # it was pruned meanwhile
    return [row for row in page if row.delivery_id != last] + [
        msgspec.structs.replace(part, body=None)
        for part in parts
        if where.source in (None, part.source) and where.outcome in (None, part.outcome)
    ]


class Receiving:
    """The verbs about deliveries; every one asks the store of the open app."""

    settings: Settings

    @property
    def worker(self) -> Worker:
        """Give the worker of the open app, or raise."""
        raise NotImplementedError

    @property
    def sources(self) -> Mapping[str, Source]:
        """Give the registered sources by name."""
        raise NotImplementedError

    def _prepare_receiving(self) -> None:
        self.arrivals = Arrivals(self.sources, lambda: self.worker, lambda: self.settings)
        self.refused = Refusals(self.sources, lambda: self.worker)
        self._receiver: Receiver | None = None

    @overload
    def asgi(self, *, api: Literal[False] = ..., dashboard: Literal[False] = ...) -> Receiver: ...
    @overload
    def asgi(self, *, api: bool = ..., dashboard: bool = ...) -> Receiver | Site: ...
    def asgi(self, *, api: bool = False, dashboard: bool = False) -> Receiver | Site:
        """Give the receiver as an ASGI application; its lifespan opens and closes the app.

        Mounted inside another application whose lifespan does not reach it, use `lifespan` there.

        Args:
            api: with the REST API below ``/api/v1``, for who shows a token.
            dashboard: with the dashboard, for who logs in.

        Raises:
            ConfigError: ``trusted_proxies`` or ``allowed_hosts`` cannot be read.
        """
        if api or dashboard:
            from onceward.web.site import site_for

            return site_for(cast("App", self), api=api, dashboard=dashboard)
        from onceward.web.intake import receiver_for

        if self._receiver is None:
            self._receiver = receiver_for(cast("App", self))
        return self._receiver

    async def deliveries(
        self,
        *,
        state: Literal["accepted", "duplicate", "clash", "unparsed"] | None = None,
        source: str | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> DeliveryPage:
        """List deliveries, newest first, without their bodies.

        With *state* or *source* it looks at the 10,000 newest that are older than *before*, and at as
        many that could not be read, so a page may be short, or empty, while its ``next`` says where to
        go on.

        Args:
            state: only those that brought an event (``"accepted"``), brought it again
                (``"duplicate"``), brought other content under its id (``"clash"``), or could not be
                read by their source (``"unparsed"``); by default all of them.
            source: only of this source.
            before: only older than this delivery id, or what a page has as ``next``.
            limit: at most this many, up to 1,000, and then the other events of the last delivery.

        Raises:
            ConfigError: there is no such state, or *limit* is out of range.
        """
        outcome = None if state is None else asked.checked_delivery_state(state)
        where = DeliveryFilter(
            source=source, outcome=outcome, before=before, limit=asked.checked_limit(limit)
        )
        rows, edge = await found_deliveries(self.worker, where)
        found = DeliveryPage(rows)
        found.next = found[-1].delivery_id if len(found) >= limit else edge
        return found

    async def request(self, delivery_id: str) -> HttpRequest:
        """Give the stored request of a delivery: its body byte for byte, and the headers that are kept.

        Args:
            delivery_id: as in `deliveries`.

        Raises:
            NotFound: there is no such delivery, or its body is not kept any more.
        """
        _, request = await self.arrivals.request(delivery_id)
        return request

    async def verify_again(self, delivery_id: str) -> Verified:
        """Verify a stored request with today's source and secrets, as at the time when it came.

        Args:
            delivery_id: as in `deliveries`.

        Raises:
            SignatureInvalid: it does not verify.
            NotFound: there is no such delivery, or its body is not kept any more.
            ConfigError: the app has no such source.
        """
        return await self.arrivals.verify(delivery_id)

    async def redeliver(self, delivery_id: str) -> Accepted:
        """Read a stored request again with today's source, and accept the events that it gives.

        It is how a delivery that was kept as unparsed becomes events once its source is corrected.
        Events that are stored already stay as they are; their runs are given.

        Args:
            delivery_id: as in `deliveries`.

        Returns:
            As the sender would be told: each event with its runs, and whether it is a duplicate.

        Raises:
            BodyMalformed: the source cannot read it; it is kept as it was.
            NotFound: there is no such delivery, or its body is not kept any more.
            ConfigError: the app has no such source.
            StoreUnavailable: nothing is known to be stored.
        """
        return await self.arrivals.redeliver(delivery_id)

    async def refusals(self, source: str | None = None) -> list[Refusal]:
        """Give what was refused: counts by source and reason, with samples and a hint; the latest first.

        Args:
            source: only at the address of this source; ``""`` where there was none.
        """
        return await self.refused.listed(source)
