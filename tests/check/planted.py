"""Code with one thing wrong in it, and code that is right: what the check must find, and what not."""

from __future__ import annotations

PAUSE = "time." + "sleep"  # in parts: the tests are searched for sleeps

HEAD = """
import asyncio
import datetime as dt
import functools
import os
import random
import secrets
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from threading import Lock
from time import time as clock
from uuid import uuid4

import aiohttp
import asyncpg
import httpx
import psycopg
import redis
import requests
import sqlite3
import stripe
from shop.gateways import gateway
from shop.models import Order as Row
from shop.database import pool
from sqlalchemy import create_engine, select
from sqlalchemy.orm import sessionmaker

from onceward import App, Context, Event, StepFailed, SyncContext

app = App("sqlite:///shop.db")
engine = create_engine("sqlite:///shop.db")
Maker = sessionmaker(engine)
web = httpx.AsyncClient()
SEEN: list[str] = []


class Mailer:
    def __init__(self) -> None:
        self.session = requests.Session()

    def send(self, to: str) -> None:
        self.session.post("https://mail.example", json={"to": to})  # by mailer.send


mailer = Mailer()


@dataclass
class Draft:
    text: str
    id: uuid.UUID = field(default_factory=uuid.uuid4)  # by Draft("hello")


class Plain:
    pass


def stamp() -> float:
    return time.time()  # by stamp()


def outer() -> float:
    return inner()


def inner() -> float:
    return time.monotonic()  # by outer()


async def notify(ctx: Context, order: str) -> None:
    await ctx.step.run("notify", print, order)


async def load(order: str) -> str:
    return order


@app.step
async def charge(order: str) -> str:
    return order


@app.workflow
async def other(ctx: Context, order: str) -> str:
    return await charge(order)


@app.workflow(on="order.paid")
async def flow(ctx: Context, event: Event) -> None:
"""

