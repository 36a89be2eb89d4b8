"""What clients do to which objects, and how what they saw is told to a model.

A workload draws a script from a seed: lists of calls, each for a thread. After the script it *settles*: a
client that nothing happens to brings every object to its end and looks at it once more.
"""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from onceward import NotFound
from tests.campaign.histories import models
from tests.campaign.histories.client import Client
from tests.campaign.histories.linear import Model, Op
from tests.helpers import eventually

SETTLES_WITHIN_S = 180.0
SETTLES_WITHIN = "180s"
THREADS = 6
AGAIN = 0.2
"""How often a call has the id of one before."""

ENDED = ("completed", "failed", "cancelled")
RULES = (
    ("ever", "return"),
    ("ever", "reject"),
    ("active", "return"),
    ("active", "reject"),
    ("active", "replace"),
    ("active", "queue"),
)

Call = dict[str, Any]
Seen = Mapping[str, Any]
Told = tuple[str, "Model[Any]", list[Op]]


@dataclass
class Script:
    """What is done in one history.

    Attributes:
        tag: what all names of the history begin with.
        setup: calls that are made before all others, one after the other.
        lists: calls for each thread.
    """

    tag: str
    setup: list[Call] = field(default_factory=list)
    lists: list[list[Call]] = field(default_factory=list)


@dataclass
class Desk:
    """A client that no fault is done to.

    Attributes:
        client: makes calls that are part of the history.
        app: the app's blocking verbs, for what is not.
        notes: gives the ledger's lines.
    """

    client: Client
    app: Any
    notes: Callable[[], list[Seen]]

    def call(self, object: str, verb: str, **args: Any) -> list[Any] | None:
        return self.client.do("desk", object=object, verb=verb, args=args)

    def event_id(self, run: str) -> str:
        """Give the event that made a run, which models call it by."""
        try:
            return str(self.app.run(run).row().event_id)
        except NotFound:
            raise AssertionError(f"{run} was answered, and there is no such run") from None

    def received_at(self, source: str, event_id: str) -> int | None:
        """Give when an event was stored, by the store's clock; None where it is not."""
        try:
            event = self.app.event(source, event_id)
        except NotFound:
            return None
        at: float = event.received_at.timestamp()
        return round(at * 1000)


class Workload(Protocol):
    """One kind of object."""

    calls: int
    """How many calls each thread makes."""

    def script(self, dice: random.Random, tag: str) -> Script:
        """Draw what is done."""

    def ready(self, script: Script, desk: Desk) -> None:
        """Do what must be there before the others begin."""

    def settle(self, script: Script, desk: Desk) -> None:
        """Bring every object to its end and look at it."""

    def objects(self, seen: list[Seen], desk: Desk) -> Iterator[Told]:
        """Give each object with its model and its history."""


def op(seen: Seen, **more: Any) -> Op:
    """Give a call as models take it."""
    return Op(
        seen["verb"],
        {name: value for name, value in seen["args"].items() if name != "token"} | more,
        seen["call"],
        seen.get("reply"),
        _tuple(seen.get("answer") or ()),
        seen["by"],
    )


def by_object(seen: Iterable[Seen]) -> dict[str, list[Seen]]:
    """Give the calls of each object."""
    found: dict[str, list[Seen]] = {}
    for one in seen:
        found.setdefault(one["object"], []).append(one)
    return found


def _tuple(answer: Any) -> Any:
    return tuple(map(_tuple, answer)) if isinstance(answer, list | tuple) else answer


def _call(object: str, verb: str, door: str = "", **args: Any) -> Call:
    return {"object": object, "verb": verb, "door": door, "args": args}


def _door(dice: random.Random) -> str:
    return dice.choice(("", "http"))


class Idle:
    """A workload of which nothing must be there before it begins."""

    def ready(self, script: Script, desk: Desk) -> None:
        for call in script.setup:
            desk.call(call["object"], call["verb"], **call["args"])


