"""Write the pages of the documentation that come from code into ``docs/generated``.

What is in a table of the code is not written down a second time: settings, errors, states and
failpoints. The page of the API lists the public names, in the order in which a reader needs them.
"""

from __future__ import annotations

import importlib
import inspect
import shutil
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple, cast

from onceward import sources
from onceward.core import errors, failpoints, settings, states, takeover
from onceward.core.duration import show
from onceward.sources import Source
from onceward.sources.described.scheme import Scheme, in_words, names

ROOT = Path(__file__).resolve().parents[1]
GENERATED = ROOT / "docs" / "generated"
VERBS = list(states.Verb)
SECTIONS = ("Args:", "Attributes:", "Returns:", "Raises:")


class Part(NamedTuple):
    """A part of the page of the API: its heading, the module, the names, what it says first."""

    heading: str
    module: str
    names: tuple[str, ...]
    says: str = ""


SENDERS = sorted(name for name in sources.__all__ if name[0].isupper() and name != "Source")

API: tuple[Part, ...] = (
    Part("The app", "onceward", ("App",)),
    Part("The app, blocking", "onceward.sync", ("SyncApp",)),
    Part(
        "In a web framework",
        "onceward.adapters.asgi",
        ("Adapter", "AsgiVerbs"),
        "Each module of `onceward.adapters` has such an `Adapter`; see [in a web framework]"
        "(../frameworks/index.md). Those of FastAPI, Starlette and Litestar have these verbs too.",
    ),
    Part(
        "In a web framework, blocking",
        "onceward.adapters.blocking",
        ("BlockingVerbs",),
        "The adapters of Django, Flask and WSGI have these verbs, and those of `SyncApp`.",
    ),
    Part(
        "Writing workflows",
        "onceward",
        (
            "Context",
            "SyncContext",
            "Event",
            "event",
            "Retry",
            "Retention",
            "IdempotencyKey",
            "AUTO",
            "Step",
            "Transaction",
            "Workflow",
        ),
    ),
    Part(
        "Who is told of failures",
        "onceward",
        ("NoticeAddress",),
        "See [be told of failures](../notices.md).",
    ),
    Part("What a check function returns", "onceward", ("Happened", "DidNotHappen")),
    Part("ctx.step", "onceward.authoring.verbs", ("StepVerbs",)),
    Part("ctx.step, blocking", "onceward.authoring.sync_verbs", ("SyncStepVerbs",)),
    Part("Waits", "onceward", ("Expect", "Promise", "SyncPromise")),
    Part("What a completion did", "onceward.promising", ("Completed",)),
    Part(
        "Runs and events",
        "onceward",
        ("RunHandle", "LaterRun", "Plan", "Question", "Emitted", "EventView", "RunState"),
    ),
    Part("The handle of a run, blocking", "onceward.sync", ("SyncRunHandle", "SyncLaterRun")),
    Part("What a verb answers", "onceward.core.steer", ("Reply",)),
    Part("What a plan says", "onceward.core.plan", ("PlannedStep", "PlannedChild", "Fate", "ChildFate")),
    Part(
        "Rows",
        "onceward.core.model",
        (
            "RunRow",
            "StepRow",
            "StepKey",
            "AttemptRow",
            "EventRow",
            "DeliveryRow",
            "UnparsedRow",
            "SkippedRow",
            "ProcessRow",
        ),
        "What the store keeps, as lists and handles give it. Times are Unix milliseconds.",
    ),
    Part(
        "Raised by your code, or through it",
        "onceward",
        ("Permanent", "RetryLater", "OutcomeUnknown", "Suspended", "RunCancelled"),
    ),
    Part(
        "Errors",
        "onceward",
        (
            "OncewardError",
            "CallOutsideStep",
            "ConfigError",
            "DeadlineExceeded",
            "HistoryMismatch",
            "IdClash",
            "KeyCycle",
            "KeyTaken",
            "NotAwaited",
            "NotFound",
            "NotStorable",
            "PlanNeeded",
            "Pruned",
            "RunFailed",
            "RunWasCancelled",
            "StateConflict",
            "StepFailed",
            "StepMisuse",
            "StepNameRepeated",
            "StepTimedOut",
            "WaitTimedOut",
            "AlreadyCompleted",
            "PromiseOver",
            "StoreUnavailable",
            "TransactionMisuse",
            "ValueTooLarge",
            "WorkflowUnknown",
        ),
        "All errors, with their codes: [errors](errors.md).",
    ),
    Part(
        "Keys on outgoing requests",
        "onceward.outgoing",
        ("keyed", "NO_KEY", "key_request", "key_request_async", "trace_config", "KeyingAdapter", "add_key"),
    ),
    Part(
        "Log records",
        "onceward.logs",
        ("RunFields", "QuietOnRecall", "JsonLines"),
        "See [telemetry](../telemetry.md#logs).",
    ),
    Part("Version", "onceward", ("__version__",)),
    Part(
        "Sources",
        "onceward.sources",
        ("Source", "create", "kinds", "source_class", "from_functions", *SENDERS),
        "What each kind is good for: [sources](sources.md).",
    ),
    Part(
        "Describing a sender",
        "onceward.sources.described.scheme",
        ("Scheme", "Signature", "Timestamp", "Handshake", "TypeRule", "Reply"),
        "The fields of `Generic`; see [write your own source](../write-a-source.md).",
    ),
    Part("Places in a delivery", "onceward.sources.described.place", ("Place",)),
    Part("Triggers", "onceward.core.triggers", ("Trigger",)),
    Part(
        "For a source of your own",
        "onceward.core.messages",
        ("HttpRequest", "HttpResponse"),
        "Beside `Source`; see [write your own source](../write-a-source.md).",
    ),
    Part("What a source gives", "onceward.core.arrival", ("Verified", "LooseProof", "Incoming")),
    Part("What a delivery became", "onceward.core.arrival", ("Accepted", "AcceptedEvent")),
    Part("What was refused", "onceward.refusals", ("Refusal", "RefusalSample")),
    Part("Reading a body", "onceward.sources.base", ("parse_json", "parse_object", "identifier")),
    Part(
        "Checking a signature",
        "onceward.sources.signing",
        (
            "sole_header",
            "hex_hmac",
            "base64_hmac",
            "matching_secret",
            "matching_key",
            "unix_ms",
            "iso_ms",
            "check_window",
        ),
    ),
    Part(
        "Testing",
        "onceward.testing",
        (
            "crash_matrix",
            "Report",
            "Finding",
            "Advice",
            "delivery",
            "emitted",
            "started",
            "AppInTest",
            "Outside",
            "Effect",
            "Asked",
            "Answer",
            "Unrepeatable",
            "Unending",
            "failpoints",
            "check_invariants",
            "Violation",
            "History",
        ),
    ),
    Part("Testing sources", "onceward.testing.source_suite", ("SourceCase", "Example", "Check", "fuzz")),
    Part("Servers for tests", "onceward.testing.servers", ("PostgresServer", "PgBouncer", "PostgresAddress")),
    Part("A proxy that loses things", "onceward.testing.tcp_proxy", ("TcpProxy",)),
)

