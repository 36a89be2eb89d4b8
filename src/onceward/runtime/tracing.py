"""Spans of OpenTelemetry, where the application has set a provider up; elsewhere nothing, at no cost.

A delivery's span is stored with its event, as a ``traceparent``, and so is that of the step that emits or
starts. So a run continues its event's trace in any process, after a crash too. A go of a later attempt, or
after a sleep or a wait, may come days later; it begins a trace of its own that links to the event's.

A sampler or exporter of the user's that raises costs a span and a line in the log, never a run or a delivery.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from onceward.core.redact import Redaction
from onceward.core.states import RunState
from onceward.runtime.records import one_line
from onceward.version import __version__

if TYPE_CHECKING:
    from opentelemetry.trace import Span, SpanContext, Tracer

    from onceward.authoring.current import Frame
    from onceward.core.model import StepRow
    from onceward.runtime.execution import Execution

T = TypeVar("T")

_log = logging.getLogger("onceward.tracing")

ATTRIBUTES = {
    "onceward.source": "who says that something happened, such as `stripe`",
    "onceward.event.id": "the event's id there",
    "onceward.event.type": "what happened",
    "onceward.delivery.outcome": "`accepted` or `duplicate`",
    "onceward.workflow": "which workflow",
    "onceward.run.id": "which run",
    "onceward.run.generation": "counted from 1; a restart adds one",
    "onceward.run.attempt": "counted from 1",
    "onceward.run.state": "where this go left the run",
    "onceward.step": "which step",
    "onceward.step.try": "counted from 1",
}
"""Every attribute of our spans, and what it says."""

_USUAL = Redaction()
"""For errors of deliveries, which are our own."""

_WAITS = frozenset({"sleep", "wait", "promise"})
_BAD_ENDS = frozenset({RunState.FAILED, RunState.HELD, RunState.BACKOFF})


def tracer_found() -> Tracer | None:
    """Give the tracer, or None where no provider is set up: nobody asked for spans.

    Nobody who sets one up can do so without importing the API, so it is not imported here otherwise.
    """
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
        return None
    found: Tracer = provider.get_tracer("onceward", __version__)
    return found


def traceparent(tracer: Tracer | None) -> str | None:
    """Give the span that is current here, as the header ``traceparent`` has it; None without one.

    Source: W3C Trace Context, version 00.
    """
    if tracer is None:
        return None
    from opentelemetry import trace

    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def context_of(text: str | None) -> SpanContext | None:
    """Give the span that `traceparent` told of; None where the text tells of none."""
    from opentelemetry.trace import SpanContext, TraceFlags

    try:
        version, trace_id, span_id, flags = (text or "").split("-")
        found = SpanContext(int(trace_id, 16), int(span_id, 16), True, TraceFlags(int(flags, 16)))
    except ValueError:
        return None
    return found if version == "00" and found.is_valid else None


def safely(function: Callable[..., T], *args: Any) -> T | None:
    """Give what a call gives that makes or ends a span; None where it raises."""
    try:
        return function(*args)
    except Exception:  # noqa: BLE001 - whatever a sampler or an exporter of the user's raises
        _log.exception("a span could not be made or ended")
        return None


@contextlib.contextmanager
def receiving(tracer: Tracer, source: str) -> Iterator[DeliverySpan | None]:
    """Make the span of a delivery current, from when it is verified until it is durable."""
    span = safely(DeliverySpan, tracer, source)
    try:
        yield span
    except BaseException as error:
        if span is not None:
            safely(span.fail, error)
        raise
    finally:
        if span is not None:
            safely(span.end)


class _CurrentSpan:
    """A span that is current in this task until it ends."""

    def __init__(self, span: Span, redaction: Redaction) -> None:
        from opentelemetry import context, trace

        self._span, self._redaction = span, redaction
        self._token = context.attach(trace.set_span_in_context(span))

    def fail(self, error: BaseException) -> None:
        """Say that what it is about raised."""
        self._span.set_status(_error(), self._redaction.text(one_line(error)))

    def end(self) -> None:
        """End it; what was current before is again."""
        from opentelemetry import context

        context.detach(self._token)
        self._span.end()


class DeliverySpan(_CurrentSpan):
    """The span of a delivery that is being stored.

    Args:
        tracer: makes it.
        source: the source's name.
    """

    def __init__(self, tracer: Tracer, source: str) -> None:
        from opentelemetry.trace import SpanKind

        attributes = {"onceward.source": source}
        super().__init__(
            tracer.start_span(f"receive {source}", kind=SpanKind.CONSUMER, attributes=attributes),
            _USUAL,
        )

    def stored(self, outcome: str) -> None:
        """Say whether it was new."""
        self._span.set_attribute("onceward.delivery.outcome", outcome)


class GoSpan:
    """The span of one go at a run, current in the task that begins it and in what that makes.

    Args:
        tracer: makes it.
        execution: the run.
        history: what is saved of it.
    """

    def __init__(self, tracer: Tracer, execution: Execution, history: list[StepRow]) -> None:
        from opentelemetry import context, trace

        run, event = execution.run, execution.event
        origin = context_of(execution.trace)
        is_first = run.generation == run.attempt == 1 and not run.replay_id
        continues = origin is not None and is_first and not any(row.kind in _WAITS for row in history)
        parent = trace.set_span_in_context(
            trace.NonRecordingSpan(origin) if continues and origin is not None else trace.INVALID_SPAN,
            context.Context(),
        )
        self._span = tracer.start_span(
            f"run {run.workflow}",
            parent,
            links=[] if continues or origin is None else [trace.Link(origin)],
            attributes={
                "onceward.workflow": run.workflow,
                "onceward.run.id": run.run_id,
                "onceward.run.generation": run.generation,
                "onceward.run.attempt": run.attempt,
                "onceward.source": run.source,
                "onceward.event.id": run.event_id,
                "onceward.event.type": event.type,
            },
        )
        # The task's context is its own and ends with it.
        context.attach(trace.set_span_in_context(self._span))

    def end(self, execution: Execution, error: BaseException | None) -> None:
        """End it, and say where the go left the run."""
        state = execution.run.state
        if execution.stopping != "lost":
            self._span.set_attribute("onceward.run.state", state.value)
        if state in _BAD_ENDS:
            said = None if error is None else execution.worker.redaction.text(one_line(error))
            self._span.set_status(_error(), said)
        self._span.end()


class StepSpan(_CurrentSpan):
    """The span of one try of a step, current while its body runs.

    Args:
        tracer: makes it.
        execution: the run.
        frame: the body.
    """

    def __init__(self, tracer: Tracer, execution: Execution, frame: Frame) -> None:
        super().__init__(
            tracer.start_span(
                f"step {frame.key.name}",
                attributes={
                    "onceward.workflow": execution.run.workflow,
                    "onceward.run.id": execution.run_id,
                    "onceward.step": str(frame.key),
                    "onceward.step.try": frame.try_number,
                },
            ),
            execution.worker.redaction,
        )


def _error() -> Any:
    from opentelemetry.trace import StatusCode

    return StatusCode.ERROR