class Keys(Idle):
    """Starts and events with a key, for every rule; cancels, looks."""

    calls = 8

    def script(self, dice: random.Random, tag: str) -> Script:
        places = []
        for number, (once, clash) in enumerate(dice.sample(RULES, 2)):
            places.append((f"{dice.choice(('start', 'emit'))}-{once}-{clash}", f"{tag}-key{number}"))
        drawn: dict[str, list[Call]] = {}
        lists = []
        for thread in range(THREADS):
            calls: list[Call] = []
            for number in range(self.calls):
                workflow, key = dice.choice(places)
                name = f"{workflow}/{key}"
                way = dice.random()
                if way < 0.15:
                    calls.append(_call(name, "cancel", _door(dice), run="last"))
                elif way < 0.35:
                    calls.append(_call(name, "state", _door(dice), run="last"))
                elif dice.random() < AGAIN and drawn.get(name):
                    calls.append(dict(dice.choice(drawn[name])))
                else:
                    call = self._claim(dice, workflow, key, f"{tag}-{thread}-{number}")
                    drawn.setdefault(name, []).append(call)
                    calls.append(dict(call))
            lists.append(calls)
        return Script(tag, [], lists)

    def _claim(self, dice: random.Random, workflow: str, key: str, name: str) -> Call:
        ms = dice.choice((5, 30, 60, 120))
        if workflow.startswith("start"):
            return _call(f"{workflow}/{key}", "start", workflow=workflow, args=[key, ms], id=name)
        _, once, clash = workflow.split("-")
        payload = {"key": key, "ms": ms}
        told = {"type": f"key.{once}.{clash}", "payload": payload, "id": name, "subject": None}
        return _call(f"{workflow}/{key}", "emit", _door(dice), **told)

    def settle(self, script: Script, desk: Desk) -> None:
        names = {call["object"] for calls in script.lists for call in calls}
        for name in sorted(names):
            workflow, _, key = name.partition("/")

            def rows(workflow: str = workflow, key: str = key) -> list[Any]:
                return desk.app.runs(workflow=workflow, key=key, limit=1000)  # type: ignore[no-any-return]

            def all_ended() -> bool:
                return all(row.state in ENDED for row in rows())

            eventually(all_ended, SETTLES_WITHIN_S, what=f"the ends of the runs of {name}: {rows()}")
            for row in rows():
                desk.call(name, "state", run=row.run_id)

    def objects(self, seen: list[Seen], desk: Desk) -> Iterator[Told]:
        for name, calls in by_object(seen).items():
            _, once, clash = name.partition("/")[0].split("-")
            name_of = functools.cache(desk.event_id)
            last = [call for call in calls if call["by"] == "desk"]
            ends = {name_of(call["args"]["run"]): call["answer"][1] for call in last}
            yield name, models.Key(once, clash, ends), [self._op(call, name_of) for call in calls]

    def _op(self, call: Seen, name_of: Callable[[str], str]) -> Op:
        answer, args = call.get("answer"), call["args"]
        if answer and answer[0] == "reply":  # of a cancel: only where that leaves the run
            answer = ["state", answer[2]]
        elif answer and answer[0] == "state":
            answer = answer[:2]
        elif answer and answer[0] in ("run", "taken"):
            answer = [answer[0], name_of(answer[1]), *answer[2:]]
        elif answer and answer[0] == "runs":
            answer = ["runs", [name_of(run) for run in answer[1]], answer[2]]
        if "run" in args:
            args = {"run": name_of(args["run"])}
        return op({**call, "answer": answer, "args": args})


class Verbs(Idle):
    """One run, steered from several places by every verb that has a cell in the table."""

    calls = 8
    WORDS = ("happened", "did_not_happen", "fail")
    VERBS = (
        ("retry", 20),
        ("restart", 12),
        ("cancel", 6),
        ("answer", 24),
        ("dismiss", 10),
        ("state", 28),
    )

    def script(self, dice: random.Random, tag: str) -> Script:
        names = [f"{tag}-run{number}" for number in range(2)]
        setup = []
        for name in names:
            letters = "".join(dice.choice("ffaasw") for _ in range(dice.randint(1, 4)))
            setup.append(_call(name, "start", workflow="steered", args=[letters], id=name))
        verbs, weights = zip(*self.VERBS, strict=True)
        lists = []
        for _ in range(THREADS):
            calls = []
            for verb in dice.choices(verbs, weights, k=self.calls):
                args: dict[str, Any] = {"run": "of setup"}
                if verb == "answer":
                    args["word"] = dice.choice(self.WORDS)
                name = dice.choice(names)
                if verb == "restart" and dice.random() < 0.5:
                    args["request"] = f"{name}-{dice.randrange(3)}"
                calls.append(_call(name, verb, _door(dice), **args))
            lists.append(calls)
        return Script(tag, setup, lists)

    def ready(self, script: Script, desk: Desk) -> None:
        runs = {}
        for call in script.setup:
            answer = desk.call(call["object"], call["verb"], **call["args"])
            assert answer is not None
            runs[call["object"]] = answer[1]
        for calls in script.lists:
            for call in calls:
                call["args"] = {**call["args"], "run": runs[call["object"]]}

    def settle(self, script: Script, desk: Desk) -> None:
        for call in script.setup:
            name = call["object"]
            run = desk.client.last[name]
            desk.call(name, "state", run=run)
            desk.call(name, "cancel", run=run)
            eventually(
                lambda run=run: desk.app.run(run).state() in ENDED,  # type: ignore[misc]
                SETTLES_WITHIN_S,
                what=f"the end of {desk.app.run(run).row()}",
            )
            desk.call(name, "state", run=run)

    def objects(self, seen: list[Seen], desk: Desk) -> Iterator[Told]:
        for name, calls in by_object(seen).items():
            yield name, models.Run(), [op(call) for call in calls if call["verb"] != "start"]


