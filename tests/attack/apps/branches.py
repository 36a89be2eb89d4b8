"""Steps side by side: gather, task groups, wait, timeouts; async and plain bodies."""

import asyncio
import threading

from ledger import note

from onceward import App, Context, Permanent, Retry, StepFailed, SyncContext

app = App()


async def act(label: str, seconds: float = 0.02) -> str:
    note("start", label)
    await asyncio.sleep(seconds)
    note("end", label)
    return label


def act_plain(label: str, seconds: float = 0.02) -> str:
    note("start", label)
    threading.Event().wait(seconds)
    note("end", label)
    return label


@app.workflow
async def gathers(ctx: Context) -> list[str]:
    async def branch(i: int) -> str:
        await ctx.step.run("one", act, f"one {i}", 0.02 * (5 - i), item=i)
        await ctx.step.sleep("nap", 0.01 * i, item=i)
        return await ctx.step.run("two", act_plain, f"two {i}", item=i)

    found = await asyncio.gather(*(branch(i) for i in range(5)))
    await ctx.step.run("last", act, "last")
    return list(found)


@app.workflow
async def groups(ctx: Context) -> str:
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(ctx.step.run("part", act, f"part {i}", 0.02 * i, item=i)) for i in range(4)
        ]
    return " ".join(task.result() for task in tasks)


@app.workflow
async def races(ctx: Context) -> str:
    tasks = {
        asyncio.ensure_future(ctx.step.run(name, act, name, seconds))
        for name, seconds in (("fast", 0.02), ("slow", 0.3))
    }
    done, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    winner = next(iter(done)).result()
    after = await ctx.step.run(f"after {winner}", act, f"after {winner}")
    await asyncio.gather(*left)
    await ctx.step.run("last", act, "last")
    return f"{winner} {after}"


@app.workflow
async def timeouts(ctx: Context) -> str:
    first = await ctx.step.run("first", act, "first")
    try:
        async with asyncio.timeout(0.2):
            await ctx.step.run("long", act, "long", 1.0)
    except TimeoutError:
        outcome = "late"
    else:
        outcome = "in time"
    return f"{first} {outcome} {await ctx.step.run(outcome, act, outcome)}"


@app.workflow
async def completed_order(ctx: Context) -> list[str]:
    order = []
    tasks = [ctx.step.run(f"s{i}", act, f"s{i}", 0.03 * (3 - i)) for i in range(4)]
    for future in asyncio.as_completed(tasks):
        label = await future
        order.append(label)
        await ctx.step.run(f"saw {label}", act, f"saw {label}")
    return order


@app.workflow
def plain(ctx: SyncContext) -> list[str]:
    found = [ctx.step.run("x", act_plain, f"x {i}", item=i) for i in range(3)]
    found.append(ctx.step.run("y", act, "y"))
    ctx.step.sleep("nap", "120ms")
    try:
        ctx.step.run("refused", refuse, retry=Retry(max_tries=1))
    except StepFailed as failed:
        found.append(failed.message)
    found.append(ctx.step.run("z", act_plain, "z"))
    return found


def refuse() -> None:
    note("refused")
    raise Permanent("no")


@app.workflow
async def retried_in_branches(ctx: Context) -> list[int]:
    async def flaky(i: int) -> int:
        note("try", i, ctx.try_number)
        if ctx.try_number < 3:
            raise OSError(i)
        return i

    return list(
        await asyncio.gather(
            *(
                ctx.step.run("f", flaky, i, item=i, retry=Retry(max_tries=5, base="60ms", cap="60ms"))
                for i in range(4)
            )
        )
    )
