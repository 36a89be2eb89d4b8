"""What was refused: counted by source and reason, with a few samples, written down rarely.

Strangers decide how many deliveries are refused, so nothing here grows with them: there are as many
counts as sources and reasons, a few samples of each, and one write for all of them a while after the
first. A sender is told a few words; here the operator sees which check failed, by how much the
clocks differ, and whether something on the way has written the body anew.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from onceward.core import errors
from onceward.core.messages import HttpRequest
from onceward.core.model import Millis, RefusalRow
from onceward.runtime.worker import WRITE_S_MAX
from onceward.sources.fixture import fixtures_of

if TYPE_CHECKING:
    from onceward.runtime.worker import Worker
    from onceward.sources.base import Source

FLUSH_S = 10.0
"""How long after the first refusal the counts are written."""

SAMPLES_MAX = 10
REASONS_MAX = 64
"""Reasons of one source that are told apart; a plug-in may make up a new one each time."""

OTHER_REASONS = "other reasons"
REASON_CHARS_MAX = 160
TRIED_BYTES_MAX = 64 * 1024
"""The largest body of which other writings are tried."""

_NUMBER = re.compile(r"\b\d+\b")
# What only adds numbers to a check, which the samples have.
_NUMBERS = re.compile(r" \([^()]*\d[^()]*\)")

_log = logging.getLogger("onceward.refusals")


class RefusalSample(msgspec.Struct, omit_defaults=True):
    """One refused delivery; nothing of its content.

    Attributes:
        at: when, Unix milliseconds.
        status: what the sender was answered.
        check: the check that failed, with its numbers.
        bytes: of the body; None where it was refused before it was read.
        skew_ms: how long ago the sender's clock says it was sent, where that is why.
        rewritten: how the body would have to be written for a signature to match: something on the
            way writes it anew; empty where none does, None where that was not tried.
    """

    at: Millis
    status: int
    check: str
    bytes: int | None = None
    skew_ms: Millis | None = None
    rewritten: str | None = None


class Refusal(msgspec.Struct, frozen=True):
    """The deliveries that one source refused for one reason.

    Attributes:
        source: at whose address they came; empty where there is no such source.
        reason: which check failed, numbers left out.
        count: how many.
        first_at: when first, Unix milliseconds.
        last_at: when last.
        samples: the newest ones that one process saw, oldest first.
        hint: what to look at, and a command that tries the source.
    """

    source: str
    reason: str
    count: int
    first_at: Millis
    last_at: Millis
    samples: list[RefusalSample]
    hint: str


class _Count:
    __slots__ = ("count", "first_at", "last_at", "samples", "tried")

    def __init__(self) -> None:
        self.count = 0
        self.first_at = self.last_at = 0
        self.samples: deque[RefusalSample] = deque(maxlen=SAMPLES_MAX)
        self.tried: tuple[RefusalSample, HttpRequest] | None = None


_decoder = msgspec.json.Decoder(list[RefusalSample])


class Refusals:
    """Counts refusals of one app.

    Args:
        sources: the app's, by name.
        worker: gives the worker of the open app, or raises.
    """

    def __init__(self, sources: Mapping[str, Source], worker: Callable[[], Worker]) -> None:
        self._sources = sources
        self._worker = worker
        self._counts: dict[tuple[str, str], _Count] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Task[None] | None = None

    def note(
        self,
        source: str,
        status: int,
        check: str,
        now: Millis,
        *,
        body_bytes: int | None = None,
        skew_ms: Millis | None = None,
        request: HttpRequest | None = None,
    ) -> None:
        """Count a refused delivery; called in the app's event loop.

        Args:
            source: at whose address it came; any text.
            status: what the sender is answered.
            check: which check failed.
            now: the time.
            body_bytes: how large its body was.
            skew_ms: see `RefusalSample`.
            request: of a delivery whose signature does not match, to try other writings of its
                body later; one is held for each reason, and not for long.
        """
        known = source if source in self._sources else ""
        reason = _NUMBER.sub("N", _NUMBERS.sub("", check))[:REASON_CHARS_MAX]
        key = (known, reason)
        if key not in self._counts and sum(name == known for name, _ in self._counts) >= REASONS_MAX:
            key = (known, OTHER_REASONS)
        count = self._counts.get(key)
        if count is None:
            count = self._counts[key] = _Count()
        if not count.count:
            count.first_at = now
        count.count += 1
        count.last_at = now
        sample = RefusalSample(now, status, check[:REASON_CHARS_MAX], body_bytes, skew_ms)
        count.samples.append(sample)
        if request is not None and count.tried is None and 0 < len(request.body) <= TRIED_BYTES_MAX:
            count.tried = (sample, request)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(FLUSH_S, self._flush_soon, context=contextvars.Context())

    def _flush_soon(self) -> None:
        self._timer = None
        self._flushing = asyncio.get_running_loop().create_task(self._flush_quietly())

    async def _flush_quietly(self) -> None:
        try:
            await self.flush()
        except errors.OncewardError as error:
            # The store is away or the app is closed: the counts wait for the next refusal.
            _log.info("refusals could not be written yet: %s", error.what)

    async def flush(self) -> None:
        """Write what was counted since the last time.

        Raises:
            StoreUnavailable: it stays here.
            ConfigError: the app is not open.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await self._write(self._worker())

    async def _write(self, worker: Worker) -> None:
        for (source, _), count in list(self._counts.items()):
            if count.tried is not None:
                (sample, request), count.tried = count.tried, None
                sample.rewritten = await worker.read(_rewritten, self._sources.get(source), request)
        taken = {key: (count, count.count) for key, count in self._counts.items() if count.count}
        rows = [
            RefusalRow(
                source,
                reason,
                count.count,
                count.first_at,
                count.last_at,
                msgspec.json.encode(list(count.samples)).decode(),
            )
            for (source, reason), (count, _) in sorted(taken.items())
        ]
        if not rows:
            return
        for count, _ in taken.values():
            count.count = 0
        try:
            await worker.read(worker.store.add_refusals, rows)
        except BaseException:
            for count, number in taken.values():
                count.count += number
            raise

    async def close(self, worker: Worker) -> None:
        """Write what is left while the store is still open; what cannot be written is lost."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if any(count.count for count in self._counts.values()):
            try:
                if not worker.is_heard:  # whoever asks us to stop does not wait for one more time-out
                    raise errors.StoreUnavailable("The store takes no writes.")
                async with asyncio.timeout(WRITE_S_MAX):
                    await self._write(worker)
            except (errors.OncewardError, TimeoutError) as error:
                _log.warning("refusals could not be written: %s", error or "the store kept them waiting")

    async def listed(self, source: str | None) -> list[Refusal]:
        """Give what is written, and what this process has counted since; the latest first."""
        await self.flush()
        worker = self._worker()
        rows: list[RefusalRow] = await worker.read(worker.store.refusals, source)
        found = []
        for row in rows:
            samples = _decoder.decode(row.samples)
            hint = _hint(self._sources.get(row.source), row, samples, worker.settings.address)
            found.append(Refusal(row.source, row.reason, row.count, row.first_at, row.last_at, samples, hint))
        return found


# --- what may be wrong ------------------------------------------------------------------------------


def _writings(body: bytes) -> Iterator[tuple[str, bytes]]:
    """Give other writings of the same body, with the name of each."""
    yield "without the white space around it", body.strip()
    yield "with a line end", body + b"\n"
    yield "with the line ends of Unix", body.replace(b"\r\n", b"\n")
    try:
        value: Any = json.loads(body)
    except (ValueError, RecursionError):
        return
    forms: Iterable[tuple[str, dict[str, Any]]] = (
        ("compact", {"separators": (",", ":")}),
        ("with spaces after commas and colons", {}),
        ("indented by two", {"indent": 2}),
    )
    for name, form in forms:
        for is_ascii, suffix in ((False, ""), (True, ", other characters as \\u escapes")):
            try:
                text = json.dumps(value, ensure_ascii=is_ascii, **form)
                yield f"JSON {name}{suffix}", text.encode()
            except (ValueError, RecursionError):
                continue


def _rewritten(source: Source | None, request: HttpRequest) -> str | None:
    """Name the writing of the body that the signature belongs to; empty where none is it."""
    if source is None or source.is_blocking or source.insecure:
        return None
    for name, body in _writings(request.body):
        if body == request.body:
            continue
        try:
            source.verify(msgspec.structs.replace(request, body=body), request.received_at_ms)
        except Exception:  # noqa: BLE001, S112 - a plug-in may raise anything; then it is not this one
            continue
        return name
    return ""


def _hint(source: Source | None, row: RefusalRow, samples: list[RefusalSample], address: str) -> str:
    if source is None and row.source and row.reason != "no such source":
        # Asked beside the app's code: the source was there when it refused.
        return "What to do about it is told where the code is: onceward deliveries refused --app MODULE:APP."
    if source is None:
        return "There is no source of that name: compare the sender's address with the names of app.sources."
    said = []
    rewritten = next((sample.rewritten for sample in reversed(samples) if sample.rewritten), None)
    skew_ms = next((sample.skew_ms for sample in reversed(samples) if sample.skew_ms is not None), None)
    if rewritten:
        said.append(
            f"The signature belongs to another writing of the same body ({rewritten}): something between "
            "the sender and the receiver parses it and writes it again."
        )
    elif skew_ms is not None:
        side = "behind" if skew_ms > 0 else "ahead of"
        said.append(
            f"The sender's time was {abs(skew_ms) // 1000} s {side} ours: compare this machine's clock, "
            "and look for something that holds deliveries back or repeats old ones."
        )
    elif "match" in row.reason:
        said.append("Compare the secret: each endpoint has its own, and so have test and live mode.")
    elif any(sample.status == 400 for sample in samples):
        said.append("Compare how the source reads a delivery with what the sender is set to send.")
    packaged = next(iter(fixtures_of(source.kind)), None)
    if packaged is not None:
        said.append(
            f"To try it: onceward send {source.kind} {packaged} --to {address}/hooks/{source.name} --secret …"
        )
    return " ".join(said)
