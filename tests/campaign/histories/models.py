"""What each kind of object does when one thing happens after the other.

Written from what the documentation promises, not from the code. Runs are named by the event that made
them, so that a model knows the name of a run before it is answered. Answers are tuples that begin with a
word; the models give the words their sense.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.campaign.histories.linear import Op

OPEN_STATES = frozenset({"running", "sleeping", "waiting", "backoff", "queued"})

Pairs = frozenset[tuple[str, Any]]


def put(pairs: Pairs, name: str, value: object) -> Pairs:
    """Give the pairs with another value of a name."""
    return frozenset(pair for pair in pairs if pair[0] != name) | {(name, value)}


def got(pairs: Pairs, name: str) -> Any:
    """Give the value of a name, or None."""
    return next((value for known, value in pairs if known == name), None)


# --- keys -------------------------------------------------------------------------------------------------


class Line(NamedTuple):
    """A key: who holds it and who waits for it.

    Attributes:
        holder: the run that has it.
        phase: of the holder: ``fresh``, ``open``, ``cancelling``, or how it ended.
        makes_room: a newer run takes the holder's place.
        waiting: runs in line, oldest first.
        ended: how other runs ended.
        told: what was answered to each id.
    """

    holder: str | None = None
    phase: str = ""
    makes_room: bool = False
    waiting: tuple[str, ...] = ()
    ended: Pairs = frozenset()
    told: Pairs = frozenset()


@dataclass(frozen=True)
class Key:
    """One key of a workflow: docs/one-run-per-order.md.

    Attributes:
        once: for how long a run holds it.
        clash: what the others get.
        ends: how each run ended; with it no other end needs to be tried, since none is ever left here.
    """

    once: str
    clash: str
    ends: dict[str, str] = field(default_factory=dict)

    def first(self) -> Line:
        return Line()

    def alone(self, line: Line) -> Iterator[Line]:
        ends = self.ends.get(line.holder or "")
        if line.phase == "fresh":
            yield line._replace(phase="open")
            if line.makes_room and ends != "completed":
                yield self.end(line, "cancelled")
        elif line.phase == "open":
            if ends != "cancelled":
                yield self.end(line, "completed")
            if line.makes_room and ends != "completed":
                yield line._replace(phase="cancelling")
        elif line.phase == "cancelling":
            yield self.end(line, "cancelled")

    def end(self, line: Line, how: str) -> Line:
        """End the holder; the next in line begins."""
        assert line.holder is not None
        if self.once == "ever" and how == "completed":
            return line._replace(phase=how)
        ended = put(line.ended, line.holder, how)
        follower = line.waiting[0] if line.waiting else None
        phase = "fresh" if follower else ""
        return Line(follower, phase, False, line.waiting[1:], ended, line.told)

    def after(self, line: Line, op: Op) -> Iterator[Line]:
        for answer, left in getattr(self, op.verb)(line, op):
            if op.is_lost or answer == op.answer:
                yield left

    def start(self, line: Line, op: Op) -> Iterator[tuple[tuple[Any, ...], Line]]:
        """Start by name: the run and whether it was there before, or who holds the key."""
        yield from self._told(line, op, is_event=False)

    def emit(self, line: Line, op: Op) -> Iterator[tuple[tuple[Any, ...], Line]]:
        """Store an event: its runs, and whether the event was there before."""
        yield from self._told(line, op, is_event=True)

    def _told(self, line: Line, op: Op, *, is_event: bool) -> Iterator[tuple[tuple[Any, ...], Line]]:
        name = op.args["id"]
        before = got(line.told, name)
        if before is None:
            run, left = self._claim(line, name)
            before = (run, line.holder if run is None else None)  # who held it counts where it is told
            left = left._replace(told=put(left.told, name, before))
            is_again = False
        else:
            left, is_again = line, True
        run, holder = before
        if run == name and self.ends and name not in self.ends:
            return  # there is no such run
        if is_event:
            yield ("runs", () if run is None else (run,), is_again), left
        elif run is None:
            yield ("taken", holder), left
        else:
            yield ("run", run, is_again or run != name), left

    def _claim(self, line: Line, name: str) -> tuple[str | None, Line]:
        """Give the run that stands for an event, if one does, and the line with it."""
        if line.holder is None:
            return name, line._replace(holder=name, phase="fresh", makes_room=False)
        if self.clash == "return":
            return line.holder, line
        if self.clash == "reject":
            return None, line
        if self.clash == "queue":
            return name, line._replace(waiting=(*line.waiting, name))
        ended = line.ended
        for displaced in line.waiting:
            ended = put(ended, displaced, "cancelled")
        return name, line._replace(makes_room=True, waiting=(name,), ended=ended)

    def cancel(self, line: Line, op: Op) -> Iterator[tuple[tuple[Any, ...], Line]]:
        """Cancel a run: the state in which that leaves it."""
        run = op.args["run"]
        if run in line.waiting:
            waiting = tuple(other for other in line.waiting if other != run)
            yield (
                ("state", "cancelled"),
                line._replace(waiting=waiting, ended=put(line.ended, run, "cancelled")),
            )
        elif run != line.holder:
            how = got(line.ended, run)
            if how is not None:
                yield ("state", how), line
        elif line.phase == "fresh":
            yield ("state", "cancelled"), self.end(line, "cancelled")
        elif line.phase in ("open", "cancelling"):
            yield ("state", "cancelling"), line._replace(phase="cancelling")
        else:
            yield ("state", line.phase), line

    def state(self, line: Line, op: Op) -> Iterator[tuple[tuple[Any, ...], Line]]:
        """Look where a run stands."""
        run = op.args["run"]
        states: Iterable[str] = ()
        if run in line.waiting:
            states = ("queued",)
        elif run != line.holder:
            states = tuple(how for how in (got(line.ended, run),) if how)
        elif line.phase == "fresh":
            states = ("queued",)
        elif line.phase == "open":
            states = OPEN_STATES
        else:
            states = (line.phase,)
        for state in states:
            yield ("state", state), line


# --- verbs ------------------------------------------------------------------------------------------------


class Standing(NamedTuple):
    """Where a run stands.

    Attributes:
        phase: ``fresh`` before it was ever claimed, ``open``, ``held``, ``cancelling``, or how it ended.
        generation: which life.
        is_dismissed: it failed and was taken off the list.
        requests: ids of restarts that were done.
    """

    phase: str = "fresh"
    generation: int = 1
    is_dismissed: bool = False
    requests: frozenset[str] = frozenset()


NO_SUCH_PLACE: tuple[str, ...] = ("conflict",)

RETRIES = {"fresh": "join", "open": "join", "failed": "new attempt"}
"""What a retry does; elsewhere it is refused (docs/operate.md, the table of states and verbs)."""


@dataclass(frozen=True)
class Run:
    """One run, steered from several places: RULINGS 19 to 23, docs/operate.md."""

    def first(self) -> Standing:
        return Standing()

    def alone(self, at: Standing) -> Iterator[Standing]:
        if at.phase == "fresh":
            yield at._replace(phase="open")
        elif at.phase == "open":
            for phase in ("completed", "failed", "held"):
                yield at._replace(phase=phase)
        elif at.phase == "cancelling":
            yield at._replace(phase="cancelled")

    def after(self, at: Standing, op: Op) -> Iterator[Standing]:
        for answer, left in getattr(self, op.verb)(at, op):
            if op.is_lost or answer == op.answer:
                yield left

    def _reply(self, effect: str, left: Standing) -> Iterator[tuple[tuple[Any, ...], Standing]]:
        """Say what was done, and where the run then stands."""
        states = OPEN_STATES if left.phase in ("fresh", "open") else {left.phase}
        for state in states:
            yield ("reply", effect, state, left.generation), left

    def retry(self, at: Standing, op: Op) -> Iterator[tuple[tuple[Any, ...], Standing]]:
        effect = RETRIES.get(at.phase)
        if "retry" in op.beside or "restart" in op.beside:
            # Two at once are one: whoever comes second gets the other's attempt, even if it has ended.
            yield from self._reply("join", at)
        if effect is None:
            yield NO_SUCH_PLACE, at
        elif effect == "join":
            yield from self._reply(effect, at)
            yield from self._reply("bring forward", at._replace(phase="open"))
        else:
            yield from self._reply(effect, at._replace(phase="open", is_dismissed=False))

    def restart(self, at: Standing, op: Op) -> Iterator[tuple[tuple[Any, ...], Standing]]:
        request = op.args.get("request")
        if request in at.requests:
            yield from self._reply("join", at)
            return
        requests = at.requests | {request} if request else at.requests
        if "restart" in op.beside and at.generation > 1:
            yield from self._reply("join", at)
            yield from self._reply("join", at._replace(requests=requests))
        if at.phase == "cancelling":
            yield NO_SUCH_PLACE, at
            return
        left = Standing("open", at.generation + 1, False, requests)
        yield from self._reply("new generation", left)

    def cancel(self, at: Standing, op: Op) -> Iterator[tuple[tuple[Any, ...], Standing]]:
        if at.phase == "fresh":
            yield from self._reply("cancel now", at._replace(phase="cancelled"))
        elif at.phase in ("open", "held"):
            yield from self._reply("begin cancel", at._replace(phase="cancelling"))
        elif at.phase in ("cancelling", "cancelled"):
            yield from self._reply("join", at)
        else:
            yield from self._reply("nothing", at)

    def answer(self, at: Standing, op: Op) -> Iterator[tuple[tuple[Any, ...], Standing]]:
        if "answer" in op.beside:
            yield from self._reply("join", at)  # the same answer, given by another at the same time
        if at.phase != "held":
            yield NO_SUCH_PLACE, at
        elif op.args["word"] == "fail":
            yield from self._reply("go on", at._replace(phase="failed"))
        else:
            yield from self._reply("go on", at._replace(phase="open"))

    def dismiss(self, at: Standing, op: Op) -> Iterator[tuple[tuple[Any, ...], Standing]]:
        if at.phase != "failed":
            yield NO_SUCH_PLACE, at
        else:
            effect = "join" if at.is_dismissed else "take off list"
            yield from self._reply(effect, at._replace(is_dismissed=True))

    def state(self, at: Standing, op: Op) -> Iterator[tuple[tuple[Any, ...], Standing]]:
        states = {"fresh": {"queued"}, "open": OPEN_STATES}.get(at.phase, {at.phase})
        for state in states:
            yield ("state", state, at.generation), at


# --- waits ------------------------------------------------------------------------------------------------


class Stored(NamedTuple):
    """What was stored about a subject, and what a run of it has taken.

    Attributes:
        events: when each was received and its id.
        began: when the event was received that started the run; None before.
        taken: ids, in order.
    """

    events: frozenset[tuple[int, str]] = frozenset()
    began: int | None = None
    taken: tuple[str, ...] = ()


@dataclass(frozen=True)
class Waits:
    """A run with some waits for events about a subject: docs/waiting.md.

    Attributes:
        count: how many events it waits for.
        in_order: each wait takes the oldest event that is stored. What a run is told of may overtake an older
            one whose sender is slower to tell it, as where the reply to a commit is lost; then any counts.
        takes: what it took in the end; with it nothing else needs to be tried, since none is ever given back.
    """

    count: int
    in_order: bool = True
    takes: tuple[str, ...] = ()

    def first(self) -> Stored:
        return Stored()

    def alone(self, stored: Stored) -> Iterator[Stored]:
        """Take the oldest event, by the store's clock, that is not from before the run."""
        if stored.began is None or len(stored.taken) == self.count:
            return
        fitting = [
            event for event in stored.events if event[0] >= stored.began and event[1] not in stored.taken
        ]
        takes = self.takes[len(stored.taken) :][:1]
        for _, name in sorted(fitting)[: 1 if self.in_order else None]:
            if name in takes or not self.takes:
                yield stored._replace(taken=(*stored.taken, name))

    def after(self, stored: Stored, op: Op) -> Iterator[Stored]:
        if op.verb == "start":
            if op.is_lost or op.answer[2] == (stored.began is not None):
                yield stored._replace(began=op.args["at"])
        elif op.verb == "emit":
            event = (op.args["at"], op.args["id"])
            if op.is_lost or op.answer == ("runs", (), event in stored.events):
                yield stored._replace(events=stored.events | {event})
        elif op.verb == "look":
            if op.answer == ("there", (op.args["at"], op.args["id"]) in stored.events):
                yield stored
        elif op.verb == "taken":
            if op.answer == ("taken", *stored.taken):
                yield stored
        elif (
            op.verb == "result" and op.answer == ("result", *stored.taken) and len(stored.taken) == self.count
        ):
            yield stored


