"""Says what is wrong with what was seen: every rule looks at one promise, and only from outside.

A process that was stopped between the question whether a run is its own and the first line of a body
still begins that body when it goes on (docs/adr/0011): such a beginning breaks nothing, its result is refused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from tests.campaign.chaos.evidence import Action, Evidence, Note, Row
from tests.campaign.chaos.shape import CLEAN_UP, ENDS, KEYED, MADE, OUTPUTS, SUBSCRIBED, TRIES_MAX

Found = Iterator[str]

LATE_NS = 1_000_000_000
"""How long after it goes on a stopped process may still begin what it was about to."""

NEW_GENERATION = "new generation"

CANCEL_NS = 2_000_000_000
"""How long after the reply to a verb a busy host may take from a body's last question to its first line."""


def judge(seen: Evidence) -> list[str]:
    """Give every promise that was broken; none, if all is well."""
    return [f"{rule.__name__[1:]}: {text}" for rule in RULES for text in rule(seen)]


# --- events and their runs -----------------------------------------------------------------------------


def _accepted_deliveries_are_stored(seen: Evidence) -> Found:
    """I1, I6: what was answered 2xx is there, with one run of each subscribed workflow, or why not."""
    events = {(row["source"], row["id"]): row for row in seen.events}
    runs: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in seen.runs.values():
        if not row["replay_id"]:
            runs[row["source"], row["event_id"]].append(row)
    skipped = defaultdict(list)
    for row in seen.skipped:
        skipped[row["source"], row["event_id"]].append(row["workflow"])
    for sent in seen.sent:
        key = ("stripe", sent.event_id)
        if not sent.accepted:
            yield f"event {sent.event_id} was never answered 2xx, also after all faults: {sent.replies[-3:]}"
            continue
        if key not in events:
            yield f"event {sent.event_id} was answered 2xx and is not stored"
            continue
        if events[key]["type"] != sent.type:
            yield f"event {sent.event_id} is a {events[key]['type']}, not a {sent.type}"
        found = sorted([row["workflow"] for row in runs[key]] + skipped[key])
        if found != sorted(SUBSCRIBED[sent.type]):
            yield f"event {sent.event_id} of {sent.type} has runs of {found}, not of {SUBSCRIBED[sent.type]}"
    known = {("stripe", sent.event_id) for sent in seen.sent}
    for key in events:
        if key[0] == "stripe" and key not in known:
            yield f"event {key[1]} was never sent"


def _replies_agree(seen: Evidence) -> Found:
    """I2: every delivery of an event is told the same runs, and they are those that there are."""
    stored: dict[str, set[str]] = defaultdict(set)
    for run_id, row in seen.runs.items():
        if row["source"] == "stripe" and not row["replay_id"]:
            stored[row["event_id"]].add(run_id)
    for sent in seen.sent:
        told = {frozenset(reply.runs) for reply in sent.accepted}
        if len(told) > 1:
            yield f"deliveries of {sent.event_id} were told {[sorted(runs) for runs in told]}"
        elif told and not KEYED & set(SUBSCRIBED[sent.type]) and stored[sent.event_id] != next(iter(told)):
            yield f"event {sent.event_id} has {stored[sent.event_id]}, its sender was told {told}"
        for run_id in {run_id for runs in told for run_id in runs} - seen.runs.keys():
            yield f"the sender of {sent.event_id} was told of run {run_id}, which there is not"


