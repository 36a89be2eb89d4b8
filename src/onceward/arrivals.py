"""From a verified delivery to rows, and back from rows to the request.

One place for deliveries that come in and for those that a person has read again, so that both are
accepted alike: the events of a delivery with their runs and the delivery itself, in one transaction.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from onceward.core import arrival, errors, ids, json_plain
from onceward.core.arrival import AcceptedEvent, Incoming, Verified
from onceward.core.kept import kept, kept_of, request_of
from onceward.core.messages import HttpRequest, without_encoding
from onceward.core.model import DeliveryRow, EventRow, UnparsedRow
from onceward.runtime.tracing import traceparent

if TYPE_CHECKING:
    from onceward.core.settings import Settings
    from onceward.runtime.worker import Worker
    from onceward.sources.base import Source

_raw = msgspec.json.Decoder(msgspec.Raw).decode


class Arrivals:
    """Stores deliveries of one app.

    Args:
        sources: the app's, by name.
        worker: gives the worker of the open app, or raises.
        settings: gives the app's settings.
    """

    def __init__(
        self,
        sources: Mapping[str, Source],
        worker: Callable[[], Worker],
        settings: Callable[[], Settings],
    ) -> None:
        self._sources = sources
        self._worker = worker
        self._settings = settings

    # --- storing -------------------------------------------------------------------------------

    async def accept(
        self,
        source: str,
        request: HttpRequest,
        incoming: Sequence[Incoming],
        verified: Verified,
        *,
        again: DeliveryRow | UnparsedRow | None = None,
        worker: Worker | None = None,
    ) -> arrival.Accepted:
        """Store every event of a delivery with its runs, and the delivery, in one transaction.

        Args:
            source: the source's name.
            request: as it was verified.
            incoming: its events; with none there is nothing to store.
            verified: what the source made of the signature.
            again: what is stored of it, where it is read again.
            worker: of the open app, where the caller has asked for it.

        Raises:
            NotStorable: a payload is more than JSON's own types, or claims to be a body it is not.
            StoreUnavailable: nothing is known to be stored.
        """
        if not incoming:
            return arrival.Accepted([])
        worker = worker or self._worker()
        now = worker.now_ms()
        hashed = ids.content_hash(request.body)
        redelivery_of = ""
        if again is None:
            delivery_id = worker.ids.delivery_id()
        elif isinstance(again, UnparsedRow):
            delivery_id = again.delivery_id
        else:
            delivery_id, redelivery_of = worker.ids.delivery_id(), again.delivery_id
        first = DeliveryRow(
            delivery_id=delivery_id,
            source=source,
            event_id=incoming[0].id,
            # The time that the source saw, to the millisecond: an id may be made of it.
            received_at=now if redelivery_of else request.received_at_ms or now,
            content_hash=hashed,
            secret_index=verified.secret_index,
            request=self._kept(source, request, redelivery_of),
            body=None if incoming[0].payload_is_body else request.body,
            sent_at=verified.sent_at_ms,
        )
        trace = traceparent(worker.tracer)
        rows = [self._event(source, one, request, hashed, now, trace) for one in incoming]
        accepts = []
        for part, row in enumerate(rows):
            delivery = first if part == 0 else _part(first, row.id, part)
            accepts.append(worker.routing.accept(row, [delivery], version=incoming[part].version))
        found = await worker.accept_all(accepts)
        if incoming[0].payload_is_body and (
            found[0].is_clash or (found[0].is_duplicate and incoming[0].id_is_derived)
        ):
            await worker.read(worker.store.keep_body, first.delivery_id, request.body)
        events = []
        for part, accepted in enumerate(found):
            run_ids = list(accepted.answers().values())
            events.append(AcceptedEvent(rows[part].id, accepted.is_duplicate, run_ids))
        return arrival.Accepted(events)

    def _event(
        self, source: str, one: Incoming, request: HttpRequest, hashed: str, now: int, trace: str | None
    ) -> EventRow:
        if one.payload_is_body:
            payload, content_hash = _text_of(request.body), hashed
        else:
            payload = json_plain.encode_plain(
                one.payload, what="the payload", limit_bytes=self._settings().body_bytes_max
            )
            content_hash = ids.content_hash(payload)
        return EventRow(
            source=source,
            id=one.id,
            type=one.type,
            payload=payload,
            received_at=now,
            subject=one.subject,
            occurred_at=one.occurred_at_ms,
            # An id that is derived leaves out what differs between attempts: no clash to see there.
            content_hash=None if one.id_is_derived else content_hash,
            id_is_signed=one.id_is_signed,
            trace=trace,
        )

    def _kept(
        self, name: str, request: HttpRequest, redelivery_of: str = "", *, is_unread: bool = False
    ) -> str:
        source = self._sources.get(name)
        return kept(
            request,
            declared=() if source is None else source.kept_headers,
            secrets=() if source is None else [secret.key for secret in source.secrets],
            redelivery_of=redelivery_of,
            is_unread=is_unread,
        )

    async def keep_unparsed(
        self, source: str, request: HttpRequest, verified: Verified, error: str, told_by: Sequence[str] = ()
    ) -> None:
        """Keep a delivery that is genuine and could not be read; its redelivery is the same one.

        Args:
            source: the source's name.
            request: as it was verified.
            verified: what the source made of the signature.
            error: why it could not be read, without what it holds; see `reason_of`.
            told_by: headers that ``normalize`` looked at: they may name the event, so that
                deliveries that differ in them are different ones.

        Raises:
            StoreUnavailable: nothing is known to be stored.
        """
        worker = self._worker()
        now = worker.now_ms()
        identity = request.body
        for name in sorted(told_by):
            for value in request.header_values(name):
                identity += b"\0" + name.encode("latin-1") + b"\0" + value
        row = UnparsedRow(
            source=source,
            content_hash=ids.content_hash(identity),
            delivery_id=worker.ids.delivery_id(),
            received_at=request.received_at_ms or now,
            last_at=now,
            copies=1,
            error=error,
            request=self._kept(source, request, is_unread=True),
            body=request.body,
            secret_index=verified.secret_index,
            sent_at=verified.sent_at_ms,
        )
        await worker.read(worker.store.keep_unparsed, row)

    # --- reading again ---------------------------------------------------------------------------

    async def request(self, delivery_id: str) -> tuple[DeliveryRow | UnparsedRow, HttpRequest]:
        """Give what is stored of a delivery, and its request as it was verified.

        Raises:
            NotFound: there is no such delivery, or its body is not kept any more.
        """
        worker = self._worker()
        parts: list[DeliveryRow] = await worker.read(worker.store.delivery, delivery_id)
        if not parts:
            row: UnparsedRow | None = await worker.read(worker.store.unparsed_delivery, delivery_id)
            if row is None:
                raise errors.NotFound(f"There is no delivery {delivery_id!r} in this namespace.")
            return row, request_of(row.request, row.body or b"", row.received_at)
        first, body = parts[0], parts[0].body
        if body is None:
            event: EventRow | None = await worker.read(worker.store.event, first.source, first.event_id)
            if event is not None and event.payload is not None:
                body = event.payload.encode()
        if body is None or first.request is None or ids.content_hash(body) != first.content_hash:
            raise errors.NotFound(f"The request of delivery {delivery_id!r} is not kept.")
        return first, request_of(first.request, body, first.received_at)

    async def verify(self, delivery_id: str) -> Verified:
        """Verify a stored request again, as at the time when it came.

        Raises:
            SignatureInvalid: it does not verify with today's source and secrets.
            NotFound: see `request`.
            ConfigError: the app has no such source.
        """
        row, request = await self.request(delivery_id)
        return self.source(row.source).verify(request, row.received_at)

    async def redeliver(self, delivery_id: str) -> arrival.Accepted:
        """Read a stored request again with today's source, and accept what it gives.

        Events that are stored already stay and are told as duplicates.

        Raises:
            BodyMalformed: the source still cannot read it; the message says why.
            NotFound: see `request`.
            ConfigError: the app has no such source.
            StoreUnavailable: nothing is known to be stored.
        """
        row, request = await self.request(delivery_id)
        source = self.source(row.source)
        try:
            incoming = source.normalize(decoded(source, request, self._settings().body_bytes_max))
            fault = arrival.fault_of(incoming)
            if fault is not None:
                raise errors.NotStorable(fault)
            if source.encoded_bodies == "as-sent" and request.header("content-encoding") is not None:
                incoming = [msgspec.structs.replace(one, payload_is_body=False) for one in incoming]
            verified = Verified(row.secret_index, row.sent_at)
            accepted = await self.accept(row.source, request, incoming, verified, again=row)
        except errors.StoreError:
            raise
        except Exception as error:
            raise errors.BodyMalformed(
                f"Delivery {delivery_id} cannot be read: {reason_of(error)}.",
                means="It is kept as it was.",
                todo=f"Correct normalize of source {row.source!r}, then redeliver it.",
            ) from error
        if isinstance(row, UnparsedRow):
            worker = self._worker()
            await worker.read(worker.store.forget_unparsed, row)
        return accepted

    def source(self, name: str) -> Source:
        """Give a source of the app by name.

        Raises:
            ConfigError: it has none of that name.
        """
        source = self._sources.get(name)
        if source is None:
            raise errors.ConfigError(
                f"This app has no source {name!r}.",
                means="What it sent can only be read by it.",
                todo="Register the source, as the app did that received the delivery.",
            )
        return source


def decoded(source: Source, request: HttpRequest, bytes_max: int) -> HttpRequest:
    """Give a stored request as ``normalize`` reads it; see `Source.encoded_bodies`."""
    encoding = request.header("content-encoding")
    if encoding is None or source.encoded_bodies != "as-sent":
        return request
    from onceward.core.inflate import inflated

    body = inflated(encoding, request.body, bytes_max)
    return msgspec.structs.replace(request, body=body, headers=without_encoding(request.headers))


def reason_of(error: BaseException) -> str:
    """Say why a delivery cannot be read: in our words, else a type and a place; never its content."""
    if isinstance(error, errors.OncewardError):
        return error.what
    frames = traceback.extract_tb(error.__traceback__)
    place = f" in {frames[-1].filename}, line {frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{place}"


def redelivery_of(row: DeliveryRow) -> str:
    """Give the delivery of which this one is the second reading; empty where it came from outside."""
    return "" if row.request is None else kept_of(row.request).redelivery_of


def _part(first: DeliveryRow, event_id: str, part: int) -> DeliveryRow:
    return msgspec.structs.replace(first, event_id=event_id, part=part, request=None, body=None)


def _text_of(body: bytes) -> str:
    """Give a body as the text of a payload; checked, since a lenient parser may have read it."""
    try:
        _raw(body)
        return body.decode()
    except (ValueError, RecursionError) as error:
        raise errors.NotStorable(
            f"The body of {len(body)} bytes is said to be the payload and is not JSON.",
            means="It could not be read back.",
            todo="Leave payload_is_body out in normalize.",
        ) from error