# --- promises ----------------------------------------------------------------------------------------------


class Promised(NamedTuple):
    """A promise and its run.

    Attributes:
        word: ``open``, ``completed``, ``failed``, or ``over``.
        value: what it was ended with.
        run: ``open``, ``cancelling``, ``completed`` or ``cancelled``.
        late_at: when somebody was told that its time is over, though nothing had ended it yet.
    """

    word: str = "open"
    value: str = ""
    run: str = "open"
    late_at: int | None = None


CLOCKS_NS = 100_000_000
"""How far the clocks of two processes may be apart on a machine that is overloaded (docs/operate.md)."""


@dataclass(frozen=True)
class Promise:
    """A promise that was made before anybody asked: docs/waiting.md.

    Whether its time is over is judged by when somebody asked. So who asked in time may still be the first
    to end it after another, who asked later, was told that it is too late.

    Attributes:
        expires: it has a time that may be over while it is looked at.
    """

    expires: bool

    def first(self) -> Promised:
        return Promised()

    def alone(self, at: Promised) -> Iterator[Promised]:
        if at.word == "open" and self.expires:
            yield at._replace(word="over", value="nobody")
        if at.word != "open" and at.run == "open":
            yield at._replace(run="completed")
        if at.run == "cancelling":
            yield at._replace(run="cancelled")

    def after(self, at: Promised, op: Op) -> Iterator[Promised]:
        if op.verb in ("complete", "fail"):
            yield from self._end(at, op)
        elif op.verb == "cancel":
            yield from self._cancel(at, op)
        elif op.verb == "result":
            if at.run == "completed":
                word = "completed" if at.word == "over" else at.word
                if op.answer == ("result", word, at.value):
                    yield at
            elif at.run == "cancelled" and op.answer == ("cancelled",):
                yield at

    def _end(self, at: Promised, op: Op) -> Iterator[Promised]:
        word, value = ("completed" if op.verb == "complete" else "failed"), op.args["value"]
        if at.word == "open":
            is_in_time = at.late_at is None or op.call <= at.late_at + CLOCKS_NS
            if is_in_time and (op.is_lost or op.answer == ("done", False)):
                yield at._replace(word=word, value=value)
            if self.expires and op.reply is not None and op.answer == ("over",):
                yield at._replace(late_at=min(op.reply, at.late_at or op.reply))
        elif at.word == "over":
            if op.is_lost or op.answer == ("over",):
                yield at
        elif (at.word, at.value) == (word, value):
            if op.is_lost or op.answer == ("done", True):
                yield at
        elif op.is_lost or op.answer == ("already",):
            yield at

    def _cancel(self, at: Promised, op: Op) -> Iterator[Promised]:
        run = "cancelling" if at.run == "open" else at.run
        word = "over" if at.word == "open" else at.word
        if op.is_lost or op.answer == ("state", run):
            yield at._replace(run=run, word=word)


