"""Amazon's scheme against messages and the certificate that its own library is tested with."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding

from onceward.core.errors import BodyMalformed, ConfigError, SignatureInvalid
from onceward.core.messages import HttpRequest
from onceward.sources import create
from onceward.sources.aws_sns import AwsSns
from tests.sources.rsa_keys import KEY

# aws/aws-sdk-ruby, gems/aws-sdk-sns/spec/message_verifier_spec.rb.
CERTIFICATE = (Path(__file__).parent / "vectors" / "sns.pem").read_text()
CERT_URL = (
    "https://sns.us-east-2.amazonaws.com/SimpleNotificationService-7ff5318490ec183fbaddaa2a969abfda.pem"
)
TOPIC_1 = "arn:aws:sns:us-east-2:295079676684:publish-and-verify-892f85fe-4836-424d-8188-ab85bef0f362"
TOPIC_2 = "arn:aws:sns:us-east-2:295079676684:publish-and-verify-62674b1d-4295-426b-88e7-5fb75652a04e"
SHA1 = {
    "Type": "Notification",
    "MessageId": "792cda85-518f-5dd3-9163-81d851212f3a",
    "TopicArn": TOPIC_1,
    "Message": "Hello world",
    "Timestamp": "2022-07-28T21:23:58.317Z",
    "SignatureVersion": "1",
    "Signature": (
        "ghtf+deOBAzHJJZ6s6CdRLfTQAlcGzq9naoFM1wi0CJiq//uVRuZnamrkWNF0fhouMFvuLVRwcz8PZLUMSfnmd5VpdTKpTyiKmy1"
        "qJAZXma0w+yi7G+I33hD1Jyk1Nbym2n0kqp3fVu2aoooiN2ZeLAT2bH0/BtjLSfN1yAOKNoprco4qV9gGUZinXJdj9a1YdNhDR2j"
        "Ki33ldlsVtEXAtiaDklGEk7DgRKX38GerBPiLg3FdtgY6KC7cdeGpU/dGK+4hjc83Ive1HoFkAwqhpgInM2sMytBosoiXfCmOKmU"
        "4xeGD0gHDNZTlJUJQDlzw8Eag0H9f/5zXF9d3uy0YQ=="
    ),
    "SigningCertURL": CERT_URL,
}
SHA256 = SHA1 | {
    "MessageId": "17dea24b-55c2-540b-8362-f916557af765",
    "TopicArn": TOPIC_2,
    "Timestamp": "2022-07-28T21:24:08.324Z",
    "SignatureVersion": "2",
    "Signature": (
        "CXVqp9PfZAL+4JHS3Zxo1PFbQsvnOjvmYhtIf17TWpwc+iIVas8kZ8GopuzVzVMdatE7rCl/O4P91Zp05Dwz8lk8dLhfp8gSu3Nj"
        "lzxlyrmzo9x3va3Jb7zFnedgS2GKnZWHGBdwTXho+TosNUE+3e10OMSlwN5XGDwX7+R3WL+rn+AXmFAqp3alg27sYa55h1dLE9cG"
        "szGPjScPdtF3BmZsUDMx9wSdNKsCk+vSvE8yBjnCmUl7laSFj3LzPVrlSwgNYCF3kYnNAkah7NplK4SFhJYLwS0HCVCQJKa8rVbQ"
        "Lf9cBTu60U402mrgy0bN8xWoyimzbYbrOMJjalqkUg=="
    ),
}
NOW_MS = 1_760_000_000_000


def request(message: object) -> HttpRequest:
    return HttpRequest.of(json.dumps(message).encode(), {"Content-Type": "text/plain; charset=UTF-8"})


def published() -> AwsSns:
    return AwsSns(topic_arns=[TOPIC_1, TOPIC_2], certificate=CERTIFICATE)


def check_of(source: AwsSns, message: object) -> str:
    with pytest.raises(SignatureInvalid) as refusal:
        source.verify(request(message), NOW_MS)
    return refusal.value.check


# --- the published messages -----------------------------------------------------------------------


@pytest.mark.parametrize(("message", "index"), [(SHA1, 0), (SHA256, 1)])
def test_the_published_messages_verify_and_say_which_topic(message: dict[str, str], index: int) -> None:
    assert published().verify(request(message), NOW_MS).secret_index == index
    assert published().verify(request(message | {"Subject": None}), NOW_MS).secret_index == index


def test_the_certificate_is_fetched_once() -> None:
    asked: list[str] = []

    def fetch(url: str) -> bytes:
        asked.append(url)
        return CERTIFICATE.encode()

    source = create("aws_sns", secrets=[TOPIC_1], fetch=fetch)

    for _ in range(3):
        assert source.verify(request(SHA1), NOW_MS).secret_index == 0
    assert asked == [CERT_URL]


@pytest.mark.parametrize("field", ["Message", "MessageId", "Timestamp", "TopicArn", "Type", "Signature"])
def test_a_change_of_any_signed_field_is_refused(field: str) -> None:
    for changed in (SHA1[field] + "x", "", None, 7, ["x"]):
        check_of(published(), SHA1 | {field: changed})


@pytest.mark.parametrize(
    "changed",
    [
        {"Subject": "added"},
        {"Subject": ""},
        {"SignatureVersion": "2"},
        {"SignatureVersion": "3"},
        {"SignatureVersion": 1},
        {"SignatureVersion": ["1"]},
        {"Type": {"a": 1}},
        {"Signature": "é"},
        {"SigningCertURL": CERT_URL.replace("https", "http")},
        {"SigningCertURL": CERT_URL.replace("amazonaws.com", "amazonaws.com.evil.example")},
        {"SigningCertURL": "https://evil.example/sns.us-east-2.amazonaws.com/x.pem"},
        {"SigningCertURL": "https://sns.us-east-2.amazonaws.com@evil.example/x.pem"},
        {"SigningCertURL": "https://s3.amazonaws.com/x.pem"},
        {"SigningCertURL": "https://sns.evil.example/us-east-2.amazonaws.com.pem"},
        {"SigningCertURL": CERT_URL.replace(".pem", ".key")},
        {"SigningCertURL": CERT_URL + "\n"},
        {"SigningCertURL": None},
    ],
)
def test_other_fields_cannot_be_bent(changed: dict[str, object]) -> None:
    check_of(published(), SHA1 | changed)


@pytest.mark.parametrize("body", [b"", b"Hello world", b"[]", b"null", b"\xff", b'{"Type"'])
def test_raw_delivery_and_rubbish_are_refused(body: bytes) -> None:
    with pytest.raises(SignatureInvalid):
        published().verify(HttpRequest.of(body), NOW_MS)


def test_a_topic_that_is_not_ours_makes_us_fetch_nothing() -> None:
    def fetch(url: str) -> bytes:
        raise AssertionError(url)

    assert "shared secret" in check_of(AwsSns(topic_arns=TOPIC_2, fetch=fetch), SHA1)


# --- messages of our own key ----------------------------------------------------------------------

OWN = KEY.public_key().public_bytes(
    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
)  # fmt: skip
TOPIC = "arn:aws:sns:eu-west-1:123456789012:orders"
SUBSCRIBE_URL = (
    f"https://sns.eu-west-1.amazonaws.com/?Action=ConfirmSubscription&TopicArn={TOPIC}&Token=2336412f37"
)


def signed(order: str, **fields: str) -> dict[str, Any]:
    message = {"TopicArn": TOPIC, "MessageId": "m-1", "Timestamp": "2026-01-02T03:04:05.678Z", **fields}
    text = "".join(f"{name}\n{message[name]}\n" for name in order.split())
    signature = KEY.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256())
    return message | {
        "SignatureVersion": "2",
        "Signature": base64.b64encode(signature).decode(),
        "SigningCertURL": "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-1.pem",
    }


CONFIRMATION = "Message MessageId SubscribeURL Timestamp Token TopicArn Type"


def confirmation(**changed: str) -> dict[str, Any]:
    fields = {
        "Type": "SubscriptionConfirmation",
        "Message": "You have chosen to subscribe",
        "Token": "2336412f37",
        "SubscribeURL": SUBSCRIBE_URL,
    }
    return signed(CONFIRMATION, **(fields | changed))


def test_a_subject_is_signed_where_there_is_one() -> None:
    source = AwsSns(topic_arns=TOPIC, fetch=lambda _: OWN)
    message = signed(
        "Message MessageId Subject Timestamp TopicArn Type",
        Type="Notification",
        Message='{"order":1}',
        Subject="naïve ☃",
    )

    assert source.verify(request(message), NOW_MS).sent_at_ms == 1_767_323_045_678
    check_of(source, message | {"Subject": "other"})
    check_of(source, {name: message[name] for name in message if name != "Subject"})


def test_a_subscription_is_confirmed_after_it_verified_and_only_if_so_configured() -> None:
    asked: list[str] = []

    def fetch(url: str) -> bytes:
        asked.append(url)
        return OWN

    source = AwsSns(topic_arns=TOPIC, confirm=True, fetch=fetch)
    question = request(confirmation())

    source.verify(question, NOW_MS)
    answer = source.handshake(question, NOW_MS)

    assert answer is not None
    assert answer.status == 200
    assert asked[1:] == [SUBSCRIBE_URL]
    passive = AwsSns(topic_arns=TOPIC, fetch=fetch)
    assert passive.handshake(question, NOW_MS) is None
    assert passive.normalize(question)[0].type == "SubscriptionConfirmation"
    assert source.handshake(request(SHA1), NOW_MS) is None


def test_a_confirmation_that_does_not_get_through_is_asked_for_again() -> None:
    def fetch(url: str) -> bytes:
        if "Action" in url:
            raise OSError
        return OWN

    answer = AwsSns(topic_arns=TOPIC, confirm=True, fetch=fetch).handshake(request(confirmation()), NOW_MS)

    assert answer is not None
    assert answer.status == 503


@pytest.mark.parametrize(
    "url",
    [
        SUBSCRIBE_URL.replace("https", "http"),
        SUBSCRIBE_URL.replace("sns.eu-west-1.amazonaws.com", "169.254.169.254"),
        SUBSCRIBE_URL.replace("ConfirmSubscription", "Unsubscribe"),
        SUBSCRIBE_URL.replace("orders", "others"),
        SUBSCRIBE_URL.replace("amazonaws.com/", "amazonaws.com/a/"),
        "",
    ],
)
def test_an_address_that_does_not_confirm_this_topic_is_not_visited(url: str) -> None:
    def fetch(url: str) -> bytes:
        assert url.endswith(".pem")
        return OWN

    source = AwsSns(topic_arns=TOPIC, confirm=True, fetch=fetch)
    question = request(confirmation(SubscribeURL=url))

    source.verify(question, NOW_MS)
    with pytest.raises(SignatureInvalid):
        source.handshake(question, NOW_MS)


def test_the_end_of_a_subscription_is_an_event() -> None:
    source = AwsSns(topic_arns=TOPIC, confirm=True, fetch=lambda _: OWN)
    message = request(confirmation(Type="UnsubscribeConfirmation"))

    source.verify(message, NOW_MS)

    assert source.handshake(message, NOW_MS) is None
    [incoming] = source.normalize(message)
    assert (incoming.id, incoming.type, incoming.subject) == ("m-1", "UnsubscribeConfirmation", TOPIC)


# --- reading --------------------------------------------------------------------------------------


def test_a_notification_is_read_and_keeps_its_id_when_it_is_sent_again() -> None:
    again = SHA1 | {"Signature": "another", "SigningCertURL": CERT_URL.replace("7ff5", "8ff5")}

    [incoming] = published().normalize(request(SHA1))

    assert (
        incoming.id == "792cda85-518f-5dd3-9163-81d851212f3a" == published().normalize(request(again))[0].id
    )
    assert (incoming.type, incoming.subject) == ("Notification", TOPIC_1)
    assert incoming.occurred_at_ms == 1_659_043_438_317


@pytest.mark.parametrize("message", [{}, [], {"MessageId": "m", "Type": 7.5}, {"Type": "Notification"}])
def test_a_message_without_id_or_type_is_malformed(message: object) -> None:
    with pytest.raises(BodyMalformed):
        published().normalize(request(message))


@pytest.mark.parametrize("options", [{}, {"topic_arns": "orders"}, {"secrets": TOPIC, "certificate": "x"}])
def test_a_configuration_that_trusts_everyone_or_no_one_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        create("aws_sns", **options)
