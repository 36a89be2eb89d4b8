"""Pruning for a console: a page for each call, and a place from which to go on.

So nobody has to wait for the whole, nothing runs on for somebody who has gone, and whoever asks
sees how far it is.
"""

from __future__ import annotations

import functools
import hashlib
from typing import TYPE_CHECKING

import msgspec

from onceward.console import asking, audit
from onceward.console.port import Prune
from onceward.console.prune_views import KeptView, PruneReply, SubjectView
from onceward.core import asked
from onceward.core.duration import to_ms
from onceward.core.errors import ConfigError
from onceward.core.retention import Keep, Needed, Pruned, Rules, SubjectPruned, rules_of
from onceward.runtime.pruning import keeps_of

if TYPE_CHECKING:
    from onceward.app import App

PRUNE = "prune"
ROUNDS_MAX = 3
"""What loses its values in one round may go whole in the next, a replay's original in the one after."""


SUBJECT = "subject"

_TODO = {
    Needed.LIVE: "wait for its end, or cancel it",
    Needed.PROBLEM: "dismiss it, or retry it",
    Needed.FAMILY: "wait for the end of the runs that it belongs to, or cancel them",
    Needed.WAITS: "wait until it has taken the event, or cancel it",
    Needed.TAKEN: "wait for its end, or cancel it",
}
"""What a person can do about a run that keeps what it has."""


async def prune(app: App, asked_for: Prune) -> PruneReply:
    """Prune one page; see `LocalConsole.prune`."""
    asked.checked_actor(asked_for.actor)
    if asked_for.subject is not None:
        return await _prune_subject(app, asked_for, asked_for.subject)
    worker = app.worker
    rules = await _rules(app, asked_for)
    whats = rules.whats
    noted, round_, number, after, has_changed = "", 0, 0, "", 0
    if asked_for.after is not None:
        noted, *place = asking.read_cursor(asked_for.after, str, int, int, str, int)
        round_, number, after, has_changed = place
    if not (0 <= number < max(1, len(whats)) and 0 <= round_ < ROUNDS_MAX and has_changed in (0, 1)):
        raise _no_place()
    if not whats:
        return PruneReply(is_dry_run=asked_for.dry_run)
    noted = await _noted(app, asked_for, noted)
    what = whats[number]
    page = functools.partial(
        worker.store.prune, what, rules, worker.now_ms(), after=after, is_dry=asked_for.dry_run
    )
    try:
        found: Pruned = await worker.read(page)
    except msgspec.MsgspecError as error:
        raise _no_place() from error
    has_changed |= int(bool(found.values or found.rows))
    following: tuple[int, int, str, int] | None = (round_, number, found.next or "", has_changed)
    if found.next is None:
        following = (round_, number + 1, "", has_changed)
        if number + 1 == len(whats):
            is_last = asked_for.dry_run or not has_changed or round_ + 1 == ROUNDS_MAX
            following = None if is_last else (round_ + 1, 0, "", 0)
    return PruneReply(
        is_dry_run=asked_for.dry_run,
        what=what.value,
        looked=found.looked,
        values=found.values,
        rows=found.rows,
        next=None if following is None else asking.cursor(noted, *following),
    )


def _no_place() -> ConfigError:
    return ConfigError(
        "after= is no place of this pruning.", means="Nothing was pruned.", todo="Begin without it."
    )


