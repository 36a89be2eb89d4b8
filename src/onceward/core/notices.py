"""Notices: messages to an address of the user's that a run failed or is held.

What is here is pure: the addresses as settings name them, the message, and when it is sent again. A
notice is written in the transaction of the failure or hold that it tells of, one row for each
address, and sent by any process that knows the address with its secrets; these are nowhere in the store.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Protocol
from urllib.parse import urlsplit

import msgspec

from onceward.core.errors import ConfigError
from onceward.core.model import Millis
from onceward.core.redact import Redaction
from onceward.core.retry import Retry, next_delay
from onceward.core.shown import shown
from onceward.core.states import NoticeState

KINDS = ("failed", "held")
"""What there can be a notice of: the states of runs that need a person."""

SECRET_PREFIX = "whsec_"  # noqa: S105 - how every secret begins
SECRET_BYTES_MIN, SECRET_BYTES_MAX = 24, 64
"""Bounds of a key by the Standard Webhooks specification."""

ADDRESSES_MAX, SECRETS_MAX = 10, 5

HORIZON_MS: Millis = 3 * 86_400_000
"""For how long a notice is tried to be sent; then it is given up."""

RETRY = Retry(max_tries=1_000, base="5s", cap="1h")

SEND_SECONDS_MAX = 10.0
"""How long a receiver may take to answer."""

TAKEN_MS: Millis = 60_000
"""For how long what was taken to be sent is left to whoever took it; longer than it can take."""

SEEN_EVERY_MS: Millis = 3_600_000
"""How often a process says that it still has its addresses."""

UNSEEN_MS: Millis = 2 * 86_400_000
"""For how long notices are written for an address that no process had since."""

TEXT_CHARS_MAX = 1_000
"""How much of a reason or message is told; the whole is in the console."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

GONE = 410
"""The status with which a receiver says that it wants no more notices."""


@dataclass(frozen=True)
class NoticeAddress:
    """Where notices are sent, signed by Standard Webhooks.

    Args:
        url: an http or https address.
        secrets: ``whsec_…``: base64 of 24 to 64 random bytes. While they are changed there may be
            several; what is sent is signed with each.
        kinds: what is told: ``failed`` runs, ``held`` runs, or both.

    Raises:
        ConfigError: nothing can be sent there, a secret is none, or there is no such kind.
    """

    url: str = field(repr=False)  # may hold what lets one in
    secrets: Sequence[str] = field(repr=False)
    kinds: Sequence[str] = KINDS

    def __post_init__(self) -> None:
        _check_url(self.url)
        secrets = (self.secrets,) if isinstance(self.secrets, str) else tuple(self.secrets)
        if not 0 < len(secrets) <= SECRETS_MAX:
            raise ConfigError(
                f"The notice address {self.shown} has {len(secrets)} secrets.",
                means="A receiver could not tell its notices from forged ones."
                if not secrets
                else f"What is sent is signed with each; there may be {SECRETS_MAX}.",
                todo="Give it one that begins with whsec_, or two while one takes the other's place.",
            )
        for number, secret in enumerate(secrets, 1):
            _check_secret(secret, f"Secret {number} of the notice address {self.shown}")
        kinds = (self.kinds,) if isinstance(self.kinds, str) else tuple(self.kinds)
        unknown = [kind for kind in kinds if kind not in KINDS]
        if unknown or not kinds:
            raise ConfigError(
                f"The notice address {self.shown} is to be told of {', '.join(map(shown, unknown)) or 'nothing'}.",
                means="There is no such notice, or none would ever be sent.",
                todo=f"Write {' or '.join(KINDS)}, or leave it out for both.",
            )
        object.__setattr__(self, "secrets", secrets)
        object.__setattr__(self, "kinds", tuple(kind for kind in KINDS if kind in kinds))

    @property
    def address_id(self) -> str:
        """Give what the store calls it: a hash, since the address itself may let one in."""
        return hashlib.sha256(self.url.encode()).hexdigest()[:16]

    @property
    def shown(self) -> str:
        """Give its scheme and host; the rest may let one in."""
        parts = urlsplit(self.url)
        rest = "/…" if parts.path.strip("/") or parts.query else ""
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{rest}"


