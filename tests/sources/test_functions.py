"""A source made of two functions."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from typing import Any

import pytest

from onceward.core.arrival import UNVERIFIED, Incoming, Verified
from onceward.core.errors import ConfigError, SignatureInvalid
from onceward.core.messages import HttpRequest, HttpResponse
from onceward.sources import from_functions
from onceward.sources.base import identifier, parse_object
from onceward.sources.parts.secret import Secret
from onceward.testing.source_suite import CHECKS, Check, Example, SourceCase
from tests.sources.cases import OTHER, SECRET, hex_mac


def verify(request: HttpRequest, secrets: Sequence[Secret], now_ms: int) -> Verified:
    for position, secret in enumerate(secrets):
        expected = hmac.digest(secret.key, request.body, "sha256").hex().encode()
        if [hmac.compare_digest(one, expected) for one in request.header_values("x-sign")] == [True]:
            return Verified(position)
    raise SignatureInvalid("not signed")


def normalize(request: HttpRequest) -> list[Incoming]:
    body = parse_object(request.body)
    return [Incoming(id=identifier(body.get("id"), "the id"), type="acme.event", payload=body)]


def make(secrets: Sequence[str]) -> Any:
    return from_functions("acme", verify=verify, normalize=normalize, secrets=secrets)


CASE = SourceCase(
    make,
    SECRET,
    OTHER,
    tuple(
        Example(HttpRequest.of(body, {"X-Sign": hex_mac(body)}), 0)
        for body in (b'{"id": "a"}', b'{"id": "b"}')
    ),
)


@pytest.mark.parametrize("check", CHECKS, ids=str)
def test_two_functions_are_a_source(check: Check) -> None:
    check(CASE)


@pytest.mark.parametrize("given", [None, True, False, 0, "ok"])
def test_a_verify_that_gives_anything_else_refuses(given: Any) -> None:
    acme = from_functions("acme", verify=lambda *_: given, normalize=normalize, secrets=SECRET)

    with pytest.raises(SignatureInvalid, match="not Verified"):
        acme.verify(HttpRequest.of(b"{}"), 0)


@pytest.mark.parametrize(
    "check",
    [one for one in CHECKS if str(one).endswith(("genuine_deliveries_are_taken", "rotation_is_taken"))],
    ids=str,
)
def test_the_suite_says_why_a_genuine_delivery_is_refused(check: Check) -> None:
    def make_loose(secrets: Sequence[str]) -> Any:
        loose: Any = lambda *_: True  # noqa: E731 (what a newcomer writes)
        return from_functions("acme", verify=loose, normalize=normalize, secrets=secrets)

    with pytest.raises(AssertionError, match=r"refused.*: verify gave a bool, not Verified"):
        check(SourceCase(make_loose, SECRET, OTHER, CASE.examples))


def test_what_the_functions_raise_goes_through() -> None:
    def broken(*_: Any) -> Any:
        raise KeyError("id")

    acme = from_functions("acme", verify=broken, normalize=broken, secrets=SECRET)

    for call in (lambda: acme.verify(HttpRequest.of(b""), 0), lambda: acme.normalize(HttpRequest.of(b""))):
        with pytest.raises(KeyError):
            call()


def test_a_handshake_is_a_third_function() -> None:
    answer = HttpResponse.of(200, b"hello")
    acme = from_functions(
        "acme", verify=verify, normalize=normalize, handshake=lambda request, now_ms: answer, secrets=SECRET
    )

    assert acme.handshake(HttpRequest.of(b""), 0) is answer
    assert make([SECRET]).handshake(HttpRequest.of(b""), 0) is None


def test_names_secrets_and_functions_are_checked() -> None:
    for options in (
        {"name": "emit", "secrets": SECRET},
        {"name": "acme"},
        {"name": "acme", "secrets": SECRET, "verify": None},
        {"name": "acme", "secrets": SECRET, "normalize": "normalize"},
        {"name": "acme", "secrets": SECRET, "handshake": 1},
    ):
        whole: dict[str, Any] = {"verify": verify, "normalize": normalize} | options
        with pytest.raises(ConfigError):
            from_functions(whole.pop("name"), **whole)
    open_source = from_functions("acme", verify=verify, normalize=normalize, insecure=True)
    assert open_source.verify(HttpRequest.of(b""), 0) == UNVERIFIED
    assert open_source["acme.*"].source == "acme"
