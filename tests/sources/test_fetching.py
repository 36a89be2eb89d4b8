"""Fetching senders' keys: over https only, bounded in size, in time, in number."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from onceward.core.errors import KeyUnavailable, SignatureInvalid
from onceward.sources.parts.fetching import (
    DOCUMENT_BYTES_MAX,
    FETCHES_MAX_A_MINUTE,
    KEPT_MAX,
    KEPT_MS,
    PAUSE_AFTER_FAILURE_MS,
    Documents,
    fetch_https,
)

NOW_MS = 1_760_000_000_000


# --- over the network -----------------------------------------------------------------------------


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/redirect":
            self.send_response(302)
            self.send_header("Location", "/key")
            self.end_headers()
            return
        body = {"/key": b"a key", "/large": b"x" * (DOCUMENT_BYTES_MAX + 1)}.get(self.path, b"")
        self.send_response(200 if body else 404)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def certificate(folder: Path) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2100, 1, 1, tzinfo=UTC))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    file = folder / "server.pem"
    file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return file


@contextmanager
def serving(folder: Path) -> Iterator[tuple[str, ssl.SSLContext]]:
    file = certificate(folder)
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"https://127.0.0.1:{server.server_port}", ssl.create_default_context(cafile=str(file))
        finally:
            server.shutdown()
            thread.join()


def test_what_stands_there_is_fetched_from_who_is_trusted_and_no_redirect_is_followed(tmp_path: Path) -> None:
    with serving(tmp_path) as (url, trusting):
        assert fetch_https(f"{url}/key", context=trusting) == b"a key"
        with pytest.raises(OSError, match="302"):
            fetch_https(f"{url}/redirect", context=trusting)
        with pytest.raises(OSError, match="404"):
            fetch_https(f"{url}/nothing", context=trusting)
        with pytest.raises(ValueError, match="bytes"):
            fetch_https(f"{url}/large", context=trusting)
        with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
            fetch_https(f"{url}/key")


@pytest.mark.parametrize("url", ["http://127.0.0.1/key", "file:///etc/hosts", "ftp://x/y", "", "HTTPS://x"])
def test_only_https_addresses_are_fetched(url: str) -> None:
    with pytest.raises(ValueError, match="https"):
        fetch_https(url)


# --- kept and bounded -----------------------------------------------------------------------------


class Port:
    """A port that answers with the number of the call, unless it is down."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.is_down = False

    def __call__(self, url: str) -> bytes:
        self.asked.append(url)
        if self.is_down:
            raise OSError("down")
        return b"%d" % len(self.asked)


def test_a_document_is_fetched_once_while_it_is_fresh() -> None:
    port = Port()
    documents = Documents(port)

    assert [documents.get("u", NOW_MS + at) for at in (0, 1, KEPT_MS - 1)] == [b"1"] * 3
    assert documents.get("u", NOW_MS + KEPT_MS) == b"2"
    assert documents.get("u", NOW_MS + KEPT_MS + 5_000, fresh_ms=5_000) == b"3"
    assert documents.get("u", NOW_MS + KEPT_MS + 5_001, fresh_ms=5_000) == b"3"


def test_a_stale_document_is_used_on_while_its_address_does_not_answer() -> None:
    port = Port()
    documents = Documents(port)
    documents.get("u", NOW_MS)
    port.is_down = True
    later_ms = NOW_MS + KEPT_MS

    assert documents.get("u", later_ms) == b"1"
    assert documents.get("u", later_ms + PAUSE_AFTER_FAILURE_MS - 1) == b"1"
    assert len(port.asked) == 2
    port.is_down = False
    assert documents.get("u", later_ms + PAUSE_AFTER_FAILURE_MS) == b"3"


@pytest.mark.parametrize("answer", ["text", None, b"x" * (DOCUMENT_BYTES_MAX + 1)])
def test_a_port_that_answers_something_else_gives_no_key(answer: object) -> None:
    documents = Documents(lambda _: answer)  # type: ignore[arg-type, return-value]

    with pytest.raises(KeyUnavailable):
        documents.get("u", NOW_MS)


def test_a_key_that_cannot_be_had_refuses_and_says_that_it_may_come() -> None:
    error = KeyUnavailable("no key")

    assert isinstance(error, SignatureInvalid)
    assert (error.http_status, error.check) == (503, "no key")


def test_strangers_can_neither_fill_the_memory_nor_make_us_fetch_without_end() -> None:
    port = Port()
    documents = Documents(port)
    for minute in range(5):
        for number in range(FETCHES_MAX_A_MINUTE):
            documents.get(f"u{minute}-{number}", NOW_MS + minute * 60_000)
        with pytest.raises(KeyUnavailable):
            documents.get("one-more", NOW_MS + minute * 60_000)

    assert len(port.asked) == 5 * FETCHES_MAX_A_MINUTE
    assert len(documents._kept) == KEPT_MAX
    port.is_down = True
    for number in range(100):
        with pytest.raises(KeyUnavailable):
            documents.get(f"down-{number}", NOW_MS + (6 + number) * 60_000)
    assert len(documents._failed_at_ms) == KEPT_MAX