# What is wrong in an async workflow, by rule: each line ends up alone in `flow`, and is the finding
# unless another line says "# by" and the call.
PLANTED: dict[str, list[str]] = {
    "time-outside-step": [
        "t = time.time()",
        "t = clock()",
        "t = time.monotonic()",
        "t = datetime.now(UTC)",
        "t = dt.datetime.now()",
        "t = dt.datetime.utcnow()",
        "t = date.today()",
        "t = time.strftime('%Y')",
        "t = time.localtime().tm_year",
        "t = asyncio.get_running_loop().time()",
        "t = f'{datetime.now():%Y}'",
        "if datetime.now().hour > 12: pass",
        "await ctx.step.run('load', load, str(time.time()))",
        "t = [time.time() for _ in range(3)]",
        "t = (lambda: time.time())()",
        "t = list(map(lambda _: time.time(), [1]))",
        "now = datetime.now; t = now()",
        "stamp()",
        "outer()",
        "await asyncio.to_thread(stamp)",
    ],
    "random-outside-step": [
        "r = random.random()",
        "r = random.choice(['a', 'b'])",
        "random.shuffle(event.payload)",
        "r = random.Random().random()",
        "r = secrets.token_hex()",
        "r = os.urandom(8)",
        "r = random.SystemRandom().randint(1, 2)",
    ],
    "uuid-outside-step": [
        "i = uuid.uuid4()",
        "i = str(uuid4())",
        "i = uuid.uuid1().hex",
        "i = {'id': uuid4()}",
        'Draft("hello")',
    ],
    "environment-outside-step": [
        "e = os.environ['REGION']",
        "e = os.environ.get('REGION')",
        "e = os.getenv('REGION')",
        "e = 'X' in os.environ",
        "e = os.getpid()",
    ],
    "http-outside-step": [
        "requests.post('https://a.example')",
        "r = requests.get('https://a.example').json()",
        "httpx.get('https://a.example')",
        "await web.get('https://a.example')",
        "async with httpx.AsyncClient() as client: await client.post('https://a.example')",
        "async with aiohttp.ClientSession() as session: await session.get('https://a.example')",
        "s = requests.Session(); s.put('https://a.example')",
        "mailer.send('ann')",
        "await asyncio.to_thread(requests.get, 'https://a.example')",
        "stripe.PaymentIntent.create(amount=1)",
        "await gateway.http_client.post('https://a.example')",
    ],
    "database-outside-step": [
        "sqlite3.connect('shop.db')",
        "psycopg.connect('')",
        "conn = await asyncpg.connect('')",
        "engine.connect().execute(select(1))",
        "with Maker() as session: session.add(event)",
        "await pool.fetch('SELECT 1')",
        "Row.objects.create(id=1)",
        "Row.objects.filter(id=1).update(paid=True)",
        "gateway.cursor.execute('SELECT 1')",
    ],
    "file-outside-step": [
        "open('a.txt', 'w')",
        "with open('a.txt') as file: pass",
        "Path('a.txt').write_text('a')",
        "(Path('a') / 'b.txt').read_text()",
        "os.remove('a.txt')",
        "shutil.rmtree('a')",
        "b = Path('a').exists()",
    ],
    "process-outside-step": ["subprocess.run(['ls'])", "os.system('ls')", "subprocess.Popen(['ls'])"],
    "network-outside-step": ["redis.Redis().set('a', 1)", "r = redis.from_url('').get('a')"],
    "sleep-outside-step": ["await asyncio.sleep(60)"],
    "blocking-call": [f"{PAUSE}(1)"],
    "emit-outside-step": ["await app.emit('order.paid', {})", "app.sync.emit('order.paid', {})"],
    "start-outside-step": ["await app.start(other, 'A-1')"],
    "missing-await": [
        "ctx.step.run('load', load, 'a')",
        "ctx.step.sleep('a while', '1h')",
        "charge('a')",
        "charge.item('a')('a')",
        "notify(ctx, 'a')",
        "x = ctx.step.run('load', load, 'a'); await ctx.step.run('next', load, x)",
        "x = ctx.step.uuid('id')",
        "if ctx.step.run('load', load, 'a'): pass",
        "x = ctx.step.run('load', load, 'a').upper()",
        "x = f\"{ctx.step.uuid('id')}\"",
    ],
    "repeated-step-name": [
        "await ctx.step.run('a', load, '1'); await ctx.step.run('a', load, '2')",
        "await asyncio.gather(ctx.step.run('a', load, '1'), ctx.step.run('a', load, '2'))",
        "await asyncio.gather(*(ctx.step.run('a', load, x) for x in event.payload))",
        "await asyncio.gather(*[charge(x) for x in event.payload])",
        "await asyncio.gather(charge('a'), charge('b'))",
        "[await ctx.step.run('a', load, x) for x in event.payload]",
    ],
    "step-inside-step": [
        "await ctx.step.run('a', lambda: ctx.step.run('b', load, 'x'))",
    ],
    "called-not-given": [
        "await ctx.step.run('a', load('x'))",
        "await ctx.step.run('a', charge('x'))",
        "await ctx.step.run('a', charge.item('x')('x'))",
    ],
    "workflow-called": ["await other(ctx, 'a')"],
    "global-state": ["SEEN.append('a')", "SEEN[0] = 'a'", "global SEEN; SEEN = []"],
    "unstorable-result": [
        "await ctx.step.run('a', lambda: (1, 2))",
        "await ctx.step.run('a', lambda: {1, 2})",
        "await ctx.step.run('a', lambda: [Plain()])",
        "await ctx.step.run('a', lambda: {'at': datetime.now()})",
    ],
    "effect-in-finally": [],
    "step-called-wrong": [],
    "step-name-missing": ["await ctx.step.run(len_of, 'a')".replace("len_of", "lambda text: len(text)")],
    "wrong-context": [],
    "swallowed-stop": [],
    "set-order": [],
    "unstorable-annotation": [],
}

