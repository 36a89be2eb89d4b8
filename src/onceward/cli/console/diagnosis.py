"""What is wrong with a store: broken promises, runs that are stuck and why, settings that can lose data.

Everything is bounded: of a large store the runs that are under way, the open problems and the newest are
looked at, with what belongs to them, all seen at one moment.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from onceward.cli.console.words import length
from onceward.console.shaping import LATE_MS, Serving, serving
from onceward.core.looks import RunLook
from onceward.core.model import Millis, ProcessRow, WorkflowRow
from onceward.core.notices import HORIZON_MS, SEEN_EVERY_MS
from onceward.core.nouns import counted
from onceward.core.rules import WAITS_FOR_KEY
from onceward.core.states import TERMINAL, NoticeState, RunState
from onceward.core.within_ports import is_shared
from onceward.stores.sqlite.within import is_safe_beside_others
from onceward.testing import invariants

if TYPE_CHECKING:
    from onceward.core.looks import Listed
    from onceward.core.ports import Store

WHOLE_MAX = 5_000
"""A store with no more runs than this is looked at whole."""


STUCK_MAX = 1_000

UNTOLD_MS = 300_000
"""A notice that is owed for so long is not only waiting for its turn."""

LOST_SHOWN_MS = 2 * HORIZON_MS
"""For so long it is told that notices were given up, counted from what they tell."""

NOTICES_LOOK_MAX = 1_000
NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "ocfs2", "gfs2"}
)
MOUNTS = Path("/proc/self/mounts")


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that the doctor found.

    Attributes:
        kind: ``broken`` (a promise), ``stuck`` (a run), ``danger`` (a setting) or ``note``, which is
            nothing wrong.
        subject: a run's id, an invariant's number with what it is about, or a setting.
        says: what is wrong.
        todo: what to do.
    """

    kind: str
    subject: str
    says: str
    todo: str = ""

    @property
    def is_wrong(self) -> bool:
        """Say whether somebody should do something."""
        return self.kind != "note"


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """What was looked at for the promises: how many runs, whether all, and what is broken."""

    runs: int
    is_whole: bool
    violations: list[Finding]


# --- promises ---------------------------------------------------------------------------------------


def check_promises(store: Store, sample: int) -> Checked:
    """Give the promises that the rows show to be broken.

    Args:
        store: open.
        sample: at most so many of the newest runs of a large store, beside what is under way.
    """
    if len(store.look_for_runs(RunLook(limit=WHOLE_MAX + 1, look=WHOLE_MAX + 1)).run_ids) <= WHOLE_MAX:
        tables = store.dump(*invariants.TABLES)
        found = invariants.check_rows(tables)
        return Checked(runs=len(tables["run"]), is_whole=True, violations=[_broken(one) for one in found])
    count, first = _check_excerpt(store, sample)
    if first:
        # What ended or began while the ids were gathered looks broken once, and not again.
        count, second = _check_excerpt(store, sample)
        seen = {(one.invariant, one.subject) for one in second}
        first = [one for one in first if (one.invariant, one.subject) in seen]
    return Checked(runs=count, is_whole=False, violations=[_broken(one) for one in first])


def _broken(violation: invariants.Violation) -> Finding:
    return Finding(
        kind="broken",
        subject=f"{violation.invariant} {violation.subject}".rstrip(),
        says=violation.sentence,
        todo="Keep a copy of the store as it is, and report it: this must not happen.",
    )


def _check_excerpt(store: Store, sample: int) -> tuple[int, list[invariants.Violation]]:
    core = dict.fromkeys(store.live(sample))
    core |= dict.fromkeys(store.look_for_runs(RunLook(problems=True, limit=sample, look=sample)).run_ids)
    core |= dict.fromkeys(store.look_for_runs(RunLook(limit=sample, look=sample)).run_ids)
    near = store.excerpt(("run", "step", "holder"), list(core))
    # What they are told by: parents, children, originals, holders. Those are not judged themselves.
    others = {row[name] for row in near["run"] for name in ("parent_run_id", "replay_of")}
    others |= {row["child_run_id"] for row in near["step"]} | {row["run_id"] for row in near["holder"]}
    tables = store.excerpt(invariants.TABLES, [*core, *sorted(others - {None, ""} - core.keys())])
    # What is missing beside them retention may have taken, and a sample does not show whether it took anything.
    found = invariants.check_rows(tables, is_pruned=True)
    return len(core), [one for one in found if one.subject in core or one.subject == ""]


# --- stuck runs -------------------------------------------------------------------------------------