class Waits(Idle):
    """Runs that wait for events about a subject, which are emitted, some twice, before, while and after.

    Attributes:
        in_order: see `models.Waits`.
    """

    calls = 8
    in_order = False

    def script(self, dice: random.Random, tag: str) -> Script:
        runs = {f"{tag}-run{number}": dice.randint(1, 3) for number in range(3)}
        drawn: list[str] = []
        lists = []
        for thread in range(THREADS):
            calls = []
            for number in range(self.calls):
                name = dice.choice(sorted(runs))
                way = dice.random()
                if way < 0.25:
                    calls.append(self._start(name, tag, runs[name]))
                elif way < 0.45:
                    calls.append(_call(name, dice.choice(("steps", "result")), run="last"))
                else:
                    again = bool(drawn) and dice.random() < AGAIN
                    event_id = dice.choice(drawn) if again else f"{tag}-e{thread}-{number}"
                    drawn.append(event_id)
                    calls.append(self._emit(tag, event_id, _door(dice)))
            lists.append(calls)
        setup = [] if dice.random() < 0.7 else [self._start(name, tag, runs[name]) for name in sorted(runs)]
        return Script(tag, setup, lists)

    def _start(self, name: str, tag: str, count: int) -> Call:
        return _call(name, "start", workflow="waits", args=[tag, count], id=name)

    def _emit(self, tag: str, event_id: str, door: str = "") -> Call:
        told = {"type": "wait.told", "payload": {"of": event_id}, "id": event_id, "subject": tag}
        return _call(f"{tag} events", "emit", door, **told)

    def settle(self, script: Script, desk: Desk) -> None:
        everything = [*script.setup, *(call for calls in script.lists for call in calls)]
        starts = {call["object"]: call for call in everything if call["verb"] == "start"}
        for name in sorted(starts):
            desk.call(name, "start", **starts[name]["args"])
        for number in range(3):
            last = self._emit(script.tag, f"{script.tag}-last{number}")
            desk.call(last["object"], "emit", **last["args"])
        for name in sorted(starts):
            run = desk.client.last[name]
            answer = desk.call(name, "result", run=run, timeout=SETTLES_WITHIN)
            assert answer is not None, (
                f"{desk.app.run(run).row()} still waits for {desk.app.run(run).steps()}"
            )
            desk.call(name, "steps", run=run)

    def objects(self, seen: list[Seen], desk: Desk) -> Iterator[Told]:
        objects = by_object(seen)
        events = [
            found
            for name, calls in objects.items()
            if name.endswith(" events")
            for call in calls
            if (found := self._emitted(call, desk)) is not None
        ]
        yield "events", models.Waits(0), events
        for name, calls in objects.items():
            if not name.endswith(" events"):
                (count,) = {call["args"]["args"][1] for call in calls if call["verb"] == "start"}
                mine = [self._op(call, desk) for call in calls]
                (*_, takes) = [op.answer[1:] for op in mine if op.verb == "taken" and op.by == "desk"]
                model = models.Waits(count, self.in_order, takes)
                heard = [event for event in events if self.in_order or event.args["id"] in takes]
                yield name, model, [*heard, *mine]

    def _emitted(self, call: Seen, desk: Desk) -> Op | None:
        at = desk.received_at("emit/wait.told", call["args"]["id"])
        if at is None and "reply" not in call:
            return None  # it never happened, and nobody was told that it did
        assert at is not None, f"an event that was answered is not stored: {call}"
        answer = call.get("answer")
        return op({**call, "answer": answer and [answer[0], [], answer[2]]}, at=at)

    def _op(self, call: Seen, desk: Desk) -> Op:
        if call["verb"] == "start":
            return op(call, at=desk.received_at("start/waits", call["args"]["id"]))
        if call["verb"] == "steps":
            taken = [json.loads(output)["id"] for _, output in call["answer"][1:]]
            return op({**call, "verb": "taken", "answer": ["taken", *taken]})
        return op({**call, "answer": [call["answer"][0], *call["answer"][1]]})