MEMBERS = {
    "Adapter": ("mount",),
    "BlockingVerbs": ("open", "close", "lifespan"),
    "Step": ("item",),
    "Workflow": (),
    "Retry": (),
    "Retention": (),
    "NoticeAddress": (),
    "StepKey": (),
    "Trigger": (),
    "Place": (),
    "SourceCase": (),
    "Check": (),
    "KeyingAdapter": (),
    "TcpProxy": (
        "start", "stop", "dsn", "cut", "refuse", "blackhole", "delay", "heal", "drop_commit_reply", "cut_before_commit",
    ),
    "PostgresServer": (
        "start", "stop", "restart", "halt", "dsn", "create_database", "drop_database", "address", "pid",
    ),
}  # fmt: skip
"""Classes of which only these members are for users; of all others, every public one is."""

START = "(workflow: Workflow, /, *args, id: str | None = None, **kwargs)"
RUN_STEP = (
    "(name: str, function, /, *args, item: object = '', retry: Retry = Retry(), "
    "timeout: Duration | None = None, key_scope: KeyScope = 'step', key_memory: Duration | None = None, **kwargs)"
)
CHILD = "(name: str, workflow: Workflow, /, *args, item: object = '', **kwargs)"
SIGNATURES = {
    "App.start": f"{START} -> RunHandle",
    "SyncApp.start": f"{START} -> SyncRunHandle",
    **{
        f"{verbs}.{verb}": signature
        for verbs in ("StepVerbs", "SyncStepVerbs")
        for verb, signature in {"run": RUN_STEP, "start": f"{CHILD} -> str", "call": CHILD}.items()
    },
}
"""Methods whose overloads tell type checkers at length what a reader is told in one line."""

