"""Runs the receiver behind uvicorn, in this process or in several that share its socket.

The app is opened before the server starts, so that an error of the store is told as such; the
server's lifespan closes it after the last reply. Signals are ours: uvicorn's second one does not
end a process that drains.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import socket
import uuid
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from onceward.app import App
from onceward.cli import banner, serving
from onceward.cli.listen import address_of, bound, is_loopback, listen, refuse_insecure
from onceward.cli.signals import stop_signals, stop_with_parent
from onceward.cli.starting import prepared, refuse_memory, spare_collections
from onceward.core.errors import ConfigError

if TYPE_CHECKING:
    import uvicorn

_log = logging.getLogger("onceward.cli")


def serve(
    target: str,
    given: Mapping[str, str | None],
    *,
    workers: int = 1,
    insecure: bool = False,
    listener_fd: int | None = None,
    parent_fd: int | None = None,
) -> None:
    """Serve until a signal comes.

    Args:
        target: ``MODULE:APP``.
        given: settings that were given as options, as text.
        workers: how many processes serve.
        insecure: strangers may reach sources that check nothing.
        listener_fd: the socket, bound by the process that started this one; its banner is enough.
        parent_fd: a pipe that closes when that process dies.

    Raises:
        OncewardError: the app cannot be had or opened, or the address cannot be listened on.
    """
    app = prepared(target, given)
    settings = app.settings
    refuse_insecure(app.sources.values(), settings.host, is_accepted=insecure)
    if workers > 1:
        refuse_memory(app, f"{workers} processes cannot share the work")
    if listener_fd is not None:
        listener = socket.socket(fileno=listener_fd)
    else:
        listener = bound(settings.host, settings.port)
    with listener:
        if parent_fd is not None:
            stop_with_parent(parent_fd)
        if workers > 1:
            from onceward.cli.supervisor import supervise

            facts = asyncio.run(_facts_of_closed(app, address_of(listener), workers))
            listen(listener)
            banner.show(app, facts)
            # The rest each worker reads from where we read it.
            options = {**given, "instance": settings.instance}
            supervise(target, options, workers, listener, drain_ms=settings.drain_ms)
        else:
            _serve_here(app, listener, is_told=listener_fd is not None)


async def _facts_of_closed(app: App, address: str, workers: int) -> banner.Facts:
    """Give the banner's facts; migrates the store, so that the workers need not compete for it."""
    await app.open(runs=False)
    try:
        link = await admitted(app)
        return await banner.facts(app, "serve", address=address, workers=workers, link=link)
    finally:
        await app.close()


def serve_again(
    target: str,
    given: Mapping[str, str | None],
    listener: socket.socket,
    *,
    is_first: bool,
    beside: Callable[[App], Awaitable[None]],
) -> None:
    """Serve on a socket that outlives this process, until a signal comes.

    Args:
        target: ``MODULE:APP``.
        given: settings that were given as options, as text.
        listener: the socket.
        is_first: whether the banner is to be shown.
        beside: runs for as long as the app is open.

    Raises:
        OncewardError: the app cannot be had or opened.
    """
    app = prepared(target, given, is_short=True)
    app.configure(**_of_development(app, listener))
    if not is_first:
        _log.info("reloaded")
    _serve_here(app, listener, is_told=not is_first, beside=beside)


def _of_development(app: App, listener: socket.socket) -> dict[str, str]:
    """Give what promises need and nobody has set: this address, and a secret of this folder.

    Links that are out stay good through reloads, and whoever could guess the secret would have to guess
    ids of runs as well, which are drawn; only this machine reaches the receiver.
    """
    found = {}
    if app.settings.public_url is None:
        found["public_url"] = address_of(listener)
    if app.settings.promise_secret is None:
        place = f"onceward dev {uuid.getnode()} {Path.cwd()}"
        found["promise_secret"] = hashlib.sha256(place.encode()).hexdigest()
    return found


def _serve_here(
    app: App,
    listener: socket.socket,
    *,
    is_told: bool,
    beside: Callable[[App], Awaitable[None]] | None = None,
) -> None:
    async def prepare() -> None:
        await app.open()
        try:
            link = None if is_told else await admitted(app)
            spare_collections()
            # Before the banner: whoever reads the address may connect to it.
            listen(listener)
            if not is_told:
                role = "serve" if beside is None else "dev"
                banner.show(app, await banner.facts(app, role, address=address_of(listener), link=link))
        except BaseException:
            await app.close()
            raise

    settings = app.settings
    site = app.asgi(api=settings.api, dashboard=settings.dashboard)
    config = serving.config(site, has_lifespan=True, drain_ms=settings.drain_ms)
    server = _Server(config, prepare, None if beside is None else lambda: beside(app))
    with stop_signals(server.ask_to_stop):
        server.run(sockets=[listener])


async def admitted(app: App) -> str | None:
    """Give a link that logs in once, where there is nobody yet who could log in.

    Raises:
        ConfigError: there is nobody, and others than this machine can reach dashboard or API.
    """
    settings = app.settings
    if not (settings.api or settings.dashboard):
        return None
    from onceward.web.site import accounts_of

    accounts = accounts_of(app)
    if not await app.worker.read(accounts.is_empty):
        return None
    if is_loopback(settings.host):
        if not settings.dashboard:
            return None
        link: str = await app.worker.read(lambda: accounts.add_link(actor="serve"))
        return link
    raise ConfigError(
        f"Nobody can log in yet, and {settings.host} can be reached from outside.",
        means="Dashboard and REST API would be on a network before it is said who may use them.",
        todo="Say who: onceward users add NAME --role admin, or onceward tokens add NAME. Or receive only: "
        "--dashboard off --api off.",
    )


class _Server(serving.Server):
    """A server that waits for the app."""

    def __init__(
        self,
        config: uvicorn.Config,
        prepare: Callable[[], Awaitable[None]],
        beside: Callable[[], Awaitable[None]] | None,
    ) -> None:
        super().__init__(config)
        self._prepare = prepare
        self._beside = beside

    def ask_to_stop(self) -> None:
        """Drain and return."""
        self.should_exit = True

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        await self._prepare()
        if self._beside is None:
            await super().serve(sockets)
            return
        task = asyncio.ensure_future(self._beside())
        try:
            await super().serve(sockets)
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        _log.info("draining, a second signal stops at once")
        # A page that is open somewhere would hold the end up until its stream is over.
        end_streams = getattr(self.config.app, "end_streams", None)
        if end_streams is not None:
            end_streams()
        await super().shutdown(sockets)
