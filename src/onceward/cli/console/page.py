"""One run on a terminal: what it is, its time, what it waits for, its failure, and the way out."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from onceward.cli.console.timeline import draw
from onceward.cli.console.words import (
    command,
    fields,
    heading,
    length,
    now_ms,
    rfc3339,
    say,
    state,
    value,
    when,
)
from onceward.console.shaping import killed_behind
from onceward.console.ways import way_of
from onceward.core.shown import listed

if TYPE_CHECKING:
    from onceward.console.views import AttemptView, Failure, RunDetail

LOST_SHOWN = 5
"""Lost processes that are named, the last ones."""

VALUE_CHARS = 300
TRACEBACK_LINES = 6
TRACEBACK_HEAD = "Traceback (most recent call last):"
KEYS_SHOWN = 20
RESULTS_SHOWN = 20
RESULT_CHARS = 120


def lost_with(attempts: Sequence[AttemptView]) -> str | None:
    """Give the processes that were lost while they had the run, in their order; the run went on in others."""
    lost = [one for one in attempts if one.outcome == "lost" and one.process_id is not None]
    return ", ".join(f"{one.process_id} (attempt {one.attempt})" for one in lost[-LOST_SHOWN:]) or None


def print_run(detail: RunDetail, options: str, *, with_values: bool) -> None:
    """Print a run.

    Args:
        detail: what is known of it.
        options: with which it was asked for, for the commands that are proposed.
        with_values: also long values, whole.
    """
    run, now = detail.run, now_ms()
    chars = 1_000_000 if with_values else VALUE_CHARS
    head = state(run.state)
    head.append(f"  {run.run_id}", style="bold").append(f"  {run.workflow}")
    say(head)
    about = f" about {run.subject}" if run.subject else ""
    took = None if run.ended_at is None else length(run.ended_at - (run.started_at or run.created_at))
    lives = f"{run.generation}, attempt {run.attempt}"
    if detail.shown_generation != run.generation:
        lives += f"; shown is generation {detail.shown_generation}"
    fields(
        [
            ("event", f"{run.source}/{run.event_id}  {run.event_type or ''}{about}".rstrip()),
            ("key", run.key),
            ("accepted", _time(run.created_at, now)),
            ("started", _time(run.started_at, now)),
            ("ended", None if run.ended_at is None else f"{_time(run.ended_at, now)}, after {took}"),
            ("deadline", _time(detail.deadline_at, now) if run.ended_at is None else None),
            ("generation", lives),
            ("process", run.process_id),
            ("lost with", lost_with(detail.attempts)),
            (
                "pruned",
                None if run.pruned_at is None else f"{_time(run.pruned_at, now)}: its values are gone",
            ),
            ("replay of", run.replay_of),
            ("started by", run.parent_run_id),
            ("crashes", str(detail.crashes) if detail.crashes else None),
            ("stale", "a newer event of its subject had come" if detail.is_stale else None),
            ("payload", None if detail.payload is None else value(detail.payload, chars)),
            ("input", None if detail.input is None else value(detail.input, chars)),
            ("result", None if detail.output is None else value(detail.output, chars)),
            ("warning", None if detail.warning is None else _warned(detail.warning, chars)),
        ]
    )
    if detail.steps or detail.attempts:
        heading("Steps")
        draw(detail, now)
    keys = [step for step in detail.steps if step.idempotency_key and step.effect in (None, "outside")]
    if keys:
        heading("Idempotency keys")
        fields([(step.label, step.idempotency_key) for step in (keys if with_values else keys[:KEYS_SHOWN])])
        if len(keys) > KEYS_SHOWN and not with_values:
            say("    … --values shows all", "dim")
    results = [step for step in detail.steps if step.output is not None]
    if results:
        heading("Results of steps")
        shown = results if with_values else results[-RESULTS_SHOWN:]
        fields([(step.label, value(step.output, chars if with_values else RESULT_CHARS)) for step in shown])
        if len(results) > len(shown):
            say(f"    … the last {len(shown)} of {len(results)}; --values shows all, whole", "dim")
    for step in detail.steps:
        if step.question is not None:
            heading(f"Question: did {step.label!r} take effect?")
            fields(
                [
                    ("why", step.question["why"]),
                    ("began", _time(step.question["began_at"], now)),
                    ("sent key", step.question["idempotency_key"]),
                    ("arguments", value(step.question["arguments"], chars)),
                ]
            )
    if detail.waits_for is not None:
        heading("Waits for")
        until = "due" if run.state == "queued" else "until"
        due = "" if run.due_at is None or run.state == "held" else f", {until} {_time(run.due_at, now)}"
        say(f"  {detail.waits_for}{due}")
        behind = killed_behind(detail)
        if behind is not None:
            saved = (
                f"behind {behind!r}, the last step that was saved" if behind else "before any step was saved"
            )
            say(f"  What kills it is {saved}.")
    for step in detail.steps:
        if run.state == "backoff" and step.state == "open" and step.failure is not None:
            heading(f"Why {step.label!r} is tried again")
            _print_failure(step.failure, whole=with_values)
    if detail.failure is not None and run.state != "completed":
        heading("Failure")
        _print_failure(_cause(detail) or detail.failure, whole=with_values)
    for attempt in detail.attempts:
        # What ended the run stands above; of an earlier attempt nothing else says why.
        if attempt.failure is not None and (run.state != "failed" or attempt is not detail.attempts[-1]):
            heading(f"Why attempt {attempt.attempt} of generation {attempt.generation} {attempt.outcome}")
            say(f"  {attempt.failure.type}: {attempt.failure.message}", "red")
    if detail.children:
        heading("Children")
        for child in detail.children[:20]:
            say(f"  {child.run_id}  {child.state}  {child.workflow}")
    if detail.audits:
        heading("Done by people")
        for audit in detail.audits[-20:]:
            said = "" if audit.detail is None else f": {audit.detail}"
            say(f"  {_time(audit.at, now)}  {audit.actor}  {audit.verb}{said}")
    ways = list(ways_out(detail, options))
    if ways:
        heading("What you can do")
        for line, why in ways:
            command(line, why)


def _time(at: int | None, now: int) -> str | None:
    if at is None:
        return None
    said = when(at, now)
    return said if said == rfc3339(at) else f"{said}  ({rfc3339(at)})"


def _cause(detail: RunDetail) -> Failure | None:
    """Give the failure of the step that ended the run, whose traceback is the user's code."""
    attempt = next((one for one in reversed(detail.attempts) if one.failed_steps), None)
    labels = [] if attempt is None else attempt.failed_steps
    failures = [step.failure for step in detail.steps if step.label in labels and step.failure is not None]
    return failures[-1] if failures else None