DATA = {
    "IdempotencyKey": "The key that a step hands to others: a `str`, the same on every try and attempt of one "
    "generation. Annotate a step's parameter with it and give it the default `AUTO`; Onceward passes the step's "
    "own key. Outside a run the default arrives as it is.",
    "AUTO": "The default of a step's `IdempotencyKey` parameter: Onceward passes the step's own key.",
    "NO_KEY": "Headers for one request that is to have no key: `client.post(url, headers=NO_KEY)`.",
    "event": 'Where expressions over an event begin: `event.payload["order"]`, `event.version`. Data, not code: see '
    "[one run per order](../one-run-per-order.md).",
    "__version__": "The version of this Onceward, as text.",
}


def settings_page() -> str:
    """Give the page of settings."""
    return f"""# Settings

An option of the command line (`--log-level`) wins over an argument of `App`, which wins over the
variable, which wins over the default. A name that is not here is an error, and so is a pair of values
that contradict each other.

Lengths of time are written `"10s"`, `"1h30m"` or `"7d"`; as arguments also as a `timedelta` or a
number of seconds. Sizes are a number of bytes, or `"512KiB"` and `"5MiB"`.

{settings.settings_markdown()}
These pairs are refused: {"; ".join(f"`{pair.smaller}` above `{pair.larger}`" for pair in settings.CONTRADICTIONS)}.
"""


def errors_page() -> str:
    """Give the page of errors: a section for each class that users can meet."""
    sections = [
        f"### {error.__name__}\n\n"
        f"{error.title}. Code `{error.code}`, HTTP status {error.http_status}.\n\n{text_of(error)}\n"
        for error in all_errors()
        if error is not errors.OncewardError
    ]
    raised_by_users = [
        f"### {name}\n\n{text_of(value)}\n"
        for name, value in vars(errors).items()
        if inspect.isclass(value)
        and issubclass(value, BaseException)
        and not issubclass(value, errors.OncewardError)
    ]
    return (
        "# Errors\n\n"
        "Every error has a stable code, and a message in three parts: what happened, with the values;\n"
        "what it means; what to do. `error.what`, `error.means` and `error.todo` are the parts. The\n"
        "receiver answers with a problem document (RFC 9457) that has the code and tells a stranger\n"
        "nothing more; the log has the rest. The command line ends with status 2 where the\n"
        "configuration is to blame, 3 where the store is, and 1 for all else.\n\n"
        "## Raised by Onceward\n\n"
        + "\n".join(sections)
        + "\n## Raised by your code, or through it\n\n"
        + "\n".join(raised_by_users)
    )


def all_errors() -> Iterator[type[errors.OncewardError]]:
    """Give the error classes in the order in which they are defined."""
    for value in vars(errors).values():
        if inspect.isclass(value) and issubclass(value, errors.OncewardError):
            yield value


def text_of(documented: object) -> str:
    """Give a docstring without its sections of arguments and attributes."""
    text = inspect.getdoc(documented) or ""
    for section in SECTIONS:
        text = text.partition(f"\n\n{section}")[0]
    return text.replace("``", "`")