def _one_run_has_a_key(seen: Evidence) -> Found:
    """One run of each order, however many events; a cancelled one gives the key free."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in seen.runs.values():
        if row["workflow"] == "order" and not row["replay_id"] and row["state"] != "cancelled":
            found[row["key"]].append(row)
    for key, rows in found.items():
        if len(rows) > 1:
            yield f"order {key} has the runs {sorted(row['run_id'] for row in rows)}"


def _keys_are_held_in_turn(seen: Evidence) -> Found:
    """Where runs of a key go one at a time, none begins anything after its successor has begun."""
    latest: dict[str, str] = {}
    over: dict[str, set[str]] = defaultdict(set)
    for note in _begins(seen):
        row = seen.runs.get(note.run_id)
        if row is None or row["workflow"] != "in_turn":
            continue
        key = row["key"]
        if note.run_id in over[key]:
            if not _is_late(seen, note):
                yield f"run {note.run_id} began {note.place} after run {latest[key]} of the same key had begun"
            continue
        before = latest.get(key)
        if before not in (None, note.run_id):
            over[key].add(str(before))
        latest[key] = note.run_id


# --- steps -----------------------------------------------------------------------------------------------


def _saved_steps_do_not_run_again(seen: Evidence) -> Found:
    """I3: where a later stage began, everything before it is saved, and begins no more in that generation."""
    furthest: dict[tuple[str, int], Note] = {}
    for note in _begins(seen):
        place = (note.run_id, note.generation)
        before = furthest.get(place)
        if before is None or note.stage > before.stage:
            furthest[place] = note
        elif note.stage < before.stage and not _is_late(seen, note):
            yield f"run {note.run_id} began {note.place} again after {before.step!r}, at {note.ns}"


def _bodies_run_twice_only_where_cut_off(seen: Evidence) -> Found:
    """A try begins a second time only where something was done to a process or to the store meanwhile."""
    retried = {action.run_id for action in seen.actions if action.verb == "retry"}
    began: dict[tuple[str, int, str, int], Note] = {}
    for note in _begins(seen):
        place = (note.run_id, note.generation, note.step, note.try_number)
        first = began.setdefault(place, note)
        if first is note or note.run_id in retried:
            continue
        began[place] = note
        if not any(fault.from_ns <= note.ns and first.ns <= fault.until_ns for fault in seen.faults):
            yield f"run {note.run_id} began {note.place} twice, at {first.ns} and {note.ns}, without a fault"


def _idempotency_keys_are_stable(seen: Evidence) -> Found:
    """A step hands out one key in a generation, and no two steps the same; a business key is the event's."""
    keys: dict[tuple[object, ...], str] = {}
    owners: dict[str, tuple[object, ...]] = {}
    for note in _begins(seen):
        owner: tuple[object, ...] = (note.run_id, note.generation, note.step)
        row = seen.runs.get(note.run_id)
        if note.step == "charge" and row is not None:
            owner = (row["source"], row["event_id"], note.step)
        if keys.setdefault(owner, note.key) != note.key:
            yield f"run {note.run_id}: {note.place} handed out {note.key} and {keys[owner]}"
        if owners.setdefault(note.key, owner) != owner:
            yield f"run {note.run_id}: {note.place} handed out the key of {owners[note.key]}"


def _tries_are_counted(seen: Evidence) -> Found:
    """I15: a step has no more tries than it may, and none is counted back."""
    retried = {action.run_id for action in seen.actions if action.verb == "retry"}
    latest: dict[tuple[str, int, str], int] = {}
    for note in _begins(seen):
        if note.run_id in retried or _is_late(seen, note):
            continue
        place = (note.run_id, note.generation, note.step)
        if not 1 <= note.try_number <= TRIES_MAX:
            yield f"run {note.run_id}: {note.place} began try {note.try_number}"
        if note.try_number < latest.get(place, 0):
            yield f"run {note.run_id}: {note.place} began try {note.try_number} after try {latest[place]}"
        latest[place] = note.try_number


def _sleeps_are_slept(seen: Evidence) -> Found:
    """I14: what is behind a sleep begins when it is over; the clock of the host says so."""
    if seen.is_clock_set:
        return
    lengths = {sent.event_id: sent.about["nap"] for sent in seen.sent if sent.type == "payout.paid"}
    before: dict[tuple[str, int], int] = {}
    for note in _begins(seen):
        row = seen.runs.get(note.run_id)
        if row is None or row["workflow"] != "naps":
            continue
        place = (note.run_id, note.generation)
        if note.stage == 1:
            before.setdefault(place, note.ns)
        elif place in before and note.ns - before[place] < lengths[row["event_id"]] * 1e9:
            slept = (note.ns - before[place]) / 1e9
            yield f"run {note.run_id} slept {slept:.3f} s of {lengths[row['event_id']]} s"


# --- what runs made ----------------------------------------------------------------------------------------


def _children_and_emits_happened_once(seen: Evidence) -> Found:
    """I10: one run of each call, start and emit of a generation; all of them where it ended well."""
    runs: dict[str, set[str]] = defaultdict(set)
    for made in seen.made:
        runs[made.made_by].add(made.run_id)
    for made_by, found in runs.items():
        if len(found) > 1:
            yield f"{made_by} made the runs {sorted(found)}"
    for run_id, row in seen.runs.items():
        if row["workflow"] == "family" and row["state"] == "completed":
            for what in MADE:
                if not runs.get(f"{run_id}/{row['generation']}/{what}"):
                    yield f"run {run_id} completed, and its {what!r} made nothing"


def _transactions_committed_once(seen: Evidence) -> Found:
    """The app's own row and the checkpoint are one commit."""
    found: dict[tuple[str, int], int] = defaultdict(int)
    for place in seen.rows:
        found[place] += 1
    for (run_id, generation), times in found.items():
        if times > 1:
            yield f"run {run_id} committed its row {times} times in generation {generation}"
        if run_id not in seen.runs:
            yield f"run {run_id} committed a row and is no run"
    for run_id, row in seen.runs.items():
        is_to_have = row["workflow"] == "transacts" and row["state"] == "completed"
        if is_to_have and (run_id, row["generation"]) not in found:
            yield f"run {run_id} completed, and its row is not there"


# --- ends and verbs ------------------------------------------------------------------------------------------