# --- versions -----------------------------------------------------------------------------------------------


class Newest(NamedTuple):
    """The newest version of a subject, and what was told of each event."""

    version: int | None = None
    told: Pairs = frozenset()


@dataclass(frozen=True)
class Versions:
    """A subject whose workflows know versions: docs/out-of-order.md."""

    def first(self) -> Newest:
        return Newest()

    def alone(self, newest: Newest) -> Iterator[Newest]:
        yield from ()

    def after(self, newest: Newest, op: Op) -> Iterator[Newest]:
        name = op.args["id"]
        is_fresh = got(newest.told, name)
        if op.verb == "stale":
            if op.answer == ("stale", None if is_fresh is None else not is_fresh):
                yield newest
            return
        version, is_known = op.args["version"], is_fresh is not None
        left = newest
        if not is_known:
            is_fresh = newest.version is None or version > newest.version
            left = Newest(version if is_fresh else newest.version, put(newest.told, name, is_fresh))
        workflows = ("marked", "newest") if is_fresh else ("marked",)
        if op.is_lost or op.answer == ("runs", workflows, is_known):
            yield left


# --- deliveries ---------------------------------------------------------------------------------------------


class Delivered(NamedTuple):
    """An event id: the content that came first."""

    body: str | None = None


@dataclass(frozen=True)
class Deliveries:
    """One event id that is delivered again and again: docs/receiving.md, promises I1 and I2."""

    def first(self) -> Delivered:
        return Delivered()

    def alone(self, event: Delivered) -> Iterator[Delivered]:
        yield from ()

    def after(self, event: Delivered, op: Op) -> Iterator[Delivered]:
        if op.verb == "look":
            if op.answer == ("body", event.body):
                yield event
            return
        left = event if event.body is not None else Delivered(op.args["body"])
        told = ("runs", ("first", "second"), event.body is not None)
        if op.is_lost or op.answer == told:
            yield left


