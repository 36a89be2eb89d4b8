"""What the dashboard and the REST API refuse, and to whom."""

from __future__ import annotations

from onceward.core.errors import OncewardError


class Unauthorized(OncewardError):
    """Nobody is logged in, or the token does not work; nothing was done.

    It is unknown, revoked, expired or of another namespace. Make one: ``onceward tokens add NAME``.
    """

    code = "unauthorized"
    http_status = 401
    title = "Who you are is not known"


class Forbidden(OncewardError):
    """Who asked may not do that, or another site made their browser ask; nothing was done."""

    code = "forbidden"
    http_status = 403
    title = "You may not do that"


class HostUnknown(OncewardError):
    """The request came under a name that is not one of this server's; nothing was done.

    Name it in the setting ``allowed_hosts``.
    """

    code = "host_unknown"
    http_status = 421
    title = "The host is not one of this server's"


class TooMany(OncewardError):
    """It was tried too often, or too much of it is under way; nothing was done.

    Attributes:
        wait_s: seconds after which it may be tried again.
    """

    code = "too_many"
    http_status = 429
    title = "Tried too often"

    def __init__(self, what: str, *, wait_s: int, means: str = "", todo: str = "") -> None:
        super().__init__(what, means=means, todo=todo)
        self.wait_s = wait_s