def stuck_runs(store: Store, now: Millis) -> Iterator[Finding]:
    """Give each run that does not go on by itself, and why."""
    held = store.look_for_runs(
        RunLook(problems=True, state=RunState.HELD, limit=STUCK_MAX, look=10 * STUCK_MAX)
    ).run_ids
    processes = {row.process_id: row for row in store.processes()}
    workflows = {row.name: row for row in store.workflows()}
    for listed in store.listed(held):
        yield _finding(
            listed,
            f"held for a person: {listed.run.reason}",
            f"onceward runs show {listed.run.run_id} tells what can be answered",
        )
    runs = store.listed(store.live(STUCK_MAX)[:STUCK_MAX])
    for listed in runs:
        told = _why_stuck(store, listed, processes, workflows, now)
        if told is not None:
            yield _finding(listed, *told)


def _finding(listed: Listed, says: str, todo: str) -> Finding:
    run = listed.run
    return Finding(kind="stuck", subject=f"{run.run_id} {run.workflow}", says=says, todo=todo)


def _why_stuck(
    store: Store,
    listed: Listed,
    processes: Mapping[str, ProcessRow],
    workflows: Mapping[str, WorkflowRow],
    now: Millis,
) -> tuple[str, str] | None:
    """Give why a run does not go on and what to do; None where it does."""
    run = listed.run
    alive = [row for row in processes.values() if row.lease_until >= now]
    if listed.process_id is not None:
        owner = processes.get(listed.process_id)
        if owner is None or owner.lease_until + LATE_MS < now:
            return (
                f"its process {listed.process_id} is silent and nobody has taken it over",
                "Start a process: any one takes over what the dead left.",
            )
        return None
    if run.state is RunState.WAITING:
        return _blocked(store, listed)
    if run.state is RunState.BACKOFF and store.kind == "sqlite" and (told := _shut_out(store, run.run_id)):
        return told
    if run.reason == WAITS_FOR_KEY and run.key is not None:
        holder = store.holder(run.workflow, run.key)
        return _for_another(store, holder, f"for its key {run.key!r}, which", listed) if holder else None
    if listed.due_at is None or listed.due_at + LATE_MS > now:
        return None
    late = f"due for {length(now - listed.due_at)} and nobody claims it"
    if not alive:
        return f"{late}: no process is alive", "Start one: onceward worker MODULE:APP"
    served = serving(workflows.get(run.workflow), alive, now)
    if served is not Serving.YES:
        has_it = "has" if served is Serving.NO else "is known to have"
        return (
            f"{late}: no process that is alive {has_it} the workflow {run.workflow!r}",
            f"Start one whose code has it, or end the run: onceward runs cancel {run.run_id}",
        )
    return f"{late}: every process is busy", "Raise concurrency, or start more processes."


def _blocked(store: Store, listed: Listed) -> tuple[str, str] | None:
    """Look at what a waiting run waits for: a called run that does not go on itself."""
    for step in store.steps(listed.run.run_id):
        if step.state == "open" and step.child_run_id is not None:
            return _for_another(store, step.child_run_id, f"in {str(step.key)!r} for run", listed)
    return None


def _shut_out(store: Store, run_id: str) -> tuple[str, str] | None:
    """Look whether a transactional step waits because another process uses the store's file."""
    for step in store.steps(run_id):
        if step.state == "open" and is_shared(step.error):
            return (
                f"{str(step.key)!r} waits until no other process uses the store's file",
                "Let one process run, or use SQLite 3.51.3 or newer, or PostgreSQL.",
            )
    return None


def _for_another(store: Store, run_id: str, what: str, listed: Listed) -> tuple[str, str] | None:
    other = store.run(run_id)
    named = f"run {run_id}" if not what.endswith("run") else run_id
    if other is None:
        return f"waits {what} {named}, which does not exist", f"onceward runs cancel {listed.run.run_id}"
    if other.state is RunState.HELD:
        return (
            f"waits {what} {named}, which is held: {other.reason}",
            f"onceward runs show {run_id} tells what can be answered",
        )
    if other.state in TERMINAL:
        return (
            f"waits {what} {named}, which is {other.state.value}",
            f"onceward runs retry {listed.run.run_id}",
        )
    return None


# --- settings ---------------------------------------------------------------------------------------


