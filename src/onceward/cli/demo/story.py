"""Directs the story: starts the processes, lets one be killed, starts it again, counts.

Everything is real: processes, sockets, signatures, SIGKILL, a store on a disk. The director learns
what happened from exit statuses, replies, the payment process's ledger and the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from onceward.app import App
from onceward.cli.demo import payments
from onceward.cli.demo.exchange import Unanswered, exchange
from onceward.cli.demo.plan import Plan, planned
from onceward.cli.demo.process import StoryProcess
from onceward.cli.demo.screen import Screen
from onceward.cli.demo.sender import Sender
from onceward.cli.demo.verdict import Counted
from onceward.core.errors import ConfigError
from onceward.core.nouns import counted
from onceward.core.setting import PREFIX
from onceward.core.settings import SETTINGS, resolve
from onceward.core.states import TERMINAL, RunState
from onceward.sources import GitHub, Stripe
from onceward.testing.server_home import free_port

SHOP = "onceward.cli.demo.shop:app"
FAILPOINT = "step.after_body@charge card:kill"
DOWN_SECONDS = 0.3
"""How long nobody starts the shop again, so that some deliveries find the door closed."""

STARTED_SECONDS = 20.0
KILLED_SECONDS = 20.0
ENDED_SECONDS = 30.0
POLL_SECONDS = 0.05
ROWS_MAX = 1_000


@dataclass(frozen=True)
class Options:
    """What the story is told with.

    Attributes:
        seed: decides the plan.
        store: ``sqlite``, ``postgres``, or a store's URL.
        sabotage: what is taken out: ``no-dedup``, ``no-key`` or nothing.
        keep: leave the folder behind.
    """

    seed: int
    store: str = "sqlite"
    sabotage: str = ""
    keep: bool = False


@dataclass(frozen=True)
class Told:
    """A story that was told to its end.

    Attributes:
        folder: where store, ledger and logs were, and still are if they were to be kept.
        store: the store's URL for people.
        namespace: in which of its namespaces the story is.
    """

    plan: Plan
    counted: Counted
    folder: Path
    store: str
    namespace: str


async def tell(options: Options, screen: Screen) -> Told:
    """Tell the story.

    Raises:
        OncewardError: it could not be told to its end, so nothing can be said.
    """
    # The director is a process on the store as well; what it does there is no part of the story.
    logging.getLogger("onceward").addHandler(logging.NullHandler())
    # What is wrong with a variable is told now and not when the director opens the store.
    resolve(SETTINGS, {}, os.environ)
    folder = Path(tempfile.mkdtemp(prefix="onceward-demo-"))
    try:
        async with _store(options.store, folder, screen) as store, _Stage(options, folder, store) as stage:
            return await _Story(options, screen, stage).tell()
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)


# --- what it plays on --------------------------------------------------------------------------


@dataclass(frozen=True)
class _Store:
    """Where the shop keeps things: its URL, and a namespace that nobody else uses."""

    url: str
    shown: str
    namespace: str = "default"


@contextlib.asynccontextmanager
async def _store(wanted: str, folder: Path, screen: Screen) -> AsyncIterator[_Store]:
    if wanted == "sqlite":
        yield _Store(f"sqlite:///{folder}/shop.db", "SQLite")
    elif wanted == "postgres":
        _need_driver()
        from onceward.testing.servers import PostgresServer

        screen.now("starting a PostgreSQL of its own")
        server = PostgresServer()
        await asyncio.to_thread(server.start)
        try:
            screen.say("A PostgreSQL server of its own runs, with durable commits.")
            yield _Store(server.create_database("shop"), "PostgreSQL")
        finally:
            server.stop()
    else:
        from onceward.core.store_url import parse

        yield _Store(wanted, parse(wanted).show(), f"demo-{secrets.token_hex(6)}")


def _need_driver() -> None:
    if find_spec("psycopg") is None:
        raise ConfigError(
            "PostgreSQL's driver is not installed.",
            means="The story cannot be told on PostgreSQL.",
            todo=f"Install it: {sys.executable} -m pip install 'onceward[postgres]'",
        )


class _Stage:
    """The processes and where they are; leaves none of them behind.

    Args:
        options: what is taken out.
        folder: for ledger, receipts and logs.
        store: the shop's.
    """

    def __init__(self, options: Options, folder: Path, store: _Store) -> None:
        self.folder = folder
        self.store = store
        self.port = free_port()
        self.stripe_secret = f"whsec_{secrets.token_urlsafe(24)}"
        self.github_secret = secrets.token_urlsafe(24)
        self._sabotage = options.sabotage
        self._payments_port = 0
        self._processes: list[StoryProcess] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        for process in self._processes:
            await process.kill()

    async def start_payments(self) -> int:
        """Start the payment process and give its port."""
        command = [sys.executable, "-I", payments.__file__, str(self.folder / "ledger.jsonl")]
        process = await self._start("The payment process", command, {})
        self._payments_port = int(await process.first_line())
        return self._payments_port

    async def start_shop(self, failpoint: str = "") -> StoryProcess:
        """Start the shop as a user would, and wait until it is healthy."""
        command = [sys.executable, "-m", "onceward", "serve", SHOP]
        command += ["--host", "127.0.0.1", "--port", str(self.port), "--parent-fd", "0"]
        env = {
            "ONCEWARD_STORE": self.store.url,
            "ONCEWARD_NAMESPACE": self.store.namespace,
            # The same name after the restart: PostgreSQL gives the runs back at once.
            "ONCEWARD_INSTANCE": "shop",
            # Nothing of the story leaves this machine, whatever proxy it is set to use.
            "no_proxy": "127.0.0.1",
            "SHOP_PAYMENTS_URL": f"http://127.0.0.1:{self._payments_port}",
            "SHOP_FOLDER": str(self.folder),
            "SHOP_STRIPE_SECRET": self.stripe_secret,
            "SHOP_GITHUB_SECRET": self.github_secret,
            "SHOP_BREAK": self._sabotage,
            **({"ONCEWARD_FAILPOINT": failpoint} if failpoint else {}),
        }
        shop = await self._start("The shop", command, env)
        deadline = time.monotonic() + STARTED_SECONDS
        while not await self._is_healthy():
            if shop.status is not None:
                raise shop.failure(f"ended with status {shop.status} when it started")
            if time.monotonic() > deadline:
                raise shop.failure(f"was not healthy within {STARTED_SECONDS:.0f} s")
            await asyncio.sleep(POLL_SECONDS)
        return shop

    async def counts(self) -> Mapping[str, Any]:
        """Ask the payment process what its ledger says."""
        reply = await exchange(self._payments_port, "GET", "/counts")
        counts: Mapping[str, Any] = reply.json()
        return counts

    async def _is_healthy(self) -> bool:
        try:
            return (await exchange(self.port, "GET", "/healthz", seconds=2)).status == 200
        except Unanswered:
            return False

    async def _start(self, name: str, command: list[str], env: Mapping[str, str]) -> StoryProcess:
        # What the user set for his own app is not for this one.
        kept = {key: value for key, value in os.environ.items() if not key.startswith(PREFIX)}
        log = self.folder / f"{name.split()[-1].lower()}.log"
        process = await StoryProcess.start(name, command, log=log, env={**kept, **env})
        self._processes.append(process)
        return process


# --- what happens ------------------------------------------------------------------------------


class _Story:
    def __init__(self, options: Options, screen: Screen, stage: _Stage) -> None:
        self._screen = screen
        self._stage = stage
        self._plan = planned(options.seed, int(time.time()))
        sources = (Stripe(secrets=stage.stripe_secret), GitHub(secrets=stage.github_secret))
        strangers = (Stripe(secrets=f"whsec_{'0' * 32}"), GitHub(secrets="0" * 32))
        self._sender = Sender(
            stage.port,
            {source.name: source for source in sources},
            {source.name: source for source in strangers},
        )

    async def tell(self) -> Told:
        plan, screen, stage = self._plan, self._screen, self._stage
        screen.now("starting the payment process and the shop")
        port = await stage.start_payments()
        screen.say(f"The payment process runs (port {port}) and writes down what it is asked.")
        shop = await stage.start_shop(f"{FAILPOINT}:{plan.kill_at}")
        screen.say(f"The shop runs (port {stage.port}) on {stage.store.shown}.")
        screen.say(
            f"Stripe and GitHub send {len(plan.events)} events, {len(plan.amounts)} of them paid orders,",
            f"in {plan.count(genuine=True)} deliveries. "
            f"Strangers send {plan.count(genuine=False)}: {', '.join(plan.wrongs)}.",
        )
        sending = asyncio.create_task(self._sender.send(plan.deliveries))
        watching = asyncio.create_task(self._watch())
        try:
            status = await self._killed(shop)
            shop = await self._start_again()
            await self._send_again(await sending)
        finally:
            sending.cancel()
            watching.cancel()
        return Told(
            plan, await self._counted(shop, status), stage.folder, stage.store.shown, stage.store.namespace
        )

    async def _watch(self) -> None:
        """Keep the moving line true while deliveries are on their way."""
        tally = self._sender.tally
        while True:
            self._screen.now(
                f"{tally.delivered} answered 2xx, {sum(tally.refused.values())} refused, "
                f"{tally.unanswered} without an answer"
            )
            await asyncio.sleep(POLL_SECONDS)

    async def _killed(self, shop: StoryProcess) -> int:
        try:
            async with asyncio.timeout(KILLED_SECONDS):
                status = await shop.ended()
        except TimeoutError:
            raise shop.failure(f"did not come to charge {self._plan.kill_at}") from None
        if status != -signal.SIGKILL:
            raise shop.failure(f"ended with status {status}, not by SIGKILL")
        counts = await self._stage.counts()
        self._screen.say(
            f"SIGKILL. The shop dies: charge {self._plan.kill_at} is answered and not yet saved.",
            f"By now the payment process has made {counts['made']} charges.",
            style="bold red",
        )
        return status

    async def _start_again(self) -> StoryProcess:
        await asyncio.sleep(DOWN_SECONDS)
        shop = await self._stage.start_shop()
        self._screen.say("The shop runs again and goes on from what its store holds.", style="green")
        return shop

    async def _send_again(self, missed: list[Any]) -> None:
        await self._sender.send_again(missed)
        if missed:
            self._screen.say(f"{counted(len(missed), 'delivery', 'deliveries')} had no answer, sent again.")

    async def _counted(self, shop: StoryProcess, status: int) -> Counted:
        """Wait for every run's end, stop the shop, count."""
        stage = self._stage
        async with _observing(stage.store) as app:
            deadline = time.monotonic() + ENDED_SECONDS
            while True:
                runs = await app.runs(limit=ROWS_MAX)
                still = sum(run.state not in TERMINAL and run.state is not RunState.HELD for run in runs)
                if not still or time.monotonic() > deadline:
                    break
                self._screen.now(f"{still} of {counted(len(runs), 'run')} not ended yet")
                await asyncio.sleep(POLL_SECONDS)
            stopped = await shop.stop()
            if stopped != 0:
                raise shop.failure(f"ended with status {stopped} when it was asked to stop")
            runs, events = await app.runs(limit=ROWS_MAX), await app.events(limit=ROWS_MAX)
        counts = await stage.counts()
        self._screen.say(f"{counted(still, 'run')} did not end." if still else "Every run has ended.")
        return Counted(
            tally=self._sender.tally,
            events=len(events),
            runs=len(runs),
            completed=sum(run.state is RunState.COMPLETED for run in runs),
            asked=counts["asked"],
            made=counts["made"],
            amount=counts["amount"],
            orders=counts["orders"],
            kills=int(status == -signal.SIGKILL),
        )


@contextlib.asynccontextmanager
async def _observing(store: _Store) -> AsyncIterator[App]:
    """Open the store beside the shop, to look only."""
    app = App(store.url, namespace=store.namespace)
    await app.open(runs=False)
    try:
        yield app
    finally:
        await app.close()