def _warned(warning: Any, chars: int) -> str:
    """Say what was odd about a run's end; what is no list of steps by its kind is shown as it is."""
    if not isinstance(warning, dict) or not all(isinstance(steps, list) for steps in warning.values()):
        return value(warning, chars)
    told = "; ".join(
        f"{kind.replace('_', ' ')}: {', '.join(map(str, steps))}" for kind, steps in warning.items()
    )
    return told if len(told) <= chars else f"{told[: chars - 1]}…"


def _print_failure(failure: Failure, *, whole: bool) -> None:
    say(f"  {failure.type}: {failure.message}", "red")
    lines = (failure.traceback or "").rstrip().splitlines()
    shown = lines
    if not whole:
        told = [line for line in _of_users(lines)[:-1] if line.strip() and line != TRACEBACK_HEAD]
        shown = told[-TRACEBACK_LINES:]
    for line in shown:
        say(f"    {line}", "dim")
    if not whole and len(lines) > len(shown) + 1:
        say("    … --values shows it whole", "dim")


_FRAME = re.compile(r' *File "(.*)", line \d+, in ')
_OURS = re.compile(r"(?:^|[/\\])(?:site-packages|dist-packages|src)[/\\]onceward[/\\]")
"""Where this library lies on the machine on which the code ran, which need not be this one."""