def read_addresses(value: object, *, what: str) -> tuple[NoticeAddress, ...]:
    """Give the addresses that a setting names.

    Args:
        what: says which setting, for messages.
        value: addresses as objects, or one text with spaces between: each address is followed by its
            secrets and, to be told of less, by ``failed`` or ``held``.

    Raises:
        ConfigError: as for `NoticeAddress`; or an address is there twice.
    """
    if isinstance(value, NoticeAddress):
        value = (value,)
    if isinstance(value, str):
        addresses = tuple(_read_text(value, what))
    elif isinstance(value, Sequence) and all(isinstance(one, NoticeAddress) for one in value):
        addresses = tuple(value)
    else:
        raise ConfigError(
            f"The {what} cannot be {shown(type(value))}.",
            means="It names the addresses that notices are sent to.",
            todo='Write notices=[NoticeAddress("https://…", secrets=["whsec_…"])].',
        )
    if len(addresses) > ADDRESSES_MAX:
        raise ConfigError(
            f"The {what} names {len(addresses)} addresses.",
            means=f"Each is sent every notice; there may be {ADDRESSES_MAX}.",
            todo="Let one receiver pass them on.",
        )
    if len({address.url for address in addresses}) < len(addresses):
        raise ConfigError(
            f"The {what} names an address twice.",
            means="It would be sent every notice once, signed with the secrets of one of the two.",
            todo="Name it once, with all its secrets and kinds.",
        )
    return addresses


def _read_text(text: str, what: str) -> Iterable[NoticeAddress]:
    url, secrets, kinds = "", list[str](), list[str]()
    for number, word in enumerate(text.split(), 1):
        if word.startswith(("http://", "https://")):
            if url:
                yield NoticeAddress(url, secrets, kinds or KINDS)
            url, secrets, kinds = word, [], []
        elif url and word.startswith(SECRET_PREFIX):
            secrets.append(word)
        elif url and word in KINDS:
            kinds.append(word)
        else:
            # Not shown: it may be a secret whose prefix is missing.
            raise ConfigError(
                f"Word {number} of the {what} is no address, secret or kind of notice.",
                means="An address begins with http:// or https://, a secret with whsec_; the kinds are "
                f"{' and '.join(KINDS)}, and both stand behind their address.",
                todo='Write "https://ops.example/hooks/onceward whsec_…".',
            )
    if not url:
        raise ConfigError(
            f"The {what} names no address.",
            means="No notice would ever be sent.",
            todo='Write "https://ops.example/hooks/onceward whsec_…", or leave it out.',
        )
    yield NoticeAddress(url, secrets, kinds or KINDS)


def _check_url(url: object) -> None:
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        has_password = "@" in parts.netloc
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = has_password = False
    is_plain = isinstance(url, str) and url.isascii() and url.isprintable() and " " not in url
    if not is_usable or not is_plain or has_password:
        # Not shown: what is in it may let one in.
        raise ConfigError(
            "A notice address is none that can be posted to.",
            means="It has a user or password in it; the signature says who sends."
            if has_password
            else "It is no http or https address, or has characters that must be written as %XX.",
            todo="Write one such as https://ops.example/hooks/onceward.",
        )


def _check_secret(secret: object, what: str) -> None:
    try:
        key_of(str(secret) if isinstance(secret, str) else "")
    except ValueError as error:
        raise ConfigError(
            f"{what} is none by Standard Webhooks.",
            means=f"It is {SECRET_PREFIX} and the base64 of {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} random bytes.",
            todo="Draw one, e.g. with: echo whsec_$(openssl rand -base64 32)",
        ) from error


def key_of(secret: str) -> bytes:
    """Give the bytes of a ``whsec_…`` secret.

    Raises:
        ValueError: it is none.
    """
    text = secret.removeprefix(SECRET_PREFIX)
    try:
        key = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except binascii.Error as error:
        raise ValueError("no base64") from error
    if not secret.startswith(SECRET_PREFIX) or not SECRET_BYTES_MIN <= len(key) <= SECRET_BYTES_MAX:
        raise ValueError("no such secret")
    return key


# --- rows -----------------------------------------------------------------------------------


class NoticeAddressRow(msgspec.Struct, frozen=True, kw_only=True):
    """A notice address as the store knows it, so that any process can write notices for it.

    Attributes:
        address_id: see `NoticeAddress`.
        shown: its scheme and host.
        kinds: what it is told, with spaces between.
        seen_at: when a process last said that it has it.
        off_at: since when its receiver wants no more; a process that starts with it asks anew.
    """

    address_id: str
    shown: str
    kinds: str
    seen_at: Millis
    off_at: Millis | None = None