def dangers(store: Store, processes: Sequence[ProcessRow], now: Millis) -> Iterator[Finding]:
    """Give what of the store's settings and surroundings can lose data, and what is worth knowing."""
    told = store.describe()
    durability = told.get("durability", "")
    if "may be lost with the server" in durability or "lost at exit" in durability:
        yield Finding(
            kind="danger",
            subject="durability",
            says=durability,
            todo="Set fsync, synchronous_commit and full_page_writes to on."
            if store.kind == "postgres"
            else "Use a file: sqlite:///shop.db",
        )
    elif "no synchronous standby" in durability:
        yield Finding(
            kind="note",
            subject="durability",
            says=durability,
            todo="Where a replica is to take over, set synchronous_standby_names.",
        )
    if store.kind == "sqlite":
        path = told.get("store", "").removeprefix("sqlite ")
        system = file_system_of(path, _mounts())
        if system in NETWORK_FILE_SYSTEMS or system.startswith("fuse."):
            yield Finding(
                kind="danger",
                subject="file system",
                says=f"{path} is on {system}: locks and shared memory of other hosts are not seen there, and "
                "two hosts can destroy the file",
                todo="Put the file on a disk of this host, or use PostgreSQL.",
            )
    alive = sum(row.lease_until >= now for row in processes)
    version = told.get("version", "").removeprefix("SQLite ")
    if store.kind == "sqlite" and alive > 1 and not is_safe_beside_others(version):
        yield Finding(
            kind="note",
            subject="processes",
            says=f"{alive} processes use the file with SQLite {version}, which before 3.51.3 can damage it: while "
            "they do, no transactional step begins",
            todo="If the app has @app.transaction, let one process run, or use a newer SQLite or PostgreSQL.",
        )
    versions = sorted({row.version for row in processes if row.lease_until >= now})
    if len(versions) > 1:
        yield Finding(
            kind="note", subject="versions", says=f"processes of several versions run: {', '.join(versions)}"
        )
    if not alive:
        waiting = _waiting(store, now)
        yield Finding(
            kind="danger" if waiting else "note",
            subject="processes",
            says=f"no process is alive: nothing runs{waiting}",
            todo="Start one: onceward worker MODULE:APP",
        )


def _waiting(store: Store, now: Millis) -> str:
    """Say how many runs are due or under way; empty of none."""
    listed = store.listed(store.live(STUCK_MAX)[:STUCK_MAX])
    count = sum(
        one.process_id is not None or (one.due_at is not None and one.due_at <= now) for one in listed
    )
    return f", and {counted(count, 'run')} due or under way" if count else ""


def untold(store: Store, now: Millis) -> Iterator[Finding]:
    """Give the addresses that cannot be told of failed and held runs, by the latest notices."""
    latest = store.notices(NOTICES_LOOK_MAX)
    addresses = {row.address_id: row for row in store.notice_addresses()}
    for address_id in sorted({*addresses, *(row.address_id for row in latest)}):
        known = addresses.get(address_id)
        mine = [row for row in latest if row.address_id == address_id]
        owed = [row for row in mine if row.due_at is not None and row.at + UNTOLD_MS < now]
        lost = [row for row in mine if row.state is NoticeState.GIVEN_UP and now - row.at < LOST_SHOWN_MS]
        if known is not None and known.off_at is not None:
            says, todo = (
                "it answered HTTP 410 and gets no more",
                "Start a process anew, or take it out of notices.",
            )
        elif owed and (known is None or now - known.seen_at > 2 * SEEN_EVERY_MS):
            says, todo = (
                f"{counted(len(owed), 'is', 'are')} owed and no process has it",
                "Start one with the setting notices.",
            )
        elif owed:
            trouble = next((row.trouble for row in owed if row.trouble), "nobody has sent them yet")
            says, todo = f"{counted(len(owed), 'is', 'are')} owed: {trouble}", "onceward notices lists them"
        elif lost:
            says, todo = (
                f"{counted(len(lost), 'was', 'were')} given up: {lost[0].trouble}",
                "onceward dead lists the runs",
            )
        else:
            continue
        name = known.shown if known is not None else address_id
        yield Finding(kind="danger", subject=f"notices to {name}", says=says, todo=todo)


def _mounts() -> str:
    try:
        return MOUNTS.read_text("utf-8", "replace")
    except OSError:  # no Linux
        return ""


def file_system_of(path: str, mounts: str) -> str:
    """Give the kind of file system that a path is on; empty where it cannot be told.

    Args:
        path: absolute.
        mounts: what ``/proc/self/mounts`` says.
    """
    best, kind = "", ""
    for line in mounts.splitlines():
        parts = line.split()
        if len(parts) < 3:
            continue
        place = parts[1].replace("\\040", " ")
        is_above = os.path.commonpath([place, path]) == place if os.path.isabs(path) else False
        if is_above and len(place) >= len(best):
            best, kind = place, parts[2]
    return kind


def as_data(checked: Checked, findings: Sequence[Finding]) -> dict[str, Any]:
    """Give all of it as JSON-ready data."""
    return {"checked_runs": checked.runs, "is_whole": checked.is_whole, "findings": list(findings)}
