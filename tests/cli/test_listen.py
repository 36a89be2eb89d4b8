"""The receiver's socket, and who may reach a source that checks nothing."""

from __future__ import annotations

import socket

import pytest

from onceward.cli.listen import address_of, bound, is_loopback, refuse_insecure
from onceward.core.errors import ConfigError
from onceward.sources import GitHub, Stripe


def test_port_0_takes_a_free_one() -> None:
    with bound("127.0.0.1", 0) as first, bound("127.0.0.1", 0) as second:
        assert address_of(first).startswith("http://127.0.0.1:")
        assert address_of(first) != address_of(second)


def test_a_port_that_is_taken_is_refused_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        with pytest.raises(
            ConfigError, match=f"The port {port} of 127.0.0.1 cannot be listened on"
        ) as caught:
            bound("127.0.0.1", port)

    assert "--port" in caught.value.todo


def test_a_host_that_has_no_address_is_refused() -> None:
    with pytest.raises(ConfigError, match="The host 'no such host' has no address here"):
        bound("no such host", 0)


@pytest.mark.parametrize(
    ("host", "is_ours_alone"),
    [
        ("127.0.0.1", True),
        ("127.8.9.10", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.0.2.1", False),
    ],
)
def test_loopback_is_what_only_this_machine_reaches(host: str, is_ours_alone: bool) -> None:
    assert is_loopback(host) is is_ours_alone


def test_an_insecure_source_is_for_the_loopback_address_or_by_consent() -> None:
    sources = [Stripe(secrets="whsec_1"), GitHub(insecure=True)]

    refuse_insecure(sources, "127.0.0.1", is_accepted=False)
    refuse_insecure(sources, "0.0.0.0", is_accepted=True)
    refuse_insecure(sources[:1], "0.0.0.0", is_accepted=False)
    with pytest.raises(ConfigError, match="Source 'github' accepts deliveries without a check"):
        refuse_insecure(sources, "0.0.0.0", is_accepted=False)
