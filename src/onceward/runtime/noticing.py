"""Sends notices: takes those that are due, posts them, and says what became of each.

Any process of the namespace that has an address with its secrets sends what is owed to it. Whoever
takes a notice and dies leaves it to the others after a while, so a receiver may get a notice twice, with
the same ``webhook-id``. Without an address nothing is asked of the store.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import msgspec

from onceward.core import errors, failpoints
from onceward.core.model import Millis
from onceward.core.notices import (
    ADDRESSES_MAX,
    GONE,
    HORIZON_MS,
    RETRY,
    SEEN_EVERY_MS,
    NoticeAddress,
    NoticeAddressRow,
    NoticeRow,
    key_of,
    message,
    put_off,
)
from onceward.version import __version__

if TYPE_CHECKING:
    from onceward.runtime.worker import Worker

_log = logging.getLogger("onceward.notices")

TAKEN_MAX = 20
"""Notices taken at once: few enough to be sent while they are left to this process."""

ROUND_SECONDS_MAX = 30.0
"""After this no further one of those that were taken is begun; well within `TAKEN_MS`."""

DASHBOARD_RUNS = "/runs"

Post = Callable[[str, bytes, dict[str, str]], int]
"""Posts a body with headers to an address and gives the status; raises `OSError` where there is none."""


def signed_headers(notice_id: str, body: bytes, secrets: Sequence[str], now: Millis) -> dict[str, str]:
    """Give the headers of a notice, with a signature for each secret.

    Source: the Standard Webhooks specification, "Signature scheme".
    """
    seconds = str(now // 1000)
    signed = f"{notice_id}.{seconds}.".encode() + body
    digests = [hmac.digest(key_of(secret), signed, "sha256") for secret in secrets]
    return {
        "content-type": "application/json",
        "user-agent": f"onceward/{__version__}",
        "webhook-id": notice_id,
        "webhook-timestamp": seconds,
        "webhook-signature": " ".join(f"v1,{base64.b64encode(digest).decode()}" for digest in digests),
    }


class Noticing:
    """The notices that one worker sends.

    Attributes:
        post: the port, which tests may put their own in; None means `onceward.runtime.posting.post`.
        retry: how long it waits after a failure; tests have less time.
        address_ids: of the addresses that this process has.
    """

    def __init__(self, worker: Worker) -> None:
        settings = worker.settings
        self.post: Post | None = None
        self.retry = RETRY
        self._threads: ThreadPoolExecutor | None = None  # apart: a slow receiver must not hold up reads
        self._worker = worker
        self._addresses = {address.address_id: address for address in settings.notices or ()}
        self.address_ids = tuple(sorted(self._addresses))
        self._runs_url = (
            f"{settings.public_url.rstrip('/')}{DASHBOARD_RUNS}"
            if settings.public_url is not None and settings.dashboard
            else None
        )
        self._seen_at: Millis = 0
        self._is_sending = False

    async def start(self) -> None:
        """Tell the store which addresses there are, so that notices for them are written."""
        if self._addresses:
            await self._say_seen(is_start=True)

    def close(self) -> None:
        """End the threads."""
        if self._threads is not None:
            self._threads.shutdown(wait=False)

    async def look(self, due_at: Millis | None) -> None:
        """Hear in a look when the next notice is due; send in a task of its own, which a look does not wait for."""
        worker = self._worker
        if not self._addresses or worker.is_draining:
            return
        now = worker.now_ms()
        if now - self._seen_at >= SEEN_EVERY_MS:
            await self._say_seen(is_start=False)
        if due_at is not None and due_at <= now and not self._is_sending:
            self._is_sending = True
            worker.spawn(self._send_due())

    async def _say_seen(self, *, is_start: bool) -> None:
        worker = self._worker
        now = worker.now_ms()
        rows = [
            NoticeAddressRow(
                address_id=address_id, shown=address.shown, kinds=" ".join(address.kinds), seen_at=now
            )
            for address_id, address in self._addresses.items()
        ]
        store = worker.store
        await worker.read(lambda: store.know_addresses(rows, is_start=is_start))
        self._seen_at = now
        # Those of an address that no process has any more: nobody else would.
        old = await worker.read(
            store.give_up_old_notices, now - 2 * HORIZON_MS, now, "nobody has its address"
        )
        if old:
            _log.error("gave %d notices up whose address no process has", old)

    async def _send_due(self) -> None:
        """Send what is due until there is no more, or an address cannot be reached."""
        worker = self._worker
        try:
            while not worker.is_draining:
                taken: list[NoticeRow] = await worker.read(
                    worker.store.take_notices, self.address_ids, worker.now_ms(), TAKEN_MAX
                )
                of: dict[str, list[NoticeRow]] = {}
                for row in taken:
                    of.setdefault(row.address_id, []).append(row)
                results = await asyncio.gather(*map(self._send_to, of, of.values()))
                if len(taken) < TAKEN_MAX or not all(results):
                    return
        except (errors.StoreUnavailable, errors.ReplyLost) as error:
            # What was taken is due again after a while, and told twice at worst.
            _log.warning("notices wait, the store is away: %s", error)
        finally:
            self._is_sending = False

    async def _send_to(self, address_id: str, rows: list[NoticeRow]) -> bool:
        """Send to one address, one after the other; after a failure the rest is put off with it.

        Returns:
            Whether all of them were told.
        """
        worker, address = self._worker, self._addresses[address_id]
        until = worker.elapsed_s() + ROUND_SECONDS_MAX
        for number, row in enumerate(rows):
            if worker.is_draining or worker.elapsed_s() > until:
                await self._put_off(rows[number:], "not sent yet", is_tried=False)
                return False
            failpoints.hit("notice.before_send", row.notice_id)
            trouble = await self._send(address, row)
            failpoints.hit("notice.after_send", row.notice_id)
            if trouble is None:
                await worker.read(worker.store.notice_told, row, worker.now_ms())
                worker.counters.notices.add("told")
                continue
            if trouble == f"HTTP {GONE}":
                await self._turn_off(address, trouble)
                return False
            await self._put_off(rows[number:], trouble, is_tried=True)
            return False
        return True

    async def _send(self, address: NoticeAddress, row: NoticeRow) -> str | None:
        """Give None when the receiver has it, else why not."""
        worker = self._worker
        body = message(row, worker.settings.namespace, worker.redaction, self._runs_url)
        headers = signed_headers(row.notice_id, body, address.secrets, worker.now_ms())
        if self.post is None:
            from onceward.runtime.posting import post

            self.post = post
        if self._threads is None:
            self._threads = ThreadPoolExecutor(ADDRESSES_MAX, "onceward-notice")
        try:
            status = await worker.loop.run_in_executor(self._threads, self.post, address.url, body, headers)
        except (OSError, ValueError) as error:  # a host's name that cannot be encoded is a ValueError
            return f"no reply: {getattr(error, 'strerror', None) or str(error) or type(error).__name__}"
        return None if 200 <= status < 300 else f"HTTP {status}"

    async def _turn_off(self, address: NoticeAddress, trouble: str) -> None:
        worker = self._worker
        count = await worker.read(worker.store.turn_off_address, address.address_id, worker.now_ms(), trouble)
        for _ in range(count):
            worker.counters.notices.add("given_up")
        _log.error(
            "%s wants no more notices (HTTP 410); it gets none until a process starts with it again, "
            "and %d that it was owed are given up",
            address.shown,
            count,
        )

    async def _put_off(self, rows: Sequence[NoticeRow], trouble: str, *, is_tried: bool) -> None:
        worker, now = self._worker, self._worker.now_ms()
        later = [(row, put_off(row, now, trouble, worker.ids.draw(), self.retry)) for row in rows]
        if is_tried:
            worker.counters.notices.add("failed")
            _log.warning(
                "a notice of run %s was not told to %s: %s; tries: %d",
                rows[0].run_id,
                self._addresses[rows[0].address_id].shown,
                trouble,
                rows[0].tries,
                extra={"run_id": rows[0].run_id},
            )
        kept = [row for _, row in later if row is not None]
        if kept:
            await worker.read(worker.store.put_off_notices, kept)
        lost = [row for row, after in later if after is None]
        if lost:
            await worker.read(worker.store.give_up_notices, _with(lost, trouble), now)
        for row in lost:
            worker.counters.notices.add("given_up")
            _log.error(
                "the notice that run %s %s is given up after %d tries: %s",
                row.run_id,
                "failed" if row.type.endswith("failed") else "is held",
                row.tries,
                trouble,
                extra={"run_id": row.run_id},
            )


def _with(rows: Sequence[NoticeRow], trouble: str) -> list[NoticeRow]:
    return [msgspec.structs.replace(row, trouble=trouble) for row in rows]
