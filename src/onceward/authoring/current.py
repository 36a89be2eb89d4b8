"""What runs here and now: the run whose code is executing, and the step whose body is.

A plain context variable, so that tasks and threads made inside a run belong to it, and code
outside runs sees nothing (B058).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

import msgspec

from onceward.authoring.keys import KeyScope
from onceward.authoring.made import MadeCalls
from onceward.core import errors
from onceward.core.idempotency import composed_key

if TYPE_CHECKING:
    from datetime import datetime

    from onceward.authoring.event import Event
    from onceward.authoring.expect import Label, Parts
    from onceward.authoring.options import StepOptions
    from onceward.authoring.workflow import Workflow
    from onceward.core.model import Millis, StepKey
    from onceward.core.ports import Accept


P = ParamSpec("P")
R = TypeVar("R")


class Session(Protocol):
    """A run as its code sees it: what the context's verbs ask of the runtime."""

    run_id: str
    generation: int
    attempt: int
    workflow_name: str
    is_sync: bool  # the workflow is a plain function in a thread
    loop: asyncio.AbstractEventLoop
    made: MadeCalls  # calls of verbs, until they are begun

    @property
    def business(self) -> tuple[str, ...]:
        """Give what keys of scope ``"business"`` are made of."""
        ...

    @property
    def is_recalling(self) -> bool:
        """Say whether the code is where it was before: saved answers are ahead of it; from any thread."""
        ...

    def step(
        self,
        name: str,
        item: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        options: StepOptions,
        caller: object,
    ) -> Coroutine[Any, Any, Any]:
        """Give a step's saved or new result, once it is awaited."""
        ...

    async def body(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a function inside a step's body: an async one here, a plain one in a thread."""
        ...

    async def undo(self, name: str, item: str, caller: object) -> list[str]:
        """Undo what was done before; give the steps, the last one first."""
        ...

    async def sleep(self, name: str, item: str, delay_ms: Millis, caller: object) -> None:
        """Return when the step's fixed deadline has passed."""
        ...

    async def wait(
        self,
        name: str,
        item: str,
        parts: Parts,
        timeout_ms: Millis | None,
        is_raising: bool,
        caller: object,
    ) -> tuple[Label | None, Event] | None:
        """Give the first event that is waited for, and as which; None when the time is over."""
        ...

    async def promise(
        self, name: str, item: str, timeout_ms: Millis | None, caller: object
    ) -> tuple[str, str, datetime | None, str | None]:
        """Make a promise once: give its token, the hash of it, when it expires, and the public address."""
        ...

    async def promised(
        self,
        name: str,
        item: str,
        token_hash: str,
        expires_at: datetime | None,
        default: Any,
        caller: object,
    ) -> Any:
        """Wait for the end of a promise."""
        ...

    async def value(self, kind: str, name: str, item: str, caller: object) -> Any:
        """Give a drawn value (uuid, now, random), drawn once and saved."""
        ...

    async def emit(
        self, name: str, item: str, type_: str, payload: Any, subject: str | None, caller: object
    ) -> tuple[str, str]:
        """Emit once; give the event's source and id."""
        ...

    async def start(
        self,
        name: str,
        item: str,
        workflow: Workflow[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        is_called: bool,
        caller: object,
    ) -> Any:
        """Start a child once: give its run id at once, or wait for its result."""
        ...


class Frame(msgspec.Struct, eq=False):
    """A step's body in progress: where its emits gather and what key it hands to others."""

    session: Session
    key: StepKey
    try_number: int
    key_scope: KeyScope = "step"
    is_transaction: bool = False
    requests: dict[tuple[str, str], int] = {}
    accepts: list[Accept] = []
    posts: int = 0  # what the body emitted and started within transactions of its own
    nested: dict[str, int] = {}
    is_over: bool = False  # what a task that outlives the body emits would be lost
    made: MadeCalls | None = None  # the body's calls of verbs, from the first on

    @property
    def idempotency_key(self) -> str:
        """Give the key of this step: the same on every try and attempt of the generation."""
        return self._key(self.key_scope)

    def nested_key(self, name: str, key_scope: KeyScope = "step") -> str:
        """Give the key of a decorated step that the body calls as a plain function.

        Told apart by how often the body called it, so that two calls are not one effect.
        """
        self.nested[name] = number = self.nested.get(name, 0) + 1
        wider: KeyScope = "business" if "business" in (key_scope, self.key_scope) else "step"
        return self._key(wider, name, number)

    def posted_id(self) -> str:
        """Give the id of the next event that the body writes within a transaction of its own."""
        self.posts += 1
        return self._key("step", "within", self.posts)

    def request_key(self, method: str, url: str) -> str:
        """Give the key of the next request that the body sends.

        The first has the step's own. Later ones are told apart by where they go and how often the
        body sent one there, so that none of them is taken for another.
        """
        is_first = not self.requests
        self.requests[method, url] = number = self.requests.get((method, url), 0) + 1
        return self.idempotency_key if is_first else self._key(self.key_scope, "request", method, url, number)

    def _key(self, key_scope: KeyScope, *more: str | int) -> str:
        session = self.session
        if key_scope == "business":
            return composed_key(*session.business, *self.key, *more)
        return composed_key(session.run_id, session.generation, *self.key, *more)


session_var: ContextVar[Session | None] = ContextVar("onceward_session", default=None)
frame_var: ContextVar[Frame | None] = ContextVar("onceward_frame", default=None)


def noted(verb: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Make every call of an async verb known to the run, or the step's body, that makes it.

    Args:
        verb: what gives a coroutine, which can be forgotten to be awaited.
    """

    @functools.wraps(verb)
    def call(*args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        coroutine = verb(*args, **kwargs)
        if (frame := frame_var.get()) is not None:
            frame.made = frame.made or MadeCalls()
            return frame.made.add(coroutine)
        session = session_var.get()
        return coroutine if session is None else session.made.add(coroutine)

    return call


def wait_in_thread(session: Session, coroutine: Coroutine[Any, Any, R]) -> R:
    """Run a verb on the run's event loop and block this thread until it answers.

    Raises:
        Suspended: the run leaves memory; a cancelled future would reach user code as an ordinary
            ``Exception`` of ``concurrent.futures`` and be swallowed.
    """
    future = asyncio.run_coroutine_threadsafe(coroutine, session.loop)
    try:
        return future.result()
    except concurrent.futures.CancelledError:
        raise errors.Suspended("the run leaves memory") from None
