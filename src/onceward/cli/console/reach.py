"""Which store a command asks: one by its URL, that of an app, or one behind the REST API of another."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import getpass
import ipaddress
import logging
import shlex
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import click

from onceward.cli.options import setting_options
from onceward.cli.plain import plain
from onceward.core.settings import SETTINGS

if TYPE_CHECKING:
    from onceward.app import App
    from onceward.console.port import Console

_PORT = next(setting.default for setting in SETTINGS if setting.name == "port")

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


IN_CLEAR = (
    "warning: the token for --api goes over http, in clear, to another machine: whoever is on the way can "
    "read it and use it. Write https://, or go through a tunnel to localhost."
)


@dataclass(frozen=True)
class Reach:
    """Where the answers come from, and in which form they are wanted.

    Attributes:
        target: ``MODULE:APP``, whose store and sources are used.
        api: address of another instance's REST API.
        token: for it.
        settings: options that are settings.
        as_json: whether JSON is printed.
    """

    target: str | None
    api: str | None
    token: str | None
    settings: dict[str, str | None]
    as_json: bool

    def run(self, work: Callable[[Console], Coroutine[Any, Any, T]]) -> T:
        """Do *work* with a console that is open meanwhile.

        Raises:
            ConfigError: no store is named, or two are.
            SchemaOutdated: the store is not there, or older than this Onceward; it is not touched.
        """

        async def main() -> T:
            async with self._opened() as console:
                return await work(console)

        return asyncio.run(main())

    @contextlib.asynccontextmanager
    async def _opened(self) -> AsyncIterator[Console]:
        if self.api is not None:
            from onceward.console.remote import RemoteConsole

            if self.target is not None or self.settings.get("store") is not None:
                raise click.UsageError("--api excludes --app and --store: the other instance has its own.")
            yield RemoteConsole(self.api, self.token)
            return
        from onceward.console.local import LocalConsole

        app = await asyncio.to_thread(self.app)
        # It frees the runs of dead processes, as whoever opens the store does, so that what it shows is
        # where they stand. Whoever asked is told, and not as in a server's log.
        log = logging.getLogger("onceward.worker")
        log.addFilter(_as_note)
        try:
            await app.open(runs=False)
            try:
                yield LocalConsole(app)
            finally:
                await app.close("1s")
        finally:
            log.removeFilter(_as_note)

    def app(self) -> App:
        """Give the app, or one without code for the store alone; the store is there and up to date."""
        from onceward.app import App
        from onceward.cli import logs
        from onceward.cli.starting import bare_store, prepared

        given = {"log_level": "warning", **self.settings}
        if self.target is not None:
            app = prepared(self.target, given)
            if app.settings.port == _PORT:  # nobody named it, so the server's may be another
                app.configure(port="0")
        else:
            logs.configure("warning")
            app = App()
            app.configure(**self.settings)
        store = bare_store(app.settings)
        # Whoever only looks makes no file and migrates nothing.
        try:
            store.open(migrate=False)
        finally:
            store.close()
        return app

    def shown(self) -> str:
        """Give the options with which the same store is asked again, for commands that are proposed."""
        from onceward.core import store_url

        if self.api is not None:
            return f" --api {shlex.quote(self.api)}"
        parts = [] if self.target is None else [f"--app {shlex.quote(self.target)}"]
        if self.settings.get("store") is not None:
            parts.append(f"--store {shlex.quote(store_url.masked(str(self.settings['store'])))}")
        if self.settings.get("namespace") is not None:
            parts.append(f"--namespace {shlex.quote(str(self.settings['namespace']))}")
        return "".join(f" {part}" for part in parts)


def _as_note(record: logging.LogRecord) -> bool:
    """Say a warning as a person reads it, beside what was asked for; faults go to the log."""
    if record.levelno == logging.WARNING:
        click.echo(plain(f"Note: {record.getMessage()}."), err=True)
    return record.levelno > logging.WARNING


def is_in_clear(url: str) -> bool:
    """Say whether what is sent to an address can be read on its way, as far as the address tells."""
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").rstrip(".")
    except ValueError:
        return False  # refused where it is used
    if parts.scheme != "http" or host == "localhost" or host.endswith(".localhost"):
        return False
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return True


def reaching(function: F) -> F:
    """Give a command the options that say which store is asked; it gets them as ``reach``."""

    @functools.wraps(function)
    def call(**options: Any) -> Any:
        reach = Reach(
            target=options.pop("app_"),
            api=options.pop("api"),
            token=options.pop("token"),
            settings={name: options.pop(name) for name in ("store", "namespace")},
            as_json=options.pop("as_json"),
        )
        if reach.api is not None and reach.token is not None and is_in_clear(reach.api):
            click.echo(IN_CLEAR, err=True)
        return function(reach=reach, **options)

    decorated: Any = call
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON; times by RFC 3339."),
        click.option(
            "--token", envvar="ONCEWARD_TOKEN", metavar="TOKEN", help="For --api.  [ONCEWARD_TOKEN]"
        ),
        click.option(
            "--api",
            envvar="ONCEWARD_API_URL",
            metavar="URL",
            help="Ask the REST API of a running instance instead of a store.  [ONCEWARD_API_URL]",
        ),
        setting_options("store", "namespace"),
        click.option(
            "--app", "app_", metavar="MODULE:APP", help="Use the store and the sources of this app."
        ),
    ):
        decorated = option(decorated)
    result: F = decorated
    return result


def acting(function: F) -> F:
    """Give a command the option that says who acts."""
    return click.option("--actor", metavar="NAME", help="Who asks, for the audit; by default you.")(function)


def actor_of(given: str | None) -> str:
    """Give who acts, for the audit."""
    if given is not None:
        return given
    try:
        return f"cli:{getpass.getuser()}"
    except (OSError, KeyError):  # a container's user may have no name
        return "cli"
