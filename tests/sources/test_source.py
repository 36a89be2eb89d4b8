"""What every source has in common: names, secrets, triggers, creation by name, light imports."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from onceward.core.arrival import UNVERIFIED, Incoming, Verified
from onceward.core.errors import BodyMalformed, ConfigError, SignatureInvalid
from onceward.core.messages import HttpRequest, HttpResponse
from onceward.core.triggers import Trigger
from onceward.sources import GitHub, Hmac, Source, Stripe, create, kinds
from onceward.sources.base import identifier, parse_object, subject_or_none
from onceward.sources.signing import matching_secret, sole_header

SECRET = "whsec_0123456789abcdef"
ED25519_PUBLIC = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
P256_PUBLIC = (
    "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE83T4O/n84iotIvIW4mdBgQ/7dAfSmpqIM8kF9mN1flpVKS3GRqe62gw+"
    "2fNNRaINXvVpiglSI8eNEc6wEA3F+g=="
)


# --- names ----------------------------------------------------------------------------------------


def test_a_source_is_called_after_its_kind_unless_told() -> None:
    assert Stripe(secrets=SECRET).name == "stripe"
    assert Stripe(name="stripe-eu", secrets=SECRET).name == "stripe-eu"


@pytest.mark.parametrize(
    "name",
    [
        "emit",
        "start",
        "run",
        "schedule",
        "a/b",
        "",
        " ",
        "a b",
        "-a",
        ".",
        "..",
        "ä",
        "a\n",
        "x" * 65,
        "a%2Fb",
    ],
)
def test_a_name_that_cannot_be_used_is_refused(name: str) -> None:
    with pytest.raises(ConfigError):
        Stripe(name=name, secrets=SECRET)


@pytest.mark.parametrize("name", ["emitter", "runs", "a.b_c-d", "0", "x" * 64])
def test_other_names_are_kept(name: str) -> None:
    assert Stripe(name=name, secrets=SECRET).name == name


# --- secrets --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "secrets",
    [(), [], "", [""], [" "], [SECRET, ""], ["abc\n"], [" abc"], [None], [b"x"], ["\ud800"], None, 7, b"x"],
)
def test_secrets_that_cannot_verify_anything_are_refused(secrets: Any) -> None:
    with pytest.raises(ConfigError):
        Stripe(secrets=secrets)


def test_no_secret_needs_insecure_and_insecure_needs_no_secret() -> None:
    open_source = GitHub(insecure=True)

    assert open_source.verify(HttpRequest.of(b"{}"), 0) == UNVERIFIED
    with pytest.raises(ConfigError):
        GitHub(insecure=True, secrets=SECRET)
    with pytest.raises(ConfigError):
        open_source.sign(b"{}", 0)


@pytest.mark.parametrize(
    ("secret", "shown"),
    [
        ("whsec_0123456789abcdef", "whsec_…cdef"),
        ("whsec_short", "whsec_…"),
        ("correct horse battery staple", "…aple"),
        ("hunter2", "…"),
    ],
)
def test_a_secret_is_masked_wherever_it_is_shown(secret: str, shown: str) -> None:
    source = Stripe(secrets=[secret])

    assert repr(source) == f"Stripe(name='stripe', secrets=[{shown}])"
    assert str(source.secrets[0]) == shown
    assert secret not in f"{vars(source)} {source.secrets!r}"


def test_a_missing_secret_or_unknown_field_says_where_to_look() -> None:
    with pytest.raises(ConfigError, match="onceward sources paypal"):
        create("paypal", name="pay")
    with pytest.raises(ConfigError, match="signature, timestamp, token"):
        create("box", secrets=[SECRET], nonsense=1)


def test_an_error_about_a_secret_does_not_show_it() -> None:
    with pytest.raises(ConfigError) as refusal:
        Stripe(secrets=["hunter2-and-more\n"])

    assert "hunter2" not in str(refusal.value)


def test_a_source_without_secrets_says_so() -> None:
    assert repr(GitHub(insecure=True)) == "GitHub(name='github', insecure=True)"


# --- triggers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "source", "event_type", "fits"),
    [
        ("invoice.paid", "stripe", "invoice.paid", True),
        ("invoice.paid", "stripe", "invoice.paid.late", False),
        ("invoice.paid", "stripe-eu", "invoice.paid", False),
        ("invoice.*", "stripe", "invoice.paid", True),
        ("invoice.*", "stripe", "invoice.payment.failed", True),
        ("invoice.*", "stripe", "invoice.", False),
        ("invoice.*", "stripe", "invoice", False),
        ("invoice.*", "stripe", "invoiceitem.created", False),
        ("*", "stripe", "anything", True),
        ("*", "github", "anything", False),
    ],
)
def test_a_trigger_matches_by_source_and_pattern(
    pattern: str, source: str, event_type: str, fits: bool
) -> None:
    assert Stripe(secrets=SECRET)[pattern].matches(source, event_type) == fits


@pytest.mark.parametrize("pattern", ["", "in*", "*.paid", "a.*.b", "**", ".*.*", "*invoice"])
def test_a_pattern_that_would_mislead_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigError):
        Stripe(secrets=SECRET)[pattern]


@pytest.mark.parametrize("where", [None, {"op": "eq", "path": ["livemode"], "value": True}])
def test_a_trigger_survives_its_stored_form(where: Any) -> None:
    trigger = Trigger("stripe", "invoice.*", where)

    assert Trigger.from_data(trigger.to_data()) == trigger


# --- by name --------------------------------------------------------------------------------------


def test_every_kind_can_be_created_by_name() -> None:
    options: dict[str, dict[str, Any]] = {
        "adyen": {"secrets": "00ff"},
        "aws_sns": {"secrets": "arn:aws:sns:eu-west-1:123456789012:orders"},
        "generic": {"token": "bearer"},
        "google_pubsub": {"service_account": "push@example.iam.gserviceaccount.com"},
        "hmac": {"header": "X-Signature", "id_from": "/id", "type_from": "/type"},
        "mollie_classic": {"secrets": (), "insecure": True},
        "postmark": {"secrets": "user:password"},
    }
    # Senders that sign by public key need one.
    secrets = {"discord": ED25519_PUBLIC, "sendgrid": P256_PUBLIC}

    made = {
        kind: create(
            kind, name=f"my-{kind}", **({"secrets": [secrets.get(kind, SECRET)]} | options.get(kind, {}))
        )
        for kind in kinds()
    }

    assert {kind: source.kind for kind, source in made.items()} == {kind: kind for kind in kinds()}
    assert (type(made["github"]), type(made["hmac"]), type(made["stripe"])) == (GitHub, Hmac, Stripe)
    assert all(source.name == f"my-{kind}" and source.docs_url for kind, source in made.items())


@pytest.mark.parametrize(
    ("kind", "options"),
    [("strype", {}), ("Stripe", {}), ("stripe", {"secret": "x"}), ("hmac", {"name": "acme"})],
)
def test_an_unknown_kind_or_option_is_refused(kind: str, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        create(kind, secrets=[SECRET], **options)


def test_importing_the_package_imports_no_provider() -> None:
    script = (
        "import sys, onceward.sources as s; "
        "print([m for m in sys.modules if m.startswith('onceward.sources.')]); "
        "s.Stripe; "
        "print([m for m in ('stripe', 'uvicorn', 'cryptography', 'onceward.sources.github') if m in sys.modules])"
    )

    with_our_path = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    printed = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=with_our_path
    ).stdout

    assert printed.split("\n")[:2] == ["[]", "[]"]


# --- one's own ------------------------------------------------------------------------------------


class Acme(Source):
    kind = "acme"

    def verify(self, request: HttpRequest, now_ms: int) -> Verified:
        given = sole_header(request, "x-acme-signature")
        return Verified(matching_secret(self.secrets, request.body, [given]))

    def normalize(self, request: HttpRequest) -> list[Incoming]:
        items = parse_object(request.body)["items"]
        return [Incoming(id=identifier(item, "an item"), type="acme.item", payload=item) for item in items]

    def handshake(self, request: HttpRequest, now_ms: int) -> HttpResponse | None:
        return HttpResponse.of(200, request.body, {"Content-Type": "text/plain"}) if request.query else None


def test_a_source_of_ones_own_takes_a_dozen_lines() -> None:
    acme = Acme(secrets=["0123"])
    plain = HttpRequest.of(b'{"items": ["a", 2]}')
    asked = HttpRequest.of(b"challenge", query="verify=1")

    assert [incoming.id for incoming in acme.normalize(plain)] == ["a", "2"]
    assert acme.handshake(plain, 0) is None
    answer = acme.handshake(asked, 0)
    assert answer is not None
    assert (answer.status, answer.headers, answer.body) == (
        200,
        ((b"content-type", b"text/plain"),),
        b"challenge",
    )
    with pytest.raises(SignatureInvalid):
        acme.verify(plain, 0)
    with pytest.raises(BodyMalformed):
        acme.normalize(HttpRequest.of(b"[]"))
    with pytest.raises(ConfigError, match="cannot sign"):
        acme.sign(b"{}", 0)


# The first two are numbers that Python refuses to print; pytest would, for the name of the case.
@pytest.mark.parametrize(
    "value", [10**5000, -(10**5000), 10**300, True, 1.0, b"evt", None], ids=lambda value: type(value).__name__
)
def test_an_id_that_is_no_text_or_modest_number_is_malformed(value: object) -> None:
    with pytest.raises(BodyMalformed):
        identifier(value, "the id")
    assert subject_or_none(value) is None


# --- requests -------------------------------------------------------------------------------------


def test_headers_are_found_in_any_case_and_kept_apart() -> None:
    request = HttpRequest.of(b"", [("X-One", "a"), ("x-ONE", "b\xff"), ("X-Two", "")])

    assert request.header("x-One") == "a"
    assert request.header_values("X-one") == [b"a", b"b\xff"]
    assert request.header("x-two") == ""
    assert request.header("x-three") is None
    assert request.header_values("x-three") == []
