"""What an app has: its sources, steps and workflows, as the user's module registers them."""

from __future__ import annotations

from collections.abc import Callable, Container, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar, overload

from onceward.authoring.context import Context, SyncContext
from onceward.authoring.decorator import WorkflowDecorator
from onceward.authoring.keys import KeyScope
from onceward.authoring.options import (
    APP_DATABASE,
    DEFAULT_RUN_RETRY,
    DEFAULT_STEP_RETRY,
    Database,
    StepOptions,
    Unknown,
    checked_tags,
    key_memory_of,
    rules_of,
)
from onceward.authoring.step import Step
from onceward.authoring.transaction import Transaction, database_of, refuse_options
from onceward.authoring.workflow import Policies, Workflow, parts_of
from onceward.core import errors
from onceward.core.duration import Duration, to_ms
from onceward.core.effects import EffectName
from onceward.core.keywords import spelled
from onceward.core.retention import Retention, for_workflow
from onceward.core.retry import Retry
from onceward.core.rules import Place
from onceward.core.shown import shown
from onceward.core.texts import name_of
from onceward.core.triggers import OWN, Trigger
from onceward.runtime.transactions.lending import check_connect

if TYPE_CHECKING:
    from onceward.authoring.event import Event
    from onceward.sources.base import Source

P = ParamSpec("P")
R = TypeVar("R")
SourceT = TypeVar("SourceT", bound="Source")


