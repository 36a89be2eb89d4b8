"""Meta: the set-up question, batches of every product, ids that survive regrouping."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import pytest

from onceward.core.errors import SignatureInvalid
from onceward.core.messages import HttpRequest, HttpResponse
from onceward.sources import Meta
from tests.sources.known import NOW_MS, example, hex_of, json_of, malformed, refused, sole_event

SECRET = "451614ef9eb9b35571dc352af6b2110e"
SOURCE = Meta(secrets=["another", SECRET], verify_token=["meatyhamhock", "next token"])
WHATSAPP = example("meta", "whatsapp_business_account.messages")


def request(body: bytes) -> HttpRequest:
    # "Event Notifications": sha256= and the HMAC of the payload with the app secret.
    return HttpRequest.of(body, {"X-Hub-Signature-256": f"sha256={hex_of(SECRET, body)}"})


def question(**changed: str | None) -> HttpRequest:
    asked = {"mode": "subscribe", "challenge": "1158201444", "verify_token": "meatyhamhock"} | changed
    query = urlencode({f"hub.{name}": value for name, value in asked.items() if value is not None})
    return HttpRequest.of(b"", method="GET", query=query)


def answer(asked: HttpRequest, source: Meta = SOURCE) -> HttpResponse | None:
    return source.handshake(asked, NOW_MS)


# --- the question -----------------------------------------------------------------------------


@pytest.mark.parametrize("token", ["meatyhamhock", "next token"])
def test_the_challenge_is_sent_back_to_who_knows_the_token(token: str) -> None:
    given = answer(question(verify_token=token))

    assert given is not None
    assert (given.status, given.body) == (200, b"1158201444")
    assert (b"x-content-type-options", b"nosniff") in given.headers


@pytest.mark.parametrize(
    "asked",
    [
        question(verify_token="wrong"),
        question(verify_token=""),
        question(verify_token=None),
        question(verify_token="é"),
        question(mode="unsubscribe"),
        question(mode=None),
        question(challenge=None),
        question(challenge="a\nb"),
        question(challenge="x" * 2000),
        HttpRequest.of(b"", method="GET"),
        HttpRequest.of(b"", method="GET", query=question().query + "&hub.challenge=2"),
        HttpRequest.of(b"", method="GET", query="hub.mode=%FF"),
        HttpRequest.of(b"", method="GET", query="&" * 2000),
    ],
)
def test_any_other_question_is_refused(asked: HttpRequest) -> None:
    with pytest.raises(SignatureInvalid):
        answer(asked)


def test_without_a_verify_token_nobody_is_answered() -> None:
    for source in (Meta(secrets=SECRET), Meta(insecure=True)):
        with pytest.raises(SignatureInvalid):
            answer(question(), source)


def test_a_delivery_is_no_question_and_the_question_comes_first() -> None:
    assert answer(request(WHATSAPP)) is None
    assert Meta.handshake_phase == "unverified"
    assert set(Meta.methods) == {"GET", "POST"}


# --- the signature ----------------------------------------------------------------------------


def test_a_delivery_verifies_with_the_position_of_its_secret() -> None:
    assert SOURCE.verify(request(WHATSAPP), NOW_MS).secret_index == 1


def test_the_bytes_are_signed_as_they_came() -> None:
    escaped = b'{"object":"page","entry":[{"id":"1","time":1,"text":"\\u00e4\\u0040/"}]}'

    assert SOURCE.verify(request(escaped), NOW_MS).secret_index == 1


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X-Hub-Signature-256": hex_of(SECRET, WHATSAPP)},
        {"X-Hub-Signature-256": "sha1=" + hex_of(SECRET, WHATSAPP, "sha1")},
        {"X-Hub-Signature-256": "x sha256=" + hex_of(SECRET, WHATSAPP)},
        {"X-Hub-Signature-256": "sha256=" + hex_of("other", WHATSAPP)},
        {"X-Hub-Signature-256": "sha256=é\xff"},
        {"X-Hub-Signature": "sha1=" + hex_of(SECRET, WHATSAPP, "sha1")},
    ],
)
def test_another_signature_is_refused(headers: dict[str, str]) -> None:
    refused(SOURCE, HttpRequest.of(WHATSAPP, headers))


# --- events -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event_type", "event_id", "subject", "occurred_at_ms"),
    [
        (
            "whatsapp_business_account.messages",
            "wamid.HBgLMTY1MDM4Nzk0MzkVAgASGBQzQTRBNjU5OUFFRTAzODEwMTQ0RgA=",
            "16505551234",
            1749416383000,
        ),
        (
            "whatsapp_business_account.statuses",
            '["wamid.HBgLMTY1MDM4Nzk0MzkVAgARGBI3MTE5MjVBOTE3MDk5QUVFM0YA","delivered"]',
            "16505551234",
            1750263773000,
        ),
        ("page.message", "m_1457764197618:41d102a3e1ae206a38", "1254477777772919", 1458692752478),
        ("instagram.comments", None, "232323232", 1520622968000),
    ],
)
def test_an_event_is_read(event_type: str, event_id: str | None, subject: str, occurred_at_ms: int) -> None:
    body = example("meta", event_type)

    incoming = sole_event(SOURCE, request(body))

    assert (incoming.type, incoming.subject) == (event_type, subject)
    assert incoming.occurred_at_ms == occurred_at_ms
    assert incoming.id_is_derived == (event_id is None)
    assert event_id is None or incoming.id == event_id
    # With one event the payload is the delivery.
    assert json_of(incoming.payload) == body


def whatsapp(*values: dict[str, Any], time: int = 1) -> bytes:
    changes = [
        {"value": {"metadata": {"phone_number_id": "1"}} | value, "field": "messages"} for value in values
    ]
    return json_of(
        {"object": "whatsapp_business_account", "entry": [{"id": "9", "time": time, "changes": changes}]}
    )


def message(message_id: str) -> dict[str, Any]:
    return {"from": "49", "id": message_id, "timestamp": "1749416383", "type": "text"}


def test_a_batch_is_split_and_each_event_stands_alone() -> None:
    status = {"id": "wamid.A", "status": "read", "timestamp": "1", "recipient_id": "49"}
    body = whatsapp(
        {"messages": [message("wamid.A"), message("wamid.B")], "statuses": [status]},
        {"messages": [message("wamid.C")]},
    )

    events = SOURCE.normalize(request(body))

    assert [event.id for event in events] == ["wamid.A", "wamid.B", '["wamid.A","read"]', "wamid.C"]
    value = events[1].payload["entry"][0]["changes"][0]["value"]
    assert value == {"metadata": {"phone_number_id": "1"}, "messages": [message("wamid.B")]}
    assert not any(event.payload_is_body for event in events)


def test_regrouped_and_sent_later_the_events_are_the_same() -> None:
    wish = {"user_preferences": [{"wa_id": "49", "value": "stop", "timestamp": "1"}]}
    together = SOURCE.normalize(request(whatsapp({"messages": [message("a"), message("b")]}, wish)))
    apart = [
        sole_event(SOURCE, request(whatsapp(value, time=2)))
        for value in ({"messages": [message("a")]}, {"messages": [message("b")]}, wish)
    ]

    assert [event.id for event in together] == [event.id for event in apart]


def test_an_error_is_another_one_for_another_number_or_at_another_time() -> None:
    """The shape of Meta's reference of errors messages: an item has neither an id nor a time."""
    error = {"code": 130429, "title": "Rate limit hit", "message": "Rate limit hit"}
    other_number = {"metadata": {"phone_number_id": "2"}, "errors": [error]}
    bodies = [
        whatsapp({"errors": [error]}, {"messages": [message("a")]}),
        whatsapp({"errors": [error]}),  # regrouped
        whatsapp({"errors": [error | {"code": 131000}]}),
        whatsapp(other_number),
        whatsapp({"errors": [error]}, time=2),
    ]

    first, again, *others = (SOURCE.normalize(request(body))[0] for body in bodies)

    assert first.id == again.id
    assert len({first.id, *(event.id for event in others)}) == 4
    assert all(event.id_is_derived for event in (first, *others))