class Promises(Idle):
    """Promises that several complete or fail, some as their time is over, some as their run is cancelled."""

    calls = 7

    def script(self, dice: random.Random, tag: str) -> Script:
        names = [f"{tag}-promise{number}" for number in range(5)]
        setup = [
            _call(name, "start", workflow="promises", args=[name, dice.choice(("1h", "400ms"))], id=name)
            for name in names
        ]
        lists = []
        for _ in range(THREADS):
            calls = []
            for _ in range(self.calls):
                name, verb = dice.choice(names), dice.choices(("complete", "fail", "cancel"), (70, 25, 5))[0]
                value = dice.choice(("a", "b"))
                calls.append(_call(name, verb, _door(dice), value=value))
            lists.append(calls)
        return Script(tag, setup, lists)

    def ready(self, script: Script, desk: Desk) -> None:
        super().ready(script, desk)
        names = [call["object"] for call in script.setup]

        def tokens() -> dict[str, str]:
            found = {note["name"]: note["token"] for note in desk.notes() if note["kind"] == "promise"}
            return found if set(names) <= set(found) else {}

        known = eventually(tokens, SETTLES_WITHIN_S, what=f"the tokens of {names}")
        for calls in script.lists:
            for call in calls:
                run = desk.client.last[call["object"]]
                call["args"] = {**call["args"], "token": known[call["object"]], "run": run}

    def settle(self, script: Script, desk: Desk) -> None:
        tokens = {note["name"]: note["token"] for note in desk.notes() if note["kind"] == "promise"}
        for call in script.setup:
            name = call["object"]
            desk.call(name, "complete", token=tokens[name], value="last")
            answer = desk.call(name, "result", run=desk.client.last[name], timeout=SETTLES_WITHIN)
            assert answer is not None, f"{desk.app.run(desk.client.last[name]).row()} has no end"

    def objects(self, seen: list[Seen], desk: Desk) -> Iterator[Told]:
        for name, calls in by_object(seen).items():
            timeouts = {call["args"]["args"][1] for call in calls if call["verb"] == "start"}
            model = models.Promise(expires=timeouts != {"1h"})
            yield name, model, [self._op(call) for call in calls if call["verb"] != "start"]

    def _op(self, call: Seen) -> Op:
        answer = call.get("answer")
        if answer and answer[0] == "result":
            answer = [answer[0], *answer[1]]
        elif answer and answer[0] == "reply":
            answer = ["state", answer[2]]
        return op({**call, "answer": answer})


class Versions(Idle):
    """Events with versions about two subjects, in no order, some twice."""

    calls = 8

    def script(self, dice: random.Random, tag: str) -> Script:
        drawn: list[Call] = []
        lists = []
        for thread in range(THREADS):
            calls = []
            for number in range(self.calls):
                if drawn and dice.random() < AGAIN:
                    call = {**dice.choice(drawn), "door": _door(dice)}
                else:
                    subject, version = f"{tag}-subject{dice.randrange(2)}", dice.randint(1, 30)
                    told = {"type": "version.told", "payload": {"version": version}, "subject": subject}
                    call = _call(subject, "emit", _door(dice), **told, id=f"{tag}-{thread}-{number}")
                    drawn.append(call)
                calls.append(dict(call))
            lists.append(calls)
        return Script(tag, [], lists)

    def settle(self, script: Script, desk: Desk) -> None:
        calls = {call["args"]["id"]: call for calls in script.lists for call in calls}
        for event_id, call in sorted(calls.items()):
            try:
                event = desk.app.event("emit/version.told", event_id)
            except NotFound:
                continue
            runs = [run.run_id for run in event.runs if run.workflow == "marked"]
            for run in runs:
                answer = desk.call(call["object"], "result", run=run, timeout=SETTLES_WITHIN, id=event_id)
                assert answer is not None, f"{desk.app.run(run).row()} has no end"

    def objects(self, seen: list[Seen], desk: Desk) -> Iterator[Told]:
        for name, calls in by_object(seen).items():
            yield name, models.Versions(), [self._op(call, desk) for call in calls]

    def _op(self, call: Seen, desk: Desk) -> Op:
        if call["verb"] == "result":
            return op({**call, "verb": "stale", "answer": ["stale", call["answer"][1]]})
        answer = call.get("answer")
        if answer and answer[0] == "runs":
            rows = [desk.app.run(run).row() for run in answer[1]]
            assert all(row.event_id == call["args"]["id"] for row in rows), f"runs of other events: {rows}"
            answer = ["runs", sorted(row.workflow for row in rows), answer[2]]
        version = call["args"]["payload"]["version"]
        return op({**call, "answer": answer}, version=version)