def _runs_end_as_they_should(seen: Evidence) -> Found:
    """I8, I9: every run has ended, well unless somebody cancelled it or it was made to fail."""
    cancelled = {action.run_id for action in seen.actions if action.verb == "cancel"}
    steered = {action.run_id for action in seen.actions}
    for run_id, row in seen.runs.items():
        state, workflow = row["state"], row["workflow"]
        # A cancelled or restarted caller takes its children with it.
        may_be_cancelled = (
            workflow == "newest"
            or run_id in cancelled
            or (row["is_called"] and row["parent_run_id"] in steered)
        )
        if state not in ENDS.get(workflow, ("completed",)) and not (
            state == "cancelled" and may_be_cancelled
        ):
            yield f"run {run_id} of {workflow} is {state}: {row['reason'] or row['error']}"
        if state == "completed" and workflow in OUTPUTS and row["output"] != OUTPUTS[workflow]:
            yield f"run {run_id} of {workflow} gave {row['output']}"


def _cancels_are_kept(seen: Evidence) -> Found:
    """I17: a run that a reply said to be cancelled ends so, and begins nothing more but clean-up."""
    said: dict[str, Action] = {}
    for action in seen.actions:
        if action.verb == "cancel" and action.state in ("cancelling", "cancelled"):
            said.setdefault(action.run_id, action)
    for run_id, action in said.items():
        row = seen.runs[run_id]
        if row["generation"] == action.generation and row["state"] != "cancelled":
            yield f"run {run_id} was said to be {action.state} and is {row['state']}"
    for note in _begins(seen):
        told = said.get(note.run_id)
        if told is None or note.generation != told.generation or note.stage >= CLEAN_UP:
            continue
        if note.ns > told.ns + CANCEL_NS and not _is_late(seen, note):
            yield f"run {note.run_id} began {note.place} {(note.ns - told.ns) / 1e9:.2f} s after its cancel"


def _restarts_are_counted(seen: Evidence) -> Found:
    """A restart is one generation, however often it was sent; two at once may be one. The older ones begin nothing."""
    done: dict[str, list[Action]] = defaultdict(list)
    asked: dict[str, set[str]] = defaultdict(set)
    for action in seen.actions:
        if action.verb == "restart" and not action.is_refused:
            asked[action.run_id].add(action.request_id)
            if action.effect == NEW_GENERATION:
                done[action.run_id].append(action)
    for run_id, row in seen.runs.items():
        told = [action.generation for action in done[run_id]]
        if len({action.request_id for action in done[run_id]}) != len(told) or len(set(told)) != len(told):
            yield f"run {run_id} was restarted by {[(one.request_id, one.generation) for one in done[run_id]]}"
        # Where the first reply was lost, the next says that it was done before; so it does to who joined another.
        if not len(told) <= row["generation"] - 1 <= len(asked[run_id]):
            yield f"run {run_id} is in generation {row['generation']} after {len(told)} restarts"
    for note in _begins(seen):
        for action in done.get(note.run_id, ()):
            is_old = note.generation < action.generation and note.ns > action.ns + CANCEL_NS
            if is_old and not _is_late(seen, note):
                yield f"run {note.run_id} began {note.place} after it had been restarted"


def _requests_make_one_run(seen: Evidence) -> Found:
    """A start or replay with an id is one run, however often it was sent."""
    made: dict[tuple[str, str], set[str]] = defaultdict(set)
    for action in seen.actions:
        if action.verb in ("start", "replay") and action.made:
            made[action.verb, action.request_id].add(action.made)
            row = seen.runs.get(action.made)
            if row is None:
                yield f"{action.verb} {action.request_id} gave run {action.made}, which there is not"
            elif action.verb == "replay" and row["replay_of"] != action.run_id:
                yield f"run {action.made} replays {row['replay_of']}, not {action.run_id}"
    for (verb, request_id), found in made.items():
        if len(found) > 1:
            yield f"{verb} {request_id} gave the runs {sorted(found)}"


def _begins(seen: Evidence) -> Sequence[Note]:
    return [note for note in seen.notes if note.what == "begin"]


def _is_late(seen: Evidence, note: Note) -> bool:
    """Say whether a beginning is that of a process that had just been stopped."""
    return any(
        stop.pid == note.pid and stop.from_ns <= note.ns <= stop.until_ns + LATE_NS for stop in seen.stops
    )


RULES: tuple[Callable[[Evidence], Found], ...] = (
    _accepted_deliveries_are_stored,
    _replies_agree,
    _one_run_has_a_key,
    _keys_are_held_in_turn,
    _saved_steps_do_not_run_again,
    _bodies_run_twice_only_where_cut_off,
    _idempotency_keys_are_stable,
    _tries_are_counted,
    _sleeps_are_slept,
    _children_and_emits_happened_once,
    _transactions_committed_once,
    _runs_end_as_they_should,
    _cancels_are_kept,
    _restarts_are_counted,
    _requests_make_one_run,
)
