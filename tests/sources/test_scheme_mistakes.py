"""Mistakes in the configuration of a described source: each is answered where it was made."""

from __future__ import annotations

from typing import Any

import pytest

from onceward import ConfigError
from onceward.sources import Generic, Stripe


@pytest.mark.parametrize(
    ("wrong", "answer"),
    [
        (
            {"signature": {"header": "X", "algorithm": "hmac-sha512"}},
            "Did you mean 'sha512'? The values of algorithm are: sha1, sha256, ",
        ),
        (
            {"signature": {"header": "X", "encodin": "hex"}},
            "Did you mean 'encoding'? The fields of signature are:",
        ),
        (
            {"signature": {"header": "X", "encoding": "b64"}},
            "'base64'? The values of encoding are: hex, base64, ",
        ),
        ({"signatur": {}}, "Did you mean 'signature'? The fields are: signature, timestamp, "),
        ({"timestamp": {"place": "a", "unit": "sec"}}, "The values of unit are: s, ms, iso;"),
        ({"handshake": [{"metod": "GET"}]}, "Did you mean 'method'? The fields of handshake are: method, "),
        ({"signature": 5}, "The fields of signature are: header, "),
    ],
)
def test_a_mistake_is_answered_with_what_can_stand_there(wrong: dict[str, Any], answer: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Generic(name="g", secrets="a secret that is long", id="/id", type="/type", **wrong)

    assert answer in str(refused.value)


def test_a_keyword_that_a_source_does_not_have_is_answered_with_the_one_that_was_meant() -> None:
    unchecked: Any = Stripe

    with pytest.raises(ConfigError, match=r"Stripe has no option 'secret'.* Write secrets=…"):
        unchecked(secret="whsec_0123456789abcdefghij")