# --- leases -------------------------------------------------------------------------------------------------


class Owned(NamedTuple):
    """A run's saved values and who may add to them.

    Attributes:
        holder: the execution that has the lease.
        past: those that had it.
        saved: values, in order.
    """

    holder: str = ""
    past: frozenset[str] = frozenset()
    saved: tuple[str, ...] = ()


@dataclass(frozen=True)
class Lease:
    """A run whose holders come and go: promises I3 to I5.

    Who took the lease once and lost it never writes again; each holder begins with what was saved, and
    begins a body only when everything before it is.

    Attributes:
        count: how many values it saves.
    """

    count: int

    def first(self) -> Owned:
        return Owned()

    def alone(self, owned: Owned) -> Iterator[Owned]:
        yield from ()

    def after(self, owned: Owned, op: Op) -> Iterator[Owned]:
        holder = op.args.get("holder", "")
        if op.verb == "claim":
            if holder != owned.holder and holder not in owned.past:
                yield Owned(holder, owned.past | {owned.holder}, owned.saved)
        elif op.verb == "begin":
            if owned.holder == holder and owned.saved == tuple(op.args["seen"]):
                yield owned
        elif op.verb == "save":
            if owned.holder == holder and len(owned.saved) == op.args["number"]:
                yield owned._replace(saved=(*owned.saved, op.args["value"]))
        elif op.verb == "steps":
            if op.answer == ("saved", *owned.saved):
                yield owned
        elif op.answer == ("result", *owned.saved) and len(owned.saved) == self.count:
            yield owned