def _of_users(lines: Sequence[str]) -> Sequence[str]:
    """Give a traceback without the frames of this library, unless it has no others."""
    kept, others, is_ours = [], 0, False
    for line in lines:
        frame = _FRAME.match(line)
        if frame is not None:
            is_ours = _OURS.search(frame[1]) is not None
            others += not is_ours
        elif not line.startswith("    "):
            is_ours = False
        if not is_ours:
            kept.append(line)
    return kept if others else lines


def ways_out(detail: RunDetail, options: str) -> Iterator[tuple[str, str]]:
    """Give the commands that lead on from here, each with what it does."""
    run = detail.run
    allowed = {verb.verb for verb in detail.verbs if verb.is_allowed}
    done = sum(step.state == "done" for step in detail.steps)
    kept = {0: "no step is saved yet", 1: "the saved step is kept"}.get(
        done, f"the {done} saved steps are kept"
    )

    outside = [step.label for step in detail.steps if step.effect == "outside" and step.kind != "undo"]
    again = f": what {listed(outside)} did outside happens again" if outside else ""

    def line(verb: str, more: str = "") -> str:
        return f"onceward runs {verb} {shlex.quote(run.run_id)}{more}{options}"

    asked = [step.question for step in detail.steps if step.question is not None]
    for question in asked:
        about = f" --step {shlex.quote(question['step'])}" if len(asked) > 1 else ""
        result = "" if question["kind"] == "undo" else " --result JSON"
        yield (
            line("answer", f" --with happened{result}{about}"),
            "it took effect, and gave this: go on behind it",
        )
        yield (
            line("answer", f" --with did_not_happen{about}"),
            "it did not take effect: let it be tried again",
        )
    if asked:
        yield line("answer", " --with fail"), "give up: the run fails"
    elif run.state == "held":
        yield line("answer", " --with retry"), f"{way_of(run).first}: go on with another attempt; {kept}"
        yield line("answer", " --with fail"), "give up: the run fails"
        yield line("cancel"), "end it; its clean-up steps run"
    elif run.state == "failed":
        if "retry" in allowed:
            yield line("retry"), f"try again where it failed, once the cause is mended; {kept}"
        undone = "its steps were undone, so it is not retried: " if run.is_undone else ""
        yield line("restart"), f"{undone}run every step again{again}"
        yield line("replay"), f"make a new run of the same event, in which every step runs again{again}"
        if "dismiss" in allowed:
            yield line("dismiss"), "leave it failed, and take it off the list of problems"
    elif run.state in ("completed", "cancelled"):
        yield line("replay"), f"make a new run of the same event, in which every step runs again{again}"
        yield line("restart"), f"run every step of this one again{again}"
    elif run.state == "backoff":
        yield line("retry"), "do not wait for the next try"
        yield line("cancel"), "end it; its clean-up steps run"
    elif "cancel" in allowed:
        yield from _ends_of_waits(detail, options)
        yield line("cancel"), "end it; its clean-up steps run"


def _ends_of_waits(detail: RunDetail, options: str) -> Iterator[tuple[str, str]]:
    """Give the commands that end what a run waits for."""
    run_id = detail.run.run_id
    made = [step for step in detail.steps if step.promise is not None and step.promise.state == "open"]
    for step in made:
        named = f" --promise {shlex.quote(step.label)}" if len(made) > 1 else ""
        yield (
            f"onceward runs complete {shlex.quote(run_id)}{named} --value JSON{options}",
            f"complete the promise {step.label}; --fail REASON fails it",
        )
    for awaited in [one for step in detail.steps for one in step.awaits]:
        about = "" if awaited.subject is None else f" --subject {shlex.quote(awaited.subject)}"
        source = "" if awaited.source is None else f" --source {shlex.quote(awaited.source)}"
        where = "" if awaited.condition is None else ", if its condition holds"
        yield (
            f"onceward emit {shlex.quote(awaited.type)}{source}{about} --data JSON{options}",
            f"make the event that it waits for{where}",
        )