def whatsapp_change(field: str, value: dict[str, Any]) -> list[Any]:
    change = {"value": {"messaging_product": "whatsapp"} | value, "field": field}
    return SOURCE.normalize(
        request(json_of({"object": "whatsapp_business_account", "entry": [{"id": "9", "changes": [change]}]}))
    )


def test_a_call_is_known_by_its_id_and_not_by_the_error_beside_it() -> None:
    """The shape of pywa's tests/data/updates/call_terminate.json: with a list of errors beside the calls."""
    call = {"id": "wacid.A", "to": "1631", "from": "1632", "event": "terminate", "timestamp": "1671644824"}
    errors = [{"code": 12455, "message": "ERROR_TITLE"}]

    first, second = (
        whatsapp_change("calls", {"calls": [call | {"id": wacid}], "errors": errors})
        for wacid in ("wacid.A", "wacid.B")
    )

    assert [event.id for event in first + second] == ['["wacid.A","terminate"]', '["wacid.B","terminate"]']
    assert [event.type for event in first] == ["whatsapp_business_account.calls"]
    assert (first[0].subject, first[0].occurred_at_ms) == ("1632", 1671644824000)
    assert first[0].payload["entry"][0]["changes"][0]["value"]["errors"] == errors
    connects = [call | {"event": "connect", "direction": "BUSINESS_INITIATED"}, call | {"id": "wacid.B"}]
    both = whatsapp_change("calls", {"calls": connects})
    assert [(event.id, event.subject) for event in both] == [
        ('["wacid.A","connect"]', "1631"),
        ('["wacid.B","terminate"]', "1632"),
    ]
    ringing = {"id": "wacid.A", "status": "RINGING", "timestamp": "1", "recipient_id": "1631"}
    assert whatsapp_change("calls", {"statuses": [ringing]})[0].id == '["wacid.A","RINGING"]'