async def _rules(app: App, asked_for: Prune) -> Rules:
    """Give what is pruned: by what was asked, else by the retention of the app and its workflows.

    Raises:
        ConfigError: what was asked does not go together.
    """
    kinds = {
        name: getattr(asked_for, name)
        for name in ("payloads", "runs", "deliveries", "identity")
        if getattr(asked_for, name)
    }
    if kinds and asked_for.older_than is None:
        raise ConfigError(
            f"{', '.join(kinds)} was to be pruned, and not of which age.",
            means="Nothing was pruned.",
            todo="Say how old is what may go: older_than 30d.",
        )
    if asked_for.workflow is not None and (asked_for.deliveries or asked_for.identity):
        raise ConfigError(
            "Deliveries and ids belong to no workflow.",
            means="Nothing was pruned.",
            todo="Leave the workflow out.",
        )
    if asked_for.older_than is None:
        rows = await app.worker.read(app.worker.store.workflows)
        rules = rules_of(app.retention, keeps_of(rows))
        if asked_for.workflow is not None:
            rules = Rules(rules.keep, rules.workflows, only=asked_for.workflow)
        return rules
    age = to_ms(asked_for.older_than, what="older_than")
    has_payloads = asked_for.payloads or asked_for.runs or not kinds
    rows_age = age if asked_for.runs else None
    return Rules(
        Keep(rows_age, rows_age, rows_age, age if has_payloads else None),
        only=asked_for.workflow,
        alone=age if has_payloads and asked_for.workflow is None else None,
        deliveries=age if asked_for.deliveries else None,
        unparsed=age if asked_for.deliveries else None,
        notices=age if asked_for.deliveries else None,
        identity=age if asked_for.identity else None,
    )


async def _prune_subject(app: App, asked_for: Prune, subject: str) -> PruneReply:
    """Prune one page of what is stored about a subject.

    Raises:
        ConfigError: what was asked does not go together.
    """
    others = ("older_than", "payloads", "runs", "deliveries", "identity", "workflow")
    odd = [name for name in others if getattr(asked_for, name)]
    if odd or not subject:
        raise ConfigError(
            f"What is about a subject was to be pruned, and {', '.join(odd) or 'the subject is empty'}.",
            means="Nothing was pruned.",
            todo="Give the subject of the events, and nothing else: all that is about it goes, however old.",
        )
    asked.checked_text(subject, "subject")
    worker, noted, place = app.worker, "", ""
    if asked_for.after is not None:
        noted, place = asking.read_cursor(asked_for.after, str, str)
    noted = await _noted(app, asked_for, noted)
    page = functools.partial(
        worker.store.prune_subject, subject, worker.now_ms(), after=place, is_dry=asked_for.dry_run
    )
    try:
        found: SubjectPruned = await worker.read(page)
    except msgspec.MsgspecError as error:
        raise _no_place() from error
    return PruneReply(
        is_dry_run=asked_for.dry_run,
        what=SUBJECT,
        looked=found.looked,
        values=found.runs + found.events + found.copies,
        rows=found.deliveries,
        subject=SubjectView(
            runs=found.runs,
            events=found.events,
            deliveries=found.deliveries,
            copies=found.copies,
            kept=[
                KeptView(
                    run_id=run.run_id,
                    workflow=run.workflow,
                    state=run.state.value,
                    why=run.why.value,
                    todo=_TODO[run.why],
                )
                for run in found.kept
            ],
            kept_events=found.kept_events,
        ),
        next=None if found.next is None else asking.cursor(noted, found.next),
    )


def subject_hash(subject: str) -> str:
    """Give what the audit says in place of a subject: it is kept for ever, and who asks can compare."""
    return f"sha256:{hashlib.sha256(subject.encode()).hexdigest()[:16]}"


async def _noted(app: App, asked_for: Prune, noted: str) -> str:
    """Note who begins it, and with what; or see that it was noted, where a page goes on.

    Returns:
        By which the entry is found; empty for a dry run, which has none.

    Raises:
        ConfigError: the page goes on with what was not begun so: the audit would not say what went.
    """
    if asked_for.dry_run:
        return ""
    told = msgspec.to_builtins(asked_for)
    if asked_for.subject is not None:
        told["subject"] = subject_hash(asked_for.subject)
    said = {name: value for name, value in told.items() if value and name not in ("actor", "after")}
    detail = msgspec.json.encode(said).decode()
    if asked_for.after is None:
        noted = app.worker.ids.hex(12)
        await audit.note(app, PRUNE, asked_for.actor, detail, request_id=noted)
        return noted
    entry = await audit.entry_of(app, noted) if noted else None
    if entry is None or (entry.verb, entry.actor, entry.detail) != (PRUNE, asked_for.actor, detail):
        raise _no_place()
    return noted
