"""Every setting there is: one typed table that feeds arguments, the environment and the docs.

``App(...)`` and the command line pass what they were given, with the environment, to `resolve`.
An argument wins over ``ONCEWARD_*``, which wins over the default. A name that is not in the table
is an error, and so is a pair of values that contradict each other: a silently ignored or impossible
setting shows up as duplicates or stuck runs much later.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from onceward.core.errors import ConfigError
from onceward.core.notices import NoticeAddress
from onceward.core.setting import KIB, MIB, PREFIX, Kind, Setting

OTHER_VARIABLES = ("ONCEWARD_FAILPOINT", "ONCEWARD_SECRET", "ONCEWARD_API_URL", "ONCEWARD_TOKEN")
OTHER_PREFIXES = ("ONCEWARD_TEST_",)
HEARTBEATS_PER_LEASE = 4


SECOND, MINUTE, DAY = 1_000, 60_000, 86_400_000

SETTINGS: tuple[Setting, ...] = (
    Setting(
        "store",
        Kind.STORE,
        None,
        "Where events and runs are kept: `sqlite:///orders.db` or `postgresql://user@host/database`.",
    ),
    Setting(
        "namespace",
        Kind.NAME,
        "default",
        "The wall between environments or customers in one store. A process serves one.",
    ),
    Setting("concurrency", Kind.COUNT, 64, "How many runs this process advances at once.", 1, 100_000),
    Setting(
        "lease",
        Kind.DURATION,
        10 * SECOND,
        "How long this process may be silent before others take its runs over. It renews four times as often.",
        200,
        DAY,
    ),
    Setting(
        "poll",
        Kind.DURATION,
        1 * SECOND,
        "How often this process looks for due runs that nobody told it of.",
        10,
        10 * MINUTE,
    ),
    Setting(
        "linger",
        Kind.DURATION,
        200,
        "How long a run that waits stays in memory before it costs only a row.",
        0,
        MINUTE,
    ),
    Setting(
        "instance",
        Kind.NAME,
        None,
        "A name that stays the same when this instance restarts, so that it takes its runs back at once. "
        "Two live processes must never share one: the younger evicts the older. PostgreSQL only.",
    ),
    Setting(
        "body_bytes_max",
        Kind.SIZE,
        5 * MIB,
        "The largest body of a delivery that is accepted.",
        1 * KIB,
        256 * MIB,
    ),
    Setting(
        "value_bytes_max",
        Kind.SIZE,
        1 * MIB,
        "The largest saved value: a payload, an argument, the result of a step or run, as JSON.",
        1 * KIB,
        256 * MIB,
    ),
    Setting(
        "drain",
        Kind.DURATION,
        25 * SECOND,
        "How long a process that was asked to stop lets its steps finish.",
        0,
        DAY,
    ),
    Setting("threads", Kind.COUNT, 32, "How many `def` steps run at once, each in a thread.", 1, 1_000),
    Setting(
        "notify",
        Kind.FLAG,
        True,
        "Wake other instances with NOTIFY. Off, they find new work at their next poll. PostgreSQL only.",
    ),
    Setting(
        "pooler",
        Kind.FLAG,
        None,
        "Whether a pooler in transaction mode is in between. By default Onceward finds out, and uses prepared "
        "statements only on direct connections. PostgreSQL only.",
    ),
    Setting(
        "strict",
        Kind.FLAG,
        False,
        "Refuse what may wait for ever: `wait_for`, `wait_any` and `promise` need a `timeout=`.",
    ),
    Setting(
        "public_url",
        Kind.TEXT,
        None,
        "The address at which the outside reaches this app's receiver, such as `https://shop.example`; the links of "
        "promises begin with it.",
    ),
    Setting(
        "promise_secret",
        Kind.SECRETS,
        None,
        "What the tokens of promises are made with: 32 random characters or more, the same in every process, never in "
        "the store. To change it, put the new one before the old, with a space between.",
    ),
    Setting(
        "host",
        Kind.TEXT,
        "127.0.0.1",
        "The address that `onceward serve` listens on, and `onceward worker` with `metrics_port`.",
    ),
    Setting(
        "port", Kind.COUNT, 8000, "The port that `onceward serve` listens on; 0 takes a free one.", 0, 65_535
    ),
    Setting(
        "metrics_port",
        Kind.COUNT,
        None,
        "The port at which `onceward worker` shows its metrics and its health; 0 takes a free one.",
        0,
        65_535,
    ),
    Setting(
        "trusted_proxies",
        Kind.TEXT,
        None,
        "Addresses or networks of proxies, with spaces between, whose `X-Forwarded-Proto` and `X-Forwarded-Host` "
        "are believed; some senders sign the address that they call.",
    ),
    Setting("api", Kind.FLAG, True, "Whether `onceward serve` has the REST API."),
    Setting("dashboard", Kind.FLAG, True, "Whether `onceward serve` has the dashboard."),
    Setting(
        "allowed_hosts",
        Kind.TEXT,
        None,
        "Names, with spaces between, under which dashboard and REST API are reached: `runs.example.com` or "
        "`*.example.com`. Loopback names always are; what comes under another name is refused.",
    ),
    Setting(
        "redact",
        Kind.TEXT,
        None,
        "Fields, headers and parameters whose values no output shows, beside passwords, tokens, cookies, card "
        "numbers and the like, with spaces between: `birth_date` by name, `customer.email` by path; `!iban` "
        "shows a usual one.",
    ),
    Setting(
        "notices",
        Kind.NOTICES,
        None,
        "Where it is told that a run failed or is held: addresses, each followed by its `whsec_…` secrets and, to be "
        "told of less, by `failed` or `held`, with spaces between; in code a list of `NoticeAddress`.",
    ),
    Setting(
        "log_level",
        Kind.CHOICE,
        "info",
        "The least severe log record that the command line shows.",
        choices=("debug", "info", "warning", "error"),
    ),
    Setting(
        "log_format",
        Kind.CHOICE,
        "text",
        "How the command line writes log records: lines for people, or JSON with run, workflow, attempt and step.",
        choices=("text", "json"),
    ),
)


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings that were read, checked and do not contradict each other."""

    store: str | None = field(repr=False)  # may hold a password
    namespace: str
    concurrency: int
    lease_ms: int
    poll_ms: int
    linger_ms: int
    instance: str | None
    body_bytes_max: int
    value_bytes_max: int
    drain_ms: int
    threads: int
    notify: bool
    pooler: bool | None
    strict: bool
    public_url: str | None
    promise_secret: str | None = field(repr=False)
    host: str
    port: int
    metrics_port: int | None
    trusted_proxies: str | None
    api: bool
    dashboard: bool
    allowed_hosts: str | None
    redact: str | None
    notices: tuple[NoticeAddress, ...] | None
    log_level: str
    log_format: str

    @property
    def address(self) -> str:
        """Give the base URL at which this app is reached: ``public_url``, else from this machine."""
        if self.public_url:
            return self.public_url.rstrip("/")
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104 (what is listened on)
        port = self.port or "<port>"
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    @property
    def heartbeat_ms(self) -> int:
        """How often the lease is renewed.

        Derived, so that a lease shorter than two heartbeats cannot be configured: three
        renewals in a row may fail before others take over.
        """
        return self.lease_ms // HEARTBEATS_PER_LEASE


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Two settings of which the first must not exceed the second."""

    smaller: str
    larger: str
    means: str


CONTRADICTIONS: tuple[Contradiction, ...] = (
    Contradiction(
        "poll", "lease", "A dead process's runs would wait longer for the look than for the lease."
    ),
    Contradiction(
        "linger", "lease", "Waiting runs would stay in memory for longer than a process may be silent."
    ),
)


def resolve(
    table: Sequence[Setting], arguments: Mapping[str, object], environ: Mapping[str, str]
) -> Settings:
    """Give the settings that hold, each from its argument, its variable or its default.

    Args:
        table: `SETTINGS`.
        arguments: by name; None is "not given".
        environ: the environment; only ``ONCEWARD_*`` is read.

    Raises:
        ConfigError: a name is not in the table, a value cannot be read or is out of range, or
            two values contradict each other. The message says which, and what to write.
    """
    by_name = {setting.name: setting for setting in table}
    by_env = {setting.env: setting for setting in table}
    faults = [_unknown(f"setting {name!r}", name, by_name) for name in arguments if name not in by_name]
    for name in environ:
        is_other = name in OTHER_VARIABLES or name.startswith(OTHER_PREFIXES)
        if name.startswith(PREFIX) and name not in by_env and not is_other:
            faults.append(_unknown(f"variable {name}", name, by_env))

    values: dict[str, Any] = {}
    said: dict[str, str] = {}
    for setting in table:
        argument = arguments.get(setting.name)
        try:
            if argument is not None:
                said[setting.name] = setting.name
                values[setting.field] = setting.read(argument)
            elif setting.env in environ:
                said[setting.name] = setting.env
                values[setting.field] = setting.read_variable(environ[setting.env])
            else:
                said[setting.name] = f"{setting.name} (the default)"
                values[setting.field] = setting.default
        except ConfigError as error:
            faults.append(error)
    for pair in CONTRADICTIONS:
        if by_name[pair.smaller].field in values and by_name[pair.larger].field in values:
            faults += _pair_faults(pair, by_name, values, said)
    if faults:
        raise _together(faults)
    return Settings(**values)


def settings_markdown(table: Sequence[Setting] = SETTINGS) -> str:
    """Give the table of settings for the docs."""
    lines = [
        "| argument | variable | default | from | to | what it does |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for setting in table:
        has_range = setting.kind in {Kind.COUNT, Kind.SIZE, Kind.DURATION}
        bounds = [setting.show(bound) if has_range else "" for bound in (setting.minimum, setting.maximum)]
        if setting.choices:
            bounds = [", ".join(setting.choices), ""]
        default = f"`{setting.show(setting.default)}`" if setting.default is not None else "none"
        cells = [f"`{setting.name}`", f"`{setting.env}`", default, *bounds, setting.help]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


# --- what is refused ----------------------------------------------------------------------


def _together(faults: Sequence[ConfigError]) -> ConfigError:
    """Give one error for all that is wrong, so that nobody has to start again for each of them."""
    if len(faults) == 1:
        return faults[0]
    return ConfigError(
        f"{len(faults)} settings cannot be used: {' '.join(fault.what for fault in faults)}",
        means=" ".join(dict.fromkeys(fault.means for fault in faults if fault.means)),
        todo=" ".join(dict.fromkeys(fault.todo for fault in faults if fault.todo)),
    )


def _pair_faults(
    pair: Contradiction, table: Mapping[str, Setting], values: Mapping[str, Any], said: Mapping[str, str]
) -> list[ConfigError]:
    smaller, larger = table[pair.smaller], table[pair.larger]
    low, high = values[smaller.field], values[larger.field]
    if low <= high:
        return []
    fault = ConfigError(
        f"{said[smaller.name]} = {smaller.show(low)} is more than {said[larger.name]} = {larger.show(high)}.",
        means=pair.means,
        todo=f"Lower {smaller.name} or raise {larger.name}.",
    )
    return [fault]


def _unknown(what: str, name: str, known: Iterable[str]) -> ConfigError:
    # Compared without the prefix: all variables resemble each other with it.
    names = {known_name.removeprefix(PREFIX): known_name for known_name in sorted(known)}
    close = difflib.get_close_matches(name.removeprefix(PREFIX), names, n=1)
    return ConfigError(
        f"There is no {what}.",
        means="It would have no effect.",
        todo=f"Did you mean {names[close[0]]}?" if close else f"There are: {', '.join(names.values())}.",
    )