# What takes more than a line: the rule, and the code below HEAD, the finding marked with "# here".
# PAUSE stands for `time` dot `sleep`.
BLOCKS: list[tuple[str, str]] = [
    (
        "step-called-wrong",
        """
    plain_step(1)  # here

@app.step
def plain_step(number: int) -> int:
    return number
""",
    ),
    (
        "step-called-wrong",
        """
    pass

@app.step
async def async_step(number: int) -> int:
    return number

@app.workflow
def plain_flow(ctx: SyncContext) -> None:
    async_step.item("a")(1)  # here
""",
    ),
    (
        "wrong-context",
        """
    pass

@app.workflow
def plain_flow(ctx: Context) -> None:  # here
    pass
""",
    ),
    (
        "time-outside-step",
        """
    class Order:
        @property
        def age(self) -> float:
            return clock()  # here

    print(Order().age)
""",
    ),
    (
        "uuid-outside-step",
        """
    class Order:
        @functools.cached_property
        def token(self) -> str:
            return str(uuid4())  # here

    order = Order()
    print(order.token.upper())
""",
    ),
    (
        "http-outside-step",
        """
    class Gateway:
        def __init__(self) -> None:
            self.session = requests.Session()

        def __call__(self) -> None:
            self.session.post("https://a.example")  # here

    gate = Gateway()
    gate()
""",
    ),
    (
        "file-outside-step",
        """
    class Notes:
        def __getitem__(self, name: str) -> str:
            return Path(name).read_text()  # here

    print(Notes()["a"])
""",
    ),
    (
        "effect-in-finally",
        """
    class Lock:
        def __enter__(self) -> None:
            pass

        def __exit__(self, *error: object) -> None:
            requests.delete("https://a.example/lock")  # here

    with Lock():
        await charge("a")
""",
    ),
    (
        "time-outside-step",
        """
    def timed(function):
        @functools.wraps(function)
        async def inner(*args):
            began = datetime.now()  # here
            return began, await function(*args)

        return inner

    @timed
    async def weigh(order: str) -> int:
        return 1

    await weigh("a")
""",
    ),
    (
        "http-outside-step",
        """
    ask = functools.partial(requests.get, "https://a.example")
    ask()  # here
""",
    ),
    (
        "random-outside-step",
        """
    def draw(least: int, most: int) -> int:
        return random.randint(least, most)  # here

    functools.partial(draw, 1)(6)
""",
    ),
    (
        "called-not-given",
        """
    def look(order: str) -> str:
        return order

    await ctx.step.run("look", look("a"))  # here
""",
    ),
    (
        "called-not-given",
        """
    def look(order: str):
        return {"order": order}

    await ctx.step.run("look", look("a"))  # here
""",
    ),
    (
        "effect-in-finally",
        """
    try:
        await charge("a")
    finally:
        requests.post("https://a.example")  # here
""",
    ),
    (
        "effect-in-finally",
        """
    try:
        await charge("a")
    finally:
        await web.delete("https://a.example")  # here
""",
    ),
    (
        "swallowed-stop",
        """
    try:
        await charge("a")
    except:  # here
        pass
""",
    ),
    (
        "swallowed-stop",
        """
    try:
        await charge("a")
    except (ValueError, asyncio.CancelledError):  # here
        print("never mind")
""",
    ),
    (
        "set-order",
        """
    articles = {line["article"] for line in event.payload}
    for article in articles:  # here
        await ctx.step.run("ship", load, article, item=article)
""",
    ),
    (
        "repeated-step-name",
        """
    for line in event.payload:
        await ctx.step.run("ship", load, line["id"])  # here
""",
    ),
    (
        "repeated-step-name",
        """
    async def branch(order: str) -> None:
        await ctx.step.run("in branch", load, order)  # here

    async with asyncio.TaskGroup() as group:
        group.create_task(branch("a"))
        group.create_task(branch("b"))
""",
    ),
    (
        "repeated-step-name",
        """
    async def branch(order: str) -> None:
        await ctx.step.run("in branch", load, order)  # here

    await asyncio.gather(*map(branch, event.payload))
""",
    ),
    (
        "time-outside-step",
        """
    async def branch(order: str) -> float:
        return time.time()  # here

    await asyncio.gather(branch("a"))
""",
    ),
    (
        "blocking-call",
        """
    async def body() -> str:
        return requests.get("https://a.example").text  # here

    await ctx.step.run("body", body)
""",
    ),
    (
        "step-inside-step",
        """
    async def body() -> None:
        await ctx.step.run("inner", load, "a")  # here

    await ctx.step.run("body", body)
""",
    ),
    (
        "unstorable-annotation",
        """
    pass

@app.step
def path() -> Path:  # here
    return Path()
""",
    ),
    (
        "unstorable-annotation",
        """
    pass

@app.step
def locked() -> dict[tuple[int, int], str]:  # here
    return {}
""",
    ),
    (
        "unstorable-annotation",
        """
    pass

@app.workflow
async def odd(ctx: Context, thing: Plain | None) -> None:  # here
    pass
""",
    ),
    (
        "unstorable-annotation",
        """
    def rows() -> "Iterator[int]":  # here
        yield 1

    await ctx.step.run("rows", rows)
""",
    ),
    (
        "unstorable-annotation",
        """
    @dataclass
    class Kept:
        lock: Lock

    async def keep() -> list[Kept]:  # here
        return []

    await ctx.step.run("keep", keep)
""",
    ),
    (
        "unstorable-annotation",
        """
    await ctx.step.run("either", either)

@dataclass
class Card:
    id: str

@dataclass
class Bank:
    id: str

async def either() -> Card | Bank:  # here
    return Card("a")
""",
    ),
    (
        "sleep-outside-step",
        """
    pass

@app.workflow
def plain(ctx: SyncContext) -> None:
    PAUSE(1)  # here
""",
    ),
    (
        "http-outside-step",
        """
    pass

def plain(ctx: SyncContext) -> None:
    requests.get("https://a.example")  # here

app.workflow(name="plain flow")(plain)
""",
    ),
    (
        "time-outside-step",
        """
    pass

def make(app: App) -> None:
    @app.workflow
    async def nested(ctx: Context) -> float:
        return time.time()  # here
""",
    ),
    (
        "uuid-outside-step",
        """
    step = ctx.step
    await step.run("load", load, str(uuid4()))  # here
""",
    ),
]