class Registry:
    """The registering half of `App`; everything is registered before the app is opened."""

    def __init__(self) -> None:
        self._workflows: dict[str, Workflow[..., Any]] = {}
        self._sources: dict[str, Source] = {}
        self._databases: list[Database] = []  # the first is that of transactions that name none
        self._steps: dict[str, Step[..., Any] | None] = {}  # decorated ones; None where several have a name
        self._texts: list[str] = []  # types of own events, as workflows are on them

    @property
    def is_open(self) -> bool:
        """Say whether it is too late to register."""
        return False

    def source(self, source: SourceT) -> SourceT:
        """Register a source; its deliveries come in at ``POST /hooks/<name>``.

        Args:
            source: verifies the deliveries and reads events from them.

        Returns:
            The same source; workflows subscribe with it, as in ``on=stripe["invoice.*"]``.

        Raises:
            ConfigError: the name is taken, or a workflow is on a text that begins with it.
        """
        if source.name in self._sources:
            raise errors.ConfigError(
                f"There are two sources named {source.name!r}.",
                means="Their deliveries could not be told apart.",
                todo='Give one another name, e.g. Stripe(name="stripe-eu", secrets=[…]).',
            )
        for text in self._texts:
            _refuse_text(text, {source.name})
        self._sources[source.name] = source
        return source

    @property
    def sources(self) -> Mapping[str, Source]:
        """Give the registered sources by name."""
        return self._sources

    @overload
    def step(self, function: Callable[P, R], /) -> Step[P, R]: ...
    @overload
    def step(
        self,
        /,
        *,
        name: str | None = None,
        retry: Retry = ...,
        timeout: Duration | None = None,
        key_scope: KeyScope = "step",
        key_memory: Duration | None = None,
        effect: EffectName = "outside",
        unknown: Unknown | None = None,
    ) -> Callable[[Callable[P, R]], Step[P, R]]: ...
    @spelled("@app.step")
    def step(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        retry: Retry = DEFAULT_STEP_RETRY,
        timeout: Duration | None = None,
        key_scope: KeyScope = "step",
        key_memory: Duration | None = None,
        effect: EffectName = "outside",
        unknown: Unknown | None = None,
    ) -> Any:
        """Make a function a step: called in a run it is saved, elsewhere it is itself.

        Args:
            function: async or plain.
            name: what identifies it in a run; the function's name by default.
            retry: how it is tried again; five tries with growing delays by default.
            timeout: how long one try may take.
            key_scope: ``"business"`` for an idempotency key that a restart or replay hands out again.
            key_memory: how long the receiver remembers the key. A try that is not known to have ended
                is not run again after that: the run is held for a person.
            effect: what running it again does, for `RunHandle.plan`: ``"pure"`` for a step that only
                computes or reads, ``"own_database"`` for one that writes to your own database only.
            unknown: what becomes of a try that began and has no saved end, after a crash, a time-out, a
                stop, or an `OutcomeUnknown` of its own. ``"retry"`` runs it again. ``"ask"`` holds the run
                for a person; see `RunHandle.questions`. A function looks: it gets the step's
                arguments and returns `Happened` or `DidNotHappen`. By default it is ``"retry"``, and with
                ``max_tries=1`` the step fails when a crash or a stop cut it off.

        Raises:
            ConfigError: the name, *key_scope*, *effect* or *unknown* cannot be used, or *timeout* or *key_memory* is no
                length of time.
        """
        options = StepOptions(
            retry=retry,
            timeout_ms=None if timeout is None else to_ms(timeout, what="timeout of a step"),
            key_scope=key_scope,
            key_memory_ms=key_memory_of(key_memory, "a step"),
            effect=effect,
            unknown=unknown,
        )

        def decorate(function: Callable[..., Any]) -> Step[..., Any]:
            chosen = name_of(function, name, "step")
            made = Step(function, chosen, options)
            self._steps[chosen] = None if chosen in self._steps else made
            return made

        return decorate if function is None else decorate(function)

    def transactions(self, connect: Any, /, *, marker: bool = False, insist: bool = False) -> Database:
        """Tell the app how transactional steps get a connection; the first is where they are by default.

        Args:
            connect: an engine or session maker of SQLAlchemy, sync or async; a pool of psycopg or
                asyncpg; a function that connects, with psycopg 3, asyncpg, sqlite3 or aiosqlite; or
                ``"django"``, or the alias of one of Django's databases. It has to lead to the
                store's database, or its file.
            marker: it leads to another database than the store's, on PostgreSQL or SQLite. What is committed there is
                told by a row of a table ``onceward_marker``, which is made there.
            insist: also where several processes share a SQLite file below 3.51.3.

        Returns:
            What ``connect=`` of a transaction takes, where there are several.

        Raises:
            ConfigError: no connection can be had from it.
        """
        check_connect(connect)
        database = Database(connect, marker, insist)
        self._databases.append(database)
        return database

    @overload
    def transaction(self, function: Callable[Concatenate[Any, P], R], /) -> Transaction[P, R]: ...
    @overload
    def transaction(
        self,
        /,
        *,
        name: str | None = None,
        connect: Any = None,
        retry: Retry = ...,
        timeout: Duration | None = None,
    ) -> Callable[[Callable[Concatenate[Any, P], R]], Transaction[P, R]]: ...
    @spelled("@app.transaction", refuse_options)
    def transaction(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        connect: Any = None,
        retry: Retry = DEFAULT_STEP_RETRY,
        timeout: Duration | None = None,
    ) -> Any:
        """Make a function a step that commits its rows and its checkpoint in one transaction.

        The transaction is begun and ended for it: to return commits, to raise rolls back, and is a
        failed try. In a run it is called without its first parameter, like any step.

        Args:
            function: takes the connection or session first; ``async def`` with a driver that does not
                block, plain with one that does.
            name: what identifies it in a run; the function's name by default.
            connect: what `transactions` takes or gave, where it is not the app's default.
            retry: how it is tried again, deadlocks and serialization failures included.
            timeout: how long one try may take until it begins to commit.

        Raises:
            ConfigError: the name cannot be used, no connection can be had from *connect*, or
                *timeout* is no length of time.
        """
        if connect is not None and not isinstance(connect, Database):
            check_connect(connect)
        options = StepOptions(
            retry=retry,
            timeout_ms=None if timeout is None else to_ms(timeout, what="timeout of a transaction"),
            database=APP_DATABASE if connect is None else database_of(connect),
        )

        def decorate(function: Callable[..., Any]) -> Transaction[..., Any]:
            return Transaction(function, name_of(function, name, "transaction"), options)

        return decorate if function is None else decorate(function)

    @overload
    def workflow(
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> Workflow[P, R]: ...
    @overload
    def workflow(self, function: Callable[Concatenate[SyncContext, P], R], /) -> Workflow[P, R]: ...
    @overload
    def workflow(
        self,
        /,
        *,
        on: Trigger | str | Sequence[Trigger | str] | None = None,
        name: str | None = None,
        retry: Retry = ...,
        deadline: Duration | None = None,
        version: Place | None = None,
        stale: Literal["drop", "mark"] | Callable[[Event], Any] | None = None,
        key: Place | None = None,
        once: Duration | None = None,
        clash: Literal["return", "reject", "replace", "queue"] | None = None,
        on_redelivery: Literal["nothing", "retry"] = "nothing",
        undo: Literal["on_failure"] | None = None,
        retention: Retention | None = None,
        tags: Sequence[str] = (),
    ) -> WorkflowDecorator: ...
    @spelled("@app.workflow")
    def workflow(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        on: Trigger | str | Sequence[Trigger | str] | None = None,
        name: str | None = None,
        retry: Retry = DEFAULT_RUN_RETRY,
        deadline: Duration | None = None,
        version: Place | None = None,
        stale: Literal["drop", "mark"] | Callable[[Event], Any] | None = None,
        key: Place | None = None,
        once: Duration | None = None,
        clash: Literal["return", "reject", "replace", "queue"] | None = None,
        on_redelivery: Literal["nothing", "retry"] = "nothing",
        undo: Literal["on_failure"] | None = None,
        retention: Retention | None = None,
        tags: Sequence[str] = (),
    ) -> Any:
        """Register a workflow: a function that takes the context first.

        Args:
            function: ``async def`` (it gets a `Context`) or plain (it gets a `SyncContext`).
            on: what starts it: ``stripe["charge.*"]``, the type of an emitted event, or several.
            name: the function's name by default; it must not change while runs are open.
            retry: how often the whole run is tried again when its code fails; never by default.
            deadline: how long a run may take in all.
            version: where an event says which version of its subject it brings, a time or a number:
                ``event.payload["updated_at"]``, or ``event.version`` for what its source says; or a
                function of the event.
            stale: what becomes of an event that is not newer than what came before of its subject.
                ``"drop"``, the default, makes no run; with ``"mark"`` ``ctx.event.is_stale`` says so; a
                function of the event fetches the current state, as a step at the beginning of every
                run, and ``ctx.current`` is what it gave.
            key: where an event says what its run is about: ``event.payload["order"]``, or a function of
                the event. One run of the workflow holds a key. The arguments of a start are found by
                their names.
            once: how long: ``"ever"``, the default; ``"active"``, until the run has ended; or a length
                of time after the key was claimed, such as ``"24h"``.
            clash: what becomes of an event whose key is held. ``"return"``, the default: it gets the
                run that holds it; ``"reject"``: it gets none; ``"replace"``: that run is cancelled and a
                new one waits for its end; ``"queue"``: a new one waits. The last two not with "ever".
            on_redelivery: with ``"retry"`` a redelivery retries the event's run, if it failed.
            undo: with ``"on_failure"`` a run that fails for good, or is cancelled, undoes what its steps
                did before it ends: the undo of each done step, the last one first; see `Step.undo`.
            retention: how long its runs are kept when they are over; by default the app's.
            tags: words by which people find its runs among those of others: a team, a domain. They are
                the workflow's, so that a run costs nothing more and a new tag holds for old runs as well.

        Raises:
            ConfigError: the name is taken or cannot be used, *on* is no trigger or names a source
                that the app does not have or names one in a text, the function takes no context, one
                of the rules cannot be followed or does not go with another, or the app is open already.
        """
        deadline_ms = None if deadline is None else to_ms(deadline, what="deadline of a workflow")
        for text in [part for part in parts_of(on) if isinstance(part, str)]:
            _refuse_text(text, self._sources)
            self._texts.append(text)
        rules, fetch = rules_of(
            version=version, stale=stale, key=key, once=once, clash=clash, on_redelivery=on_redelivery
        )
        if undo not in (None, "on_failure"):
            raise errors.ConfigError(
                f"The undo of a workflow cannot be {shown(undo)}.",
                means="It says when what its steps did is undone.",
                todo='Write undo="on_failure", or leave it out and call ctx.step.undo(…) where it is wanted.',
            )
        policies = Policies(
            retry,
            deadline_ms,
            rules,
            fetch,
            undo == "on_failure",
            None if retention is None else for_workflow(retention),
            checked_tags(tags),
        )
        decorator = WorkflowDecorator(self._register, on, name, policies)
        return decorator if function is None else decorator(function)

    def _register(self, workflow: Workflow[..., Any]) -> None:
        if workflow.name in self._workflows:
            raise errors.ConfigError(
                f"There are two workflows named {workflow.name!r}.",
                means="A run could not tell which is its code.",
                todo="Give one another name=.",
            )
        if self.is_open:
            raise errors.ConfigError(
                f"The workflow {workflow.name!r} was registered after the app was opened.",
                means="Events could already have passed it by.",
                todo="Register workflows when the module is imported.",
            )
        for trigger in workflow.triggers:
            if trigger.source != OWN and trigger.source not in self._sources:
                raise errors.ConfigError(
                    f"The workflow {workflow.name!r} is on source {trigger.source!r}, which this app does not have.",
                    means="It would never run.",
                    todo=f"Register the source first: app.source(…) with the name {trigger.source!r}.",
                )
        self._workflows[workflow.name] = workflow

    @property
    def workflows(self) -> Mapping[str, Workflow[..., Any]]:
        """Give the registered workflows by name."""
        return self._workflows


def _refuse_text(text: str, sources: Container[str]) -> None:
    """Refuse a text that was meant for a source: a workflow on it would never run, and never say so."""
    name, _, type_ = text.partition(".")
    if name in sources:
        raise errors.ConfigError(
            f"A workflow is on the text {text!r}, which begins with the name of a source.",
            means=f"A text means events that the app emits itself; those of {name!r} would not start it.",
            todo=f'Write on={name}["{type_ or "*"}"], without quotes around the source. '
            f'If the app does emit it: on=Trigger("{OWN}", "{text}"), from onceward.core.triggers.',
        )
