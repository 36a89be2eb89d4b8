"""What a process says when it starts: what it is, where it keeps things, and what holds.

Secrets are masked by those who hold them. It goes to the standard error, before the first log line.
"""

from __future__ import annotations

import inspect
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

import click

from onceward.app import App
from onceward.cli.plain import plain
from onceward.core.model import ProcessRow
from onceward.core.notices import NoticeAddress
from onceward.core.nouns import counted
from onceward.core.shown import listed
from onceward.stores.sqlite.within import is_safe_beside_others
from onceward.version import __version__
from onceward.web.auth.hosts import Hosts
from onceward.web.metrics import METRICS
from onceward.web.receiver import HEALTH, HOOKS

_LABEL_CHARS = 12


@dataclass(frozen=True)
class Facts:
    """What the banner tells beside what the app's code says.

    Attributes:
        role: ``serve`` or ``worker``.
        store: what the store says of itself.
        others: processes registered in the store beside this one.
        address: base URL of the receiver; None where there is none.
        workers: how many processes this one starts.
        link: lets its first visitor in; None where there are users.
        shown_at: base URL of a worker's metrics; None where it shows none.
        has_transactions: the app has transactional steps that wait beside other processes on an old SQLite.
    """

    role: str
    store: Mapping[str, str]
    others: Sequence[ProcessRow] = ()
    address: str | None = None
    workers: int = 1
    link: str | None = None
    shown_at: str | None = None
    has_transactions: bool = False


async def facts(
    app: App,
    role: str,
    *,
    address: str | None = None,
    workers: int = 1,
    link: str | None = None,
    shown_at: str | None = None,
) -> Facts:
    """Give what an open app's banner tells."""
    others = [row for row in await app.processes() if row.pid != os.getpid()]
    has_transactions = any(one.is_careful for one in app.worker.transactions.told)
    return Facts(role, await app.describe(), others, address, workers, link, shown_at, has_transactions)


def show(app: App, facts: Facts) -> None:
    """Print the banner."""
    context = click.get_current_context(silent=True)
    color = None if context is None else context.color
    click.echo(click.style(f"Onceward {__version__} {facts.role}", bold=True), err=True, color=color)
    last = ""
    for label, text in lines(app, facts):
        shown = label if label != last else ""
        style = {"fg": "yellow"} if label == "note" else {}
        head = click.style(f"  {shown:{_LABEL_CHARS}}", dim=True)
        for part in _folded(plain(text)):
            click.echo(head + click.style(part, **style), err=True, color=color)  # type: ignore[arg-type]
            head = " " * (_LABEL_CHARS + 2)
        last = label


def _folded(text: str) -> Sequence[str]:
    """Give a line as the lines that it takes on a terminal; a log gets it whole."""
    if not sys.stderr.isatty():
        return [text]
    room = shutil.get_terminal_size().columns - _LABEL_CHARS - 2
    # An address is not broken: it is followed, or copied.
    return textwrap.wrap(text, max(room, 20), break_long_words=False, break_on_hyphens=False) or [""]


def lines(app: App, facts: Facts) -> list[tuple[str, str]]:
    """Give the banner's lines, each with its label; a label may come several times."""
    settings, store = app.settings, facts.store
    found = [
        ("store", f"{store.get('store', '')}, {store.get('version', '')}"),
        ("durability", store.get("durability", "")),
        ("namespace", settings.namespace),
    ]
    if "connection" in store:
        found.append(("connection", store["connection"]))
    found += [("sources", text) for text in _sources(app, facts.address)]
    found += [("workflows", text) for text in _workflows(app)]
    processes = f", in each of {facts.workers} processes" if facts.workers > 1 else ""
    runs, threads = counted(settings.concurrency, "run"), counted(settings.threads, "thread")
    found.append(("at once", f"{runs}, {threads}{processes}"))
    found += [
        ("notices", f"{address.shown} is told of runs that {_kinds(address)}")
        for address in settings.notices or ()
    ]
    if facts.address is not None:
        found.append(("address", f"{facts.address}, health at {HEALTH}"))
        found += _looking(app, facts.address, facts.link)
    if facts.shown_at is not None:
        found.append(("metrics", f"{facts.shown_at}, health at {HEALTH}, metrics at {METRICS}"))
    found += [("note", text) for text in [*_notes(facts), *_names(app, facts), *_promises(app)]]
    return found