def test_each_member_of_a_group_delivers_and_reads() -> None:
    """By Meta's page on status messages of groups, which come aggregated."""
    status = {"id": "wamid.A", "status": "read", "recipient_id": "Y2", "recipient_type": "group"}
    members = [{"recipient_participant_id": "49"}, {"recipient_participant_user_id": "US.1"}, {}]

    events = whatsapp_change("messages", {"statuses": [status | member for member in members]})

    assert [event.id for event in events] == [
        '["wamid.A","read","49"]',
        '["wamid.A","read","US.1"]',
        '["wamid.A","read"]',
    ]
    assert {event.subject for event in events} == {"Y2"}


def test_preferences_and_groups_are_split_and_their_party_is_named() -> None:
    """The shapes of Meta's pages; who hides the number has a user id."""
    wish = {
        "wa_id": "16505551234",
        "category": "marketing_messages",
        "value": "stop",
        "timestamp": 1731705721,
    }
    hidden = {name: value for name, value in wish.items() if name != "wa_id"} | {"user_id": "US.1"}

    together = whatsapp_change("user_preferences", {"user_preferences": [wish, hidden]})
    apart = [whatsapp_change("user_preferences", {"user_preferences": [one]})[0] for one in (wish, hidden)]

    assert [event.id for event in together] == [event.id for event in apart]
    assert [event.subject for event in together] == ["16505551234", "US.1"]
    assert {(event.type, event.occurred_at_ms) for event in together} == {
        ("whatsapp_business_account.user_preferences", 1731705721000)
    }
    unnumbered = {"from_user_id": "US.1", "id": "wamid.A", "timestamp": "1749416383", "type": "text"}
    assert whatsapp_change("messages", {"messages": [unnumbered]})[0].subject == "US.1"
    unnumbered = {"recipient_user_id": "US.1", "id": "wamid.A", "status": "delivered", "timestamp": "1"}
    assert whatsapp_change("messages", {"statuses": [unnumbered]})[0].subject == "US.1"
    joined = {"type": "group_participants_add", "group_id": "Y2", "timestamp": 1}
    [event] = whatsapp_change("group_participants_update", {"groups": [joined]})
    assert (event.type, event.subject) == ("whatsapp_business_account.group_participants_update", "Y2")


