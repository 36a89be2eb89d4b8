"""``GET /metrics``: what the store holds and what this process counted, for Prometheus.

Stands behind the gate, which says who asks. What the store holds is asked for when somebody asks us,
at most once a second, by reads of a bounded number of rows. Names and labels are `METRICS_TABLE`; every
label is one of our own words, or a name from the code, or cut off in number and length.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

from onceward.console.port import Console
from onceward.console.views import Counts, RefusalView, WorkerView
from onceward.core.counters import OTHER, SECONDS, Counter, Histogram
from onceward.core.errors import OncewardError
from onceward.core.messages import HttpResponse
from onceward.core.states import TERMINAL, RunState
from onceward.version import __version__
from onceward.web import replies
from onceward.web.auth.guard import header
from onceward.web.port import Receive, Scope, Send
from onceward.web.problems import problem, problem_of_error
from onceward.web.receiver import send_response

if TYPE_CHECKING:
    from onceward.app import App
    from onceward.runtime.worker import Worker

METRICS = "/metrics"

FRESH_S = 1.0
"""How long what the store said is good for: many that ask cost as much as one."""

REFUSALS_MAX = 200
"""Pairs of source and reason with a series of their own; the oldest have one, so that none ever falls."""

LABEL_CHARS_MAX = 160

_MISSING = problem(
    501,
    "metrics_missing",
    "The metrics cannot be written",
    "prometheus-client is not installed here: pip install 'onceward[metrics]'",
)


class Metric(NamedTuple):
    """One metric as it is documented.

    Attributes:
        name: without the endings that its kind adds.
        kind: gauge, counter or histogram.
        of: ``store`` for what every process says alike, ``process`` for what the asked one counted.
        labels: their names.
        help: what it counts.
    """

    name: str
    kind: str
    of: str
    labels: tuple[str, ...]
    help: str


METRICS_TABLE: tuple[Metric, ...] = (
    Metric(
        "onceward_build", "gauge", "process", ("version", "namespace", "process"), "1; what answers here."
    ),
    Metric(
        "onceward_runs",
        "gauge",
        "store",
        ("state",),
        "Runs in a live state, and under `failed` the failures that nobody dismissed; 10,000 of each are counted.",
    ),
    Metric(
        "onceward_problems_open", "gauge", "store", (), "Failed and held runs that wait for somebody to act."
    ),
    Metric(
        "onceward_oldest_due_age_seconds",
        "gauge",
        "store",
        (),
        "For how long the run that waits longest to be taken up has been due; 0 while none is.",
    ),
    Metric(
        "onceward_unparsed_deliveries", "gauge", "store", (), "Kept deliveries that their source cannot read."
    ),
    Metric("onceward_workers_alive", "gauge", "store", (), "Processes whose lease holds."),
    Metric(
        "onceward_refusals",
        "counter",
        "store",
        ("source", "reason"),
        "Deliveries that were refused, of all processes.",
    ),
    Metric(
        "onceward_run_slots", "gauge", "process", ("process",), "How many runs the process may hold at once."
    ),
    Metric("onceward_runs_in_memory", "gauge", "process", ("process",), "How many it holds."),
    Metric(
        "onceward_runs_ended",
        "counter",
        "process",
        ("process", "workflow", "outcome"),
        "Runs that it carried to `completed`, `failed`, `cancelled` or `held`.",
    ),
    Metric(
        "onceward_deliveries",
        "counter",
        "process",
        ("process", "source", "outcome"),
        "Deliveries that it answered: `accepted`, `duplicate`, `unparsed` or `refused`.",
    ),
    Metric(
        "onceward_step_tries_failed",
        "counter",
        "process",
        ("process", "workflow", "next"),
        "Failed tries of steps, and whether the step is tried `again` or has `failed`.",
    ),
    Metric(
        "onceward_notices",
        "counter",
        "process",
        ("process", "outcome"),
        "What became of tries to send a notice: `told`, `failed`, or `given_up` for good.",
    ),
    Metric(
        "onceward_batch_seconds",
        "histogram",
        "process",
        ("process",),
        "How long it took to make a batch durable; how many is the number of batches.",
    ),
)

SHOWN_STATES = tuple(state for state in RunState if state not in TERMINAL or state is RunState.FAILED)


class Stored(NamedTuple):
    """What the store said."""

    counts: Counts
    workers: Sequence[WorkerView]
    refusals: Sequence[RefusalView]


class Metrics:
    """The ASGI application of the metrics.

    Args:
        app: whose process counts.
        console: asks the store.
        elapsed_s: a clock that only grows, in seconds.
    """

    def __init__(
        self, app: App, console: Console, *, elapsed_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._app = app
        self._console = console
        self._elapsed_s = elapsed_s
        self._stored: tuple[float, Stored] | None = None
        self._asking: asyncio.Task[Stored] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 (ASGI's)
        """Serve one request."""
        if scope["method"] not in ("GET", "HEAD"):
            reply = replies.method_not_allowed("GET, HEAD")
        else:
            reply = await self._reply(header(scope, b"accept"))
        await send_response(send, reply, head_only=scope["method"] == "HEAD")

    async def _reply(self, accept: str) -> HttpResponse:
        try:
            from prometheus_client.exposition import choose_encoder
        except ImportError:
            return _MISSING
        try:
            stored, worker = await self._ask(), self._app.worker
        except OncewardError as error:
            return problem_of_error(error)
        encode, kind = choose_encoder(accept)
        page = Page(self._app.settings.namespace, worker, stored)
        return HttpResponse.of(200, encode(page), {"Content-Type": kind, "Cache-Control": "no-store"})

    async def _ask(self) -> Stored:
        """Give what the store says, not older than `FRESH_S`; who asks meanwhile shares the answer."""
        now = self._elapsed_s()
        if self._stored is not None and now - self._stored[0] < FRESH_S:
            return self._stored[1]
        if self._asking is None or self._asking.done():
            self._asking = asyncio.get_running_loop().create_task(self._read(now))
        return await asyncio.shield(self._asking)

    async def _read(self, now: float) -> Stored:
        console = self._console
        stored = Stored(await console.counts(), await console.workers(), await console.refusals())
        self._stored = (now, stored)
        return stored


class Page:
    """What prometheus-client collects: one family for each row of the table.

    Args:
        namespace: of the app.
        worker: whose counts are shown.
        stored: what the store said.
    """

    def __init__(self, namespace: str, worker: Worker, stored: Stored) -> None:
        self._namespace = namespace
        self._worker = worker
        self._stored = stored

    def collect(self) -> Iterable[Any]:
        """Give the families."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        values = self._values()
        for metric in METRICS_TABLE:
            if metric.kind == "histogram":
                histogram = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
                batches = self._worker.counters.batches
                histogram.add_metric([self._worker.process_id], _classes(batches), batches.total)
                yield histogram
                continue
            make = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = make(metric.name, metric.help, labels=metric.labels)
            for labels, value in values[metric.name].items():
                family.add_metric([_label(text) for text in labels], value)
            yield family

    def _values(self) -> dict[str, Mapping[tuple[str, ...], float]]:
        """Give the value of each combination of labels, by metric."""
        worker, counters, counts = self._worker, self._worker.counters, self._stored.counts
        process, states, due_at = worker.process_id, counts.states, counts.oldest_due_at
        age_ms = 0 if due_at is None else max(worker.now_ms() - due_at, 0)
        return {
            "onceward_build": {(__version__, self._namespace, process): 1},
            "onceward_runs": {(state.value,): states.get(state.value, 0) for state in SHOWN_STATES},
            "onceward_problems_open": {(): sum(states.get(state, 0) for state in ("failed", "held"))},
            "onceward_oldest_due_age_seconds": {(): age_ms / 1000},
            "onceward_unparsed_deliveries": {(): counts.unparsed},
            "onceward_workers_alive": {(): sum(one.is_alive for one in self._stored.workers)},
            "onceward_refusals": _refusals(self._stored.refusals),
            "onceward_run_slots": {(process,): worker.settings.concurrency},
            "onceward_runs_in_memory": {(process,): len(worker.executions)},
            "onceward_runs_ended": _of(process, counters.runs),
            "onceward_deliveries": _of(process, counters.deliveries),
            "onceward_step_tries_failed": _of(process, counters.tries_failed),
            "onceward_notices": _of(process, counters.notices),
        }


def _of(process: str, counter: Counter) -> dict[tuple[str, ...], float]:
    return {(process, *labels): count for labels, count in counter.values.items()}


def _refusals(views: Sequence[RefusalView]) -> dict[tuple[str, ...], float]:
    """Give the counts by source and reason; all beyond `REFUSALS_MAX` in one."""
    found: dict[tuple[str, ...], float] = {}
    for view in sorted(views, key=lambda one: (one.first_at, one.source, one.reason)):
        labels = (_label(view.source), _label(view.reason))
        if labels not in found and len(found) >= REFUSALS_MAX:
            labels = (OTHER, OTHER)
        found[labels] = found.get(labels, 0) + view.count
    return found


def _classes(histogram: Histogram) -> list[tuple[str, float]]:
    """Give how many lengths of time do not exceed each end, as Prometheus has it."""
    ends = [*(str(end) for end in SECONDS), "+Inf"]
    return list(zip(ends, accumulate(histogram.counts), strict=True))


def _label(text: str) -> str:
    """Give a label that can be encoded and is not long, whatever a source or a stranger made of it."""
    return text[:LABEL_CHARS_MAX].encode("utf-8", "replace").decode()