def states_page() -> str:
    """Give the page of states: what each means, how a run moves, what each verb does."""
    meanings = [f"| **{state}** | {states.MEANING[state]} |" for state in states.RunState]
    moves = [f"| {state} | {move} | {target} |" for (state, move), target in states.MOVES.items()]
    header = f"| a run that is | {' | '.join(VERBS)} |\n|{' --- |' * (len(VERBS) + 1)}"
    table = [
        f"| **{state}** | {' | '.join(shown_cell(states.TABLE[state, verb]) for verb in VERBS)} |"
        for state in states.RunState
    ]
    newline = "\n"
    return f"""# States

A run is in exactly one state. The last three are terminal: only a verb leaves them.

| state | meaning |
| --- | --- |
{newline.join(meanings)}

## What each verb does

Verbs are methods of a run's handle, `app.run(run_id)`. What a cell says is `reply.text`. A refusal is
the error `StateConflict`; it says what to do instead, and nothing was changed. A queued run that ran
before, and was put back or lost its process, is cancelled like a running one: its clean-up steps run.
A retry of a failed run whose steps were undone is refused: {states.UNDONE.reply}; {states.UNDONE.hint}.
What a held run can be answered hangs on why it is held: `questions()` and its `reason` say that. `resume()` is the
answer "retry", so its cells are those of `answer`.

{header}
{newline.join(table)}

## Why a verb is refused

| verb | when the run is | because | instead |
| --- | --- | --- | --- |
{newline.join(refusals())}

## How a run moves by itself

| from | by | to |
| --- | --- | --- |
{newline.join(moves)}

*Claim*: a free process takes it. *Release*: a process that stops puts it back. *Take over*: its process
died or lost its lease; a run to which that happens {takeover.CRASH_LIMIT} times in a row, without a new checkpoint in
between, is held instead.
"""


def shown_cell(cell: states.Cell) -> str:
    """Give one cell of the table of verbs."""
    return "refused" if cell.effect is states.Effect.REFUSE else cell.reply


def refusals() -> Iterator[str]:
    """Give a row for each reason to refuse a verb, with the states that share it."""
    for verb in VERBS:
        reasons: dict[tuple[str, str], list[str]] = {}
        for state in states.RunState:
            cell = states.TABLE[state, verb]
            if cell.effect is states.Effect.REFUSE:
                reasons.setdefault((cell.reply, cell.hint), []).append(state)
        for (reply, hint), refused in reasons.items():
            yield f"| {verb} | {', '.join(refused)} | {reply} | {hint} |"


def failpoints_page() -> str:
    """Give the page of failpoints."""
    rows = [f"| `{name}` | {sentence} |" for name, sentence in failpoints.REGISTRY.items()]
    newline = "\n"
    return f"""# Failpoints

Places at which a test can make the world go wrong. They are off unless one is armed:
`ONCEWARD_FAILPOINT=name[@step]:kill|raise|drop-reply|pause[:n]` arms one in a real process, at its
*n*-th passing (the first when not given); several are separated by commas. `onceward.testing.failpoints()`
gives this table. [Test workflows](../testing.md#crashes) shows how to use them.

| name | where it lies |
| --- | --- |
{newline.join(rows)}
"""