def test_an_empty_batch_is_no_event() -> None:
    for entries in ([], [{"id": "1", "changes": []}], [{"id": "1", "messaging": []}]):
        assert SOURCE.normalize(request(json_of({"object": "page", "entry": entries}))) == []
    assert SOURCE.normalize(request(whatsapp({"messages": [], "statuses": []}))) == []


def messaging(item: dict[str, Any], channel: str = "messaging", time: int = 1) -> Any:
    envelope = {"sender": {"id": "1"}, "recipient": {"id": "2"}, "timestamp": 1458692752478}
    body = {"object": "instagram", "entry": [{"id": "2", "time": time, channel: [envelope | item]}]}
    return sole_event(SOURCE, request(json_of(body)))


def test_what_happens_to_one_message_are_several_events() -> None:
    events = [
        messaging({"message": {"mid": "m1", "text": "hi"}}),
        messaging({"message": {"mid": "m1", "is_deleted": True}}),
        messaging({"message": {"mid": "m1", "text": "hi", "is_echo": True}}),
        messaging({"message": {"mid": "m1", "text": "hi"}}, "standby"),
        messaging({"postback": {"mid": "m1", "payload": "x"}}),
        messaging({"reaction": {"mid": "m1", "action": "react"}}),
        messaging({"reaction": {"mid": "m1", "action": "unreact"}}),
        messaging({"read": {"watermark": 1}}),
        messaging({"read": {"watermark": 2}}),
    ]

    assert len({event.id for event in events}) == len(events)
    assert [event.type for event in events] == [
        *["instagram.message"] * 4,
        "instagram.postback",
        *["instagram.reaction"] * 2,
        *["instagram.read"] * 2,
    ]
    assert [event.subject for event in events[:3]] == ["1", "1", "2"]
    assert messaging({"read": {"watermark": 1}}, time=2).id == events[7].id


@pytest.mark.parametrize("mid", ["m" * 250, "m" * 300, "m\n1"])
def test_an_id_that_no_store_keeps_does_not_cost_its_batch(mid: str) -> None:
    plain = [messaging({"message": {"mid": mid}}, time=time) for time in (1, 2)]
    echo = messaging({"message": {"mid": mid, "is_echo": True}})

    assert plain[0].id == plain[1].id != echo.id
    assert len(plain[0].id) <= 255
    assert plain[0].id.isprintable()


def changed(value: Any, time: int) -> str:
    entry = {"id": "1", "time": time, "changes": [{"field": "feed", "value": value}]}
    return sole_event(SOURCE, request(json_of({"object": "page", "entry": [entry]}))).id


def test_a_change_with_an_id_or_time_of_its_own_is_known_by_it() -> None:
    post = {"item": "status", "post_id": "1_2", "created_time": 1520622968, "verb": "add"}

    assert changed(post, 1) == changed(post, 2) != changed(post | {"verb": "edited"}, 1)


def test_a_change_without_any_is_known_by_the_time_of_the_notice() -> None:
    assert changed({"verb": "update"}, 1) != changed({"verb": "update"}, 2)
    fields = [{"id": "1", "uid": "1", "time": time, "changed_fields": ["email"]} for time in (1, 2)]
    events = SOURCE.normalize(request(json_of({"object": "user", "entry": fields})))
    assert len({event.id for event in events}) == 2
    assert {event.type for event in events} == {"user"}


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"{}",
        b'{"object": "page"}',
        b'{"object": "page", "entry": {}}',
        b'{"object": "page", "entry": [1]}',
        b'{"object": "page", "entry": [{"changes": 1}]}',
        b'{"object": "page", "entry": [{"changes": [{}]}]}',
        b'{"object": "page", "entry": [{"messaging": [1]}]}',
        b'{"object": "whatsapp_business_account", "entry": [{"changes": [{"field": "messages", "value": {"messages": [1]}}]}]}',
    ],
)
def test_what_cannot_be_read_is_malformed(body: bytes) -> None:
    malformed(SOURCE, request(body))


def test_the_reply_is_an_empty_200() -> None:
    given = SOURCE.respond("accepted")

    assert given is not None
    assert (given.status, given.body) == (200, b"")