SILENT: list[str] = [
    "t = await ctx.step.now('t')",
    "t = await ctx.step.run('t', time.time)",
    "t = await ctx.step.run('t', lambda: time.time())",
    "t = await ctx.step.run('t', stamp)",
    "t = datetime.fromtimestamp(0, UTC)",
    "t = datetime(2026, 1, 1, tzinfo=UTC) + dt.timedelta(days=1)",
    "t = time.strftime('%Y', time.gmtime(0))",
    "r = random.Random(7).random()",
    "i = uuid.uuid5(uuid.NAMESPACE_URL, 'a')",
    "i = uuid.UUID(event.payload['id'])",
    "Draft('hello', uuid.UUID(int=0))",
    "Draft('hello', id=uuid.UUID(int=0))",
    "await asyncio.sleep(0)",
    "await ctx.step.run('post', web.post, 'https://a.example')",
    "await ctx.step.run('post', requests.post, 'https://a.example')",
    "await ctx.step.run('mail', mailer.send, 'ann')",
    "await ctx.step.run('mail', functools.partial(mailer.send, 'ann'))",
    "await ctx.step.emit('paid', 'order.paid', {}); await ctx.step.start('more', other, 'a')",
    "x = await ctx.step.call('more', other, 'a')",
    "await notify(ctx, 'a')",
    "await charge('a'); await charge('b')",
    "await asyncio.gather(charge.item('a')('a'), charge.item('b')('b'))",
    "await asyncio.gather(*(ctx.step.run('a', load, x, item=x) for x in event.payload))",
    "await asyncio.gather(*(charge.item(x)(x) for x in event.payload))",
    "a = charge('a'); b = ctx.step.run('b', load, 'b'); await asyncio.gather(a, b)",
    "tasks = [charge.item(x)(x) for x in event.payload]; await asyncio.gather(*tasks)",
    "a = asyncio.create_task(charge('a')); await a",
    "x = event.payload.get('a'); y = event.payload.pop('b', None)",
    "seen: list[str] = []; seen.append('a')",
    "query = select(1).where(True)",
    "path = Path('a') / 'b'; name = path.with_suffix('.c').name",
    "path = os.path.join('a', 'b')",
    "for x in sorted({1, 2}): await ctx.step.run('a', load, str(x), item=x)",
    "total = sum({1, 2})",
    "for n in range(3): await ctx.step.run('poll', load, str(n))",
    "while await ctx.step.run('poll', load, 'a'): await ctx.step.sleep('pause', '1m')",
    "await (ctx.step.run('a', load, '1') if event.payload else ctx.step.run('b', load, '2'))",
    "text = 'a'.replace('b', 'c'); session = {}; session.get('a')",
    "print('a'); logged = repr(event)",
    "x = await ctx.step.run('a', load, await ctx.step.run('b', load, 'x'))",
    "async with asyncio.timeout(5): await charge('a')",
    "async with asyncio.TaskGroup() as group: group.create_task(charge('a'))",
    "hours = [line['time'] for line in event.payload]",
    "answer = await ctx.step.run('both', lambda: [1, {'a': None}])",
]

