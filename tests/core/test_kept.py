"""What is kept of a request: the headers that were asked for, never a credential, and it comes back equal."""

from __future__ import annotations

import pytest

from onceward.core.kept import WatchedRequest, kept, kept_of, request_of
from onceward.core.messages import HttpRequest

HEADERS = (
    (b"x-signature", b"sha256=\xe9\xff"),
    (b"x-event", b"one"),
    (b"X-Other".lower(), b"two"),
    (b"x-event", b"three"),
    (b"content-type", b"application/json"),
)
REQUEST = WatchedRequest(
    "POST", "/a%2Fb/hooks/x", "b=%20c", HEADERS, b"body", 7, "https://shop.example:8443/a%2Fb/hooks/x?b=%20c"
)


def watched(*asked: str) -> WatchedRequest:
    request = WatchedRequest(*(getattr(REQUEST, name) for name in HttpRequest.__struct_fields__))
    for name in asked:
        request.header(name)
    return request


def names(text: str) -> list[str]:
    return [name for name, _ in kept_of(text).headers]


def test_a_request_comes_back_with_the_headers_that_were_asked_for() -> None:
    request = watched("X-Signature", "x-event", "x-absent")

    again = request_of(kept(request), b"body", 7)

    assert again == HttpRequest(
        "POST",
        "/a%2Fb/hooks/x",
        "b=%20c",
        tuple(pair for pair in HEADERS if pair[0] != b"x-other"),
        b"body",
        7,
        REQUEST.url,
    )


def test_a_request_that_notes_what_it_is_asked_answers_like_any_other() -> None:
    request = watched()

    assert [request.header(name) for name in ("X-EVENT", "x-absent")] == ["one", None]
    assert [request.header_values(name) for name in ("X-Event", "x-no")] == [[b"one", b"three"], []]
    assert request.asked == {b"x-event", b"x-absent", b"x-no"}


def test_a_request_without_an_address_comes_back_without_one() -> None:
    assert request_of(kept(HttpRequest.of(b"x")), b"x", 0).url == ""


def test_headers_are_kept_by_name_and_by_beginning_where_the_source_says_so() -> None:
    assert names(kept(watched())) == ["content-type"]
    assert names(kept(watched(), declared=("x-other",))) == ["x-other", "content-type"]
    assert names(kept(watched(), declared=("x-e*",))) == ["x-event", "x-event", "content-type"]


@pytest.mark.parametrize(
    "name",
    [
        "Authorization",
        "Proxy-Authorization",
        "Cookie",
        "X-Gitlab-Token",
        "X-Telegram-Bot-Api-Secret-Token",
        "X-Api-Key",
        "X-ApiKey",
        "X-Auth",
        "X-Auth-Key",
        "X-Password",
        "X-Session-Id",
    ],
)
def test_a_credential_is_not_kept_though_it_was_asked_for(name: str) -> None:
    request = WatchedRequest("POST", "/", "", ((name.lower().encode(), b"v"),), b"", 0)
    request.header_values(name)

    assert names(kept(request)) == names(kept(request, is_unread=True)) == []


@pytest.mark.parametrize("name", ["Authorization", "Proxy-Authorization", "Cookie", "Set-Cookie"])
def test_not_even_a_source_can_have_these_kept(name: str) -> None:
    request = HttpRequest.of(b"", {name: "v"})

    assert names(kept(request, declared=(name.lower(), name.lower()[:3] + "*"))) == []


@pytest.mark.parametrize(
    "name", ["X-Signature", "PayPal-Auth-Algo", "I-Twilio-Idempotency-Token", "Idempotency-Key", "X-Author"]
)
def test_what_only_looks_like_a_credential_is_kept(name: str) -> None:
    request = WatchedRequest("POST", "/", "", ((name.lower().encode(), b"v"),), b"", 0)
    request.header(name)

    assert names(kept(request)) == [name.lower()]


def test_what_kind_of_body_it_is_and_whose_is_always_kept() -> None:
    general = ["content-type", "content-encoding", "user-agent"]
    request = HttpRequest.of(b"", [(name, "v") for name in [*general, "x-other"]])

    assert names(kept(request)) == general


def test_of_what_nobody_could_read_all_is_kept_that_is_not_of_the_way() -> None:
    of_the_way = """
        forwarded x-forwarded-for x-real-ip true-client-ip x-client-ip via cf-ray fly-region x-amzn-trace-id host
        connection te accept accept-encoding content-length transfer-encoding upgrade upgrade-insecure-requests sec-fetch-mode
    """
    theirs = ["x-signature", "hosts", "viable", "x-host", "date"]
    request = HttpRequest.of(b"", [(name, "v") for name in [*of_the_way.split(), *theirs]])

    assert names(kept(request, is_unread=True)) == theirs
    assert names(kept(request)) == []


def test_a_delivery_that_was_read_again_says_of_which_it_is() -> None:
    assert kept_of(kept(HttpRequest.of(b""), redelivery_of="del_1")).redelivery_of == "del_1"
    assert kept_of(kept(HttpRequest.of(b""))).redelivery_of == ""


def test_nothing_that_holds_a_secret_is_kept() -> None:
    request = WatchedRequest(
        "POST", "/", "key=open-sesame", ((b"x-a", b"is open-sesame"), (b"x-b", b"fine")), b"", 0
    )
    request.header("x-a")
    request.header("x-b")

    text = kept(request, secrets=[b"open-sesame"])

    assert "sesame" not in text
    assert names(text) == ["x-b"]
    assert kept_of(text).query == ""
    assert kept_of(kept(request, secrets=[b"other"])).query == "key=open-sesame"


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://shop.example:8443/hooks/x?b=c", "https://shop.example:8443"),
        ("https://shop.example", "https://shop.example"),
        ("https://shop.example?next=a/b", "https://shop.example?next=a"),
        ("shop.example/hooks/x", ""),
        ("http://", ""),
        ("", ""),
    ],
)
def test_of_an_address_the_scheme_and_the_host_are_kept(url: str, origin: str) -> None:
    request = WatchedRequest("POST", "/hooks/x", "", (), b"", 0, url)

    assert kept_of(kept(request)).origin == origin