def _kinds(address: NoticeAddress) -> str:
    words = {"failed": "fail", "held": "are held"}
    return " or ".join(words[kind] for kind in address.kinds)


def _names(app: App, facts: Facts) -> list[str]:
    """Say so where dashboard and API answer to no name that others would use."""
    settings = app.settings
    is_looked_at = facts.address is not None and (settings.dashboard or settings.api)
    if not is_looked_at or settings.allowed_hosts or settings.host in ("127.0.0.1", "localhost", "::1"):
        return []
    return [
        f"dashboard and REST API answer as {', '.join(Hosts(listening=settings.host).names)} only; name "
        "others in allowed_hosts (ONCEWARD_ALLOWED_HOSTS).",
    ]


def _promises(app: App) -> list[str]:
    """Say so where workflows make promises without the secret for it: their runs would be held there."""
    if app.settings.promise_secret is not None:
        return []
    names = [name for name, one in app.workflows.items() if _makes_promises(one.function)]
    if not names:
        return []
    return [
        f"promises are made in {listed(names)}, and promise_secret (ONCEWARD_PROMISE_SECRET) is not set: a run "
        "that makes one is held.",
    ]


def _makes_promises(function: Callable[..., Any]) -> bool:
    """Say whether a function's own code names ``step.promise``; what it calls is not looked at."""
    codes = [getattr(inspect.unwrap(function), "__code__", None)]
    for code in codes:
        if isinstance(code, CodeType):
            if {"step", "promise"} <= set(code.co_names):
                return True
            codes += code.co_consts
    return False


def _looking(app: App, address: str, link: str | None) -> list[tuple[str, str]]:
    """Give where a person looks on and a program asks."""
    found = []
    if app.settings.dashboard and link is not None:
        found.append(("dashboard", f"{address}/login?link={link} (once, within 10 minutes)"))
    elif app.settings.dashboard:
        found.append(("dashboard", f"{address}/"))
    if app.settings.api:
        found.append(("REST API", f"{address}/api/v1/docs"))
    return found


def _sources(app: App, address: str | None) -> list[str]:
    if not app.sources:
        return ["none"]
    width = max(len(name) for name in app.sources)
    where = "" if address is None else f"POST {HOOKS}"
    rows = []
    for name, source in app.sources.items():
        trust = "INSECURE, accepts anything" if source.insecure else ", ".join(map(repr, source.secrets))
        place = f"{where}{name}".ljust(width + len(where))
        rows.append(f"{place}  {type(source).__name__}, {trust}")
    return rows


def _workflows(app: App) -> list[str]:
    if not app.workflows:
        return ["none"]
    width = max(len(name) for name in app.workflows)
    rows = []
    for name, workflow in app.workflows.items():
        triggers = ", ".join(trigger.show() for trigger in workflow.triggers)
        rows.append(f"{name.ljust(width)}  {triggers or 'started by name'}")
    return rows


def _notes(facts: Facts) -> list[str]:
    version = re.search(r"SQLite (\d+\.\d+\.\d+)", facts.store.get("version", ""))
    is_alone = facts.workers == 1 and not facts.others
    if version is None or is_alone or is_safe_beside_others(version[1]):
        return []
    notes = [
        "several processes share this file, and SQLite before 3.51.3 can corrupt one when two of them "
        "reset its log at the same instant. Onceward lets one at a time; let no other program write to it.",
    ]
    if facts.has_transactions:
        notes.append(
            "transactional steps would not be safe so, and wait: none begins while a second process uses "
            "the file. Run one process, or use a newer SQLite or PostgreSQL."
        )
    return notes