def sources_page() -> str:
    """Give the catalogue of sources: what each is called, what it does, where its facts are from."""
    rows = []
    sections = []
    for kind in sources.kinds():
        source = sources.source_class(kind)
        facts = [
            shown_length(tolerance_of(source)),
            "yes" if source.is_batching else "",
            ("" if source.retry_docs else "~" if source.retry_horizon else "")
            + shown_length(source.retry_horizon),
            shown_length(source.reply_deadline),
        ]
        rows.append(f"| [`{kind}`](#{kind.replace('_', '-')}) | {' | '.join(facts)} |")
        options = options_of(source)
        compared = f", compared on {source.docs_date}" if source.docs_date else ""
        sections.append(
            f"### {kind}\n\n{text_of(source)}\n\n"
            f'`{source.__name__}(…)`, or `create("{kind}", …)`.'
            + (f" Options: {', '.join(f'`{name}`' for name in options)}." if options else "")
            + f"\n{places_of(source)}[Documentation]({source.docs_url}){compared}"
            + (f", and [of its retries]({source.retry_docs}).\n" if source.retry_docs else ".\n")
        )
    newline = "\n"
    return f"""# Sources

Every kind has a name for `onceward.sources.create(kind, name=…, secrets=[…])`; two accounts of one
provider are two names. All take `secrets=`, several during a rotation, or `insecure=True`.

| kind | signed time may lie off by | several events a delivery | tries again for | waits for a reply |
| --- | --- | --- | --- | --- |
{newline.join(rows)}

Empty: no, not said, or not known. `~`: no page of the sender's was found that says so. A sender that signs no time can be replayed for ever; the event's id
is then the only defence, so identities are kept for good. A sender that is not here: [write your own
source](../write-a-source.md).

## Each

{newline.join(sections)}
"""


def places_of(source: type[Source]) -> str:
    """Say where a described kind finds what tells its events apart; nothing of others."""
    scheme = getattr(source, "scheme_default", None)
    if scheme is None or (scheme.id, scheme.type) == (Scheme().id, Scheme().type):
        return ""
    left_out = f", without {listed(scheme.id_ignore)}" if scheme.id_ignore else ""
    if scheme.id == "received":
        event_id = "The id is new for each delivery"
    elif scheme.id == "derived":
        event_id = f"The id is derived from the whole event{left_out}"
    elif isinstance(scheme.id, str):
        otherwise = f", or derived from the whole event{left_out}" if scheme.id_else else ""
        event_id = f"The id is at {listed(scheme.id)}{otherwise}"
    else:
        event_id = f"The id is derived from {listed(scheme.id)}"
    subject = f", the subject at {listed(scheme.subject, ' or ')}" if scheme.subject else ""
    proof = f"Its proof is {in_words(scheme)}.\n"
    if scheme.signature is not None:
        proof = proof.replace(scheme.signature.template, f"`{scheme.signature.template}`")
    return f"{proof}{event_id}; the type is at {listed(scheme.type, ' and ')}{subject}.\n"


def listed(places: str | tuple[str, ...], last: str = " and ") -> str:
    """Give places as code, in a row."""
    shown = [f"`{one}`" for one in names(places)]
    return last.join(filter(None, (", ".join(shown[:-1]), shown[-1])))


COMMON_OPTIONS = {"name", "secrets", "insecure"}


def options_of(source: type[Source]) -> list[str]:
    """Give the options of a kind beside those that all have."""
    unused = source.options_unused() if issubclass(source, sources.Generic) else frozenset()
    return [
        name
        for name, parameter in inspect.signature(source).parameters.items()
        if name not in COMMON_OPTIONS | unused and parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]


def tolerance_of(source: type[Source]) -> timedelta | None:
    """Give how far the signed time of a kind may lie from now; None where it signs none."""
    parameter = inspect.signature(source).parameters.get("tolerance")
    default = None if parameter is None else parameter.default
    return default if isinstance(default, timedelta) else getattr(source, "tolerance_default", None)


