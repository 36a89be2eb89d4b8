"""What the outside does to the processes of one seed: senders, operators and bad luck."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import msgspec

from onceward.core import errors
from onceward.core.arrival import UNVERIFIED, Incoming
from onceward.core.messages import HttpRequest
from onceward.core.states import RunState
from onceward.testing.simulation import faults
from onceward.testing.simulation.programs import program
from onceward.testing.workflows import DOUBTFUL, KEYED, SHOP, TRIGGERED, WAITING
from onceward.web.intake import AppIntake

if TYPE_CHECKING:
    from onceward.core.steer import Reply
    from onceward.handles import RunHandle
    from onceward.testing.simulation.process import Process
    from onceward.testing.simulation.world import World

EVENTS_MAX = 22
"""Different events of one seed, children and emits aside."""

RUNS_MAX = 70
"""Runs in all, children, emits and replays included, after which nothing new is asked for."""

CLOCK_OFF_MS_MAX = 20_000
"""How wrong a clock may become: the lease of a dead process lasts that much longer."""

Send = Callable[["Process"], Coroutine[Any, Any, None]]


PRESSED_SHARE = 0.15
"""How often an operator answers a held run, or cancels a running one, where steps are of unknown outcome."""

ANSWER_AFTER_S = 0.3
"""How long after a run's event what it waits for is sent at least: clocks differ, and what its process
takes for earlier than the run does not count."""

KEYS = 2
"""Keys of a world with keys: few, so that they are held."""


class Driver:
    """Senders, operators and bad luck.

    Args:
        world: what it acts on.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self._dice = world.dice
        weights = world.temper.weights
        self._acts = list(weights)
        self._weights = list(itertools.accumulate(weights.values()))
        self._sent: list[Send] = []
        self._numbers = itertools.count(1)
        self._tickets = itertools.count(1)
        self.unanswered: dict[int, Send] = {}
        self._under_way: set[int] = set()
        self._request_ids = itertools.count(1)
        self._answered: set[str] = set()

    def act(self) -> None:
        """Do one thing."""
        if self.world.is_doubtful and self._dice.random() < PRESSED_SHARE:
            self._press()
            return
        name = self._dice.choices(self._acts, cum_weights=self._weights)[0]
        getattr(self, "_" + name.replace(" ", "_"))()

    # --- senders ---------------------------------------------------------------------------------------

    @property
    def is_answered(self) -> bool:
        """Say whether every delivery was accepted in the end."""
        return not self.unanswered

    def send_again(self) -> None:
        """Let senders whose deliveries were not accepted send them again."""
        up = self.world.up()
        if not up:
            return
        for ticket, send in list(self.unanswered.items()):
            if ticket not in self._under_way:
                self._hand_in(ticket, send, self._dice.choice(up))

    def _send(self, send: Send, times: int) -> None:
        up = self.world.up()
        for _ in range(times):
            ticket = next(self._tickets)
            self.unanswered[ticket] = send
            if up:
                self._hand_in(ticket, send, self._dice.choice(up))

    def _hand_in(self, ticket: int, send: Send, process: Process) -> None:
        self._under_way.add(ticket)
        process.broken[ticket] = lambda: self._under_way.discard(ticket)
        process.spawn(self._deliver(ticket, send, process))

    async def _deliver(self, ticket: int, send: Send, process: Process) -> None:
        try:
            await send(process)
        except errors.OncewardError as error:
            self.world.note(process, "refused", type(error).__name__)
        else:
            self.unanswered.pop(ticket, None)
        finally:
            if not process.is_dead:
                process.broken.pop(ticket, None)
                self._under_way.discard(ticket)

    def _may_grow(self) -> bool:
        return len(self._sent) < EVENTS_MAX and len(self.world.mirror.runs) < RUNS_MAX

    def _new_event(self) -> None:
        if self._may_grow():
            self._deliver_new(1)

    def _doubled_delivery(self) -> None:
        if self._may_grow():
            self.world.counts["doubled delivery"] += 1
            self._deliver_new(self._dice.randint(2, 4))

    def _reordered_delivery(self) -> None:
        if self._sent:
            self.world.counts["reordered delivery"] += 1
            self.world.operation(None, "redelivery")
            self._send(self._dice.choice(self._sent), 1)

    def _deliver_new(self, times: int) -> None:
        dice, world = self._dice, self.world
        workflow = dice.choice(
            KEYED
            if world.is_keyed
            else DOUBTFUL
            if world.is_doubtful
            else WAITING
            if world.is_waiting
            else TRIGGERED
        )
        payload = program(dice, workflow, world)
        if world.is_keyed:
            payload["order"] = dice.randrange(KEYS)
        event_id = f"evt_{next(self._numbers)}"
        if world.is_waiting:
            payload["order"] = event_id
        body = msgspec.json.encode({"id": event_id, "type": f"order.{workflow}", "program": payload})
        world.operation(None, "delivery", f"{event_id} order.{workflow} x{times} {payload}")

        async def send(process: Process) -> None:
            incoming = Incoming(id=event_id, type=f"order.{workflow}", payload=payload)
            request = HttpRequest.of(body, path=f"/hooks/{SHOP}", received_at_ms=process.clock.now_ms())
            accepted = await AppIntake(process.app).accept(SHOP, request, [incoming], UNVERIFIED)
            (event,) = accepted.events
            world.note(process, "202", f"{event_id} {event.run_ids}")
            world.oracle.replied(SHOP, event_id, dict(zip([workflow], event.run_ids, strict=False)))
            if world.is_waiting:
                self._answer_later(event_id, payload["n"])

        self._sent.append(send)
        self._send(send, times)

    def _answer_later(self, subject: str, count: int) -> None:
        """Let somebody send what a run waits for, each once, from just after its begin on."""
        if subject in self._answered:
            return
        self._answered.add(subject)
        wanted = [("answer", number) for number in range(count)] + [("remark", 0)]
        for type_, number in wanted:
            delay_s = ANSWER_AFTER_S + self._dice.choice((0.0, 0.3, 1.0, 3.0)) * self._dice.random()
            self.world.later(delay_s, self._answer, type_, subject, number)

    def _answer(self, type_: str, subject: str, number: int) -> None:
        world, event_id = self.world, f"{subject}-{number}"
        world.operation(None, "answer", f"{type_} {event_id}")

        async def send(process: Process) -> None:
            about = subject if type_ == "answer" else None
            emitted = await process.app.emit(type_, {"n": number, "of": subject}, subject=about, id=event_id)
            world.oracle.replied(emitted.source, emitted.id, {})

        self._send(send, self._dice.choice((1, 1, 2)))

    def _emit(self) -> None:
        if not self._may_grow():
            return
        world, number = self.world, next(self._numbers)
        payload = program(self._dice, "listener", world)
        world.operation(None, "emit", f"news-{number} {payload}")

        async def send(process: Process) -> None:
            emitted = await process.app.emit("news", payload, id=f"news-{number}")
            runs = {}
            for handle in emitted.runs:
                runs["listener"] = handle.run_id
            world.oracle.replied(emitted.source, emitted.id, runs)

        self._sent.append(send)
        self._send(send, self._dice.choice((1, 1, 2)))

    def _start(self) -> None:
        if not self._may_grow():
            return
        world, number = self.world, next(self._numbers)
        payload = program(self._dice, "child", world)
        world.operation(None, "start run", f"start-{number} {payload}")

        async def send(process: Process) -> None:
            handle = await process.app.start(process.child, payload, id=f"start-{number}")
            world.oracle.replied("start/child", f"start-{number}", {"child": handle.run_id})

        self._sent.append(send)
        self._send(send, self._dice.choice((1, 1, 2)))

    # --- operators ---------------------------------------------------------------------------------------

    def _verb(self) -> None:
        self._ask(1)

    def _verb_twice(self) -> None:
        self._ask(2)

    def _ask(self, times: int) -> None:
        up, runs = self.world.up(), self.world.mirror.runs
        if not up or not runs:
            return
        dice = self._dice
        run_id = dice.choice(list(runs))
        verbs = _verbs_for(RunState(runs[run_id].run["state"]))
        verb = dice.choice(verbs)
        for number in range(times):
            if number and dice.random() < 0.3:
                verb = dice.choice(verbs)
            self.world.counts["verb" if times == 1 else "verb twice"] += 1
            process = dice.choice(up)
            self.world.operation(process, f"ask {verb}", run_id)
            process.spawn(self._steer(process, run_id, verb))

    def _press(self) -> None:
        """Answer a held run, or now and then cancel one in the middle of its work."""
        up, runs, dice = self.world.up(), self.world.mirror.runs, self._dice
        held = [run_id for run_id, rows in runs.items() if rows.run["state"] == "held"]
        running = [run_id for run_id, rows in runs.items() if rows.run["state"] == "running"]
        verb = dice.choice(_ASKED) if held else "cancel"
        if up and (held or (running and dice.random() < 0.2)):
            process, run_id = dice.choice(up), dice.choice(held or running)
            self.world.counts["verb"] += 1
            self.world.operation(process, f"ask {verb}", run_id)
            process.spawn(self._steer(process, run_id, verb))

    async def _steer(self, process: Process, run_id: str, verb: str) -> None:
        world, dice = self.world, self._dice
        handle = process.app.run(run_id)
        try:
            if verb == "replay":
                if len(world.mirror.runs) >= RUNS_MAX:
                    return
                steps = [row["name"] for row in world.mirror.runs[run_id].step if row["state"] == "done"]
                from_step = dice.choice([None, None, *steps])
                request_id = f"request-{next(self._request_ids) // 2}"
                new = await handle.replay(from_step=from_step, request_id=request_id, actor="operator")
                if new.run_id not in world.mirror.runs:
                    world.violated(
                        f"I19 {run_id}: was answered with replay {new.run_id}, which is not stored"
                    )
            elif verb == "answer truly":
                for question in await handle.questions():
                    found = world.hands.truth_about(run_id, question.generation, question.step)
                    result = f"{question.step.split()[0]}/{question.generation}"
                    more: dict[str, Any] = {"result": result} if found else {}
                    word = "happened" if found else "did_not_happen"
                    world.oracle.steered(
                        await handle.answer(word, step=question.step, actor="operator", **more)
                    )
            elif verb.startswith("answer"):
                if verb == "answer fail":
                    world.hands.given_up.add(run_id)
                reply = await handle.answer(verb.split()[1], actor="operator")
                world.oracle.steered(reply)
            else:
                if verb == "restart":
                    reply = await self._restart(handle, run_id)
                else:
                    reply = await getattr(handle, verb)(actor="operator")
                world.note(
                    process, "reply", f"{verb} {run_id}: {reply.text}, {reply.state.value} {reply.attempt}"
                )
                world.oracle.steered(reply)
        except errors.OncewardError as error:
            world.note(process, "reply", f"{verb} {run_id}: {type(error).__name__}")

    async def _restart(self, handle: RunHandle[Any], run_id: str) -> Reply:
        """Restart a run as one of three: a script, somebody with a plan, somebody who keeps steps."""
        dice = self._dice
        how = dice.random()
        if how < 0.4:
            return await handle.restart(acknowledge=True, actor="operator")
        done = [row["name"] for row in self.world.mirror.runs[run_id].step if row["state"] == "done"]
        drop = [dice.choice(done)] if done and how < 0.7 else None
        plan = await handle.plan("restart", drop=drop)
        return await handle.restart(plan=plan, actor="operator")

    # --- bad luck ------------------------------------------------------------------------------------------

    def _victim(self) -> Process | None:
        live = [process for _, process in sorted(self.world.live.items()) if not process.is_paused]
        return self._dice.choice(live) if live else None

    def _crash(self) -> None:
        process = self._victim()
        if process is not None:
            self.world.faulted("crash", process)
            process.kill("crashed")

    def _crash_at_failpoint(self) -> None:
        process = self._victim()
        if process is not None:
            name = self._dice.choice(faults.FAILPOINTS)
            if self.world.is_waiting and self._dice.random() < 0.3:
                name = "accept.after_commit"  # between the commit of an event and the look for who waits
            action = "crash"
            if name.endswith(".before_commit") and self._dice.random() < 0.1:
                action = "raise"
            elif name.endswith(".after_commit") and self._dice.random() < 0.25:
                action = "drop-reply"
            process.armed[name] = action

    def _pause_at_failpoint(self) -> None:
        process = self._victim()
        if process is not None:
            names = [name for name in faults.FAILPOINTS if not name.endswith(".before_commit")]
            process.armed[self._dice.choice(names)] = "pause"

    def _pause(self) -> None:
        process = self._victim()
        if process is not None:
            self.world.faulted("pause", process)
            self.world.pause(process, self._dice.uniform(0.5, 5.0))

    def _outage(self) -> None:
        world = self.world
        world.faulted("outage", None)
        world.away_until = world.loop.time() + self._dice.uniform(0.2, 3.0)

    def _clock_jump(self) -> None:
        process = self._victim()
        if process is not None:
            is_insane = self.world.temper.clock_insane
            ms = self._dice.choice(
                (-20_000, -5_000, -1_500, 1_500, 5_000, 20_000) if is_insane else (-60, 60)
            )
            self.world.faulted("clock jump", process, f"{ms} ms")
            offset_ms = process.clock.offset_ms + ms
            process.clock.offset_ms = max(-CLOCK_OFF_MS_MAX, min(offset_ms, CLOCK_OFF_MS_MAX))

    def _mute(self) -> None:
        process = self._victim()
        if process is not None and not process.is_muted:
            world = self.world
            world.faulted("mute", process)
            process.is_muted = True
            world.later(self._dice.uniform(1.0, 5.0), setattr, process, "is_muted", False)

    def _stop(self) -> None:
        process = self._victim()
        if process is not None and process.is_up and not process.is_stopping:
            self.world.faulted("stop", process)
            process.is_up = False
            process.spawn(process.stop(self._dice.choice((0.0, 0.0, 0.3, 2.0))))


_ASKED = (*["answer truly"] * 6, "answer retry", "answer fail", "restart", "cancel")

_VERBS: dict[RunState, tuple[str, ...]] = {
    RunState.FAILED: ("retry", "retry", "retry", "restart", "replay", "dismiss"),
    RunState.HELD: ("answer retry", "answer retry", "answer fail", "restart", "cancel"),
    RunState.BACKOFF: ("retry", "retry", "cancel", "restart"),
    RunState.COMPLETED: ("restart", "replay", "cancel", "retry"),
    RunState.CANCELLED: ("restart", "cancel", "replay"),
}


def _verbs_for(state: RunState) -> tuple[str, ...]:
    return _VERBS.get(state, ("cancel", "cancel", "restart", "retry", "replay"))
