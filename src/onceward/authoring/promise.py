"""What ``step.promise`` gives: a token that is completed once from outside, and the wait for that."""

from __future__ import annotations

import threading
from datetime import datetime
from typing import Any, TypeVar, overload

from onceward.authoring.current import Session, noted, wait_in_thread
from onceward.authoring.expect import RAISES
from onceward.core import errors

D = TypeVar("D")

PATH = "/promises/"
"""Where the receiver takes completions."""


class PromiseParts:
    """What both promises have.

    Attributes:
        name: of the step that made it.
        token: completes it; hand it to nobody but who may. The store has only its hash.
        expires_at: from when on it cannot be completed; None for never.
    """

    __slots__ = ("_base_url", "_hash", "_item", "_session", "expires_at", "name", "token")

    def __init__(
        self,
        session: Session,
        name: str,
        item: str,
        token: str,
        token_hash: str,
        expires_at: datetime | None,
        base_url: str | None,
    ) -> None:
        self._session = session
        self._item = item
        self._hash = token_hash
        self._base_url = base_url
        self.name = name
        self.token = token
        self.expires_at = expires_at

    @property
    def url(self) -> str:
        """Give the address that completes it by POST.

        Raises:
            ConfigError: the setting ``public_url`` is not there.
        """
        if not self._base_url:
            raise errors.ConfigError(
                f"The promise {self.name!r} has no address: the setting public_url is not set.",
                means="The address of a link in a mail cannot be told from inside.",
                todo="Set ONCEWARD_PUBLIC_URL to where the outside reaches the receiver, or hand on p.token.",
            )
        return self._base_url.rstrip("/") + PATH + self.token

    def __repr__(self) -> str:
        """Show its name, never the token."""
        return f"{type(self).__name__}({self.name!r})"


class Promise(PromiseParts):
    """A promise in an async workflow."""

    @overload
    async def result(self) -> Any: ...
    @overload
    async def result(self, *, default: D) -> Any | D: ...
    @noted
    async def result(self, *, default: Any = RAISES) -> Any:
        """Wait until it is completed, and give with what; saved as a step of its own.

        Args:
            default: what to give when it expires.

        Raises:
            WaitTimedOut: it expired, and there is no *default*.
            StepFailed: it was failed from outside.
        """
        return await self._session.promised(self.name, self._item, self._hash, self.expires_at, default, None)


class SyncPromise(PromiseParts):
    """A promise in a plain workflow."""

    @overload
    def result(self) -> Any: ...
    @overload
    def result(self, *, default: D) -> Any | D: ...
    def result(self, *, default: Any = RAISES) -> Any:
        """Wait until it is completed, and give with what; see `Promise.result`."""
        caller = threading.current_thread()
        return wait_in_thread(
            self._session,
            self._session.promised(self.name, self._item, self._hash, self.expires_at, default, caller),
        )