def shown_length(length: timedelta | None) -> str:
    """Give a length of time in words; empty for None."""
    return "" if length is None else show(length // timedelta(milliseconds=1))


def api_page() -> str:
    """Give the page of public names, part by part."""
    text = "# API\n\nImport what has no module named here from `onceward`.\n"
    for part in API:
        where = "" if part.module == "onceward" else f"In `{part.module}`.\n\n"
        text += f"\n## {part.heading}\n\n{where}{part.says}\n\n"
        text += "\n".join(f"```{{eval-rst}}\n{directive(part.module, name)}\n```\n" for name in part.names)
    return text


def directive(module: str, name: str) -> str:
    """Give the autodoc directive of one public name."""
    value = getattr(importlib.import_module(module), name)
    if name in DATA:
        return f".. py:data:: {module}.{name}\n   :type: {type(value).__name__}\n\n   {DATA[name]}"
    if not inspect.isclass(value):
        return f".. autofunction:: {module}.{name}"
    lines = [f".. autoclass:: {module}.{name}"]
    for member in public_members(value):
        # One by one: autodoc would put what a class has from its base behind its own.
        kind = "autoproperty" if isinstance(inspect.getattr_static(value, member), property) else "automethod"
        signature = SIGNATURES.get(f"{name}.{member}")
        if signature is None:
            lines += ["", f"   .. {kind}:: {member}"]
            continue
        lines += ["", f"   .. py:method:: {member}{signature}"]
        lines += (
            ["      :async:"] if inspect.iscoroutinefunction(inspect.unwrap(getattr(value, member))) else []
        )
        lines += ["", *(f"      {line}".rstrip() for line in restructured(getattr(value, member)))]
    return "\n".join(lines)


def restructured(documented: object) -> list[str]:
    """Give a docstring as reStructuredText, as autodoc would."""
    from sphinx.ext.napoleon import Config
    from sphinx.ext.napoleon.docstring import GoogleDocstring

    return str(GoogleDocstring(inspect.getdoc(documented) or "", cast("Any", Config()))).splitlines()


def public_members(owner: type) -> list[str]:
    """Give the methods and properties of a class that are for users, as they are written."""
    if owner.__name__ in MEMBERS:
        return list(MEMBERS[owner.__name__])
    if issubclass(owner, Source) and owner is not Source:
        return []  # the page says it once, of Source
    found: dict[str, None] = {}
    for base in reversed([base for base in owner.__mro__ if base.__module__.startswith("onceward.")]):
        for name, value in vars(base).items():
            is_shown = inspect.isfunction(value) or isinstance(value, property | classmethod)
            if is_shown and (not name.startswith("_") or name in SPOKEN):
                found[name] = None
    return list(found)


SPOKEN = {"__getitem__"}
"""Special methods that users write as such: ``stripe["invoice.*"]``."""


def rest_page() -> str:
    """Give the page of the REST API's calls, from the table that serves them."""
    from onceward.web.api.calls import ENDPOINTS
    from onceward.web.api.paths import PREFIX

    parts = ["# All calls\n\nBelow `" + PREFIX + "`; see [REST API](../api.md).\n"]
    for endpoint in ENDPOINTS:
        query = ", ".join(f"`{name}`" for name in endpoint.query.__struct_fields__)
        body = ", ".join(f"`{name}`" for name in endpoint.body.__struct_fields__) if endpoint.body else ""
        parts.append(f"## {endpoint.method} {endpoint.path}\n\n{endpoint.does} Role: {endpoint.role}.\n")
        parts += [f"Parameters: {query}.\n"] if query else []
        parts += [f"Body: {body}.\n"] if body else []
    return "\n".join(parts)


def metrics_page() -> str:
    """Give the page of metrics."""
    from onceward.web.metrics import METRICS_TABLE

    lines = ["| metric | kind | labels | what it says |", "| --- | --- | --- | --- |"]
    for metric in METRICS_TABLE:
        name = f"{metric.name}_total" if metric.kind == "counter" else metric.name
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(f"| `{name}` | {metric.kind} | {labels} | {metric.help} |")
    return "# Metrics\n\nAt `GET /metrics`; see [telemetry](../telemetry.md).\n\n" + "\n".join(lines) + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "api": api_page,
    "errors": errors_page,
    "failpoints": failpoints_page,
    "metrics": metrics_page,
    "rest": rest_page,
    "settings": settings_page,
    "sources": sources_page,
    "states": states_page,
}


def main() -> int:
    """Write every page anew."""
    shutil.rmtree(GENERATED, ignore_errors=True)
    GENERATED.mkdir(parents=True)
    for name, page in PAGES.items():
        (GENERATED / f"{name}.md").write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
