"""What the verbs of ``ctx.step`` have in common: the session that they hand everything over to."""

from __future__ import annotations

from onceward.authoring.current import Session


class SessionVerbs:
    """Verbs of one session."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session