class Accepts(Idle):
    """Signed deliveries of a few event ids, to every instance, some with other content."""

    calls = 7

    def script(self, dice: random.Random, tag: str) -> Script:
        names = [f"{tag}-evt{number}" for number in range(6)]
        lists = []
        for _ in range(THREADS):
            calls = []
            for _ in range(self.calls):
                name = dice.choice(names)
                calls.append(_call(name, "deliver", id=name, body=dice.choice("aaab")))
            lists.append(calls)
        return Script(tag, [], lists)

    def settle(self, script: Script, desk: Desk) -> None:
        for name in sorted({call["object"] for calls in script.lists for call in calls}):
            desk.call(name, "look", source="stripe", id=name)

    def objects(self, seen: list[Seen], desk: Desk) -> Iterator[Told]:
        for name, calls in by_object(seen).items():
            yield name, models.Deliveries(), [self._op(call, desk) for call in calls]

    def _op(self, call: Seen, desk: Desk) -> Op:
        answer = call.get("answer")
        if answer and answer[0] == "runs":
            rows = [desk.app.run(run).row() for run in answer[1]]
            assert all(row.event_id == call["args"]["id"] for row in rows), f"runs of other events: {rows}"
            answer = ["runs", sorted(row.workflow for row in rows), answer[2]]
        return op({**call, "answer": answer})


class Leases(Idle):
    """Runs whose holders write values in steps; who held them when is told by the ledger."""

    calls = 6
    COUNT = 6

    def script(self, dice: random.Random, tag: str) -> Script:
        names = [f"{tag}-run{number}" for number in range(4)]
        setup = []
        for name in names:
            ms = dice.choice((40, 120, 250, 350))
            setup.append(_call(name, "start", workflow="leased", args=[self.COUNT, ms], id=name))
        lists = []
        for _ in range(THREADS):
            calls = [_call(dice.choice(names), "steps", run="of setup") for _ in range(self.calls)]
            lists.append(calls)
        return Script(tag, setup, lists)

    def ready(self, script: Script, desk: Desk) -> None:
        super().ready(script, desk)
        for calls in script.lists:
            for call in calls:
                call["args"] = {"run": desk.client.last[call["object"]]}

    def settle(self, script: Script, desk: Desk) -> None:
        for call in script.setup:
            name = call["object"]
            run = desk.client.last[name]
            answer = desk.call(name, "result", run=run, timeout=SETTLES_WITHIN)
            assert answer is not None, f"{desk.app.run(run).row()} has no end"
            desk.call(name, "steps", run=run)

    def objects(self, seen: list[Seen], desk: Desk) -> Iterator[Told]:
        notes = desk.notes()
        for name, calls in by_object(seen).items():
            (run,) = {call["answer"][1] for call in calls if call["verb"] == "start" and "answer" in call}
            mine = [note for note in notes if note.get("run") == run]
            ops = [self._op(call) for call in calls if call["verb"] != "start"]
            yield name, models.Lease(self.COUNT), [*ops, *self._told(mine)]

    def _op(self, call: Seen) -> Op:
        answer = call["answer"]
        if call["verb"] == "steps":
            return op({**call, "answer": ["saved", *(json.loads(output) for _, output in answer[1:])]})
        return op({**call, "answer": [answer[0], *answer[1]]})

    def _told(self, notes: list[Seen]) -> Iterator[Op]:
        """Give what holders did: a claim before the code begins, a look as a body begins, a save after it ends."""
        since: dict[str, int] = {}
        for note in sorted(notes, key=lambda note: note["at"]):
            kind, holder, at = note["kind"], note["holder"], note["at"]
            args = {name: note[name] for name in ("number", "value", "seen") if name in note}
            told = {"holder": holder, **args}
            if kind == "claim":
                yield Op("claim", told, 0, at, (), holder)
            elif kind == "begin":
                yield Op("begin", told, since.get(holder, 0), at, (), holder)
            else:
                since[holder] = at
                yield Op("save", told, at, None, (), holder)


WORKLOADS: dict[str, Workload] = {
    "keys": Keys(),
    "verbs": Verbs(),
    "waits": Waits(),
    "promises": Promises(),
    "versions": Versions(),
    "accepts": Accepts(),
    "leases": Leases(),
}
