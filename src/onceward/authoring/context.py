"""What a workflow gets first: the context, async and plain."""

from __future__ import annotations

from typing import Any

from onceward.authoring.current import Session, frame_var
from onceward.authoring.event import Event
from onceward.authoring.keys import IdempotencyKey
from onceward.authoring.sync_verbs import SyncStepVerbs
from onceward.authoring.verbs import StepVerbs
from onceward.core import errors


class _Base:
    """What both contexts know."""

    def __init__(self, session: Session, event: Event) -> None:
        self._session = session
        self.event = event
        self.current: Any = None

    @property
    def run_id(self) -> str:
        """Give the run's id."""
        return self._session.run_id

    @property
    def generation(self) -> int:
        """Give which life of the run this is; a restart begins the next."""
        return self._session.generation

    @property
    def attempt(self) -> int:
        """Give which attempt of the generation this is, counted from 1."""
        return self._session.attempt

    @property
    def idempotency_key(self) -> IdempotencyKey:
        """Give the key of the step whose body runs, to hand to others with a request.

        Raises:
            StepMisuse: outside a step's body, where there is none.
        """
        frame = frame_var.get()
        if frame is None:
            raise errors.StepMisuse(
                "ctx.idempotency_key was read outside a step's body.",
                means="A key belongs to one step; code between steps has none.",
                todo="Read it inside the step, or give the step a parameter of type IdempotencyKey.",
            )
        return IdempotencyKey(frame.idempotency_key)

    @property
    def try_number(self) -> int:
        """Give which try of the step whose body runs this is, counted from 1; 0 outside a step."""
        frame = frame_var.get()
        return 0 if frame is None else frame.try_number


class Context(_Base):
    """What an ``async def`` workflow gets first.

    Attributes:
        step: the durable verbs, see `StepVerbs`.
        event: what started the run.
        current: what the workflow's ``stale=`` function fetched, as a step, before the code began; None
            without one.
    """

    def __init__(self, session: Session, event: Event) -> None:
        super().__init__(session, event)
        self.step = StepVerbs(session)


class SyncContext(_Base):
    """What a plain workflow gets first.

    Attributes:
        step: the durable verbs, blocking, see `SyncStepVerbs`.
        event: what started the run.
        current: what the workflow's ``stale=`` function fetched, as a step, before the code began; None
            without one.
    """

    def __init__(self, session: Session, event: Event) -> None:
        super().__init__(session, event)
        self.step = SyncStepVerbs(session)
