"""The payment process of the story: a small HTTP server that makes charges and keeps a ledger.

Run by path as a program of its own, with the standard library only and nothing of Onceward, so
that what it counts is counted from outside. Each request is a line of the ledger, on disk before
the reply: whether the asker lives to read the reply does not matter. It honours
``Idempotency-Key``: the same key gives the same charge; without a key every request is a charge.

It ends when its standard input closes, however its starter ended.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import zlib
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

BODY_BYTES_MAX = 64 * 1024
# A card network takes its time. The charge is made by then; only the asker does not know yet.
PAUSE_MS_MIN, PAUSE_MS_MAX = 60, 180


class KeyClash(Exception):
    """A key came again with another order or amount."""


class Ledger:
    """Every request for a charge, one JSON line each, in the order in which they came.

    Args:
        path: the file; what it holds already still counts.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._path.touch()
        self._by_key = {line["key"]: line for line in self.lines() if line["made"] and line["key"]}

    def charge(self, key: str | None, order: str, amount: int, currency: str) -> dict[str, Any]:
        """Give the charge of the key, made now if it is new or there is no key.

        Raises:
            KeyClash: the key stands for another charge.
        """
        with self._lock:
            first = self._by_key.get(key) if key else None
            if first is not None and (first["order"], first["amount"]) != (order, amount):
                raise KeyClash(f"{key} was used for order {first['order']}")
            line = {
                "at": time.time(),
                "key": key,
                "order": order,
                "amount": amount,
                "currency": currency,
                "made": first is None,
                "charge": first["charge"] if first else f"ch_{os.urandom(9).hex()}",
            }
            with self._path.open("a") as file:
                file.write(json.dumps(line) + "\n")
                file.flush()
                os.fsync(file.fileno())
            if key and first is None:
                self._by_key[key] = line
            return line

    def lines(self) -> list[dict[str, Any]]:
        """Give what the file holds."""
        return [json.loads(line) for line in self._path.read_text().splitlines()]

    def counts(self) -> Mapping[str, Any]:
        """Count from the file: requests, charges made, their sum, and how often each order was charged."""
        lines = self.lines()
        made = [line for line in lines if line["made"]]
        orders: dict[str, int] = {}
        for line in made:
            orders[line["order"]] = orders.get(line["order"], 0) + 1
        return {
            "asked": len(lines),
            "made": len(made),
            "amount": sum(line["amount"] for line in made),
            "orders": orders,
        }


class Handler(BaseHTTPRequestHandler):
    """``POST /charges`` and ``GET /counts``."""

    ledger: Ledger

    def do_POST(self) -> None:
        """Make a charge, or give the one that the key stands for."""
        length = int(self.headers.get("Content-Length") or 0)
        if self.path != "/charges" or not 0 < length <= BODY_BYTES_MAX:
            self._reply(404, {"error": "POST /charges with a body"})
            return
        asked = json.loads(self.rfile.read(length))
        order, amount, currency = asked["order"], asked["amount"], asked["currency"]
        try:
            line = self.ledger.charge(self.headers.get("Idempotency-Key"), order, amount, currency)
        except KeyClash as error:
            self._reply(409, {"error": str(error)})
            return
        span = PAUSE_MS_MAX - PAUSE_MS_MIN
        time.sleep((PAUSE_MS_MIN + zlib.crc32(order.encode()) % span) / 1000)
        self._reply(200, {"id": line["charge"], "order": order, "amount": amount, "currency": currency})

    def do_GET(self) -> None:
        """Give the counts."""
        self._reply(200, self.ledger.counts()) if self.path == "/counts" else self._reply(404, {})

    def _reply(self, status: int, content: Mapping[str, Any]) -> None:
        body = json.dumps(content).encode()
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except ConnectionError:
            pass  # the asker was killed; the charge stands all the same

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (http.server's name)
        """Say nothing; the ledger says it."""


def main(arguments: list[str]) -> None:
    """Serve on a free port of the loopback address; print it as the first line.

    Args:
        arguments: the ledger's file.
    """
    Handler.ledger = Ledger(Path(arguments[0]))
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)  # noqa: T201 (how the starter learns the port)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.buffer.read()


if __name__ == "__main__":
    main(sys.argv[1:])