class NoticeRow(msgspec.Struct, frozen=True, kw_only=True):
    """One notice for one address.

    Attributes:
        notice_id: the same for every address and every try; receivers know a second copy by it.
        address_id: whom it is for.
        type: ``run.failed`` or ``run.held``.
        at: when it came to that.
        state: ``owed`` until it is ``told`` or ``given_up``.
        due_at: when it is sent next; None when that is over.
        ended_at: when it was told or given up.
        tries: how often it was sent, or about to be.
        trouble: why the last try did not tell it.
        error: of a failed run, JSON as the run has it.
    """

    notice_id: str
    address_id: str
    type: str
    at: Millis
    state: NoticeState
    due_at: Millis | None
    ended_at: Millis | None
    tries: int
    trouble: str | None
    run_id: str
    workflow: str
    source: str
    event_id: str
    event_type: str | None
    key: str | None
    generation: int
    attempt: int
    reason: str | None
    error: str | None


class Notices(Protocol):
    """What a store does about notices. Every method blocks; each is one transaction."""

    def know_addresses(self, rows: Sequence[NoticeAddressRow], *, is_start: bool) -> None:
        """Note that a process has these; one that starts turns on again what a receiver turned off."""
        ...

    def notice_addresses(self) -> list[NoticeAddressRow]:
        """Give the addresses that there are notices for."""
        ...

    def take_notices(self, address_ids: Sequence[str], now: Millis, limit: int) -> list[NoticeRow]:
        """Give notices that are due, each to one caller, who has `TAKEN_MS` to say what became of it."""
        ...

    def notice_told(self, row: NoticeRow, now: Millis) -> None:
        """Note that a receiver has it."""
        ...

    def put_off_notices(self, rows: Sequence[NoticeRow]) -> None:
        """Write ``due_at`` and ``trouble`` of notices that were taken, save where others took them since."""
        ...

    def give_up_notices(self, rows: Sequence[NoticeRow], now: Millis) -> None:
        """Note that they are not sent any more, with their ``trouble``."""
        ...

    def turn_off_address(self, address_id: str, now: Millis, trouble: str) -> int:
        """Write no more notices for an address and give up those it is owed; say how many."""
        ...

    def give_up_old_notices(self, before: Millis, now: Millis, trouble: str) -> int:
        """Give up every notice of before, whosever it is; say how many."""
        ...

    def notices(self, limit: int) -> list[NoticeRow]:
        """Give the latest, newest first."""
        ...


# --- what is sent ---------------------------------------------------------------------------


def message(row: NoticeRow, namespace: str, redaction: Redaction, runs_url: str | None) -> bytes:
    """Give the body of a notice: never a payload, the same for every try.

    Args:
        row: what it tells.
        namespace: of the run.
        redaction: what no output shows.
        runs_url: where the dashboard shows runs; None leaves the link out.
    """
    data = {
        "id": row.run_id,
        "namespace": namespace,
        "workflow": row.workflow,
        "state": row.type.removeprefix("run."),
        "reason": None if row.reason is None else _cut(redaction.text(row.reason)),
        "error": _error(row.error, redaction),
        "event": {"source": row.source, "id": row.event_id, "type": row.event_type},
        "key": row.key,
        "generation": row.generation,
        "attempt": row.attempt,
        "url": None if runs_url is None else f"{runs_url}/{row.run_id}",
    }
    told = {name: value for name, value in data.items() if value is not None}
    return msgspec.json.encode({"type": row.type, "timestamp": _iso(row.at), "data": told})


def _error(text: str | None, redaction: Redaction) -> dict[str, str] | None:
    """Give type and message of a saved error; the traceback stays in the store."""
    if text is None:
        return None
    try:
        saved = msgspec.json.decode(text, type=dict[str, object])
    except msgspec.MsgspecError:
        return None
    told = {name: str(saved[name]) for name in ("type", "message") if saved.get(name) is not None}
    return {name: _cut(redaction.text(value)) for name, value in told.items()}


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_CHARS_MAX else text[: TEXT_CHARS_MAX - 1] + "…"


def _iso(at: Millis) -> str:
    moment = _EPOCH + timedelta(milliseconds=at)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def put_off(row: NoticeRow, now: Millis, trouble: str, draw: float, retry: Retry = RETRY) -> NoticeRow | None:
    """Give a notice with the time of its next try, or None when it has to be given up.

    Args:
        row: as it was taken; its ``tries`` count the one that failed.
        now: the time.
        trouble: why it failed.
        draw: a number in [0, 1).
        retry: how long the waits are.
    """
    delay = next_delay(retry, max(1, row.tries), draw)
    if delay is None or now - row.at >= HORIZON_MS:
        return None
    return msgspec.structs.replace(row, due_at=now + delay, trouble=trouble)