SILENT_BLOCKS: list[str] = [
    """
    await async_step(1)

    def body() -> int:
        return plain_step(2)

    await ctx.step.run("body", body)
    await ctx.step.run("plain", plain_step, 3)

@app.step
def plain_step(number: int) -> int:
    return number

@app.step
async def async_step(number: int) -> int:
    return number

@app.workflow
def plain_flow(ctx: SyncContext) -> None:
    plain_step(4)
    ctx.step.run("async", async_step, 5)
""",
    """
    def loader(order: str):
        def load_it() -> str:
            return order

        return load_it

    def made(order: str) -> "Callable[[], str]":
        return functools.partial(load, order)

    await ctx.step.run("one", loader("a"))
    await ctx.step.run("two", made("a"))
    await ctx.step.run("three", functools.partial(load, "a"))
""",
    """
    def logged(function):
        @functools.wraps(function)
        def inner(*args):
            print(args)
            return function(*args)

        return inner

    class Order:
        @property
        def label(self) -> str:
            return "a"

        def __getitem__(self, name: str) -> str:
            return name

        def __call__(self) -> str:
            return str(uuid4())

        def __enter__(self) -> "Order":
            return self

        def __exit__(self, *error: object) -> None:
            print(error)

    @logged
    def name_of(order: Order) -> str:
        return order.label + order["a"]

    with Order() as order:
        name_of(order)
    await ctx.step.run("id", order)
""",
    """
    if event.payload:
        await ctx.step.run("ship", load, "a")
    else:
        await ctx.step.run("ship", load, "b")
""",
    """
    if event.payload:
        await ctx.step.run("ship", load, "a")
        return
    await ctx.step.run("ship", load, "b")
""",
    """
    match event.payload:
        case 1:
            await ctx.step.run("ship", load, "a")
        case _:
            await ctx.step.run("ship", load, "b")
""",
    """
    try:
        await charge("a")
    except StepFailed:
        await ctx.step.run("give up", load, "a")
    except Exception:
        raise
    finally:
        await ctx.step.run("tidy", load, "a")
""",
    """
    try:
        await charge("a")
    except asyncio.CancelledError:
        print("stopping")
        raise
""",
    """
    async def body() -> str:
        async with httpx.AsyncClient() as client:
            await client.post("https://a.example", headers={"at": str(time.time())})
        await asyncio.sleep(1)
        await app.emit("order.paid", {})
        return str(uuid4())

    def plain() -> tuple[int, set[str]]:
        PAUSE(1)
        return 1, {requests.get("https://a.example").text}

    await ctx.step.run("body", body)
    await ctx.step.run("plain", plain)
""",
    """
    pass

class Kind:
    def now(self) -> int:
        return 1

def not_a_workflow() -> float:
    SEEN.append("a")
    return time.time() + random.random()

@app.workflow
async def quiet(ctx: Context, lines: list[Draft], at: datetime, key: dict[int, uuid.UUID] | None) -> set[str]:
    Kind().now()
    return {"a"}
""",
]
