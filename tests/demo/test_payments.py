"""The payment process counts from its file, and a key gives one charge."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from onceward.cli.demo import payments
from onceward.cli.demo.payments import KeyClash, Ledger


def test_the_same_key_gives_the_same_charge_and_no_key_a_new_one(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")

    first = ledger.charge("k1", "order-1", 500, "eur")
    again = ledger.charge("k1", "order-1", 500, "eur")
    without = ledger.charge(None, "order-1", 500, "eur")

    assert again["charge"] == first["charge"] != without["charge"]
    assert ledger.counts() == {"asked": 3, "made": 2, "amount": 1000, "orders": {"order-1": 2}}


def test_a_key_cannot_stand_for_another_charge(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    ledger.charge("k1", "order-1", 500, "eur")

    with pytest.raises(KeyClash):
        ledger.charge("k1", "order-1", 501, "eur")

    assert ledger.counts()["asked"] == 1


def test_the_file_is_what_it_knows(tmp_path: Path) -> None:
    first = Ledger(tmp_path / "ledger").charge("k1", "order-1", 500, "eur")

    after = Ledger(tmp_path / "ledger")

    assert after.charge("k1", "order-1", 500, "eur")["charge"] == first["charge"]
    assert after.counts()["made"] == 1


@contextmanager
def running(ledger: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    command = [sys.executable, "-I", payments.__file__, str(ledger)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process, int(process.stdout.readline())
        process.kill()


def ask(port: int, method: str, path: str, content: Any = None, key: str | None = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        body = None if content is None else json.dumps(content)
        connection.request(method, path, body, {} if key is None else {"Idempotency-Key": key})
        reply = connection.getresponse()
        return reply.status, json.loads(reply.read())
    finally:
        connection.close()


def test_over_http_by_a_process_of_its_own_that_ends_with_its_starter(tmp_path: Path) -> None:
    order = {"order": "order-1", "amount": 500, "currency": "eur"}
    with running(tmp_path / "ledger") as (process, port):
        status, charge = ask(port, "POST", "/charges", order, "k1")
        assert (status, charge) == (200, {"id": charge["id"], **order})
        assert ask(port, "POST", "/charges", order, "k1") == (200, charge)
        assert ask(port, "POST", "/charges", order | {"amount": 1}, "k1")[0] == 409
        assert ask(port, "POST", "/nothing", order)[0] == 404
        assert ask(port, "GET", "/counts")[1]["made"] == 1
        assert process.stdin is not None
        process.stdin.close()

        assert process.wait(20) == 0
