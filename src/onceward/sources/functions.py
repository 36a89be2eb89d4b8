"""A source made of two functions, for a sender of one's own that needs no class."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, TypeAlias

from onceward.core.arrival import UNVERIFIED, Incoming, Verified
from onceward.core.errors import ConfigError, SignatureInvalid
from onceward.core.messages import HttpRequest, HttpResponse
from onceward.sources.base import Source
from onceward.sources.parts.secret import Secret

Verify: TypeAlias = Callable[[HttpRequest, Sequence[Secret], int], Verified]
Normalize: TypeAlias = Callable[[HttpRequest], list[Incoming]]
Handshake: TypeAlias = Callable[[HttpRequest, int], HttpResponse | None]


def from_functions(
    name: str,
    *,
    verify: Verify,
    normalize: Normalize,
    handshake: Handshake | None = None,
    secrets: str | Sequence[str] = (),
    insecure: bool = False,
) -> Source:
    """Give a source that calls these functions.

    Args:
        name: see `Source`.
        verify: takes the request, the secrets (each has its bytes as ``key``) and the time in Unix
            milliseconds, and gives `Verified`; raises `SignatureInvalid` when the request is not
            proven genuine. Whatever else it raises or gives refuses as well.
        normalize: takes the request and gives its events, always the same ones; raises
            `BodyMalformed` when it cannot be read.
        handshake: takes the request and the time and gives the answer when the request is a
            question of the sender's and no delivery; called after *verify*.
        secrets: see `Source`.
        insecure: likewise; *verify* is then not called.

    Raises:
        ConfigError: see `Source`; or what is to be a function cannot be called.
    """
    for what, function in (("verify", verify), ("normalize", normalize), ("handshake", handshake)):
        if not callable(function) and (what != "handshake" or function is not None):
            raise ConfigError(
                f"The {what} of source {name!r} is a {type(function).__name__}, not a function.",
                means="No delivery could be taken.",
                todo="Pass the function itself, without calling it.",
            )
    return _FromFunctions(name, verify, normalize, handshake, secrets=secrets, insecure=insecure)


class _FromFunctions(Source):
    kind: ClassVar[str] = "functions"

    def __init__(
        self,
        name: str,
        verify: Verify,
        normalize: Normalize,
        handshake: Handshake | None,
        *,
        secrets: str | Sequence[str],
        insecure: bool,
    ) -> None:
        super().__init__(name=name, secrets=secrets, insecure=insecure)
        self._verify = verify
        self._normalize = normalize
        self._handshake = handshake

    def verify(self, request: HttpRequest, now_ms: int) -> Verified:
        if self.insecure:
            return UNVERIFIED
        verified = self._verify(request, self.secrets, now_ms)
        # A function that gives True, False or nothing must not open the door.
        if not isinstance(verified, Verified):
            raise SignatureInvalid(f"verify gave a {type(verified).__name__}, not Verified")
        return verified

    def normalize(self, request: HttpRequest) -> list[Incoming]:
        return self._normalize(request)

    def handshake(self, request: HttpRequest, now_ms: int) -> HttpResponse | None:
        return self._handshake(request, now_ms) if self._handshake else None
